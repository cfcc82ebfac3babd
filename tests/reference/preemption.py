"""The rules of preemption, written plainly from their specification: who may lose a place, who does, and what stays.

Nothing is kept from call to call, and nothing of the allocator's own decisions is used.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from headrace.ids import PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.pool_config import PreemptionSwitch
from headrace.pools.tree_options import VictimRules
from headrace.resources import ZERO, Resources, Share
from headrace.satisfaction import local_satisfaction
from headrace.wire.heartbeat import AllocationState
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import StarvationStatus
from headrace_allocator.decide import DueSteps, HeartbeatDecision
from headrace_allocator.decision.extending import Extension
from headrace_allocator.decision.view import View
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolState
from headrace_allocator.preemption.stages import StageOutcome

__all__ = ["Judgement", "judge"]

NON_PREEMPTIBLE: Final = 0
AGGRESSIVELY_PREEMPTIBLE: Final = 1
PREEMPTIBLE: Final = 2
_EPS: Final = 1e-9


class Judgement(msgspec.Struct):
    """One node at the moment of a decision, with what was taken on it so far."""

    view: View
    room: Resources
    #: As it was before the decision: usage of every allocation, by operation in the order of progress.
    lists: dict[str, list[tuple[Allocation, Resources]]]
    #: The operation for which the node is reserved, until a job of it starts.
    reserved: Operation | None = None
    #: What each operation holds more by this decision.
    added: dict[str, Resources] = {}
    freed: set[Allocation] = set()
    #: Room that the stage may make beside that which is free.
    room_may_be: Resources = ZERO

    @staticmethod
    def before(view: View) -> Judgement:
        """Notes everything that the decision may change."""
        lists = {
            name: [(one, one.usage) for one in operation.cut_groups(view.pools)]
            for name, operation in view.operations.items()
        }
        return Judgement(view, view.free, lists, view.reserved)  # type: ignore[arg-type]

    def use(self, operation: Operation, amount: Resources) -> None:
        """A job of the operation starts."""
        self.room = self.room - amount
        self.added[operation.id] = self.added.get(operation.id, ZERO) + amount

    def start(self, operation: Operation) -> None:
        """A job starts: on a reserved node that of the operation with the reservation, or one that fits beside its job."""
        self.use(operation, operation.spec.resources)
        if operation is self.reserved:
            self.reserved = None
        elif self.reserved is not None:
            assert (self.room + self.room_may_be).dominates(self.reserved.spec.resources), (
                "nothing starts that delays a reserved job"
            )

    def take(self, allocation: Allocation) -> None:
        """An allocation goes."""
        self.use(self.operation_of(allocation), ZERO - self.usage(allocation))
        self.freed.add(allocation)

    def operation_of(self, allocation: Allocation) -> Operation:
        """Its operation."""
        return self.view.operations[allocation.operation]

    def usage(self, allocation: Allocation) -> Resources:
        """What counts as used by it."""
        return ZERO if allocation in self.freed else allocation.usage

    # --- groups -----------------------------------------------------------------------------------------------------

    def group(self, allocation: Allocation) -> int:
        """Section 6.2: the first border before which it does not stand."""
        operation, policy = self.operation_of(allocation), self.view.pools.options
        assert not policy.consider_allocation_on_fair_share_bound_preemptible
        # The border is before the first allocation that is not protected; none behind it is left of it.
        prefixes = list(self._prefixes(allocation))
        for group, threshold in (
            (NON_PREEMPTIBLE, policy.aggressive_preemption_satisfaction_threshold),
            (AGGRESSIVELY_PREEMPTIBLE, policy.preemption_satisfaction_threshold),
        ):
            if all(self.is_protected(operation, prefix, threshold, group) for prefix in prefixes):
                return group
        return PREEMPTIBLE

    def is_protected(
        self, operation: Operation, prefix: Resources, threshold: float, group: int, *, slack: float = _EPS
    ) -> bool:
        """True if an allocation with this prefix before it is left of the border behind a group."""
        total, fair, demand = self.view.pools.total, operation.fair_share, operation.demand_share
        share = prefix.share_of(total)
        usage_threshold = operation.options(self.view.pools).non_preemptible_resource_usage_threshold
        if usage_threshold != NOTHING and _strictly_below(prefix, usage_threshold):
            return True
        owed_all = max(demand) >= _EPS and all(abs(f - d) < _EPS for f, d in zip(fair, demand, strict=True))
        if group == AGGRESSIVELY_PREEMPTIBLE and owed_all:
            return True
        return _dominates_on_unblocked(tuple(threshold * f for f in fair), share, fair, demand, slack)

    def _prefixes(self, allocation: Allocation) -> Iterator[Resources]:
        prefix = ZERO
        for one, usage in self.lists[allocation.operation]:
            yield prefix
            if one is allocation:
                return
            prefix = prefix + (ZERO if one in self.freed else usage)

    def prefix(self, allocation: Allocation) -> Resources:
        """What its operation keeps of all that came before it."""
        return list(self._prefixes(allocation))[-1]

    # --- victims ----------------------------------------------------------------------------------------------------

    def candidates(self, least: int) -> list[Allocation]:
        """Sections 6.9, 9.1 and 9.2. Nobody's job goes for another before it has run for as long as its pool lets it."""
        return [one for one in self.to_repair(least) if not self.is_exempt(one)]

    def to_repair(self, least: int) -> list[Allocation]:
        """The same with jobs that have not."""
        return [one for one in self.view.allocations if self._may_go(one, least) and self._shield(one, least) is None]

    def is_exempt(self, one: Allocation) -> bool:
        """True if its job began, by the host's clock, less than its pool's `preemption_exempt_time` ago."""
        began_ms = one.job.started_boottime_ms if one.job is not None else 0
        exempt_ms = self.operation_of(one).options(self.view.pools).preemption_exempt_time_ms
        return bool(began_ms) and self.view.boottime_ms - began_ms < exempt_ms

    def crossing_for(self, starter: Operation, least: int) -> list[Allocation]:
        """What crosses a bound goes for a job that its operation is owed whole, from whoever has more than its share."""
        pools = self.view.pools
        if not pools.options.preempt_at_bound_for_owed_jobs or least != PREEMPTIBLE:
            return []
        more = starter.held + self.added.get(starter.id, ZERO) + starter.spec.resources
        spare = 1e-3 * max(starter.spec.resources.share_of(pools.total))
        if any(
            share > fair + spare for share, fair in zip(more.share_of(pools.total), starter.fair_share, strict=True)
        ):
            return []
        there = [one for one in self.view.allocations if self._may_go(one, AGGRESSIVELY_PREEMPTIBLE, at_bound=True)]
        return [
            one
            for one in there
            if self._crosses(one) and self._is_above_its_share(one, starter) and not self.is_exempt(one)
            if self._shield(one, least) is None and not self._goes_whole(one)
        ]

    def _goes_whole(self, one: Allocation) -> bool:
        return self.operation_of(one).gang is not None and self.view.pools.options.preempt_gangs_whole

    def _crosses(self, one: Allocation) -> bool:
        operation, prefix = self.operation_of(one), self.prefix(one)
        threshold = self.view.pools.options.preemption_satisfaction_threshold
        if not self.is_protected(operation, prefix, threshold, AGGRESSIVELY_PREEMPTIBLE):
            return False
        # What ends exactly at the bound does not cross it.
        return not self.is_protected(operation, prefix + one.usage, threshold, AGGRESSIVELY_PREEMPTIBLE, slack=-_EPS)

    def _is_above_its_share(self, one: Allocation, starter: Operation) -> bool:
        pools, operation = self.view.pools, self.operation_of(one)
        if operation is starter:
            return False
        held = operation.held + self.added.get(operation.id, ZERO)
        above = [(held, operation.fair_share, operation.demand_share)]
        shared = set(pools.pool(starter.spec.pool).path())
        for pool in pools.pool(operation.spec.pool).path():
            if pool not in shared and pool.item is not None:
                below = [each for each in self.view.operations.values() if pool in pools.pool(each.spec.pool).path()]
                used = Resources.sum(each.held + self.added.get(each.id, ZERO) for each in below)
                above.append((used, pool.item.fair_share.total, pool.item.demand_share))
        return all(
            local_satisfaction(used.share_of(pools.total), fair, wanted) > 1 + _EPS for used, fair, wanted in above
        )

    def held(self, least: int) -> dict[PoolName, list[Allocation]]:
        """Section 9.3: what those below a shielded pool may take of others below it."""
        held: dict[PoolName, list[Allocation]] = {}
        for one in self.view.allocations:
            shield = self._shield(one, least) if self._may_go(one, least) else None
            if isinstance(shield, PoolState) and self.group(one) == PREEMPTIBLE and not self.is_exempt(one):
                held.setdefault(shield.name, []).append(one)
        return held if self.view.pools.options.enable_conditional_preemption else {}

    def held_for(self, operation: Operation, held: dict[PoolName, list[Allocation]]) -> list[Allocation]:
        """The part of that which an operation may take."""
        above = [pool.name for pool in self.view.pools.pool(operation.spec.pool).path()]
        return [one for pool in above for one in held.get(pool, [])]

    def _may_go(self, allocation: Allocation, least: int, *, at_bound: bool = False) -> bool:
        if not self.may_be_asked_for(allocation, PREEMPTIBLE if at_bound else least):
            return False
        group, options = self.group(allocation), self.operation_of(allocation).options(self.view.pools)
        if group == AGGRESSIVELY_PREEMPTIBLE and not options.allow_aggressive_preemption:
            return False
        return group < PREEMPTIBLE if at_bound else group >= least

    def may_be_asked_for(self, allocation: Allocation, least: int) -> bool:
        """True if an allocation is there, and its operation and its pools let any be taken."""
        operation = self.view.operations.get(allocation.operation)
        if operation is None or operation.ending or self.usage(allocation) == ZERO:
            return False
        if allocation.take_back is not None or allocation.state is AllocationState.ENDED:
            return False
        options = operation.options(self.view.pools)
        if operation.spec.preemption_mode is PreemptionMode.GRACEFUL or options.preemption is not PreemptionSwitch.ON:
            return False
        return least != PREEMPTIBLE or options.allow_normal_preemption

    def _shield(self, allocation: Allocation, least: int) -> Operation | PoolState | None:
        """Section 9.2, or 9.3 where the older rules hold: whoever keeps an allocation from being taken."""
        operation, policy = self.operation_of(allocation), self.view.pools.options
        if policy.victim_rules is not VictimRules.LEGACY:
            starves = operation.starvation is not StarvationStatus.NON_STARVING
            return operation if starves and not policy.allow_preemption_from_starving_operations else None
        elements: list[Operation | PoolState] = [operation, *self.view.pools.pool(operation.spec.pool).path()]
        return next((one for one in elements if self._is_shielded(one, least)), None)

    def _is_shielded(self, element: Operation | PoolState, least: int) -> bool:
        pools, policy = self.view.pools, self.view.pools.options
        if isinstance(element, Operation):
            starvation, options = element.starvation, element.options(pools)
            used, fair, demand = element.held, element.fair_share, element.demand_share
            below = [element]
        else:
            item = element.item
            assert item is not None
            assert item.options is not None
            starvation, options = item.starvation_status, item.options
            used, fair, demand = ZERO, item.fair_share.total, item.demand_share
            below = [one for one in self.view.operations.values() if element in pools.pool(one.spec.pool).path()]
            used = Resources.sum(one.held for one in below)
        if policy.preemption_check_starvation and starvation is not StarvationStatus.NON_STARVING:
            return True
        aggressive = least == AGGRESSIVELY_PREEMPTIBLE and options.allow_aggressive_preemption
        threshold = (
            policy.aggressive_preemption_satisfaction_threshold
            if aggressive
            else policy.preemption_satisfaction_threshold
        )
        used = used + Resources.sum(self.added.get(one.id, ZERO) for one in below)
        satisfied = local_satisfaction(used.share_of(pools.total), fair, demand)
        return policy.preemption_check_satisfaction and satisfied < threshold + 1e-4

    def keep_order(self, allocations: Collection[Allocation]) -> list[Allocation]:
        """Section 9.4."""

        def key(one: Allocation) -> tuple[int, bool, float]:
            group = self.group(one)
            later = group != PREEMPTIBLE and one.usage.cpu < one.resources.cpu
            return group, later, math.inf if one.progress_started_ms is None else one.progress_started_ms

        return sorted(allocations, key=key)

    def until_it_fits(self, kept: list[Allocation]) -> list[Allocation]:
        """Takes from the end of the order as many as the node needs."""
        taken = []
        while kept and not self.room.dominates(ZERO):
            taken.append(kept.pop())
            self.take(taken[-1])
        return taken

    def above_limits(self, kept: Sequence[Allocation]) -> list[Allocation]:
        """Section 9.5: of those that are left whatever is above a limit when its turn comes."""
        taken = []
        for one in reversed(kept):
            if self._is_above_a_limit(self.operation_of(one)):
                self.take(one)
                taken.append(one)
        return taken

    def overcommitted(self) -> list[Allocation]:
        """Section 11: what does not fit beside those that are kept before it."""
        if self.room.dominates(ZERO):
            return []
        kept, taken = ZERO, []
        known = [one for one in self.view.allocations if one.operation in self.view.operations]
        for one in self.keep_order([one for one in known if self.usage(one) != ZERO]):
            if self.view.limits.dominates(kept + one.usage):
                kept = kept + one.usage
            else:
                taken.append(one)
        for one in taken:
            self.take(one)
        return taken

    def _is_above_a_limit(self, operation: Operation) -> bool:
        held = operation.held + self.added.get(operation.id, ZERO)
        if _exceeds(held, operation.spec.resource_limits):
            return True
        pools = self.view.pools
        for pool in pools.pool(operation.spec.pool).path():
            below = [one for one in self.view.operations.values() if pool in pools.pool(one.spec.pool).path()]
            used = Resources.sum(one.held + self.added.get(one.id, ZERO) for one in below)
            if _exceeds(used, pool.most):
                return True
        return False


def judge(now: Judgement, due: DueSteps, made: HeartbeatDecision) -> None:
    """Goes through a decision by the plain rules."""
    for one in made.preemptions:
        if one.reason is PreemptionReason.GRACEFUL_PREEMPTION:
            assert now.operation_of(one.allocation).spec.preemption_mode is PreemptionMode.GRACEFUL
            assert now.group(one.allocation) == PREEMPTIBLE
            assert not now.is_exempt(one.allocation)
    if now.reserved is not None:
        extended = [one.allocation.operation for one in made.extensions if isinstance(one, Extension)]
        assert set(extended) <= {now.reserved.id}, "what runs on a reserved node gets no more jobs"
    for placement in made.placements:
        now.start(placement.operation)
        assert now.room.dominates(ZERO), "what starts without preemption has free room"
    started = [stage for stage in made.stages if stage.placement is not None]
    assert len(started) <= 1, "one start through preemption at most"
    assert started in ([], made.stages[-1:]), "after a start no further stage runs"
    for stage in made.stages:
        if stage.for_few_nodes:
            judge_stage_for_few_nodes(now, stage)
        else:
            judge_stage(now, stage)
    overcommit = [one.allocation for one in made.preemptions if one.reason is PreemptionReason.RESOURCE_OVERCOMMIT]
    assert overcommit == (now.overcommitted() if due.repair_overcommit else [])


def judge_stage(now: Judgement, stage: StageOutcome) -> None:
    """Who could go, who went, and what their operations keep."""
    least = int(stage.stage.least)
    found, held = now.candidates(least), now.held(least)
    to_repair = now.to_repair(least)
    # Before the stage takes anything: what crosses a bound may go after what is newer than it.
    known = [one for one in now.view.allocations if one.operation in now.view.operations]
    prefixes = {one: now.prefix(one) for one in known}
    may_go = list(found) if stage.placement is not None else list(to_repair)
    # Where nobody starves and nothing is to be repaired nobody looks; that nobody had to is judged below.
    if stage.candidates or stage.held:
        assert (stage.candidates, stage.discount) == (len(found), Resources.sum(map(now.usage, found)))
        assert stage.held == {pool: Resources.sum(map(now.usage, ones)) for pool, ones in held.items()}
    crossing: list[Allocation] = []
    if stage.placement is not None:
        starter = stage.placement.operation
        assert starter.preemption_priority is stage.stage.priority
        may_go += now.held_for(starter, held)
        if not (now.room + Resources.sum(map(now.usage, may_go))).dominates(starter.spec.resources):
            crossing = now.crossing_for(starter, least)
            may_go += crossing
        assert (now.room + Resources.sum(map(now.usage, may_go))).dominates(starter.spec.resources)
        now.room_may_be = Resources.sum(map(now.usage, may_go))
        now.start(starter)
    kept = now.keep_order(may_go)
    young = [one for one in to_repair if one not in may_go]
    rest = now.keep_order([*kept, *young])
    victims = now.until_it_fits(kept)
    taken = [one for one in stage.preemptions if one.reason is stage.stage.reason]
    assert [one.allocation for one in taken] == victims, "no victim more than the greedy rule needs, and none less"
    assert {one.beneficiary for one in taken} <= {stage.placement and stage.placement.operation}
    if stage.placement is not None:
        assert now.room.dominates(ZERO), "room is really made"
        room_made = Resources.sum(victim.usage for victim in victims)
        assert stage.unused == room_made.within(now.room)
    repaid = [one.allocation for one in stage.preemptions if one.reason is PreemptionReason.RESOURCE_LIMITS_VIOLATED]
    assert repaid == now.above_limits([one for one in rest if one in to_repair and one not in victims])
    policy = now.view.pools.options
    for victim in victims + repaid:
        operation, prefix = now.operation_of(victim), prefixes[victim]
        aggressive, plain = (
            policy.aggressive_preemption_satisfaction_threshold,
            policy.preemption_satisfaction_threshold,
        )
        if least == AGGRESSIVELY_PREEMPTIBLE:
            assert not now.is_protected(operation, prefix, aggressive, NON_PREEMPTIBLE)
        else:
            crosses = victim in crossing
            assert now.is_protected(operation, prefix, plain, AGGRESSIVELY_PREEMPTIBLE) is crosses


def judge_stage_for_few_nodes(now: Judgement, stage: StageOutcome) -> None:
    """Nobody loses more than it has too much, and only for an operation that cannot run everywhere."""
    assert stage.placement is not None
    starter = stage.placement.operation
    assert starter.preemption_priority is stage.stage.priority
    assert now.view.pools.filters_of(starter.spec)
    now.use(starter, starter.spec.resources)
    for one in stage.preemptions:
        assert not now.room.dominates(ZERO), "no victim more than are needed"
        victim, operation = one.allocation, now.operation_of(one.allocation)
        assert one.beneficiary is starter
        assert now.may_be_asked_for(victim, PREEMPTIBLE)
        assert not now.is_exempt(victim)
        assert now._shield(victim, PREEMPTIBLE) is None
        now.take(victim)
        left = Resources.sum(ZERO if each in now.freed else usage for each, usage in now.lists[victim.operation])
        threshold = now.view.pools.options.preemption_satisfaction_threshold
        assert not now.is_protected(operation, left, threshold, AGGRESSIVELY_PREEMPTIBLE)
    assert now.room.dominates(ZERO), "room is really made"


def _strictly_below(usage: Resources, threshold: PartialResources) -> bool:
    pairs = zip(threshold.as_tuple(), usage.as_tuple(), strict=True)
    return all(most is None or most > used for most, used in pairs)


def _dominates_on_unblocked(
    left: Sequence[float], right: Share, fair: Share, demand: Share, slack: float = _EPS
) -> bool:
    """Section 1.3, where the last bit of a fair share is no difference."""
    above = [one - other > slack for one, other in zip(left, right, strict=True)]
    unblocked = [at for at in range(len(fair)) if fair[at] < demand[at]]
    return all(above[at] for at in unblocked) if unblocked else any(above)


def _exceeds(used: Resources, limit: PartialResources) -> bool:
    return any(most is not None and has > most for has, most in zip(used.as_tuple(), limit.as_tuple(), strict=True))
