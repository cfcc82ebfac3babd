"""Find resources for all jobs of a starving gang before anything is preempted, in trees with the option `preempt_gangs_whole`.

A heartbeat decides for one node and preempts what one job needs. This does not help a gang unless all its other jobs get resources, too. So
the nodes are searched outside of heartbeats, some on each tick. The search records what would have to be preempted on each node for jobs of
the gang. Only if there are enough resources for all jobs of the gang, they are held, and allocations are preempted on all nodes at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from headrace.ids import NodeName
from headrace.pools.node_filter import matches
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Moment
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.least_satisfied import LeastSatisfied, satisfaction
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.explain.waiting import gang_owed_too_little
from headrace_allocator.facts.allocations import Allocation, waits_for_room
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation, is_in_gang, members, never_fits
from headrace_allocator.facts.pool_tree import exceeds
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.gangs.gang import GangPhase
from headrace_allocator.gangs.packing import Jobs, jobs_in, tightness
from headrace_allocator.gangs.sizes import ready_by_size, resources_of
from headrace_allocator.preemption.gang_victims import is_owed_room_of, may_go_whole, part_of
from headrace_allocator.preemption.stages import STAGES, PreemptiveStage
from headrace_allocator.preemption.victims import candidates, keep_order

#: Number of nodes that are examined on one tick; 100 take some milliseconds.
_NODES_A_TICK: Final = 100
#: Upper bound of the gangs from which one tick chooses the next gang to search for; 100 take some milliseconds.
_MOST_GANGS: Final = 100
#: Upper bound of the gangs that are preempted as a whole for one starving gang.
_MOST_GOING: Final = 8
_IDLE: Final = frozenset({GangPhase.WAITING, GangPhase.PAUSED, GangPhase.YIELDING})


class Places(msgspec.Struct, frozen=True):
    """Resources for a number of jobs of one size on one node, and the allocations that must be preempted there for them."""

    node: Node
    jobs: Jobs
    #: Free resources of the node if all its allocations that may be preempted for the gang were gone.
    room: Resources
    victims: list[tuple[Allocation, Group]] = []


class Taken(msgspec.Struct, frozen=True):
    """Everything that is held and preempted at once for one gang."""

    gang: Operation
    stage: PreemptiveStage
    places: list[Places]
    #: Gangs that are preempted as a whole, on all their nodes. Their allocations are not among the victims in `places`.
    gangs: list[Operation]

    def victims(self) -> Iterator[Allocation]:
        """Yield all allocations that are preempted."""
        yield from (allocation for one in self.places for allocation, _ in one.victims)
        yield from (allocation for one in self.gangs if one.gang is not None for allocation in one.gang.allocations)


class GangResourceSearch:
    """The search for resources for gangs, one gang at a time."""

    def __init__(self, facts: Facts, order: LeastSatisfied) -> None:
        self._facts = facts
        self._order = order
        self._gang: Operation | None = None
        self._left: Iterator[NodeName] = iter(())
        #: By task and node, resources for as many jobs of the gang as possible without preempting other gangs.
        self._found: dict[int | None, dict[NodeName, Places]] = {}
        #: The other gangs that could be preempted.
        self._gangs: dict[Operation, None] = {}

    def tick(self, now: Moment) -> Taken | None:
        """Examine some more nodes. Return what to preempt once it is known to be enough for the whole gang."""
        if self._gang is None:
            self._gang = self._next_gang(now)
            if self._gang is None:
                return None
            self._left, self._gangs = iter(list(self._facts.nodes)), {}
            self._found = {each.task: {} for each in ready_by_size(self._gang)}
        gang, stage = self._gang, _stage_of(self._gang)
        if stage is None or not self._may_take(gang):
            self._gang = None
            return None
        jobs = ready_by_size(gang)
        most = max(1, _NODES_A_TICK // max(1, len(jobs)))
        looked_at = list(islice(self._left, most))
        for name in looked_at:
            for each in jobs:
                found = self._look_at(name, gang, stage, each, ())
                if found is not None:
                    self._found.setdefault(each.task, {})[name] = found
        if len(looked_at) == most:
            return None
        self._gang = None
        return self._all_of(gang, stage)

    def _next_gang(self, now: Moment) -> Operation | None:
        """Return the next gang to search for: gangs that starve aggressively come first, then the gang with the lowest satisfaction."""
        facts, backoff_s = self._facts, self._facts.pools.options.preemptive_scheduling_backoff / 1000
        found = []
        for operation in islice(facts.gangs.of.values(), _MOST_GANGS):
            gang = operation.gang
            if gang is None or (gang.tried_s is not None and now.steady_s <= gang.tried_s + backoff_s):
                continue
            if self._may_take(operation):
                is_later = gang.priority is not PreemptionPriority.AGGRESSIVE
                found.append((is_later, satisfaction(operation, operation.held), operation.rank, operation.id))
        if not found:
            return None
        chosen = facts.gangs.of[min(found)[-1]]
        if chosen.gang is not None:
            chosen.gang.tried_s = now.steady_s
        return chosen

    def _may_take(self, operation: Operation) -> bool:
        """True for a gang that starves, is owed all it wants, and could start all its jobs at once if there were enough free resources."""
        facts, gang = self._facts, operation.gang
        if gang is None or gang.priority is PreemptionPriority.NONE or operation.id not in facts.gangs.of:
            return False
        has_turn = gang.phase in _IDLE and facts.gangs.gathering is None
        is_gathering = gang.phase is GangPhase.GATHERING and not gang.asked
        ready = operation.slots.gang_ready_count
        if not (has_turn or is_gathering) or not ready or ready != operation.slots.gang_pending_count:
            return False
        if not operation.schedulable or members(operation) or never_fits(operation):
            return False
        return gang_owed_too_little(facts, operation) is None

    def _look_at(
        self,
        name: NodeName,
        gang: Operation,
        stage: PreemptiveStage,
        wanted: Jobs,
        going: Collection[Operation],
        chosen: Sequence[Places] = (),
    ) -> Places | None:
        """Return resources for these jobs of the gang, or for as many of them as fit, on a node. Return None if no job fits.

        The gangs in `going` count as gone from the node. `chosen` are resources that are already chosen for larger jobs of the gang.
        """
        facts, node = self._facts, self._facts.nodes.get(name)
        if (
            node is None
            or not node.accepts_jobs
            or name in facts.empty_nodes.names
            or waits_for_room(node.allocations.values())
        ):
            return None
        if not all(matches(formula, node.record.tags) for formula in facts.pools.filters_of(gang.spec)):
            return None
        overlay = Overlay(View.of(facts, node, self._order, pace_ms=0, stirring=()))
        for one in node.allocations.values():
            owner = facts.operations.get(one.operation)
            if owner is not None and owner in going and is_in_gang(owner, one) and one.usage != ZERO:
                overlay.free(owner, one)
        used = resources_of(one.jobs for one in chosen if one.node is node)
        for one in (allocation for each in chosen if each.node is node for allocation, _ in each.victims):
            if one not in overlay.freed:
                overlay.free(facts.operations[one.operation], one)
        found = candidates(overlay, stage.least)
        self._gangs |= dict.fromkeys(found.gangs)
        # Other jobs of the gang's own operation are not preempted for the gang.
        free = [one for one in found.free if one.operation != gang.id]
        room = overlay.room - used + Resources.sum(one.usage for one in free)
        left = keep_order(free, found.groups)
        jobs, taken, needed = self._jobs_in(overlay.room - used, wanted), list[Allocation](), 0
        while jobs < wanted.count and left:
            taken.append(left.pop())
            overlay.free(facts.operations[taken[-1].operation], taken[-1])
            more = self._jobs_in(overlay.room - used, wanted)
            if more > jobs:
                jobs, needed = more, len(taken)
        victims = [(one, found.groups[one]) for one in taken[:needed]]
        return Places(node, msgspec.structs.replace(wanted, count=jobs), room, victims) if jobs else None

    def _jobs_in(self, room: Resources, wanted: Jobs) -> int:
        """Return how many of these jobs could start in `room` one after another."""
        return min(wanted.count, jobs_in(room, wanted.size, self._facts.pools.min_spare))

    def _all_of(self, gang: Operation, stage: PreemptiveStage) -> Taken | None:
        """Return the nodes and victims for all jobs of the gang, or None if they are not enough.

        Other gangs are preempted only if all other victims together are not enough.
        """
        going: list[Operation] = []
        places, is_enough = self._places(gang, stage, going)
        has = gang.held + resources_of(one.jobs for one in places)
        # The smallest gangs are tried first.
        for other in sorted(self._gangs, key=lambda one: (part_of(one, self._facts.pools), one.id)):
            if is_enough or len(going) == _MOST_GOING:
                break
            freed = sum(part_of(one, self._facts.pools) for one in going)
            if (
                other is not gang
                and may_go_whole(other)
                and is_owed_room_of(other, gang, self._facts.pools, has, freed)
            ):
                going.append(other)
                places, is_enough = self._places(gang, stage, going)
        if not is_enough:
            return None
        for other in list(going):
            fewer = [one for one in going if one is not other]
            without, is_enough = self._places(gang, stage, fewer)
            if is_enough:
                going, places = fewer, without
        # If all jobs fit without preemption, nothing is preempted: each heartbeat that finds free resources holds them for the gang.
        if not going and not any(one.victims for one in places):
            return None
        taken = Taken(gang, stage, places, going)
        return taken if self._is_within_limits(taken) else None

    def _is_within_limits(self, taken: Taken) -> bool:
        """True if no pool exceeds its limit once the victims are gone and all jobs of the gang run."""
        pools, gang = self._facts.pools, taken.gang
        wanted = resources_of(ready_by_size(gang))
        more = {pool.name: wanted for pool in pools.above(gang.spec.pool)}
        for one in taken.victims():
            for pool in pools.above(self._facts.operations[one.operation].spec.pool):
                if pool.name in more:
                    more[pool.name] -= one.usage
        return not any(
            exceeds(pool.charged + more[pool.name], pool.limit(pools.options, tolerant=True))
            for pool in pools.above(gang.spec.pool)
        )

    def _places(
        self, gang: Operation, stage: PreemptiveStage, going: Collection[Operation]
    ) -> tuple[list[Places], bool]:
        """Choose nodes for the jobs of the gang. Return what was found, and True if all jobs fit.

        Free resources come first, then the fewest victims for a job. If the jobs of several sizes do not all fit then, each goes to the
        node with the least resources that can be freed.
        """
        places, is_enough = self._chosen(gang, stage, going, fewest_victims=True)
        if is_enough or not gang.kinds:
            return places, is_enough
        return self._chosen(gang, stage, going, fewest_victims=False)

    def _chosen(
        self, gang: Operation, stage: PreemptiveStage, going: Collection[Operation], *, fewest_victims: bool
    ) -> tuple[list[Places], bool]:
        places: list[Places] = []
        scale = gang.gang.scale if gang.gang is not None else ZERO
        for wanted in ready_by_size(gang):
            left, known = wanted.count, dict(self._found.get(wanted.task, {}))
            for name in {one.node for other in going if other.gang for one in other.gang.allocations}:
                found = self._look_at(name, gang, stage, wanted, going)
                known |= {} if found is None else {name: found}

            def rank(one: Places, size: Resources = wanted.size) -> tuple[float, ...]:
                victims = len(one.victims) / one.jobs.count
                if not gang.kinds:
                    return (victims,)
                taken = resources_of(each.jobs for each in places if each.node is one.node)
                room = tightness(one.room - taken, size, scale)
                return (victims, room) if fewest_victims else (room, victims)

            for one in sorted(known.values(), key=rank):
                if not left:
                    break
                # The node is examined again: the search examined it some time ago, or for more jobs than are left.
                most = msgspec.structs.replace(wanted, count=min(left, one.jobs.count))
                now = self._look_at(one.node.record.node, gang, stage, most, going, places)
                if now is not None:
                    places.append(now)
                    left -= now.jobs.count
            if left:
                return places, False
        return places, True


def _stage_of(operation: Operation) -> PreemptiveStage | None:
    return next((one for one in STAGES if operation.gang is not None and one.priority is operation.gang.priority), None)
