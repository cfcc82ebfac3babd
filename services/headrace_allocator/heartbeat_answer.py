"""Orders: what a node is told, from the books as its heartbeat left them.

Taking back comes first, then what living allocations get in addition, then what starts in the room that is free.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import AllocationState, Extend, Forget, Heartbeat, Orders, Start, TakeBack, TakeBackReason
from headrace_allocator.decision.placing import Scheduler
from headrace_allocator.facts.facts import Allocation, Books, Node
from headrace_allocator.facts.reconcile import Findings
from headrace_allocator.facts.recovery import Recovery

__all__ = ["OrdersDesk", "Timing"]

#: Until the next heartbeat of a node whose word is awaited.
_RECOVERING_PACE_MS: Final = 50
#: Until the heartbeat that shows what was just started; a tenth of the pace where that is more.
_CONFIRM_PACE_MS: Final = 100


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


class OrdersDesk:
    """Writes the answer to one heartbeat at a time."""

    def __init__(self, books: Books, scheduler: Scheduler, recovery: Recovery, timing: Timing, term: int) -> None:
        self._books = books
        self._scheduler = scheduler
        self._recovery = recovery
        self._timing = timing
        self._term = term
        self.allocations_made = 0

    def decide(self, node: Node, heartbeat: Heartbeat, findings: Findings) -> Orders:
        """What the node is told, once its heartbeat has been held against the books."""
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
            term=self._term,
            next_heartbeat_ms=self._next_heartbeat_ms(node, pace_ms, starts=bool(start)),
            start=start,
            extend=extend,
            take_back=take_back,
            forget=Forget(ends=findings.forget_ends, allocations=findings.forget_allocations),
            lease_ms=int(self._timing.node_lease_s * 1000),
        )

    def _next_heartbeat_ms(self, node: Node, pace_ms: int, *, starts: bool) -> int:
        """Sooner where a word is awaited: of a node that has not spoken yet, or that starts are under way, which is when their
        precommit becomes usage."""
        if self._recovery.awaits(node.record.node):
            return _RECOVERING_PACE_MS
        return max(_CONFIRM_PACE_MS, pace_ms // 10) if starts else pace_ms

    def _take_backs(self, node: Node) -> list[TakeBack]:
        orders = []
        for allocation in node.allocations.values():
            operation = self._books.operations.get(allocation.operation)
            if operation is not None and allocation.take_back is None:
                allocation.take_back = operation.taken_back
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
            more = self._scheduler.extension(node, allocation, pace_ms)
            if isinstance(more, TakeBackReason):
                given_back.append(TakeBack(allocation=allocation.id, reason=more, timeout_ms=None))
            elif more:
                allocation.slots.update((slot.index, slot) for slot in more)
                self._books.touched.add(allocation.operation)
                extend.append(Extend(allocation=allocation.id, slots=more))
        return extend, given_back

    def _starts(self, node: Node, pace_ms: int, holding: set[OperationId]) -> list[Start]:
        starts = []
        for operation, slots in self._scheduler.place(node, pace_ms):
            self.allocations_made += 1
            name = AllocationId(f"{self._term:x}-{self.allocations_made:x}")
            allocation = Allocation(name, operation.id, node.record.node, operation.spec.resources)
            allocation.slots = {slot.index: slot for slot in slots}
            self._books.add(allocation)
            # Only what a heartbeat showed proves that the node knows the operation's command.
            spec = None if operation.id in holding else operation.spec.job_spec(operation.id, operation.user)
            starts.append(Start(name, operation.id, operation.spec.resources, slots, spec))
            holding.add(operation.id)
        return starts

    def not_enrolled(self, heartbeat: Heartbeat) -> Orders:
        """The answer to a node that nobody enrolled in this tree."""
        return Orders(
            node=heartbeat.node,
            incarnation=heartbeat.incarnation,
            seq=heartbeat.seq,
            term=self._term,
            next_heartbeat_ms=self._pace_ms(),
            enrolled=False,
        )

    def _pace_ms(self) -> int:
        return max(self._timing.shortest_pace_ms, len(self._books.nodes) * 1000 // self._timing.heartbeats_per_s)
