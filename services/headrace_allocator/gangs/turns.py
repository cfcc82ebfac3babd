"""The course of gangs: when a gang starts, when it gives up, and when its jobs are taken back.

Resources are held for one gang at a time, for at most `gang_hold_s`. If the gang starves and nodes are reserved for it, its resources are
held for as long as these reservations last. Its jobs start once all have an allocation and each of their nodes has sent a heartbeat that
shows enough free resources. If a job is missing after that, all other jobs are taken back. After each message, every gang that the message
changed is moved to the phase that its state calls for (`settle`).

After a turn in which a gang found too few resources, other pools go first: the next turn goes to a gang of the pool whose last turn with
too few resources is the longest ago. Otherwise one pool could take all turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.resources import Resources
from headrace.runtime.engine import Figure, Moment, by_label, counter, gauge
from headrace_allocator.decision.ranking import Ranking
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.job_slots import is_whole
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import (
    Operation,
    break_up,
    is_in_gang,
    is_starving,
    members,
    never_fits,
    set_phase,
    waits_for_a_turn,
)
from headrace_allocator.facts.reservations import ReservationEnd
from headrace_allocator.gangs.fitting import bounds_of_gangs
from headrace_allocator.gangs.gang import TOGETHER, Gang, GangPhase
from headrace_allocator.gangs.holds import has_room_for_holds, hold, let_go, release_ended, take_up
from headrace_allocator.gangs.sizes import together_by_size

#: Seconds from the order to start until every node must have shown its jobs of the gang.
_START_S: Final = 10.0
#: Seconds for which a heartbeat of a node counts as recent: jobs then start on the node without a nudge.
_FRESH_S: Final = 1.0
#: Seconds for which the gangs of a pool yield, so that gangs of other pools get their turn.
_YIELD_S: Final = 5.0
#: Phases in which jobs of a gang are on nodes. What fits on all nodes together matters in the other phases only.
_ON_NODES: Final = TOGETHER | {GangPhase.BREAKING}
#: Largest number of gangs that are examined to find the gang whose turn is next.
_MOST_LOOKED_AT: Final = 100


class GangStarts:
    """Moves each gang from phase to phase."""

    def __init__(self, facts: Facts, ranking: Ranking) -> None:
        self._facts = facts
        self._ranking = ranking
        #: Gangs in a phase with a time limit, which each tick checks.
        self._timed: dict[OperationId, None] = {}
        #: Nodes to nudge.
        self._nudged: dict[NodeName, None] = {}
        #: Gangs that may gather resources from now on, until `settle` returns them.
        self._looks_for_room: dict[OperationId, None] = {}
        self._counts = {"started": 0, "given_up": 0, "taken_back": 0}

    # --- on a heartbeat -------------------------------------------------------------------------------------------

    def hear(self, node: Node, now: Moment) -> None:
        """Check, on a heartbeat, whether the resources that are held for gangs still fit on the node."""
        if not node.holds:
            return
        concerned = [self._facts.operations[name] for name in {one.operation for one in node.holds.values()}]
        is_usable, has_room = node.accepts_jobs and node.total.dominates(node.used), has_room_for_holds(node)
        for operation in concerned:
            if not is_usable:
                let_go(self._facts, operation, node)
            elif has_room and operation.gang is not None:
                operation.gang.awaited.discard(node.record.node)
            self._settle(operation, now)

    def hold(
        self,
        name: AllocationId,
        operation: Operation,
        node: Node,
        job: Resources,
        now: Moment,
        task: int | None = None,
    ) -> Allocation:
        """Hold resources for one job of a gang; with tasks, for a job of `task`. The first hold begins the gang's turn."""
        self.gather(operation, now)
        held, book = hold(self._facts, name, operation, node, job, task), self._facts.reservations
        is_here = node.reserved is not None and node.reserved.operation == operation.id
        if is_here and book.count(operation.id) > operation.slots.ready_count:
            book.end_at(node, ReservationEnd.STARTED)
        return held

    def gather(self, operation: Operation, now: Moment) -> None:
        """Begin the turn of a gang, unless it has begun."""
        if not _is(operation.gang, GangPhase.GATHERING):
            self._enter(operation, GangPhase.GATHERING, now.steady_s + self._facts.timing.gang_hold_s)

    def hold_longer(self, operation: Operation, for_s: float) -> None:
        """Extend the time for which resources are held for a gathering gang, since preempted jobs need time to end."""
        if operation.gang is not None and operation.gang.until_s is not None:
            operation.gang.until_s += for_s

    def due(self, node: Node) -> list[tuple[Operation, Allocation]]:
        """Return the allocations that the answer to the node's heartbeat must order the node to start."""
        held = [(self._facts.operations[one.operation], one) for one in node.holds.values()]
        return [(operation, one) for operation, one in held if _is(operation.gang, GangPhase.STARTING)]

    def take_up(self, node: Node, operation: Operation, allocation: Allocation) -> None:
        """Record that the answer to the node's heartbeat orders the node to start the allocation."""
        take_up(node, operation, allocation)

    def judge_anew(self) -> None:
        """Mark all gangs to be judged again if nodes or limits have changed since the number of jobs that can run at once was last
        computed.
        """
        gangs, now = self._facts.gangs, bounds_of_gangs(self._facts)
        if now != gangs.judged_by:
            gangs.judged_by = now
            self._ranking.mark(gangs.of)

    # --- after any message ----------------------------------------------------------------------------------------

    def settle(self, now: Moment) -> tuple[list[NodeName], list[Operation]]:
        """Move each gang that changed to the phase that its state calls for.

        Return the nodes to nudge for these gangs, and the gangs that may gather resources from now on.
        """
        gangs = self._facts.gangs
        while gangs.changed:
            name = next(iter(gangs.changed))
            del gangs.changed[name]
            self._settle(gangs.of[name], now)
        nudged, self._nudged = list(self._nudged), {}
        operations = self._facts.operations
        looking = [operations[name] for name in self._looks_for_room if name in operations]
        self._looks_for_room = {}
        return nudged, looking

    def tick(self, now: Moment) -> None:
        """End phases whose time is over, and release resources held on nodes that no longer accept jobs."""
        gangs = self._facts.gangs
        for name in list(self._timed):
            operation = gangs.of.get(name)
            gang = None if operation is None else operation.gang
            if operation is None or gang is None or gang.until_s is None:
                del self._timed[name]
                continue
            for node in {one.node for one in gang.holds}:
                if not self._facts.nodes[node].accepts_jobs:
                    let_go(self._facts, operation, self._facts.nodes[node])
            if now.steady_s >= gang.until_s and not self._drains_nodes(operation):
                self._time_is_over(operation, gang, now)
            gangs.note(name)

    def figures(self) -> list[Figure]:
        """Return the metrics of gangs by outcome, and of gangs that hold resources."""
        made = counter(
            "gangs", "gangs", 0, "Gangs that started, did not get enough resources in time, or were taken back."
        )
        gathering = int(self._facts.gangs.gathering is not None)
        return [
            gauge("gangs_gathering", "gangs", gathering, "Gangs for which resources are held."),
            *by_label(made, "gangs", "outcome", dict(self._counts)),
        ]

    # --- rules ----------------------------------------------------------------------------------------------------

    def _settle(self, operation: Operation, now: Moment) -> None:
        gang, slots = operation.gang, operation.slots
        if gang is None:
            return
        release_ended(self._facts, operation)
        if gang.phase in (GangPhase.WAITING, GangPhase.PAUSED, GangPhase.YIELDING) and members(operation):
            # The gang has jobs on nodes, so an earlier allocator started it.
            self._enter(operation, GangPhase.RUNNING)
        self._release_spare_nodes(operation)
        match gang.phase:
            case GangPhase.GATHERING if not _may_gather(operation):
                let_go(self._facts, operation)
                self._enter(operation, GangPhase.WAITING)
                self._facts.gangs.note(operation.id)
            case GangPhase.GATHERING if gang.holds and not slots.gang_ready_count:
                self._has_all_places(operation, gang, now)
            case GangPhase.GATHERING:
                gang.asked = False
            case GangPhase.STARTING if not slots.gang_pending_count and _is_confirmed(operation):
                gang.pauses = 0
                self._enter(operation, GangPhase.RUNNING)
        if gang.phase in (GangPhase.STARTING, GangPhase.RUNNING) and slots.gang_pending_count:
            break_up(operation)
        if gang.phase is GangPhase.BREAKING:
            self._take_back(operation)
        if gang.phase is GangPhase.RUNNING and not members(operation):
            self._enter(operation, GangPhase.WAITING)
            self._end_pauses(now)
        if operation.kinds and gang.phase not in _ON_NODES and gang.judged_for != together_by_size(operation):
            # Some of its jobs have completed. The others are judged outside of heartbeats, because that looks at all sizes of nodes.
            self._ranking.mark((operation.id,))
        self._ranking.refresh(operation)

    def _has_all_places(self, operation: Operation, gang: Gang, now: Moment) -> None:
        """Start a gang whose jobs all have an allocation. If some of its nodes have not shown enough free resources lately, nudge
        these nodes instead.
        """
        if not gang.asked:
            gang.asked = True
            gang.awaited = {one.node for one in gang.holds if not self._is_ready(one.node, now)}
            self._nudged.update(dict.fromkeys(sorted(gang.awaited)))
        if gang.awaited:
            return
        self._counts["started"] += 1
        self._nudged.update(dict.fromkeys(sorted({one.node for one in gang.holds})))
        self._enter(operation, GangPhase.STARTING, now.steady_s + _START_S)

    def _release_spare_nodes(self, operation: Operation) -> None:
        """Keep as many reservations as the gang has jobs without resources, and end those whose nodes are expected to be free last."""
        book = self._facts.reservations
        there = sorted(book.of.get(operation.id, {}).values(), key=lambda one: one.expected_s)
        for reservation in there[operation.slots.ready_count :]:
            book.end_at(reservation.node, ReservationEnd.STARTED)

    def _is_ready(self, name: NodeName, now: Moment) -> bool:
        node = self._facts.nodes[name]
        return now.steady_s - node.heard_s <= _FRESH_S and has_room_for_holds(node)

    def _take_back(self, operation: Operation) -> None:
        """Take back all jobs of the gang: each node gets the order with the answer to its next heartbeat.

        The gang waits once no job is left.
        """
        let_go(self._facts, operation)
        if not members(operation):
            self._counts["taken_back"] += 1
            self._enter(operation, GangPhase.WAITING)
            return
        if operation.gang is not None and not operation.gang.asked:
            operation.gang.asked = True
            self._nudged.update(dict.fromkeys(sorted({one.node for one in operation.gang.allocations})))

    def _time_is_over(self, operation: Operation, gang: Gang, now: Moment) -> None:
        match gang.phase:
            case GangPhase.GATHERING:
                self._counts["given_up"] += 1
                let_go(self._facts, operation)
                self._let_others_go_first(operation, now)
                self._enter(operation, GangPhase.PAUSED, now.steady_s + gang.next_pause_s())
            case GangPhase.STARTING:
                break_up(operation)
            case _:
                self._enter(operation, GangPhase.WAITING)

    def _drains_nodes(self, operation: Operation) -> bool:
        """True if nodes are reserved for a starving gang. The gang's turn lasts as long as these reservations."""
        return is_starving(operation) and operation.id in self._facts.reservations.of

    def _end_pauses(self, now: Moment) -> None:
        """End the pauses of gangs, since a gang has ended and resources may be free now."""
        for each in islice(self._facts.gangs.of.values(), _MOST_LOOKED_AT):
            if each.gang is not None and each.gang.phase is GangPhase.PAUSED:
                each.gang.until_s = now.steady_s

    def _let_others_go_first(self, operation: Operation, now: Moment) -> None:
        """Make gangs yield to gangs of other pools whose last vain turn (with too few resources) was longer ago.

        The shares are the same as before the turn, so without this rule the same pool would get the next turn.
        """
        gangs = self._facts.gangs
        live = {each.spec.pool for each in gangs.of.values()}
        gangs.vain_turns = {pool: number for pool, number in gangs.vain_turns.items() if pool in live}
        gangs.vain_turns[operation.spec.pool] = self._counts["given_up"]
        waiting = [each for each in gangs.of.values() if self._may_take_its_turn(each)]
        numbers = [gangs.vain_turns.get(each.spec.pool, 0) for each in waiting]
        oldest = min(numbers, default=0)
        for each, number in zip(waiting, numbers, strict=True):
            if number > oldest:
                self._enter(each, GangPhase.YIELDING, now.steady_s + _YIELD_S)

    def _enter(self, operation: Operation, phase: GangPhase, until_s: float | None = None) -> None:
        """Put a gang into a phase. Its turn begins when it enters `GATHERING`, and ends when it leaves `GATHERING`."""
        gangs, name = self._facts.gangs, operation.id
        if gangs.gathering == name:
            gangs.gathering = None
            self._looks_for_room.update(dict.fromkeys(self._next_in_turn()))
        set_phase(operation, phase, until_s)
        if phase is GangPhase.GATHERING:
            gangs.gathering = name
        if phase in (GangPhase.WAITING, GangPhase.GATHERING):
            self._looks_for_room[name] = None
        if until_s is not None:
            self._timed[name] = None
        self._ranking.refresh(operation)

    def _next_in_turn(self) -> Iterator[OperationId]:
        """Yield at most one gang that may gather resources now.

        The nodes that this gang could use are nudged. On their heartbeats, the gang that is owed most gets the turn, which may be a gang
        other than the one yielded here.
        """
        some = islice(self._facts.gangs.of.items(), _MOST_LOOKED_AT)
        yield from islice((name for name, each in some if self._may_take_its_turn(each)), 1)

    def _may_take_its_turn(self, operation: Operation) -> bool:
        is_in_order = waits_for_a_turn(operation) and operation.id in self._ranking.order
        # An operation with other jobs beside its gang may be in the order because of these other jobs alone.
        return is_in_order and (operation.slots.gang_tasks is None or _may_gather(operation))


def _may_gather(operation: Operation) -> bool:
    is_idle = operation.schedulable and not members(operation)
    return is_idle and is_whole(operation.slots) and not never_fits(operation)


def _is_confirmed(operation: Operation) -> bool:
    """True if heartbeats have shown all allocations of the gang."""
    return not any(is_in_gang(operation, one) for one in operation.unconfirmed)


def _is(gang: Gang | None, phase: GangPhase) -> bool:
    return gang is not None and gang.phase is phase
