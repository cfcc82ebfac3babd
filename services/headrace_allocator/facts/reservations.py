"""Reserved nodes: each is kept for one operation whose next job is larger than the free resources of every node.

On a reserved node nothing starts that would delay the reserved job. Only jobs start that fit beside it, or that are sure to end before it
is expected to fit. So the node drains until the job fits. An operation has at most one reserved node. A gang that gathers resources has up
to one for each job that has no resources yet. Invariant (`check`): a node is reserved for one operation, and both know of each other.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator

from headrace.ids import NodeName, OperationId
from headrace.runtime.engine import Figure, by_label, counter, gauge
from headrace_allocator.facts.nodes import Node, Reservation


class ReservationEnd(enum.StrEnum):
    """The ways in which a reservation ends."""

    #: A job of the operation started, on the reserved node or elsewhere.
    STARTED = "started"
    #: The reservation moved to a node that is expected to be free clearly sooner.
    MOVED = "moved"
    #: The reservation lasted for the longest allowed time.
    TIMED_OUT = "timed_out"
    #: The operation does not need the reservation any more, or the node cannot serve it.
    RELEASED = "released"


class Reservations:
    """The reservations of a tree, and the operations that may get one."""

    def __init__(self) -> None:
        self.of: dict[OperationId, dict[NodeName, Reservation]] = {}
        #: Operations that want a reserved node, judged by their own state (`wants_node`). The operation that has waited longest comes
        #: first.
        self.wanting: dict[OperationId, None] = {}
        self._ended: Counter[ReservationEnd] = Counter()

    def enter(self, reservation: Reservation) -> None:
        """Reserve a node."""
        self.of.setdefault(reservation.operation, {})[reservation.node.record.node] = reservation
        reservation.node.reserved = reservation

    def move(self, reservation: Reservation, node: Node, expected_s: float, now_s: float) -> None:
        """Move a reservation to another node. The latest time at which the reservation ends does not change."""
        self.end_at(reservation.node, ReservationEnd.MOVED)
        reservation.node, reservation.expected_s, reservation.since_s = node, expected_s, now_s
        reservation.moves, reservation.lent_until_s = reservation.moves + 1, 0.0
        self.enter(reservation)

    def note(self, operation: OperationId, *, wants_node: bool) -> None:
        """Add the operation to `wanting`, the operations that want a reserved node, or remove it if `wants_node` is false."""
        if wants_node:
            self.wanting.setdefault(operation)
        else:
            self.wanting.pop(operation, None)

    def forget(self, operation: OperationId) -> None:
        """Remove an operation that is over."""
        self.wanting.pop(operation, None)
        self.end(operation, ReservationEnd.RELEASED)

    def end(self, operation: OperationId, how: ReservationEnd) -> None:
        """End all reservations of an operation."""
        for reservation in list(self.of.get(operation, {}).values()):
            self.end_at(reservation.node, how)

    def end_at(self, node: Node, how: ReservationEnd) -> None:
        """End the reservation of a node, if it has one."""
        reservation, node.reserved = node.reserved, None
        if reservation is not None:
            there = self.of[reservation.operation]
            del there[node.record.node]
            if not there:
                del self.of[reservation.operation]
            self._ended[how] += 1

    def count(self, operation: OperationId) -> int:
        """Return the number of nodes that are reserved for an operation."""
        return len(self.of.get(operation, ()))

    def __iter__(self) -> Iterator[Reservation]:
        """Yield all reservations."""
        for there in self.of.values():
            yield from there.values()

    def figures(self) -> list[Figure]:
        """Return metrics of the nodes reserved now, and of how reservations ended."""
        ended = counter("reservations_ended", "reservations", 0, "Reservations of nodes that ended, by outcome.")
        counts = {how.value: self._ended[how] for how in ReservationEnd}
        return [
            gauge("reserved_nodes", "nodes", sum(1 for _ in self), "Nodes that are reserved for an operation."),
            *by_label(ended, "reservations_ended", "outcome", counts),
        ]

    def check(self) -> list[str]:
        """Return a text for each broken invariant; empty if all hold."""
        return [
            f"{one.operation}: the node that is reserved for it has no record of the reservation"
            for name, there in self.of.items()
            for node, one in there.items()
            if one.node.reserved is not one or one.operation != name or one.node.record.node != node
        ]
