"""Victims: which allocations of a node may be preempted for a stage, in which order, and how many.

The choice is greedy: one pass from the most preemptible and newest allocation. It stops as soon as the remaining allocations fit on the
node, so the set of victims need not be the smallest one.

Source: sections 6.9, 9.1, 9.2 and 9.4 of the specification of allocation and preemption.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from headrace.ids import PoolName
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import PreemptionSwitch as PreemptionSwitch
from headrace.pools.tree_options import VictimRules
from headrace.resources import ZERO
from headrace.wire.heartbeat import AllocationState
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import StarvationStatus
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolState
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption import legacy_victims
from headrace_allocator.preemption.crossing_fair_share import crosses_bound, may_be_preempted_for, may_be_taken_at_bound
from headrace_allocator.preemption.gang_victims import goes_whole, may_go_whole

#: Constants, because looking up an enumeration member costs as much as ten comparisons.
_ENDED: Final = AllocationState.ENDED
_NON_STARVING: Final = StarvationStatus.NON_STARVING
_ON: Final = PreemptionSwitch.ON
_OBSERVE: Final = PreemptionSwitch.OBSERVE
_AGGRESSIVELY_PREEMPTIBLE: Final = Group.AGGRESSIVELY_PREEMPTIBLE
_PREEMPTIBLE: Final = Group.PREEMPTIBLE


class Preemption(msgspec.Struct, frozen=True):
    """A decision to preempt an allocation, and the operation it benefits."""

    allocation: Allocation
    reason: PreemptionReason
    #: The group of the allocation at the time of the decision.
    group: Group
    #: The operation that gets the freed resources; None if no start needs the preemption.
    beneficiary: Operation | None = None
    #: True if the beneficiary itself starves; false if only a pool above the beneficiary starves.
    properly: bool = False
    #: Milliseconds from the signal to the kill; None for the timeout of the operation.
    timeout_ms: int | None = None


class Candidates(msgspec.Struct, frozen=True):
    """The allocations of a node that may be preempted in a stage."""

    #: Allocations that may be preempted for any operation that starts a job.
    free: list[Allocation]
    #: By pool that shields its allocations: the allocations that may be preempted only for operations below it (older victim rules).
    held: dict[PoolName, list[Allocation]]
    #: Allocations whose jobs are too young to be preempted for a start, each with the milliseconds until the allocation may be preempted.
    #: To repair a node or a limit, these allocations may be preempted at once.
    exempt: dict[Allocation, int]
    #: The group of each allocation before anything was preempted.
    groups: dict[Allocation, Group]
    #: By gang, allocations that are preempted together with all other allocations of the gang or not at all.
    gangs: dict[Operation, list[Allocation]] = {}
    #: Allocations that cross the bound of their operation's fair share. They may be preempted for an operation that is owed a whole job.
    crossing: list[Allocation] = []

    def to_repair(self) -> list[Allocation]:
        """Return the allocations that may be preempted to repair the node or a limit, in their order on the node."""
        apart = {*self.crossing, *(one for ones in self.held.values() for one in ones)}
        return [one for one in self.groups if one not in apart]

    def crossing_for(self, overlay: Overlay, starter: Operation) -> list[Allocation]:
        """Return the allocations that cross a bound and may be preempted for this operation."""
        return [one for one in self.crossing if may_be_preempted_for(overlay, one, starter)]


def candidates(overlay: Overlay, least: Group) -> Candidates:
    """Find the allocations of the node that a stage may preempt: their operations may lose allocations, and their group is `least` or more
    preemptible.

    Two kinds of allocations are listed apart: those of gangs that are preempted as a whole, and those that cross a bound.
    """
    # The loop makes few calls, since it runs for each allocation on the node.
    found = Candidates([], {}, {}, {})
    view, pools = overlay.view, overlay.view.pools
    rules = pools.rules
    at_bound = least is _PREEMPTIBLE and may_be_taken_at_bound(overlay)
    for allocation in view.allocations:
        # This cheap test comes first: in most calls it rejects every allocation.
        if least is _PREEMPTIBLE and allocation.rest.keeps(allocation, rules):
            continue
        operation = view.operations.get(allocation.operation)
        if operation is None:
            continue
        if least is _PREEMPTIBLE and not operation.cut_groups(pools).may_be_preemptible(allocation):
            continue
        if not _is_there(overlay, operation, allocation):
            continue
        options = operation.options(pools)
        if not pool_allows_preemption(overlay, options) or (
            least is _PREEMPTIBLE and not options.allow_normal_preemption
        ):
            continue
        group = overlay.group(operation, allocation)
        is_shielded = group is _AGGRESSIVELY_PREEMPTIBLE and not options.allow_aggressive_preemption
        # A single allocation of a gang that is preempted as a whole is never a victim, so it does not count as crossing.
        is_crossing = (
            at_bound
            and group < least
            and not goes_whole(operation, allocation, pools)
            and crosses_bound(overlay, allocation)
        )
        if (group < least and not is_crossing) or is_shielded:
            continue
        shield = shielded_by(overlay, operation, least)
        exempt_ms = allocation.exempt_ms(options.preemption_exempt_time_ms, view.boottime_ms)
        if is_crossing:
            if shield is not None or exempt_ms:
                continue
            found.crossing.append(allocation)
        elif shield is None and exempt_ms:
            found.exempt[allocation] = exempt_ms
        elif shield is None and goes_whole(operation, allocation, pools):
            if may_go_whole(operation):
                found.gangs.setdefault(operation, []).append(allocation)
        elif shield is None:
            found.free.append(allocation)
        elif isinstance(shield, PoolState) and not exempt_ms and legacy_victims.may_be_held(overlay, group):
            found.held.setdefault(shield.name, []).append(allocation)
        else:
            continue
        found.groups[allocation] = group
    return found


def excess_candidates(overlay: Overlay) -> Candidates:
    """Find the allocations on the node that belong to the excess of their operations, that is, to the usage beyond what is protected.

    Usually only the newest allocations of an operation are candidates. These may all be on other nodes, and a starving operation that can
    run on few nodes could then preempt nothing on those few nodes. So here any allocation can be a candidate, the newest or not. No
    operation loses more than its excess.
    """
    found = Candidates([], {}, {}, {})
    taken: dict[Operation, list[Allocation]] = {}
    view, pools = overlay.view, overlay.view.pools
    starving_may_lose = pools.options.allow_preemption_from_starving_operations
    for allocation in reversed(view.allocations):
        operation = view.operations.get(allocation.operation)
        if (
            operation is None
            or goes_whole(operation, allocation, pools)
            or not _is_there(overlay, operation, allocation)
        ):
            continue
        options = operation.options(pools)
        if not pool_allows_preemption(overlay, options) or not options.allow_normal_preemption:
            continue
        if operation.starvation is not _NON_STARVING and not starving_may_lose:
            continue
        if allocation.exempt_ms(options.preemption_exempt_time_ms, view.boottime_ms):
            continue
        before = taken.setdefault(operation, overlay.freed_of(operation))
        if operation.cut_groups(pools).is_excess(allocation, before):
            before.append(allocation)
            found.free.append(allocation)
            found.groups[allocation] = _PREEMPTIBLE
    return found


def _is_there(overlay: Overlay, operation: Operation, allocation: Allocation) -> bool:
    """True if an allocation uses something, is not ending already, and belongs to an operation from which stages may take allocations."""
    is_going = allocation.take_back is not None or allocation.state is _ENDED
    if is_going or allocation in overlay.freed or allocation.usage == ZERO:
        return False
    return not operation.is_graceful and (operation.schedulable or not operation.ending)


def pool_allows_preemption(overlay: Overlay, options: EffectiveOptions) -> bool:
    """True if the pool allows preemption from the operation.

    A pool that only observes preemption allows it while an observed decision is made.
    """
    if options.preemption is not _OBSERVE:
        return options.preemption is _ON
    overlay.met_observing_pool = True
    return overlay.observes


def shielded_by(overlay: Overlay, operation: Operation, least: Group) -> Operation | PoolState | None:
    """Return the element that shields all allocations of an operation from a stage: the operation itself, or a pool above it.

    Return None if no element shields them.
    """
    options = overlay.view.pools.options
    if options.victim_rules is VictimRules.LEGACY:
        return legacy_victims.shield_of(overlay, operation, least)
    is_spared = operation.starvation is not _NON_STARVING and not options.allow_preemption_from_starving_operations
    return operation if is_spared else None


def groups_of(overlay: Overlay, allocations: Iterable[Allocation]) -> dict[Allocation, Group]:
    """Return the group of each allocation whose operation is known."""
    operations = overlay.view.operations
    return {one: overlay.group(operations[one.operation], one) for one in allocations if one.operation in operations}


def keep_order(allocations: Iterable[Allocation], groups: Mapping[Allocation, Group]) -> list[Allocation]:
    """Sort allocations of the node, those to keep longest first: by group, then by the start of their current job, the earliest first."""

    def place(allocation: Allocation) -> tuple[Group, bool, float]:
        group = groups[allocation]
        uses_less = group is not _PREEMPTIBLE and allocation.usage.cpu < allocation.resources.cpu
        return group, uses_less, _began_ms(allocation)

    return sorted(allocations, key=place)


def victims_until_it_fits(overlay: Overlay, kept: list[Allocation]) -> Iterator[Allocation]:
    """Free and yield allocations from the end of the keep order, until the node is no longer overcommitted."""
    while kept and not overlay.room.dominates(ZERO):
        victim = kept.pop()
        overlay.free(overlay.view.operations[victim.operation], victim)
        yield victim


def spare_needless(overlay: Overlay, victims: list[Allocation]) -> list[Allocation]:
    """Keep each victim that still fits on the node, the earliest start first, and return the kept allocations."""
    spared = []
    for victim in sorted(victims, key=_began_ms):
        if overlay.room.dominates(victim.usage):
            overlay.keep(overlay.view.operations[victim.operation], victim)
            spared.append(victim)
    return spared


def _began_ms(allocation: Allocation) -> float:
    began_ms = allocation.progress_started_ms
    return math.inf if began_ms is None else began_ms
