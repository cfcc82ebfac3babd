"""Which allocations of a node may be preempted, for which operation, and in which order.

Source: sections 6.2, 6.9, 9.1 to 9.5 and 11 of the specification of allocation and preemption.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from headrace.ids import PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.pool_config import PreemptionSwitch
from headrace.pools.tree_options import PriorityScope, VictimRules
from headrace.resources import EPS, RESOURCE_NAMES, ZERO, Resources, Share
from headrace.satisfaction import local_satisfaction
from headrace.wire.heartbeat import AllocationState
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.snapshots import ShareItem, StarvationStatus
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolState
from headrace_allocator.facts.preemption_groups import Group
from tests.reference.heartbeats.state import State


class Found(msgspec.Struct):
    """The allocations of a node that a stage may preempt."""

    #: For any operation.
    free: list[Allocation] = []
    #: By shielded pool, for operations below the pool.
    held: dict[PoolName, list[Allocation]] = {}
    #: To repair the node or a limit only, with the milliseconds until the job is old enough.
    exempt: dict[Allocation, int] = {}
    #: By gang, together with all other allocations of the gang.
    gangs: dict[Operation, list[Allocation]] = {}
    #: For an operation that is owed a whole job.
    crossing: list[Allocation] = []
    #: The group of each of these allocations.
    groups: dict[Allocation, Group] = {}

    def to_repair(self) -> list[Allocation]:
        """Return the allocations that may be preempted to repair the node or a limit."""
        held = [one for ones in self.held.values() for one in ones]
        return [one for one in self.groups if one not in held and one not in self.crossing]

    def held_for(self, state: State, operation: Operation) -> list[Allocation]:
        """Return the allocations that are shielded by pools above the operation."""
        return [one for pool in state.above(operation) for one in self.held.get(pool.name, [])]


def candidates(state: State, least: Group) -> Found:
    """Return the allocations that a stage may preempt which takes allocations of at least group `least`."""
    found = Found()
    for one, group in groups_of(state, [one for one in state.view.allocations if _may_go(state, one, least)]).items():
        operation = state.operation_of(one)
        is_aggressive = group is Group.AGGRESSIVELY_PREEMPTIBLE
        crosses = group < least and _may_go_at_bound(state, one, least)
        is_kept = is_aggressive and not operation.options(state.view.pools).allow_aggressive_preemption
        if (group < least and not crosses) or is_kept:
            continue
        shield, exempt_ms = _shield(state, operation, least), exempt_for_ms(state, one)
        if shield is None and exempt_ms and not crosses:
            found.exempt[one] = exempt_ms
        elif exempt_ms or (shield is not None and crosses):
            continue
        elif crosses:
            found.crossing.append(one)
        elif shield is None and goes_whole(state, one):
            found.gangs.setdefault(operation, []).append(one)
        elif shield is None:
            found.free.append(one)
        elif (
            isinstance(shield, PoolState)
            and not is_aggressive
            and state.view.pools.options.enable_conditional_preemption
        ):
            found.held.setdefault(shield.name, []).append(one)
        else:
            continue
        found.groups[one] = group
    return found


def excess(state: State) -> Found:
    """Return the allocations by which operations exceed what is protected of them, whether they are the newest or not."""
    found, taken = Found(), list(state.freed)
    for one in reversed(state.view.allocations):
        if not _may_go(state, one, Group.PREEMPTIBLE) or exempt_for_ms(state, one):
            continue
        operation = state.operation_of(one)
        if goes_whole(state, one) or _shield(state, operation, Group.PREEMPTIBLE) is not None:
            continue
        others = [each.usage for each in operation.allocations.values() if each is not one and each not in taken]
        if not _is_left(state, operation, Group.PREEMPTIBLE, Resources.sum(others), one.usage):
            taken.append(one)
            found.free.append(one)
            found.groups[one] = Group.PREEMPTIBLE
    return found


def allows_preemption(state: State, operation: Operation) -> bool:
    """True if allocations of the operation may be preempted, by the options of its pool."""
    return operation.options(state.view.pools).preemption is PreemptionSwitch.ON


def exempt_for_ms(state: State, one: Allocation) -> int:
    """Return the milliseconds until the job has run for its pool's `preemption_exempt_time`, by the host's clock."""
    began_ms = one.job.started_boottime_ms if one.job is not None else 0
    exempt_ms = state.operation_of(one).options(state.view.pools).preemption_exempt_time_ms
    ran_ms = max(0, state.view.boottime_ms - began_ms)
    return max(0, exempt_ms - ran_ms) if began_ms else 0


def _may_go(state: State, one: Allocation, least: Group) -> bool:
    """Sections 6.9 and 9.1: the allocation uses something and is not ending, and its operation and pools let it be preempted."""
    operation = state.view.operations.get(one.operation)
    if operation is None or state.usage(one) == ZERO or one.take_back is not None or one.state is AllocationState.ENDED:
        return False
    if operation.spec.preemption_mode is PreemptionMode.GRACEFUL or operation.ending:
        return False
    allows_normal = operation.options(state.view.pools).allow_normal_preemption
    return allows_preemption(state, operation) and (least is not Group.PREEMPTIBLE or allows_normal)


def keep_order(allocations: Iterable[Allocation], groups: Mapping[Allocation, Group]) -> list[Allocation]:
    """Section 9.4: the allocations that are kept longest come first."""

    def place(one: Allocation) -> tuple[Group, bool, float]:
        uses_less = groups[one] is not Group.PREEMPTIBLE and one.usage.cpu < one.resources.cpu
        began_ms = math.inf if one.progress_started_ms is None else one.progress_started_ms
        return groups[one], uses_less, began_ms

    return sorted(allocations, key=place)


def is_above_a_limit(state: State, operation: Operation) -> bool:
    """Section 9.5: the operation or a pool above it uses more than its limit. Jobs in doubt and tolerances do not count."""
    limits = [(state.held(operation), operation.spec.resource_limits)]
    limits += [(state.used(pool), pool.item.limits) for pool in state.above(operation) if pool.item is not None]
    return any(_exceeds(used, limit) for used, limit in limits)


# --- groups -------------------------------------------------------------------------------------------------------------


def groups_of(state: State, allocations: Collection[Allocation]) -> dict[Allocation, Group]:
    """Section 6.2: return the groups of allocations of known operations. Preempted allocations no longer use anything."""
    groups: dict[Allocation, Group] = {}
    for operation in dict.fromkeys(state.operation_of(one) for one in allocations):
        before, group = ZERO, Group.NON_PREEMPTIBLE
        for one in sorted(operation.allocations.values(), key=lambda one: one.place):
            while group < Group.PREEMPTIBLE and not _is_left(
                state, operation, Group(group + 1), before, state.usage(one)
            ):
                group = Group(group + 1)
            groups[one] = group
            before = before + state.usage(one)
    return {one: groups[one] for one in allocations}


def _is_left(state: State, operation: Operation, behind: Group, before: Resources, own: Resources) -> bool:
    """True if an allocation that uses `own` is left of the border before the group `behind`, with `before` in use before it."""
    if not state.view.pools.options.consider_allocation_on_fair_share_bound_preemptible:
        return _is_below(state, operation, behind, before)
    bound, share = _bound(state, operation, behind), (before + own).share_of(state.view.pools.total)
    reaches = bound is not None and all(abs(one - other) < EPS for one, other in zip(bound, share, strict=True))
    return reaches or _is_below(state, operation, behind, before + own)


def _is_below(state: State, operation: Operation, behind: Group, usage: Resources, slack: float = EPS) -> bool:
    """True if usage of the operation is below the bound of the border before the group `behind`.

    It is below in every resource of which more would help; if more would help in no resource, one resource is enough.
    """
    threshold = operation.options(state.view.pools).non_preemptible_resource_usage_threshold
    pairs = zip(threshold.as_tuple(), usage.as_tuple(), strict=True)
    if threshold != NOTHING and all(most is None or most > used for most, used in pairs):
        return True
    bound, fair = _bound(state, operation, behind), operation.fair_share
    if bound is None:
        return True
    share = usage.share_of(state.view.pools.total)
    is_below = [most - used > slack for most, used in zip(bound, share, strict=True)]
    helps = [owed < wanted for owed, wanted in zip(fair, operation.demand_share, strict=True)]
    return all(one for one, more in zip(is_below, helps, strict=True) if more) if any(helps) else any(is_below)


def _bound(state: State, operation: Operation, behind: Group) -> Share | None:
    """Return the bound of a border; None if the operation is owed all that it wants, so that nothing is above the bound."""
    fair, demand, options = operation.fair_share, operation.demand_share, state.view.pools.options
    owed_all = max(demand) >= EPS and all(abs(one - other) < EPS for one, other in zip(fair, demand, strict=True))
    if behind is Group.AGGRESSIVELY_PREEMPTIBLE:
        times = options.aggressive_preemption_satisfaction_threshold
    elif owed_all:
        return None
    else:
        times = options.preemption_satisfaction_threshold
    u, c, g, m, n = fair
    return times * u, times * c, times * g, times * m, times * n


# --- allocations that cross a bound -------------------------------------------------------------------------------------


def _may_go_at_bound(state: State, one: Allocation, least: Group) -> bool:
    """True if the allocation crosses the bound of its operation's share, and a normal stage may take it for that."""
    options, operation = state.view.pools.options, state.operation_of(one)
    if not options.preempt_at_bound_for_owed_jobs or options.victim_rules is VictimRules.LEGACY:
        return False
    if least is not Group.PREEMPTIBLE or goes_whole(state, one):
        return False
    before = Resources.sum(state.usage(each) for each in operation.allocations.values() if each.place < one.place)
    # An allocation that ends exactly at the bound does not cross it.
    return _is_below(state, operation, least, before) and not _is_below(
        state, operation, least, before + one.usage, -EPS
    )


def crossing_for(state: State, found: Found, starter: Operation) -> list[Allocation]:
    """Return the allocations at bounds whose operations, and the pools above them only, have more than their fair share."""

    def has_more(operation: Operation) -> bool:
        alone = [pool for pool in state.above(operation) if pool not in state.above(starter)]
        return state.satisfaction(operation) > 1 + EPS and all(
            state.satisfaction_of_pool(pool) > 1 + EPS for pool in alone
        )

    losers = {one: state.operation_of(one) for one in found.crossing}
    return [one for one, loser in losers.items() if loser is not starter and has_more(loser)]


def is_owed_a_job(state: State, operation: Operation) -> bool:
    """True if the operation's fair share covers one more job in every resource that the job needs."""
    amounts = zip(
        state.held(operation).as_tuple(),
        operation.min_needed.as_tuple(),
        operation.fair_share,
        operation.total.as_tuple(),
        strict=True,
    )
    return all(there + 0.999 * more <= share * whole for there, more, share, whole in amounts if more)


# --- gangs that are preempted as a whole --------------------------------------------------------------------------------


def goes_whole(state: State, one: Allocation) -> bool:
    """True if the allocation may be preempted only together with all others of its gang."""
    gang = state.operation_of(one).gang
    return gang is not None and one in gang.allocations and state.view.pools.options.preempt_gangs_whole


def part_of(state: State, gang: Operation) -> float:
    """Return the fraction of the cluster that a gang holds, in its dominant resource."""
    assert gang.gang is not None
    held = Resources.sum(one.usage for one in gang.gang.allocations)
    return held.share_of(state.view.pools.total)[RESOURCE_NAMES.index(gang.dominant_resource)]


def is_short_of(state: State, gang: Operation, starter: Operation) -> bool:
    """True if `starter`, or a starving pool above it alone, lacks all that the gang holds, and more than the gang is owed of it."""
    pools, at = state.view.pools, RESOURCE_NAMES.index(gang.dominant_resource)
    has = part_of(state, gang)
    loses = min(has, gang.fair_share[at])
    elements: list[tuple[ShareItem | None, Resources]] = [(starter.share, state.held(starter))]
    if pools.options.scheduling_preemption_priority_scope is not PriorityScope.OPERATION_ONLY:
        alone = [pool for pool in state.above(starter) if pool not in state.above(gang)]
        elements += [(pool.item, pool.used) for pool in alone]
    for item, used in elements:
        if item is not None and item.starvation_status is not StarvationStatus.NON_STARVING:
            short = item.fair_share.total[at] - used.share_of(pools.total)[at]
            if short > has - EPS and short > loses + EPS:
                return True
    return False


# --- shields ------------------------------------------------------------------------------------------------------------


def _shield(state: State, operation: Operation, least: Group) -> Operation | PoolState | None:
    """Section 9.2, or 9.3 under the older rules: return what keeps the operation's allocations from being preempted."""
    policy = state.view.pools.options
    if policy.victim_rules is not VictimRules.LEGACY:
        starves = operation.starvation is not StarvationStatus.NON_STARVING
        return operation if starves and not policy.allow_preemption_from_starving_operations else None
    elements: Sequence[Operation | PoolState] = [operation, *state.above(operation)]
    return next((one for one in elements if _is_shielded(state, one, least)), None)


def _is_shielded(state: State, element: Operation | PoolState, least: Group) -> bool:
    pools, policy = state.view.pools, state.view.pools.options
    if isinstance(element, Operation):
        options, used = element.options(pools), state.held(element)
        starvation, fair, demand = element.starvation, element.fair_share, element.demand_share
    else:
        if element.item is None or element.item.options is None:
            return False
        options, used, item = element.item.options, state.used(element), element.item
        starvation, fair, demand = item.starvation_status, item.fair_share.total, item.demand_share
    if policy.preemption_check_starvation and starvation is not StarvationStatus.NON_STARVING:
        return True
    threshold = policy.preemption_satisfaction_threshold
    if least is Group.AGGRESSIVELY_PREEMPTIBLE and options.allow_aggressive_preemption:
        threshold = policy.aggressive_preemption_satisfaction_threshold
    satisfied = local_satisfaction(used.share_of(pools.total), fair, demand)
    return policy.preemption_check_satisfaction and satisfied < threshold + 1e-4


def _exceeds(used: Resources, limit: PartialResources) -> bool:
    return any(most is not None and has > most for has, most in zip(used.as_tuple(), limit.as_tuple(), strict=True))
