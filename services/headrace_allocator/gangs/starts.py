"""The course of gangs: when one starts, when it is given up, and when its jobs are taken back.

Room is held for one gang at a time, no longer than `gang_hold_s`. Its jobs start once all have a place, and each of their nodes was
heard with room for them. A job that is missing after that takes all others back. Each message settles the gangs that it changed.
After a turn in vain gangs of the pool with which that was the longest ago go first, or one pool could take all turns.
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
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation, break_up, members, never_fits, set_phase, waits_for_a_turn
from headrace_allocator.facts.slots import is_whole
from headrace_allocator.gangs.fitting import bounds_of_gangs
from headrace_allocator.gangs.gang import Gang, GangPhase
from headrace_allocator.gangs.holds import has_room_for_holds, hold, let_go, let_go_of_empty, take_up

#: From the last place until every node has shown its jobs.
_START_S: Final = 10.0
#: A node that was heard within this is not asked again before the start.
_FRESH_S: Final = 1.0
#: Gangs of other pools find out within this that it is their turn.
_YIELD_S: Final = 5.0
#: Gangs of which one is looked for whose turn may have come.
_MOST_LOOKED_AT: Final = 100


class GangStarts:
    """Leads each gang from phase to phase."""

    def __init__(self, facts: Facts, ranking: Ranking) -> None:
        self._facts = facts
        self._ranking = ranking
        #: Gangs by what is to be looked at with a tick.
        self._timed: dict[OperationId, None] = {}
        #: Nodes to nudge, and a gang that may gather room from now on.
        self._nudged: dict[NodeName, None] = {}
        self._looks_for_room: dict[OperationId, None] = {}
        self._counts = {"started": 0, "given_up": 0, "taken_back": 0}

    # --- on a heartbeat -------------------------------------------------------------------------------------------

    def hear(self, node: Node, moment: Moment) -> None:
        """A heartbeat tells whether there still is room for what is held on its node."""
        if not node.holds:
            return
        concerned = [self._facts.operations[name] for name in {one.operation for one in node.holds.values()}]
        is_usable, has_room = node.accepts_jobs and node.total.dominates(node.used), has_room_for_holds(node)
        for operation in concerned:
            if not is_usable:
                let_go(self._facts, operation, node)
            elif has_room and operation.gang is not None:
                operation.gang.awaited.discard(node.record.node)
            self._settle(operation, moment)

    def hold(self, name: AllocationId, operation: Operation, node: Node, job: Resources, moment: Moment) -> Allocation:
        """Holds room for one job of a gang, whose turn it is with the first."""
        if not _is(operation.gang, GangPhase.GATHERING):
            self._enter(operation, GangPhase.GATHERING, moment.steady_s + self._facts.timing.gang_hold_s)
        return hold(self._facts, name, operation, node, job)

    def hold_longer(self, operation: Operation, for_s: float) -> None:
        """Room of a gang that gathers is held for so much longer: it comes free when others have ended."""
        if operation.gang is not None and operation.gang.until_s is not None:
            operation.gang.until_s += for_s

    def due(self, node: Node) -> list[tuple[Operation, Allocation]]:
        """Allocations that the node is to be told of with this answer."""
        held = [(self._facts.operations[one.operation], one) for one in node.holds.values()]
        return [(operation, one) for operation, one in held if _is(operation.gang, GangPhase.STARTING)]

    def take_up(self, node: Node, operation: Operation, allocation: Allocation) -> None:
        """The node is told of an allocation with this answer."""
        take_up(node, operation, allocation)

    def judge_anew(self) -> None:
        """Marks all gangs if nodes or limits are others than when it was judged which of them ever fit."""
        gangs, now = self._facts.gangs, bounds_of_gangs(self._facts)
        if now != gangs.judged_by:
            gangs.judged_by = now
            self._ranking.mark(gangs.of)

    # --- after any message ----------------------------------------------------------------------------------------

    def settle(self, moment: Moment) -> tuple[list[NodeName], list[Operation]]:
        """Settles the gangs that changed. Returns the nodes to be nudged for them, and gangs that look for room from now on."""
        gangs = self._facts.gangs
        while gangs.changed:
            name = next(iter(gangs.changed))
            del gangs.changed[name]
            self._settle(gangs.of[name], moment)
        nudged, self._nudged = list(self._nudged), {}
        operations = self._facts.operations
        looking = [operations[name] for name in self._looks_for_room if name in operations]
        self._looks_for_room = {}
        return nudged, looking

    def tick(self, moment: Moment) -> None:
        """Ends phases whose time is over, and lets go of room on nodes that take no jobs any more."""
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
            if moment.steady_s >= gang.until_s:
                self._time_is_over(operation, gang, moment)
            gangs.note(name)

    def figures(self) -> list[Figure]:
        """Counts gangs by what became of them, and those that hold room."""
        made = counter("gangs", "gangs", 0, "Gangs that started, found too little room in time, or were taken back.")
        gathering = int(self._facts.gangs.gathering is not None)
        return [
            gauge("gangs_gathering", "gangs", gathering, "Gangs for which room is held."),
            *by_label(made, "gangs", "outcome", dict(self._counts)),
        ]

    # --- rules ----------------------------------------------------------------------------------------------------

    def _settle(self, operation: Operation, moment: Moment) -> None:
        gang, slots = operation.gang, operation.slots
        if gang is None:
            return
        let_go_of_empty(self._facts, operation)
        if gang.phase in (GangPhase.WAITING, GangPhase.PAUSED, GangPhase.YIELDING) and members(operation):
            # A former allocator started it.
            self._enter(operation, GangPhase.RUNNING)
        match gang.phase:
            case GangPhase.GATHERING if not _may_gather(operation):
                let_go(self._facts, operation)
                self._enter(operation, GangPhase.WAITING)
                self._facts.gangs.note(operation.id)
            case GangPhase.GATHERING if gang.holds and not slots.ready_count:
                self._has_all_places(operation, gang, moment)
            case GangPhase.GATHERING:
                gang.asked = False
            case GangPhase.STARTING if not slots.pending_count and not operation.unconfirmed:
                gang.pauses = 0
                self._enter(operation, GangPhase.RUNNING)
        if gang.phase in (GangPhase.STARTING, GangPhase.RUNNING) and slots.pending_count:
            break_up(operation)
        if gang.phase is GangPhase.BREAKING:
            self._take_back(operation)
        if gang.phase is GangPhase.RUNNING and not members(operation):
            self._enter(operation, GangPhase.WAITING)
            self._end_pauses(moment)
        self._ranking.refresh(operation)

    def _has_all_places(self, operation: Operation, gang: Gang, moment: Moment) -> None:
        """Every job has a place: they start once each node was heard with room for them."""
        if not gang.asked:
            gang.asked = True
            gang.awaited = {one.node for one in gang.holds if not self._is_ready(one.node, moment)}
            self._nudged.update(dict.fromkeys(sorted(gang.awaited)))
        if gang.awaited:
            return
        self._counts["started"] += 1
        self._nudged.update(dict.fromkeys(sorted({one.node for one in gang.holds})))
        self._enter(operation, GangPhase.STARTING, moment.steady_s + _START_S)

    def _is_ready(self, name: NodeName, moment: Moment) -> bool:
        node = self._facts.nodes[name]
        return moment.steady_s - node.heard_s <= _FRESH_S and has_room_for_holds(node)

    def _take_back(self, operation: Operation) -> None:
        """Has the nodes take back the jobs that run, with their next answers. The gang waits once none is left."""
        let_go(self._facts, operation)
        if not members(operation):
            self._counts["taken_back"] += 1
            self._enter(operation, GangPhase.WAITING)
            return
        if operation.gang is not None and not operation.gang.asked:
            operation.gang.asked = True
            self._nudged.update(dict.fromkeys(sorted({one.node for one in operation.allocations.values()})))

    def _time_is_over(self, operation: Operation, gang: Gang, moment: Moment) -> None:
        match gang.phase:
            case GangPhase.GATHERING:
                self._counts["given_up"] += 1
                let_go(self._facts, operation)
                self._let_others_go_first(operation, moment)
                self._enter(operation, GangPhase.PAUSED, moment.steady_s + gang.next_pause_s())
            case GangPhase.STARTING:
                break_up(operation)
            case _:
                self._enter(operation, GangPhase.WAITING)

    def _end_pauses(self, moment: Moment) -> None:
        """A gang has ended, so that there may be room now for those that found too little."""
        for each in islice(self._facts.gangs.of.values(), _MOST_LOOKED_AT):
            if each.gang is not None and each.gang.phase is GangPhase.PAUSED:
                each.gang.until_s = moment.steady_s

    def _let_others_go_first(self, operation: Operation, moment: Moment) -> None:
        """A turn was in vain. What else is owed is the same as before it, by which the same pool would have the next turn."""
        gangs = self._facts.gangs
        live = {each.spec.pool for each in gangs.of.values()}
        gangs.vain_turns = {pool: number for pool, number in gangs.vain_turns.items() if pool in live}
        gangs.vain_turns[operation.spec.pool] = self._counts["given_up"]
        waiting = [each for each in gangs.of.values() if self._may_take_its_turn(each)]
        numbers = [gangs.vain_turns.get(each.spec.pool, 0) for each in waiting]
        oldest = min(numbers, default=0)
        for each, number in zip(waiting, numbers, strict=True):
            if number > oldest:
                self._enter(each, GangPhase.YIELDING, moment.steady_s + _YIELD_S)

    def _enter(self, operation: Operation, phase: GangPhase, until_s: float | None = None) -> None:
        """A phase begins, which may end the turn of a gang or begin one."""
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
        """One gang that may gather room now, for which nodes are asked to speak: whoever is owed most gets its turn."""
        some = islice(self._facts.gangs.of.items(), _MOST_LOOKED_AT)
        yield from islice((name for name, each in some if self._may_take_its_turn(each)), 1)

    def _may_take_its_turn(self, operation: Operation) -> bool:
        return waits_for_a_turn(operation) and operation.id in self._ranking.order


def _may_gather(operation: Operation) -> bool:
    is_idle = operation.schedulable and not members(operation)
    return is_idle and is_whole(operation.slots) and not never_fits(operation)


def _is(gang: Gang | None, phase: GangPhase) -> bool:
    return gang is not None and gang.phase is phase
