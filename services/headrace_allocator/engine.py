"""The decisions of the allocator, message by message.

All state is rebuilt from the nodes' heartbeats, the ledger's word and the snapshots of fair_share; nothing is saved. While it is
recovering (until every node that was enrolled and not drained at its start has reported, or lost its lease) jobs that a former
allocator may have given out stay in doubt, and usage is published as incomplete.

Moments come in as arguments: `now_s` of a steady clock for lengths of time, `now_ms` of the wall clock for records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.ids import NodeName, OperationId, TreeName
from headrace.pools.node_filter import matches, parse_formula
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import (
    Heartbeat,
    JobSlot,
    Orders,
)
from headrace.wire.ledger import LiveOperation, ReportedEnd
from headrace.wire.log import (
    Event,
)
from headrace.wire.nodes import NodeRecord
from headrace.wire.snapshots import ElementKind, ShareItem, UsageFrame, UsageItem
from headrace_allocator.decision.placing import Scheduler
from headrace_allocator.effects import Answer, Effect, NudgeNode, Release, Report, StepDown
from headrace_allocator.facts.facts import Books, Node, NodeStatus, OperationBook, Sent
from headrace_allocator.facts.ledger import OperationsDesk
from headrace_allocator.facts.limits import amounts_of_limits
from headrace_allocator.facts.reconcile import Findings, lost_end, reconcile
from headrace_allocator.facts.recovery import Recovery
from headrace_allocator.heartbeat_answer import OrdersDesk, Timing

__all__ = ["AllocatorEngine"]


class AllocatorEngine:
    """One tree's allocator of one term."""

    def __init__(self, tree: TreeName, term: int, timing: Timing) -> None:
        self.tree = tree
        self.term = term
        self.timing = timing
        self.books = Books()
        self.scheduler = Scheduler(self.books)
        self.recovery = Recovery()
        self._desk = OperationsDesk(self.books, self.scheduler, self.recovery, tree, term)
        self._orders = OrdersDesk(self.books, self.scheduler, self.recovery, timing, term)
        #: Heartbeats that were void: repeated, overtaken, of a former life of the agent.
        self.void_heartbeats = 0
        self.heartbeats = 0
        self._node_filter = ""

    # --- operations -----------------------------------------------------------------------------------------------

    def on_operations(self, operations: Iterable[LiveOperation]) -> list[Effect]:
        """Everything live, as the ledger has it; what is known already keeps its slots, what is not there is over."""
        return self._desk.on_operations(operations) + self._finish_recovery()

    def on_events(self, events: Iterable[Event]) -> list[Effect]:
        """What the log recorded. An event that is known already changes nothing."""
        return self._desk.on_events(events)

    def on_drawn(self, operation: OperationId, below: int | None) -> list[Effect]:
        """The ledger's answer to a `Draw`; None: it could not be had, it is asked again on the next occasion."""
        return self._desk.on_drawn(operation, below)

    def on_recorded(self, ends: Iterable[ReportedEnd]) -> list[Effect]:
        """The ledger has these ends; their nodes may forget them with the next answer."""
        for one in ends:
            node = self.books.nodes.get(one.node)
            if node is not None and one.end.key in node.reporting:
                node.reporting.discard(one.end.key)
                node.recorded.add(one.end.key)
        return []

    # --- shares ---------------------------------------------------------------------------------------------------

    def on_shares(
        self, items: Mapping[str, ShareItem], changed: Iterable[str], total: Resources = ZERO
    ) -> list[Effect]:
        """New fair shares of operations, and pools with limits, of a cluster of `total`. Places in the order are found by `refresh`."""
        effects: list[Effect] = []
        limits = self.books.limits
        pools = (items[name] for name in changed if name.startswith("/") and name in items)
        if not all(limits.knows(pool, total) for pool in pools if pool.kind is ElementKind.POOL):
            limits.set_tree(*amounts_of_limits(items, total), self.books.operations.values())
        limits.wake_freed()
        for woken in limits.woken:
            self.scheduler.mark(woken)
        limits.woken.clear()
        for name in changed:
            operation = self.books.operations.get(OperationId(name))
            item = items.get(name)
            if operation is None or item is None:
                continue
            first = max(operation.fair_share) == 0.0
            operation.fair_share = item.fair_share.total
            operation.demand_share = item.demand_share
            self.scheduler.mark(operation.id)
            if first:
                self.scheduler.refresh(operation)
                effects += self._desk.nudges(operation)
        return effects

    def refresh(self, most: int) -> bool:
        """Gives up to `most` operations their new place in the order; true while there are more to do."""
        return self.scheduler.refresh_marked(most)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def on_nodes(self, records: Mapping[NodeName, NodeRecord], now_s: float) -> list[Effect]:
        """The enrolled nodes of this tree, as the mirror has them."""
        effects: list[Effect] = []
        first = not self.recovery.nodes_known
        for name, record in records.items():
            node = self.books.nodes.get(name)
            if node is None:
                node = self.books.nodes[name] = Node(record, heard_s=now_s)
            elif node.record.drained != record.drained:
                effects.append(NudgeNode(name))
            node.record = record
            self._let_in(node)
        for name in [name for name in self.books.nodes if name not in records]:
            if not self.books.nodes[name].allocations:
                self.books.set_total(self.books.nodes[name], NodeStatus.OFFLINE, ZERO)
                del self.books.nodes[name]
                self.recovery.settle(name, lost=False)
        if first:
            self.recovery.begin(name for name, record in records.items() if not record.drained)
        return effects + self._finish_recovery()

    def on_node_filter(self, formula: str) -> None:
        """Which nodes the tree uses, by their tags. Raises `BadInput` for what is no formula, and then keeps the one before."""
        parse_formula(formula)
        self._node_filter = formula
        for node in self.books.nodes.values():
            self._let_in(node)

    def _let_in(self, node: Node) -> None:
        outside = not matches(self._node_filter, node.record.tags)
        if outside != node.outside:
            node.outside = outside
            self.books.set_total(node, node.status, node.reported)
            self.scheduler.mark_all()

    def on_heartbeat(self, heartbeat: Heartbeat, now_s: float, now_ms: int) -> list[Effect]:
        """The answer to one heartbeat, and what must be told elsewhere. No answer at all for a void one."""
        if heartbeat.term > self.term:
            return [StepDown(heartbeat.term)]
        node = self.books.nodes.get(heartbeat.node)
        if node is None:
            return [Answer(self._orders.not_enrolled(heartbeat))]
        if not self._is_newest(node, heartbeat):
            self.void_heartbeats += 1
            return []
        self.heartbeats += 1
        self._note(node, heartbeat, now_s)
        findings = reconcile(self.books, node, heartbeat, now_ms)
        if heartbeat.term == self.term:
            # It was sent after an answer of ours was obeyed: it is no late word of before, and former allocators' orders are void.
            self.recovery.settle(node.record.node, lost=False)
        effects = self._after_findings(node, findings)
        effects += self._finish_recovery()
        orders = self._orders.decide(node, heartbeat, findings)
        node.sent = Sent(orders)
        return [Answer(orders), *effects, *self._draws(orders)]

    def on_tick(self, now_s: float, now_ms: int) -> list[Effect]:
        """Once a second: nodes that fell silent, blocks that are still to be drawn, ended operations to release."""
        effects: list[Effect] = []
        for node in self.books.nodes.values():
            silent_s = now_s - node.heard_s
            silent_too_long = silent_s > self.timing.node_heartbeat_timeout_s
            if node.status is NodeStatus.ONLINE and silent_too_long:
                self.books.set_total(node, NodeStatus.OFFLINE, ZERO)
                self.scheduler.mark_all()
            if silent_s > self.timing.node_lease_s and not node.lease_lost:
                node.lease_lost = True
                self.recovery.settle(node.record.node, lost=True)
                effects += self._lose_node(node, now_ms)
        effects += self._finish_recovery()
        released = []
        for operation in self.books.operations.values():
            effects += self._desk.draw(operation)
            if self._desk.is_released(operation):
                operation.release_told = True
                released.append(operation.id)
        return [*effects, Release(released)] if released else effects

    def on_release_failed(self, operations: Iterable[OperationId]) -> None:
        """The ledger could not be told; it is told again."""
        for name in operations:
            if name in self.books.operations:
                self.books.operations[name].release_told = False

    # --- what is published ------------------------------------------------------------------------------------------

    def cut_usage(self, now_ms: int) -> tuple[UsageFrame, list[UsageItem], list[str]]:
        """The frame, the items that changed since the last cut, and the operations that are gone."""
        frame = UsageFrame(
            total=self.books.total,
            nodes=sum(node.status is NodeStatus.ONLINE for node in self.books.nodes.values()),
            complete=self.recovery.done,
            recovering=self.recovery.progress(),
            at_ms=now_ms,
        )
        touched, gone = self.books.touched, self.books.gone
        self.books.touched, self.books.gone = set(), set()
        items = [
            self._usage_item(self.books.operations[name]) for name in sorted(touched & self.books.operations.keys())
        ]
        return frame, items, sorted(gone - self.books.operations.keys())

    def statistics(self) -> dict[str, int]:
        return {
            "nodes": len(self.books.nodes),
            "operations": len(self.books.operations),
            "heartbeats": self.heartbeats,
            "void_heartbeats": self.void_heartbeats,
            "allocations_made": self._orders.allocations_made,
            **self.scheduler.order.statistics(),
        }

    def _usage_item(self, operation: OperationBook) -> UsageItem:
        size = operation.spec.resources
        pending = operation.slots.pending_count if operation.schedulable else 0
        reason = ""
        if pending and not operation.fits_somewhere:
            reason = "its jobs are larger than every node"
        return UsageItem(
            operation=operation.id,
            usage=operation.usage,
            precommit=operation.precommit,
            pending_jobs=pending,
            pending=ZERO if reason else size * pending,
            min_needed=size,
            running_jobs=operation.running_jobs,
            allocations=len(operation.allocations),
            unschedulable_reason=reason,
        )

    # --- heartbeats, step by step -----------------------------------------------------------------------------------

    def _is_newest(self, node: Node, heartbeat: Heartbeat) -> bool:
        if heartbeat.incarnation == node.incarnation:
            return heartbeat.seq > node.seq
        return heartbeat.incarnation not in node.former

    def _note(self, node: Node, heartbeat: Heartbeat, now_s: float) -> None:
        if heartbeat.incarnation != node.incarnation:
            node.new_incarnation(heartbeat.incarnation)
        node.seq = heartbeat.seq
        node.heard_s = now_s
        node.nudged = False
        node.lease_lost = False
        before = node.accepts_jobs
        node.state, node.isolation, node.trouble = heartbeat.state, heartbeat.isolation, heartbeat.trouble
        changed = self.books.set_total(node, NodeStatus.ONLINE, heartbeat.total)
        if changed or before != node.accepts_jobs:
            self.scheduler.mark_all()

    def _after_findings(self, node: Node, findings: Findings) -> list[Effect]:
        effects: list[Effect] = []
        if findings.ends:
            effects.append(Report([ReportedEnd(node.record.node, end) for end in findings.ends]))
        for name in findings.operations | {one.operation for one in node.allocations.values()}:
            operation = self.books.operations.get(name)
            if operation is not None:
                self.scheduler.refresh(operation)
        return effects

    def _draws(self, orders: Orders) -> list[Effect]:
        effects: list[Effect] = []
        for name in {start.operation for start in orders.start}:
            effects += self._desk.draw(self.books.operations[name])
        return effects

    # --- nodes, step by step ----------------------------------------------------------------------------------------

    def _lose_node(self, node: Node, now_ms: int) -> list[Effect]:
        """The lease is over: its runner has ended all jobs, others may run them."""
        ends: list[ReportedEnd] = []
        for allocation in list(node.allocations.values()):
            operation = self.books.operations.get(allocation.operation)
            if operation is not None and operation.spec.on_lost_node.value == "wait":
                continue
            for slot in list(allocation.slots.values()):
                reason = f"node {node.record.node} was silent for {self.timing.node_lease_s:g} s"
                end = lost_end(allocation.operation, slot, allocation.id, reason, now_ms)
                node.reporting.add(end.key)
                ends.append(ReportedEnd(node.record.node, end))
                if operation is not None:
                    operation.slots.end(slot.index, slot.attempt)
            allocation.slots.clear()
            self.books.remove(allocation)
        node.sent = None
        return [Report(ends)] if ends else []

    def _finish_recovery(self) -> list[Effect]:
        if not self.recovery.finish():
            return []
        effects: list[Effect] = []
        for operation in self.books.operations.values():
            if operation.slots.in_doubt:
                if self.recovery.lost_nodes:
                    effects += self._lose_doubtful(operation)
                else:
                    operation.slots.release_doubt()
            effects += self._desk.changed(operation)
        return effects

    def _lose_doubtful(self, operation: OperationBook) -> list[Effect]:
        """A node that may have run them lost its lease: the next attempt must be another one, durably, before it goes out."""
        ends = []
        node = NodeName(self.recovery.lost_nodes[0])
        for index, attempt in sorted(operation.slots.in_doubt.items()):
            end = lost_end(
                operation.id, JobSlot(index, attempt), "unknown", f"node {node} may have run it and is lost", 0
            )
            ends.append(ReportedEnd(node, end))
            operation.slots.end(index, attempt)
        return [Report(ends)]
