"""The preemptive stages of a heartbeat: one start in room that others give up, and the victims that make it.

Aggressive comes first. At most one operation starts one job through preemption on a heartbeat, and what it takes goes with that start.
Source: sections 8.2, 8.4 and 9.4 to 9.6 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from headrace.ids import OperationId, PoolName
from headrace.pools.tree_options import VictimRules
from headrace.resources import ZERO, Resources
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import PreemptionPriority, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.decision.placing import Choice, Extra, Placement, place
from headrace_allocator.decision.plain_loop import next_in_line_plainly
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.allocations import NO_PLACE, Allocation, Rest
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.groups import Group
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from headrace_allocator.preemption.at_bound import choice_of_owed
from headrace_allocator.preemption.deactivations import Deactivations, of_preemptive_stage
from headrace_allocator.preemption.legacy import extra_room, held_for, most_held
from headrace_allocator.preemption.limits_repair import needs_repair, victims_above_limits
from headrace_allocator.preemption.victims import (
    Candidates,
    candidates,
    excess_candidates,
    groups_of,
    keep_order,
    spare_needless,
    victims_until_it_fits,
)
from headrace_allocator.preemption.whole_gangs import start_in_room_of_gang


class PreemptiveStage(msgspec.Struct, frozen=True):
    """One kind of preemption."""

    #: Only operations of exactly this priority start something.
    priority: PreemptionPriority
    #: The most protected group that may be taken.
    least: Group
    reason: PreemptionReason
    #: The name of the stage for those who ask how something started.
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
#: In the order in which they run.
STAGES: Final = (_AGGRESSIVE, _NORMAL)


class Preemption(msgspec.Struct, frozen=True):
    """A decision to take an allocation, and what it is taken for."""

    allocation: Allocation
    reason: PreemptionReason
    #: At the moment of the decision.
    group: Group
    #: The operation that gets the room; None where nothing was started for it.
    beneficiary: Operation | None = None
    #: True if the beneficiary starves itself, and not only a pool above it.
    properly: bool = False
    #: From the signal to the kill; None: as its operation has it.
    timeout_ms: int | None = None


class StageOutcome(msgspec.Struct, frozen=True):
    """The start and the preemptions of one stage."""

    stage: PreemptiveStage
    #: True if it looked for a place for somebody, and not only at what is to be repaired.
    somebody_starves: bool
    placement: Placement | None
    preemptions: list[Preemption]
    #: Allocations that could have been taken, and what they use together. More could, were their jobs older.
    candidates: int
    discount: Resources
    #: Free before the stage.
    room: Resources
    #: Room that was made for the start and that it does not need.
    unused: Resources
    #: What in addition could have been taken for operations below a pool, by the older rules.
    held: dict[PoolName, Resources]
    #: So many have jobs that began too lately, and this is left until the first of these may be taken.
    exempt: int = 0
    exempt_ms: int = 0
    #: The classes of jobs that it passed over, where it looked for a place for somebody.
    deactivations: Deactivations | None = None
    #: True if it started an operation that can run on some nodes only, and took what others have too much.
    for_few_nodes: bool = False


def may_have_work(facts: Facts, node: Node, order: LeastSatisfied) -> bool:
    """False if the stages would change nothing on the node.

    Then nothing is to be repaired, and nobody starves or could get room there.
    """
    if facts.pools.exceeded or not node.free.dominates(ZERO):
        return True
    if facts.limited and any(one.operation in facts.limited for one in node.allocations.values()):
        return True
    return order.some_starve and _may_make_room(facts, node, order)


def _may_make_room(facts: Facts, node: Node, order: LeastSatisfied) -> bool:
    """True if the node has room for a job that waits, or an allocation that may be taken for one. So it is on few of many nodes."""
    waiting, classes = order.root.classes, order.classes
    if waiting & (classes.of_priority(_AGGRESSIVE.priority) | classes.fitting(node.free)):
        return True
    # For those that can run on few nodes it may be taken of whoever has too much, though what that got last is elsewhere.
    few = waiting & classes.starving & classes.filtered if facts.pools.options.take_excess_for_few_nodes else 0
    few = few and few & classes.matching(tuple(node.record.tags))
    operations, pools, picture = facts.operations, facts.pools, node.picture
    of_rest: Iterable[tuple[Rest, Allocation]]
    if picture.booked is None or picture.rests is None:
        of_rest = ((one.rest, one) for one in node.allocations.values())
    else:
        # Where the newest of an operation is kept so are all others.
        of_rest = picture.rests.items()
    rules = pools.rules
    for rest, allocation in of_rest:
        if few and rest.preemptible_from is not NO_PLACE:
            return True
        # Of most that is known without a look at the operation.
        if rest.keeps(allocation, rules):
            continue
        operation = operations.get(allocation.operation)
        if operation is not None and operation.cut_groups(pools).may_be_preemptible(allocation):
            return True
    return False


def run_stages(overlay: Overlay, choose: Choice = next_in_line, *, may_start: bool = True) -> Iterator[StageOutcome]:
    """Runs the stages until one started something. The normal one repairs violated limits, too, though nobody starves or may start."""
    order = overlay.view.order
    # Classes are kept for those who come again, so that a priority may have some that nobody is of.
    starving = [
        stage for stage in STAGES if may_start and order.classes.of_priority(stage.priority) & order.root.classes
    ]
    if not (starving or needs_repair(overlay)):
        # A run in which nothing can happen counts as one, too.
        yield StageOutcome(_NORMAL, False, None, [], 0, ZERO, overlay.room, ZERO, {})
        return
    # By the older rules what may go below a limit is room under it, in place of tolerance.
    overlay.pass_limits(overlay.view.pools.options.victim_rules is not VictimRules.LEGACY)
    for stage in STAGES:
        if stage is _AGGRESSIVE and stage not in starving:
            continue
        outcome = _run(overlay, stage, choose, somebody_starves=stage in starving)
        yield outcome
        if outcome.placement is not None:
            break
    else:
        yield from run_for_few_nodes(overlay, choose, starving)
    overlay.pass_limits(False)


def run_for_few_nodes(overlay: Overlay, choose: Choice, starving: Iterable[PreemptiveStage]) -> Iterator[StageOutcome]:
    """Starts one job of an operation that can run on some nodes only, in place of what others have too much, wherever they got it last.

    It comes last, repairs nothing, and is told only if it starts something.
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
        placement, _ = start_of_stage(overlay, stage, found, discount, choose)
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


def _run(overlay: Overlay, stage: PreemptiveStage, choose: Choice, *, somebody_starves: bool) -> StageOutcome:
    """Looks who could go, starts what fits then, and takes as many as that needs."""
    found, room = candidates(overlay, stage.least), overlay.room
    # What was freed before is no candidate.
    discount = Resources.sum(one.usage for one in found.free)
    held = {pool: Resources.sum(one.usage for one in ones) for pool, ones in found.held.items()}
    placement = deactivations = None
    of_gang: list[Allocation] = []
    crossing: list[Allocation] = []
    if somebody_starves:
        placement, of_gang, crossing = start_with_crossing(overlay, stage, found, discount, choose)
        there = room + discount + most_held(overlay, found.held)
        deactivations = of_preemptive_stage(overlay, stage.priority, there if placement is None else None)
    starter = None if placement is None else placement.operation
    # Where nobody starts, all that goes repairs the node or a limit, and may have begun lately.
    repairs = found.to_repair()
    may_go = repairs if starter is None else [*found.free, *crossing, *held_for(overlay, found.held, starter)]
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
        for victim in victims_above_limits(
            overlay, [one for one in kept if one in repairs or not (found.held or crossing)]
        )
    ]
    exempt = len(found.exempt), min(found.exempt.values(), default=0)
    return StageOutcome(
        stage,
        somebody_starves,
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


def start_with_crossing(
    overlay: Overlay, stage: PreemptiveStage, found: Candidates, discount: Resources, choose: Choice
) -> tuple[Placement | None, list[Allocation], list[Allocation]]:
    """The one start of a stage, the places of a gang that goes for it, and the allocations at bounds that may go for it.

    Those at bounds are looked at where nobody starts without.
    """
    placement, of_gang = start_of_stage(overlay, stage, found, discount, choose)
    if placement is not None or not found.crossing:
        return placement, of_gang, []
    before = overlay.room + discount
    overlay.consider(owed_only=True)
    for_each: dict[OperationId, list[Allocation]] = {}

    def there(operation: Operation) -> Resources:
        crossing = for_each[operation.id] = found.crossing_for(overlay, operation)
        return before + Resources.sum(one.usage for one in crossing)

    more = discount + Resources.sum(one.usage for one in found.crossing)
    without_gangs = msgspec.structs.replace(found, gangs={})
    placement, _ = start_of_stage(overlay, stage, without_gangs, more, choice_of_owed(choose, there))
    overlay.consider()
    return placement, [], [] if placement is None else for_each[placement.operation.id]


def start_of_stage(
    overlay: Overlay, stage: PreemptiveStage, found: Candidates, discount: Resources, choose: Choice
) -> tuple[Placement | None, list[Allocation]]:
    """The one start of a stage, in the room that is free or may be made, and the places of a gang that goes for it."""
    plainly = choose
    extra = Extra()
    if overlay.view.pools.options.victim_rules is VictimRules.LEGACY:
        extra = extra_room(overlay, found.free, found.held)
        choose = partial(next_in_line_plainly, more_room=extra.of_operation, going=extra.below_pools)
    held = most_held(overlay, found.held)
    placed = place(
        overlay, stage.priority, discount=discount, held=held, most=1, choose=choose, extra=extra, stage=stage.name
    )
    if placed or not found.gangs:
        return next(iter(placed), None), []
    return start_in_room_of_gang(overlay, found.gangs, stage.priority, discount, plainly, stage.name)


def starves_itself(starter: Operation, priority: PreemptionPriority) -> bool:
    """True if the operation has the stage's priority by its own starvation, and not only through a pool above it."""
    if priority is PreemptionPriority.AGGRESSIVE:
        return starter.starvation is StarvationStatus.AGGRESSIVELY_STARVING
    return starter.starvation is StarvationStatus.STARVING
