"""The decisions of the allocator, message by message.

All state is rebuilt from the nodes' heartbeats, the ledger's word and the snapshots of fair_share; nothing is saved. While it is
recovering (until every node that was enrolled and not drained at its start has reported, or lost its lease) jobs that a former
allocator may have given out stay in doubt, and usage is published as incomplete.

Moments come in as arguments: `now_s` of a steady clock for lengths of time, `now_ms` of the wall clock for records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId, TreeName
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import (
    AllocationState,
    Extend,
    Forget,
    Heartbeat,
    JobSlot,
    Orders,
    Start,
    TakeBack,
    TakeBackReason,
)
from headrace.wire.ledger import LiveOperation, ReportedEnd
from headrace.wire.log import (
    BlockDrawn,
    Event,
    JobsEnded,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
)
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import FINAL_STATES
from headrace.wire.snapshots import ShareItem, UsageFrame, UsageItem
from headrace_allocator.books import Allocation, Books, Node, NodeStatus, OperationBook, Sent
from headrace_allocator.effects import Answer, Draw, Effect, NudgeNode, Release, Report, StepDown
from headrace_allocator.reconcile import Findings, lost_end, reconcile
from headrace_allocator.recovery import Recovery
from headrace_allocator.scheduling import Scheduler

__all__ = ["AllocatorEngine", "Timing"]

#: Until the next heartbeat of a node whose word is awaited.
_RECOVERING_PACE_MS: Final = 50
#: Nodes that one operation's news may nudge at once.
_MOST_NUDGES: Final = 200


class Timing(msgspec.Struct, frozen=True):
    """Lengths of time that the engine judges by."""

    #: No heartbeat for this long: offline, its room leaves the total.
    node_heartbeat_timeout_s: float = 60.0
    #: No heartbeat for this long: its jobs are given to others.
    node_lease_s: float = 600.0
    #: The shortest time between two heartbeats of a node.
    shortest_pace_ms: int = 1_000
    #: Heartbeats a second of all nodes together, above which the pace slows down.
    heartbeats_per_s: int = 2_000


class AllocatorEngine:
    """One tree's allocator of one term."""

    def __init__(self, tree: TreeName, term: int, timing: Timing) -> None:
        self.tree = tree
        self.term = term
        self.timing = timing
        self.books = Books()
        self.scheduler = Scheduler(self.books)
        self.recovery = Recovery()
        self._arrivals = 0
        self._allocations_made = 0
        #: Operations whose place in the order is to be found anew, and whether that is so for all of them.
        self._dirty: dict[OperationId, None] = {}
        self._all_dirty = False
        self._shapes: frozenset[Resources] = frozenset()
        #: Heartbeats that were void: repeated, overtaken, of a former life of the agent.
        self.void_heartbeats = 0
        self.heartbeats = 0

    # --- operations -----------------------------------------------------------------------------------------------

    def on_operations(self, operations: Iterable[LiveOperation]) -> list[Effect]:
        """Everything live, as the ledger has it; what is known already keeps its slots, what is not there is over."""
        effects: list[Effect] = []
        live = {operation.operation: operation for operation in operations}
        for name in [name for name in self.books.operations if name not in live]:
            effects += self._forget_operation(name)
        for operation in live.values():
            if operation.operation in self.books.operations:
                effects += self._update_operation(operation)
            else:
                effects += self._add_operation(operation)
        self.recovery.operations_known = True
        return effects + self._finish_recovery()

    def on_events(self, events: Iterable[Event]) -> list[Effect]:
        """What the log recorded. An event that is known already changes nothing."""
        effects: list[Effect] = []
        for event in events:
            operation = self.books.operations.get(event.operation)
            match event:
                case OperationStarted():
                    if operation is None and event.spec.tree == self.tree:
                        effects += self._add_operation(_live_of(event))
                case OperationStateChanged():
                    effects += self._on_state(operation, event)
                case BlockDrawn():
                    if operation is not None:
                        operation.slots.draw(event.below)
                        effects += self._changed(operation)
                case JobsEnded():
                    effects += self._on_jobs_ended(operation, event)
                case OperationSuspended():
                    if operation is not None:
                        operation.suspended = event.suspended
                        effects += self._changed(operation)
                case ParametersChanged():
                    if operation is not None:
                        operation.spec = msgspec.structs.replace(operation.spec, pool=event.pool, weight=event.weight)
                case _:
                    assert_never(event)
        return effects

    def on_drawn(self, operation: OperationId, below: int | None) -> list[Effect]:
        """The ledger's answer to a `Draw`; None: it could not be had, it is asked again on the next occasion."""
        book = self.books.operations.get(operation)
        if book is None:
            return []
        book.drawing = False
        if below is None:
            return []
        book.slots.draw(below)
        return self._changed(book)

    def on_recorded(self, ends: Iterable[ReportedEnd]) -> list[Effect]:
        """The ledger has these ends; their nodes may forget them with the next answer."""
        for one in ends:
            node = self.books.nodes.get(one.node)
            if node is not None and one.end.key in node.reporting:
                node.reporting.discard(one.end.key)
                node.recorded.add(one.end.key)
        return []

    # --- shares ---------------------------------------------------------------------------------------------------

    def on_shares(self, items: Mapping[str, ShareItem], changed: Iterable[str]) -> list[Effect]:
        """New fair shares of operations. Their places in the order are found by `refresh`, a slice at a time."""
        effects: list[Effect] = []
        for name in changed:
            operation = self.books.operations.get(OperationId(name))
            item = items.get(name)
            if operation is None or item is None:
                continue
            first = max(operation.fair_share) == 0.0
            operation.fair_share = item.fair_share.total
            operation.demand_share = item.demand_share
            self._dirty[operation.id] = None
            if first:
                self.scheduler.refresh(operation)
                effects += self._nudges(operation)
        return effects

    def refresh(self, most: int) -> bool:
        """Gives up to `most` operations their new place in the order; true while there are more to do."""
        if self._all_dirty:
            self._all_dirty = False
            self._shapes = frozenset(node.total for node in self.books.nodes.values() if node.accepts_jobs)
            self._dirty = dict.fromkeys(self.books.operations)
        for _ in range(min(most, len(self._dirty))):
            name = next(iter(self._dirty))
            del self._dirty[name]
            operation = self.books.operations.get(name)
            if operation is not None:
                self.scheduler.refresh(operation)
                self._judge_size(operation)
        return bool(self._dirty)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def on_nodes(self, records: Mapping[NodeName, NodeRecord], now_s: float) -> list[Effect]:
        """The enrolled nodes of this tree, as the mirror has them."""
        effects: list[Effect] = []
        first = not self.recovery.nodes_known
        for name, record in records.items():
            node = self.books.nodes.get(name)
            if node is None:
                self.books.nodes[name] = Node(record, heard_s=now_s)
            else:
                if node.record.drained != record.drained:
                    effects.append(NudgeNode(name))
                node.record = record
        for name in [name for name in self.books.nodes if name not in records]:
            if not self.books.nodes[name].allocations:
                self.books.set_total(self.books.nodes[name], NodeStatus.OFFLINE, ZERO)
                del self.books.nodes[name]
                self.recovery.settle(name, lost=False)
        if first:
            self.recovery.begin(name for name, record in records.items() if not record.drained)
        return effects + self._finish_recovery()

    def on_heartbeat(self, heartbeat: Heartbeat, now_s: float, now_ms: int) -> list[Effect]:
        """The answer to one heartbeat, and what must be told elsewhere. No answer at all for a void one."""
        if heartbeat.term > self.term:
            return [StepDown(heartbeat.term)]
        node = self.books.nodes.get(heartbeat.node)
        if node is None:
            return [Answer(self._not_enrolled(heartbeat))]
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
        orders = self._decide(node, heartbeat, findings)
        node.sent = Sent(orders)
        return [Answer(orders), *effects, *self._draws(orders)]

    def on_tick(self, now_s: float, now_ms: int) -> list[Effect]:
        """Once a second: nodes that fell silent, blocks that are still to be drawn, ended operations to release."""
        effects: list[Effect] = []
        for node in self.books.nodes.values():
            silent_s = now_s - node.heard_s
            if node.status is NodeStatus.ONLINE and silent_s > self.timing.node_heartbeat_timeout_s:
                self._total_changed(self.books.set_total(node, NodeStatus.OFFLINE, ZERO))
            if silent_s > self.timing.node_lease_s and not node.lease_lost:
                node.lease_lost = True
                self.recovery.settle(node.record.node, lost=True)
                effects += self._lose_node(node, now_ms)
        effects += self._finish_recovery()
        released = []
        for operation in self.books.operations.values():
            effects += self._draw(operation)
            if self._is_released(operation):
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
            "allocations_made": self._allocations_made,
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
        self._total_changed(changed or before != node.accepts_jobs)

    def _after_findings(self, node: Node, findings: Findings) -> list[Effect]:
        effects: list[Effect] = []
        if findings.ends:
            effects.append(Report([ReportedEnd(node.record.node, end) for end in findings.ends]))
        for name in findings.operations | {one.operation for one in node.allocations.values()}:
            operation = self.books.operations.get(name)
            if operation is not None:
                self.scheduler.refresh(operation)
        return effects

    def _decide(self, node: Node, heartbeat: Heartbeat, findings: Findings) -> Orders:
        pace_ms = self._pace_ms()
        holding = {one.operation for one in node.allocations.values()}
        take_back = self._take_backs(node)
        extend: list[Extend] = []
        start: list[Start] = []
        if node.accepts_jobs:
            extend, given_back = self._extensions(node, pace_ms)
            take_back += given_back
            if not any(one.state is AllocationState.WAITING and one.confirmed for one in node.allocations.values()):
                start = self._starts(node, pace_ms, holding)
        return Orders(
            node=node.record.node,
            incarnation=heartbeat.incarnation,
            seq=heartbeat.seq,
            term=self.term,
            next_heartbeat_ms=_RECOVERING_PACE_MS if self.recovery.awaits(node.record.node) else pace_ms,
            start=start,
            extend=extend,
            take_back=take_back,
            forget=Forget(ends=findings.forget_ends, allocations=findings.forget_allocations),
            lease_ms=int(self.timing.node_lease_s * 1000),
        )

    def _take_backs(self, node: Node) -> list[TakeBack]:
        orders = []
        for allocation in node.allocations.values():
            operation = self.books.operations.get(allocation.operation)
            if operation is not None and operation.ending and allocation.take_back is None:
                allocation.take_back = TakeBackReason.OPERATION_ENDED
            if allocation.take_back is not None and allocation.state not in (
                AllocationState.CLOSING,
                AllocationState.ENDED,
            ):
                timeout_ms = operation.spec.interruption_timeout_ms if operation else 10_000
                orders.append(TakeBack(allocation=allocation.id, reason=allocation.take_back, timeout_ms=timeout_ms))
        return orders

    def _extensions(self, node: Node, pace_ms: int) -> tuple[list[Extend], list[TakeBack]]:
        extend: list[Extend] = []
        given_back: list[TakeBack] = []
        for allocation in node.allocations.values():
            if allocation.take_back is not None:
                continue
            more = self.scheduler.extension(node, allocation, pace_ms)
            if isinstance(more, TakeBackReason):
                given_back.append(TakeBack(allocation=allocation.id, reason=more, timeout_ms=None))
            elif more:
                allocation.slots.update((slot.index, slot) for slot in more)
                self.books.touched.add(allocation.operation)
                extend.append(Extend(allocation=allocation.id, slots=more))
        return extend, given_back

    def _starts(self, node: Node, pace_ms: int, holding: set[OperationId]) -> list[Start]:
        starts = []
        for operation, slots in self.scheduler.place(node, pace_ms):
            self._allocations_made += 1
            name = AllocationId(f"{self.term:x}-{self._allocations_made:x}")
            allocation = Allocation(name, operation.id, node.record.node, operation.spec.resources)
            allocation.slots = {slot.index: slot for slot in slots}
            self.books.add(allocation)
            # Only what a heartbeat showed proves that the node knows the operation's command.
            spec = None if operation.id in holding else operation.spec.job_spec(operation.id, operation.user)
            starts.append(Start(name, operation.id, operation.spec.resources, slots, spec))
            holding.add(operation.id)
        return starts

    def _draws(self, orders: Orders) -> list[Effect]:
        effects: list[Effect] = []
        for name in {start.operation for start in orders.start}:
            effects += self._draw(self.books.operations[name])
        return effects

    def _not_enrolled(self, heartbeat: Heartbeat) -> Orders:
        return Orders(
            node=heartbeat.node,
            incarnation=heartbeat.incarnation,
            seq=heartbeat.seq,
            term=self.term,
            next_heartbeat_ms=self._pace_ms(),
            enrolled=False,
        )

    def _pace_ms(self) -> int:
        return max(self.timing.shortest_pace_ms, len(self.books.nodes) * 1000 // self.timing.heartbeats_per_s)

    # --- operations, step by step -----------------------------------------------------------------------------------

    def _add_operation(self, live: LiveOperation) -> list[Effect]:
        self._arrivals += 1
        operation = OperationBook(live, self._arrivals, self.term)
        self.books.operations[operation.id] = operation
        self._dirty[operation.id] = None
        if self.recovery.done and operation.slots.in_doubt:
            operation.slots.release_doubt()
        return self._changed(operation)

    def _update_operation(self, live: LiveOperation) -> list[Effect]:
        """The whole came again after a gap: what the missed events would have told."""
        operation = self.books.operations[live.operation]
        operation.state, operation.suspended = live.state, live.suspended
        operation.slots.draw(live.block)
        for slot in live.attempts:
            operation.slots.retry(slot)
        return self._changed(operation)

    def _forget_operation(self, name: OperationId) -> list[Effect]:
        operation = self.books.operations.pop(name)
        self.scheduler.order.remove(name)
        self._dirty.pop(name, None)
        self.books.gone.add(name)
        nodes = set()
        for allocation in operation.allocations.values():
            # The book of the operation is closed; what still stands on nodes goes as they report.
            allocation.take_back = TakeBackReason.OPERATION_ENDED
            allocation.slots.clear()
            nodes.add(allocation.node)
        return [NudgeNode(node) for node in sorted(nodes)]

    def _on_state(self, operation: OperationBook | None, event: OperationStateChanged) -> list[Effect]:
        if operation is None:
            return []
        if event.state in FINAL_STATES:
            return self._forget_operation(operation.id)
        operation.state = event.state
        if not operation.ending:
            return self._changed(operation)
        self.scheduler.refresh(operation)
        self.books.touched.add(operation.id)
        nudges: list[Effect] = [NudgeNode(node) for node in sorted({a.node for a in operation.allocations.values()})]
        if self._is_released(operation):
            operation.release_told = True
            nudges.append(Release([operation.id]))
        return nudges

    def _on_jobs_ended(self, operation: OperationBook | None, event: JobsEnded) -> list[Effect]:
        if operation is None:
            return []
        for one in event.ends:
            operation.slots.end(one.end.index, one.end.attempt)
            if one.retry is not None:
                operation.slots.retry(one.retry)
        return self._changed(operation)

    def _changed(self, operation: OperationBook) -> list[Effect]:
        self.books.touched.add(operation.id)
        self.scheduler.refresh(operation)
        return [*self._draw(operation), *self._nudges(operation)]

    def _draw(self, operation: OperationBook) -> list[Effect]:
        below = self.scheduler.wants_block(operation)
        if below is None:
            return []
        operation.drawing = True
        return [Draw(operation.id, below)]

    def _nudges(self, operation: OperationBook) -> list[Effect]:
        """As many nodes with room as the operation can use, no more."""
        if operation.id not in self.scheduler.order or max(operation.fair_share) == 0.0:
            return []
        wanted = operation.slots.ready_count
        effects: list[Effect] = []
        for name, node in self.books.nodes.items():
            if wanted <= 0 or len(effects) >= _MOST_NUDGES:
                break
            places = operation.spec.resources.times_that_fit(node.free) if node.accepts_jobs else 0
            if places:
                wanted -= places
                if not node.nudged:
                    node.nudged = True
                    effects.append(NudgeNode(name))
        return effects

    def _judge_size(self, operation: OperationBook) -> None:
        """Whether a job of it could run on some node, were the node empty. Without any node nothing is said."""
        size = operation.spec.resources
        fits = not self._shapes or any(shape.dominates(size) for shape in self._shapes)
        if fits != operation.fits_somewhere:
            operation.fits_somewhere = fits
            self.books.touched.add(operation.id)

    def _is_released(self, operation: OperationBook) -> bool:
        return operation.ending and not operation.allocations and self.recovery.done and not operation.release_told

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

    def _total_changed(self, changed: bool) -> None:
        # Only a mark: a heartbeat must not cost more for there being more operations. `refresh` does the work.
        self._all_dirty = self._all_dirty or changed

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
            effects += self._changed(operation)
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


def _live_of(event: OperationStarted) -> LiveOperation:
    return LiveOperation(
        operation=event.operation,
        user=event.user,
        spec=event.spec,
        state=event.state,
        suspended=False,
        ephemeral_pool=event.ephemeral_pool,
        started_at_ms=event.at_ms,
        block=event.block,
        block_term=event.block_term,
        done=bytes((event.block + 7) // 8),
    )
