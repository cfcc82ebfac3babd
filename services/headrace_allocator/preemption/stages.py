"""The preemptive stages of a heartbeat: each starts at most one job, in resources that its victims free.

The aggressive stage runs before the normal one. On one heartbeat at most one operation starts one job through preemption. The victims of
the stage are preempted together with this start or not at all.

Source: sections 8.2, 8.4 and 9.4 to 9.6 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from headrace.ids import OperationId, PoolName
from headrace.pools.tree_options import VictimRules
from headrace.resources import ZERO, Resources
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import PreemptionPriority, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.decision.placing import Placement, place
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import NO_POSITION, Allocation, Rest
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption import legacy_victims
from headrace_allocator.preemption.audit.deactivations import Deactivations, of_preemptive_stage
from headrace_allocator.preemption.crossing_fair_share import MOST_ASKED
from headrace_allocator.preemption.gang_victims import start_in_room_of_gang
from headrace_allocator.preemption.overcommit_and_limits import needs_repair, victims_above_limits
from headrace_allocator.preemption.victims import (
    Candidates,
    Preemption,
    candidates,
    excess_candidates,
    groups_of,
    keep_order,
    spare_needless,
    victims_until_it_fits,
)


class PreemptiveStage(msgspec.Struct, frozen=True):
    """A kind of preemptive stage: aggressive or normal."""

    #: The stage starts jobs of operations with exactly this preemption priority.
    priority: PreemptionPriority
    #: The most protected group of allocations that the stage may preempt.
    least: Group
    reason: PreemptionReason
    #: The name of the stage in explanations of how a job started.
    name: StartStage


_AGGRESSIVE: Final = PreemptiveStage(
    PreemptionPriority.AGGRESSIVE,
    Group.AGGRESSIVELY_PREEMPTIBLE,
    PreemptionReason.AGGRESSIVE_PREEMPTION,
    StartStage.PREEMPTIVE_AGGRESSIVE,
)
_NORMAL: Final = PreemptiveStage(
    PreemptionPriority.NORMAL, Group.PREEMPTIBLE, PreemptionReason.PREEMPTION, StartStage.PREEMPTIVE_NORMAL
)
#: All stages in the order in which they run.
STAGES: Final = (_AGGRESSIVE, _NORMAL)


class StageOutcome(msgspec.Struct, frozen=True):
    """The start and the preemptions of one stage."""

    stage: PreemptiveStage
    #: True if the stage tried to start a job; false if it only repaired the node or limits.
    tried_to_start: bool
    placement: Placement | None
    preemptions: list[Preemption]
    #: Number of allocations that could be preempted. Allocations whose jobs are too young do not count.
    candidates: int
    #: Usage of all candidates together.
    discount: Resources
    #: Free resources of the node before the stage.
    room: Resources
    #: Resources that were freed for the start but that it does not need.
    unused: Resources
    #: By pool that shields allocations: the usage that could be preempted only for operations below this pool (older victim rules).
    held: dict[PoolName, Resources]
    #: Number of allocations whose jobs are too young to be preempted.
    exempt: int = 0
    #: Milliseconds until the first of the exempt allocations may be preempted.
    exempt_ms: int = 0
    #: Counts of the job classes that the stage passed over, by reason; None if it did not try to start a job.
    deactivations: Deactivations | None = None
    #: True if the stage started an operation that can run on some nodes only, by preempting excess allocations of other operations.
    for_few_nodes: bool = False


def may_have_work(facts: Facts, node: Node, order: LeastSatisfied) -> bool:
    """False if the stages would change nothing on the node: nothing needs repair, and no starving operation could start there."""
    if facts.pools.exceeded or not node.free.dominates(ZERO):
        return True
    if facts.limited and any(one.operation in facts.limited for one in node.allocations.values()):
        return True
    return order.some_starve and _may_make_room(facts, node, order)


def _may_make_room(facts: Facts, node: Node, order: LeastSatisfied) -> bool:
    """True if the node has free resources for a pending job, or an allocation that may be preempted for a pending job.

    The result is true only on few nodes of a busy cluster.
    """
    waiting, classes = order.root.classes, order.classes
    if waiting & (classes.of_priority(_AGGRESSIVE.priority) | classes.fitting(node.free)):
        return True
    # An operation preempts the newest excess allocations of other operations. If it can run on few nodes only, it may also preempt older
    # ones there.
    few = waiting & classes.starving & classes.filtered if facts.pools.options.take_excess_for_few_nodes else 0
    few = few and few & classes.matching(tuple(node.record.tags))
    operations, pools, picture = facts.operations, facts.pools, node.picture
    of_rest: Iterable[tuple[Rest, Allocation]]
    if picture.booked is None or picture.rests is None:
        of_rest = ((one.rest, one) for one in node.allocations.values())
    else:
        # Only the newest allocation of each operation is examined: if it is protected, all allocations of the operation are.
        of_rest = picture.rests.items()
    rules = pools.rules
    for rest, allocation in of_rest:
        if few and rest.preemptible_from is not NO_POSITION:
            return True
        # For most allocations this test is enough, and the operation need not be read.
        if rest.keeps(allocation, rules):
            continue
        operation = operations.get(allocation.operation)
        if operation is not None and operation.cut_groups(pools).may_be_preemptible(allocation):
            return True
    return False


def run_stages(overlay: Overlay, *, may_start: bool = True) -> Iterator[StageOutcome]:
    """Run the stages until one starts a job. The normal stage also repairs violated limits, even if no operation starves or may start."""
    order = overlay.view.order
    # A class keeps its number for reuse after its last operation has left. So `of_priority` alone may name classes without an operation;
    # `order.root.classes` names only classes with pending jobs.
    starving = [
        stage for stage in STAGES if may_start and order.classes.of_priority(stage.priority) & order.root.classes
    ]
    if not (starving or needs_repair(overlay)):
        # The stages could change nothing here. An outcome is reported nevertheless, because this counts as a run of the stages.
        yield StageOutcome(_NORMAL, False, None, [], 0, ZERO, overlay.room, ZERO, {})
        return
    # Under the older victim rules, limits have no tolerance. Instead, usage that may be preempted counts as free under a limit.
    overlay.pass_limits(overlay.view.pools.options.victim_rules is not VictimRules.LEGACY)
    for stage in STAGES:
        if stage is _AGGRESSIVE and stage not in starving:
            continue
        outcome = _run(overlay, stage, tried_to_start=stage in starving)
        yield outcome
        if outcome.placement is not None:
            break
    else:
        yield from _run_for_few_nodes(overlay, starving)
    overlay.pass_limits(False)


def _run_for_few_nodes(overlay: Overlay, starving: Iterable[PreemptiveStage]) -> Iterator[StageOutcome]:
    """Start one job of an operation that can run on some nodes only, by preempting excess allocations of other operations.

    An excess allocation may be preempted here even if its operation has newer allocations on other nodes. This stage comes last and repairs
    nothing. It yields an outcome only if it starts a job.
    """
    view = overlay.view
    waiting = view.order.root.classes & view.order.classes.filtered
    options = view.pools.options
    if not waiting or not options.take_excess_for_few_nodes or options.victim_rules is VictimRules.LEGACY:
        return
    waiting &= view.order.classes.matching(view.tags)
    for stage in starving:
        if not waiting & view.order.classes.of_priority(stage.priority):
            continue
        overlay.consider(filtered=True)
        found, room = excess_candidates(overlay), overlay.room
        discount = Resources.sum(one.usage for one in found.free)
        placement = _place_one(overlay, stage, discount)
        overlay.consider()
        if placement is None:
            continue
        victims = list(victims_until_it_fits(overlay, keep_order(found.free, found.groups)))
        unused = Resources.sum(victim.usage for victim in victims).within(overlay.room)
        starter, properly = placement.operation, starves_itself(placement.operation, stage.priority)
        taken = [Preemption(victim, stage.reason, found.groups[victim], starter, properly) for victim in victims]
        yield StageOutcome(
            stage, True, placement, taken, len(found.free), discount, room, unused, {}, for_few_nodes=True
        )
        return


def _run(overlay: Overlay, stage: PreemptiveStage, *, tried_to_start: bool) -> StageOutcome:
    """Run one stage: find the candidates, start the job that fits once they are gone, and preempt as many candidates as it needs."""
    found, room = candidates(overlay, stage.least), overlay.room
    # Allocations that were freed before this stage are no candidates.
    discount = Resources.sum(one.usage for one in found.free)
    held = {pool: Resources.sum(one.usage for one in ones) for pool, ones in found.held.items()}
    placement = deactivations = None
    of_gang: list[Allocation] = []
    more: list[Allocation] = []
    if tried_to_start:
        placement, of_gang, more = _start(overlay, stage, found, discount)
        there = room + discount + legacy_victims.most_held(overlay, found.held)
        deactivations = of_preemptive_stage(overlay, stage.priority, there if placement is None else None)
    starter = None if placement is None else placement.operation
    # Without a start, victims are preempted only to repair the node or a limit. For a repair, even young jobs may be preempted.
    repairs = found.to_repair()
    may_go = repairs if starter is None else [*found.free, *more]
    kept = keep_order([one for one in may_go if one not in of_gang], found.groups)
    properly = starter is not None and starves_itself(starter, stage.priority)
    for one in of_gang:
        overlay.free(overlay.view.operations[one.operation], one)
    victims = list(victims_until_it_fits(overlay, kept))
    if overlay.view.pools.options.drop_needless_victims:
        spared = spare_needless(overlay, victims)
        victims = [one for one in victims if one not in spared]
        kept = keep_order([*kept, *spared], groups_of(overlay, [*kept, *spared]))
    if starter is not None and found.exempt:
        kept = keep_order([*kept, *found.exempt], found.groups)
    victims = [*of_gang, *victims]
    unused = Resources.sum(victim.usage for victim in victims).within(overlay.room)
    preemptions = [Preemption(victim, stage.reason, found.groups[victim], starter, properly) for victim in victims]
    preemptions += [
        Preemption(victim, PreemptionReason.RESOURCE_LIMITS_VIOLATED, found.groups[victim])
        for victim in victims_above_limits(overlay, [one for one in kept if one in repairs] if more else kept)
    ]
    exempt = len(found.exempt), min(found.exempt.values(), default=0)
    return StageOutcome(
        stage,
        tried_to_start,
        placement,
        preemptions,
        len(found.free),
        discount,
        room,
        unused,
        held,
        *exempt,
        deactivations,
    )


def _start(
    overlay: Overlay, stage: PreemptiveStage, found: Candidates, discount: Resources
) -> tuple[Placement | None, list[Allocation], list[Allocation]]:
    """Start a job in a stage. Return the start, the allocations of a gang that is preempted for it, and allocations that are candidates
    only for this start.
    """
    if overlay.view.pools.options.victim_rules is VictimRules.LEGACY:
        placement, more = legacy_victims.start(overlay, stage.priority, stage.name, found.free, found.held)
    else:
        placement, more = _place_one(overlay, stage, discount), []
    if placement is not None:
        return placement, [], more
    if found.gangs:
        placement, of_gang = start_in_room_of_gang(overlay, found.gangs, stage.priority, discount, stage.name)
        if placement is not None:
            return placement, of_gang, []
    # Allocations that cross a bound are candidates only if no job can start without them.
    return (None, [], []) if not found.crossing else _start_at_bound(overlay, stage, found, discount)


def _start_at_bound(
    overlay: Overlay, stage: PreemptiveStage, found: Candidates, discount: Resources
) -> tuple[Placement | None, list[Allocation], list[Allocation]]:
    """Start a job as `_start` does, with the allocations that cross a bound as further candidates.

    The fair share of the operation must cover the whole job in addition to what the operation holds.
    """
    room, for_each = overlay.room + discount, dict[OperationId, list[Allocation]]()

    def there(operation: Operation) -> Resources:
        crossing = for_each[operation.id] = found.crossing_for(overlay, operation)
        return room + Resources.sum(one.usage for one in crossing)

    overlay.consider(owed_only=True)
    placement = _place_one(
        overlay, stage, discount + Resources.sum(one.usage for one in found.crossing), there, most_refused=MOST_ASKED
    )
    overlay.consider()
    return placement, [], [] if placement is None else for_each[placement.operation.id]


def _place_one(
    overlay: Overlay,
    stage: PreemptiveStage,
    discount: Resources,
    there: Callable[[Operation], Resources] | None = None,
    most_refused: int | None = None,
) -> Placement | None:
    placed = place(
        overlay,
        stage.priority,
        discount=discount,
        there=there,
        most=1,
        most_refused=most_refused,
        stage=stage.name,
    )
    return placed[0] if placed else None


def starves_itself(starter: Operation, priority: PreemptionPriority) -> bool:
    """True if the operation itself starves with the stage's priority, and not only a pool above it."""
    if priority is PreemptionPriority.AGGRESSIVE:
        return starter.starvation is StarvationStatus.AGGRESSIVELY_STARVING
    return starter.starvation is StarvationStatus.STARVING
