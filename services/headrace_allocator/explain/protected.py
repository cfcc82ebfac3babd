"""Protected allocations: why a preemptive stage left the allocations of other operations on a node. Computed on request.

The heartbeat path stores nothing for this. The rules are the rules of `victims.candidates`; a property test compares the two modules.
Source: sections 6.4, 6.5, 6.9, 9.2 and 9.3 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from headrace.ids import NodeName, PoolName
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import PreemptionSwitch
from headrace.pools.tree_options import PreemptionPolicy, VictimRules
from headrace.resources import ZERO
from headrace.wire.heartbeat import AllocationState
from headrace.wire.snapshots import PreemptionPriority, StarvationStatus
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.explain.reasons import KeptBy, PlacesProtected
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation, is_owed_a_job
from headrace_allocator.facts.pool_tree import PoolState, PoolStates
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption import legacy_victims
from headrace_allocator.preemption.crossing_fair_share import crosses_bound, may_be_preempted_for, may_be_taken_at_bound
from headrace_allocator.preemption.gang_victims import goes_whole, is_owed_room_of
from headrace_allocator.preemption.yarn.candidates import is_there, owner_of

#: Upper bound of the allocations that are examined for one question: about ten milliseconds of work.
_MOST_LOOKED_AT: Final = 1_000
_MOST_POOLS: Final = 5
#: Rules that `PlacesProtected` leaves out, because separate reasons (`PlacesKept`, `PlacesExempt`) report them even if no node was
#: examined.
_TOLD_APART: Final = frozenset({KeptBy.PREEMPTION, KeptBy.EXEMPT})


class ProtectingRule(NamedTuple):
    """A rule that protects an allocation, and the pool that sets the rule. If no pool sets the rule, `pool` is the pool of the
    allocation's operation.
    """

    by: KeptBy
    pool: PoolName


def kept_on(facts: Facts, order: LeastSatisfied, node: Node, starving: Operation) -> Counter[ProtectingRule]:
    """Count, by rule, the allocations of other operations on a node that no stage and no YARN pass would preempt for `starving`."""
    if facts.pools.options.preemption_policy is not PreemptionPolicy.YTSAURUS:
        by_yarn = (why_kept_by_yarn(facts, one, starving) for one in node.allocations.values())
        return Counter(kept for kept in by_yarn if kept is not None)
    overlay = Overlay(View.of(facts, node, order, pace_ms=0, stirring=()))
    found = (protecting_rule(overlay, one, starving) for one in overlay.view.allocations)
    return Counter(kept for kept in found if kept is not None)


def places_protected(
    facts: Facts, order: LeastSatisfied, nodes: Iterable[Node], starving: Operation
) -> list[PlacesProtected]:
    """Return the rules that protect allocations on these nodes, the rule with the most allocations first.

    The search ends after the node at which a thousand allocations have been examined.
    """
    places: dict[KeptBy, Counter[PoolName]] = {}
    on_nodes: dict[KeptBy, set[NodeName]] = {}
    for node, counts in _by_node(facts, order, nodes, starving):
        for kept, count in counts.items():
            places.setdefault(kept.by, Counter())[kept.pool] += count
            on_nodes.setdefault(kept.by, set()).add(node.record.node)
    told = [
        PlacesProtected(by, pools.total(), len(on_nodes[by]), tuple(pools.most_common(_MOST_POOLS)))
        for by, pools in places.items()
        if by not in _TOLD_APART
    ]
    return sorted(told, key=lambda one: -one.places)


def places_kept(
    facts: Facts, order: LeastSatisfied, nodes: Iterable[Node], starving: Operation
) -> list[tuple[KeptBy, int]]:
    """Count the protected allocations of other operations on these nodes by rule, the largest count first.

    The search ends after the node at which a thousand allocations have been examined.
    """
    counts: Counter[KeptBy] = Counter()
    for _, found in _by_node(facts, order, nodes, starving):
        for kept, count in found.items():
            counts[kept.by] += count
    return counts.most_common()


def _by_node(
    facts: Facts, order: LeastSatisfied, nodes: Iterable[Node], starving: Operation
) -> Iterator[tuple[Node, Counter[ProtectingRule]]]:
    looked_at = 0
    for node in nodes:
        if looked_at >= _MOST_LOOKED_AT:
            break
        looked_at += 1 + len(node.allocations)
        yield node, kept_on(facts, order, node, starving)


def why_kept_by_yarn(facts: Facts, allocation: Allocation, starving: Operation) -> ProtectingRule | None:
    """Return the rule of a YARN policy that protects an allocation from `starving`; None if no rule protects it.

    No rule is returned for an allocation of `starving` itself. Under the older YARN policy an operation's fair share protects nothing,
    because that policy takes allocations from whole pools.
    """
    pools, operation = facts.pools, facts.operations.get(allocation.operation)
    if operation is None or operation is starving:
        return None
    pool, options = operation.spec.pool, operation.options(pools)
    if not is_there(allocation):
        return ProtectingRule(KeptBy.ENDING, pool)
    if operation.is_graceful:
        return ProtectingRule(KeptBy.GRACEFUL, pool)
    if options.preemption is not PreemptionSwitch.ON:
        return ProtectingRule(KeptBy.PREEMPTION, pool)
    if not options.allow_preemption_from:
        return ProtectingRule(
            KeptBy.ALLOW_PREEMPTION_FROM, _set_by(pools, pool, lambda one: not one.allow_preemption_from)
        )
    if not options.allow_normal_preemption:
        return ProtectingRule(
            KeptBy.ALLOW_NORMAL_PREEMPTION, _set_by(pools, pool, lambda one: not one.allow_normal_preemption)
        )
    owner = owner_of(operation, pools, operation.held)
    is_kept = not owner.may_fall_to(operation.held - allocation.usage, pools.total)
    return (
        ProtectingRule(KeptBy.FAIR_SHARE, pool)
        if is_kept and pools.options.preemption_policy is PreemptionPolicy.YARN
        else None
    )


def protecting_rule(overlay: Overlay, allocation: Allocation, starving: Operation) -> ProtectingRule | None:
    """Return the first rule that protects an allocation from `starving`; None if no rule protects it.

    No rule is returned for an allocation of `starving` itself.
    """
    view, pools = overlay.view, overlay.view.pools
    operation = view.operations.get(allocation.operation)
    if operation is None or operation is starving:
        return None
    pool = operation.spec.pool
    aggressive = starving.preemption_priority is PreemptionPriority.AGGRESSIVE
    least = Group.AGGRESSIVELY_PREEMPTIBLE if aggressive else Group.PREEMPTIBLE
    options = operation.options(pools)
    is_going = allocation.take_back is not None or allocation.state is AllocationState.ENDED
    if is_going or allocation.usage == ZERO or (not operation.schedulable and operation.ending):
        return ProtectingRule(KeptBy.ENDING, pool)
    if operation.is_graceful:
        return ProtectingRule(KeptBy.GRACEFUL, pool)
    if options.preemption is not PreemptionSwitch.ON:
        return ProtectingRule(KeptBy.PREEMPTION, pool)
    if not aggressive and not options.allow_normal_preemption:
        return ProtectingRule(
            KeptBy.ALLOW_NORMAL_PREEMPTION, _set_by(pools, pool, lambda one: not one.allow_normal_preemption)
        )
    group = overlay.group(operation, allocation)
    for_few = pools.options.take_excess_for_few_nodes and pools.filters_of(starving.spec)
    if group < least and for_few and operation.cut_groups(pools).is_excess(allocation):
        # As in `victims.excess_candidates`, an allocation counts as preemptible if the operation's other allocations already use everything
        # that is protected for the operation.
        group = Group.PREEMPTIBLE
    at_bound = group < least and _goes_at_bound(overlay, allocation, starving, least)
    if group < least and not at_bound:
        return ProtectingRule(_kept_by_group(pools, operation, allocation, least), pool)
    if group is Group.AGGRESSIVELY_PREEMPTIBLE and not options.allow_aggressive_preemption:
        return _kept_from_aggressive(pools, operation)
    return _kept_as_a_whole(overlay, operation, allocation, starving, least)


def _goes_at_bound(overlay: Overlay, allocation: Allocation, starving: Operation, least: Group) -> bool:
    """True if the allocation lies partly within its operation's fair share and partly beyond it, and `starving` may preempt it
    nevertheless.
    """
    operation = overlay.view.operations[allocation.operation]
    if (
        least is not Group.PREEMPTIBLE
        or not may_be_taken_at_bound(overlay)
        or goes_whole(operation, allocation, overlay.view.pools)
    ):
        return False
    is_owed = is_owed_a_job(starving, overlay.held(starving))
    return is_owed and crosses_bound(overlay, allocation) and may_be_preempted_for(overlay, allocation, starving)


def _kept_by_group(pools: PoolStates, operation: Operation, allocation: Allocation, least: Group) -> KeptBy:
    """Return the rule that puts the allocation into a group that is more protected than the group `least`."""
    groups = operation.cut_groups(pools)
    if not groups.is_kept_by_share(allocation, least):
        return KeptBy.USAGE_THRESHOLD
    if least is not Group.PREEMPTIBLE:
        return KeptBy.PART_OF_FAIR_SHARE
    return KeptBy.OWED_EVERYTHING if groups.owed_everything else KeptBy.FAIR_SHARE


def _kept_from_aggressive(pools: PoolStates, operation: Operation) -> ProtectingRule:
    """Return the rule that protects the operation from aggressive preemption.

    The rule is either an option of a pool, or the protection of gangs in a tree that protects them.
    """
    options = _options(pools.pool(operation.spec.pool))
    if options is None or options.allow_aggressive_preemption:
        return ProtectingRule(KeptBy.GANG, operation.spec.pool)
    setter = _set_by(pools, operation.spec.pool, lambda one: not one.allow_aggressive_preemption)
    return ProtectingRule(KeptBy.ALLOW_AGGRESSIVE_PREEMPTION, setter)


def _kept_as_a_whole(
    overlay: Overlay, operation: Operation, allocation: Allocation, starving: Operation, least: Group
) -> ProtectingRule | None:
    """Return the rule that protects a whole operation or pool, or else the rule that protects jobs that started recently."""
    pools, pool = overlay.view.pools, operation.spec.pool
    policy = pools.options
    if policy.victim_rules is VictimRules.LEGACY:
        shield = legacy_victims.shield_of(overlay, operation, least)
        if shield is not None and not _is_held_for(overlay, operation, allocation, shield, starving):
            return ProtectingRule(KeptBy.LEGACY_RULES, shield.name if isinstance(shield, PoolState) else pool)
    elif (
        operation.starvation is not StarvationStatus.NON_STARVING
        and not policy.allow_preemption_from_starving_operations
    ):
        return ProtectingRule(KeptBy.STARVING, pool)
    if goes_whole(operation, allocation, pools) and not is_owed_room_of(operation, starving, pools, starving.held):
        return ProtectingRule(KeptBy.WHOLE_GANG, pool)
    exempt_ms = allocation.exempt_ms(operation.options(pools).preemption_exempt_time_ms, overlay.view.boottime_ms)
    return ProtectingRule(KeptBy.EXEMPT, pool) if exempt_ms else None


def _is_held_for(
    overlay: Overlay, operation: Operation, allocation: Allocation, shield: Operation | PoolState, starving: Operation
) -> bool:
    """True if a pool shields the allocation from operations outside the pool, but `starving` is below this pool and may preempt the
    allocation.
    """
    is_below = any(pool is shield for pool in overlay.view.pools.pool(starving.spec.pool).path())
    return is_below and legacy_victims.may_be_held(overlay, overlay.group(operation, allocation))


def _set_by(pools: PoolStates, pool: PoolName, is_so: Callable[[EffectiveOptions], bool]) -> PoolName:
    """Return the highest pool that sets the option: walk up from `pool` for as long as `is_so` holds for the options."""
    highest = pool
    for each in pools.pool(pool).path():
        options = _options(each)
        if options is None or not is_so(options):
            break
        highest = each.name
    return highest


def _options(pool: PoolState) -> EffectiveOptions | None:
    return None if pool.item is None else pool.item.options
