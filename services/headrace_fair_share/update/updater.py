"""One update: from the frozen input to the results of every element. Pure: a worker thread runs the updates that take long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np

from headrace.ids import PoolName
from headrace.pools import PreemptionPolicy
from headrace.wire.snapshots import ShareComplaint, ShareFrame, ShareItem
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints
from headrace_fair_share.hdrf.model import GuaranteeError, Sharing, TreeInput
from headrace_fair_share.hdrf.tree_update import TreeShares, TreeUpdater
from headrace_fair_share.starvation.clocks import NO_TIME, Clocks
from headrace_fair_share.starvation.rules import (
    local_satisfaction_ratios,
    owed_everything,
    preemption_priorities,
    satisfaction_ratios,
)
from headrace_fair_share.update.algorithm_input import InputMaker, UpdateInput
from headrace_fair_share.update.elements import Elements
from headrace_fair_share.update.fifo_count import within_fifo_count
from headrace_fair_share.update.results import (
    ALL_COLUMNS,
    MAX_REBUILT_ITEMS,
    NO_VALUE,
    Differences,
    ElementResults,
    PoolResults,
    differing,
    items_after,
    pool_results_of,
)
from headrace_fair_share.update.statuses import Judged, JudgedShares, judge
from headrace_fair_share.update.unsaturated.outcome import (
    MOST_ELEMENTS,
    UnsaturatedResults,
    first_difference,
    unsaturated_outcome,
)
from headrace_fair_share.update.unsaturated.resting import RestingOperations
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.yarn.share_updates import YarnShareUpdater
from headrace_fair_share.yarn.shortage import YarnState
from headrace_fair_share.yarn.starvation import due_amounts

#: Largest number of errors in the frame of a snapshot. It is bounded because every part of the snapshot repeats the frame.
_MOST_TROUBLES: Final = 20
#: Largest number of pools that one error in the frame of a snapshot names.
_MOST_POOLS_TOLD: Final = 100
#: Largest length of one error in the frame of a snapshot, in characters.
_MOST_CHARACTERS: Final = 2_000
#: Exceptions that an update may raise if the algorithm has a fault.
FAULTS: Final = (ArithmeticError, LookupError, TypeError, ValueError)


#: Difference of fair shares above which two updates count as different. Adding the same numbers in another order makes a smaller
#: difference, even in the mode in which rounding matters most (`enable_improved_fair_share_by_fit_factor_computation`).
NOTICED: Final = 1e-6


class WrongTree(NamedTuple):
    """A tree, and the fault that its update showed."""

    tree: TreeInput
    fault: Exception


class Update(msgspec.Struct, frozen=True):
    """The outcome of an update: the difference from the previous snapshot, and facts about the whole snapshot."""

    frame: ShareFrame
    #: Share items that are new or changed.
    changed: list[ShareItem]
    #: Keys of elements that are gone.
    removed: list[str]
    #: Results of all pools whose share items changed, and possibly of other pools.
    pool_results: dict[PoolName, PoolResults]
    clocks: Clocks
    yarn: YarnState
    #: Set if an update from scratch and an incremental update gave different results: the tree and the difference.
    wrong: WrongTree | None = None
    #: Number of operations that the update skipped, because they have no usage, no demand and no running clock.
    resting: int = 0


class FailedUpdate(msgspec.Struct, frozen=True):
    """An update in which the algorithm failed."""

    fault: Exception
    #: The tree that the update worked on; None if the failure came before the tree was made.
    tree: TreeInput | None
    #: Time of the update's input, in milliseconds of Unix time.
    at_ms: int


class ShareUpdater(Protocol):
    """Updates one tree repeatedly. Implementations may keep data from one update to the next."""

    def update(self, tree: TreeInput) -> TreeShares:
        """Compute the shares of all elements. Raises `BrokenInvariant`."""
        ...


def share_updater(sharing: Sharing) -> ShareUpdater:
    """Return a new updater for trees that use this kind of sharing."""
    return YarnShareUpdater() if sharing is Sharing.YARN else TreeUpdater()


class _Previous(NamedTuple):
    """The elements and results of the previous update."""

    elements: Elements
    results: ElementResults


class Updater:
    """Computes the updates of one tree one after another. Anything unchanged since the previous update is not computed again."""

    def __init__(self, *, max_rebuilt_items: int = MAX_REBUILT_ITEMS, largest_unsaturated: int = MOST_ELEMENTS) -> None:
        """Create an updater.

        Unsaturated trees are computed without numpy if they have at most `largest_unsaturated` elements, resting operations not counted.
        `max_rebuilt_items` is passed to `items_after`.
        """
        self._few_alike = max_rebuilt_items
        self._most_in_plenty = largest_unsaturated
        self._input_maker, self._awake_maker = InputMaker(), InputMaker()
        self._sharing = Sharing.VECTOR
        self._share_updater = share_updater(self._sharing)
        #: The elements and results of the previous update. None before the first update, and after an update that was computed without
        #: numpy.
        self._previous: _Previous | None = None
        #: Share items of all elements after the last update, by key.
        self._items: dict[str, ShareItem] = {}
        #: The resting operations, which updates skip until they change. `_awake` has the keys of all other elements.
        self._resting: RestingOperations | None = None
        self._awake: set[str] = set()
        #: Keys of elements that may differ from `_previous`, because later updates, which skipped the resting operations, computed them
        #: again.
        self._told_since: set[str] = set()
        #: The tree of the update that started last.
        self._tree: TreeInput | None = None

    def compute(self, cut: UpdateFacts, *, afresh: bool = False) -> Update | FailedUpdate:
        """Compute an update. Return a `FailedUpdate` if the algorithm fails; the results of the previous update then stay in force."""
        self._tree = None
        try:
            return self.update(cut, afresh=afresh)
        except FAULTS as fault:
            return FailedUpdate(fault, self._tree, cut.now_ms)

    def update(self, cut: UpdateFacts, *, afresh: bool = False) -> Update:
        """Compute all results of the tree. With `afresh`, compute from scratch without anything kept from previous updates.

        Raises `BrokenInvariant`.
        """
        resting, self._resting = self._resting, None
        of_awake = self._of_awake(cut, resting) if resting is not None else None
        if resting is not None and of_awake is not None and not afresh:
            return self._gone_on(cut, resting, of_awake)
        kept = self._input_maker, self._share_updater
        if afresh:
            self._input_maker, self._awake_maker = InputMaker(), InputMaker()
        given = self._input_maker.make(cut)
        self._tree = given.tree
        in_plenty = self._in_plenty(cut, given)
        if in_plenty is not None and not afresh:
            return self._taken(cut, in_plenty)
        sharing = given.tree.options.sharing
        if sharing is not self._sharing:
            kept = self._input_maker, share_updater(sharing)
        if afresh or sharing is not self._sharing:
            self._sharing, self._share_updater = sharing, share_updater(sharing)
        shares = self._share_updater.update(given.tree)
        wrong = _compared(cut, given, shares, *kept) if afresh and self._items else None
        results, judged = results_of(cut, given, shares)
        results.check(given.elements)
        differences, removed = self._difference(given.elements, results)
        changed = items_after(given.elements, results, differences, self._items, self._few_alike)
        pool_results = pool_results_of(given.elements, results, differences.places)
        if self._previous is None or self._told_since:
            changed = [item for item in changed if self._items.get(item.key) != item]
        frame = frame_of(cut, [*shares.fixed.errors, *given.node_overcommits])
        self._previous, self._told_since = _Previous(given.elements, results), set()
        expected = None if in_plenty is None else in_plenty.items
        if resting is not None and of_awake is not None:
            # The items of resting operations stay the same; the items of all other elements are in `of_awake`.
            expected = {key: self._items[key] for key in resting if key in self._items} | of_awake.items
        self._items.update((item.key, item) for item in changed)
        for key in removed:
            del self._items[key]
        self._put_to_rest(cut, given, results, judged.clocks)
        if expected is not None and expected != self._items:
            key = first_difference(expected, self._items)
            wrong = WrongTree(given.tree, UpdatesDiffer(f"computed in plain numbers, the item of {key} is different"))
        return Update(
            frame=frame,
            changed=changed,
            removed=removed,
            pool_results=pool_results,
            clocks=judged.clocks,
            yarn=judged.yarn,
            wrong=wrong,
        )

    def _in_plenty(self, cut: UpdateFacts, given: UpdateInput) -> UnsaturatedResults | None:
        is_small = len(given.elements.names) <= self._most_in_plenty
        return unsaturated_outcome(cut, given) if is_small else None

    def _taken(self, cut: UpdateFacts, outcome: UnsaturatedResults) -> Update:
        """Return the outcome of an unsaturated update that covers the whole tree."""
        before, self._items, self._previous, self._told_since = self._items, outcome.items, None, set()
        return Update(
            frame=frame_of(cut, []),
            changed=[item for key, item in outcome.items.items() if before.get(key) != item],
            removed=[key for key in before if key not in outcome.items],
            pool_results=outcome.pool_results,
            clocks=outcome.clocks,
            yarn=YarnState(),
        )

    def _of_awake(self, cut: UpdateFacts, resting: RestingOperations) -> UnsaturatedResults | None:
        """Compute the results of all elements except resting operations. Return None if the numpy computation is needed."""
        awake = resting.wake(cut)
        if awake is None:
            return None
        self._awake.update(awake.left)
        given = self._awake_maker.make(cut, awake.part)
        if len(given.elements.names) > self._most_in_plenty:
            return None
        looks = resting.idle_pools.looks(given, cut.clocks, awake.left.values())
        outcome = unsaturated_outcome(cut, given, resting.counts, looks.places)
        if outcome is not None:
            outcome.items.update((key, self._items[key]) for key in looks.idle)
            resting.rest(cut, given, outcome.clocks)
        return outcome

    def _gone_on(self, cut: UpdateFacts, resting: RestingOperations, outcome: UnsaturatedResults) -> Update:
        """Return the outcome of an unsaturated update that skipped resting operations."""
        pairs = ((item, self._items.get(key)) for key, item in outcome.items.items())
        changed = [item for item, before in pairs if before is not item and before != item]
        removed = [key for key in self._awake if key in self._items and key not in outcome.items]
        self._items.update((item.key, item) for item in changed)
        for key in removed:
            del self._items[key]
        self._resting, self._awake = resting, {key for key in outcome.items if key not in resting}
        # Unchanged items are added, too, because the `PoolResults` of such a pool may have changed.
        self._told_since.update(removed, outcome.items)
        results, clocks = outcome.pool_results, outcome.clocks
        return Update(frame_of(cut, []), changed, removed, results, clocks, YarnState(), resting=len(resting))

    def _put_to_rest(self, cut: UpdateFacts, given: UpdateInput, results: ElementResults, clocks: Clocks) -> None:
        """Let operations without usage, demand and running clock rest, so that the next updates skip them and may need no numpy.

        This is done only if the tree is too large to be computed without numpy, and small enough when the resting operations are left out.
        Trees in which some demand is not met are always computed with numpy, so no operation rests there.
        """
        first, is_small = given.elements.pools, len(given.elements.names) <= self._most_in_plenty
        asking = np.count_nonzero((results.demand[:, first:] | results.usage[:, first:]).any(axis=0))
        falls_short = (results.fair_share[:, first:] < results.demand_share[:, first:]).any()
        if falls_short or is_small or first + asking > self._most_in_plenty:
            return
        resting = RestingOperations(cut)
        resting.rest(cut, given, clocks)
        if len(resting):
            self._resting, self._awake = resting, set(given.elements.keys).difference(resting)

    def _difference(self, elements: Elements, results: ElementResults) -> tuple[Differences, list[str]]:
        """Return the elements that are new or changed, and the keys of elements that are gone."""
        count = len(elements.names)
        if self._previous is None:
            gone = [key for key in self._items if key not in elements.places]
            return Differences(np.arange(count), np.full(count, ALL_COLUMNS)), gone
        before, results_before = self._previous
        if before == elements and not self._told_since:
            return differing(results, results_before, None), []
        there = before.places
        place_before = np.fromiter((there.get(key, -1) for key in elements.keys), np.int64, count)
        places, columns = differing(results, results_before, place_before)
        others = [elements.places[key] for key in self._told_since if key in elements.places]
        others += [
            place
            for place, old in enumerate(place_before.tolist())
            if old >= 0 and elements.differs(place, before, old)
        ]
        all_columns = np.zeros(count, np.int64)
        all_columns[places] = columns
        all_columns[others] = ALL_COLUMNS
        places = np.flatnonzero(all_columns)
        gone = [key for key in {**there, **dict.fromkeys(self._told_since)} if key not in elements.places]
        return Differences(places, all_columns[places]), [key for key in gone if key in self._items]


def _compared(
    cut: UpdateFacts, given: UpdateInput, shares: TreeShares, input_maker: InputMaker, updater: ShareUpdater
) -> WrongTree | None:
    """Compare an update from scratch with an incremental update that uses what was kept. Return the difference, if any."""
    try:
        going_on = input_maker.make(cut)
        fault: Exception | None = difference(given.elements, shares, going_on.elements, updater.update(going_on.tree))
    except FAULTS as broken:
        fault = broken
    return None if fault is None else WrongTree(given.tree, fault)


def results_of(cut: UpdateFacts, given: UpdateInput, shares: TreeShares) -> tuple[ElementResults, Judged]:
    """Return the results of all elements in the order of `Elements`, and the starvation state for the next update."""
    elements, fixed, details = given.elements, shares.fixed, shares.details
    order = np.concatenate(([0], shares.layout.of_pool, shares.layout.of_operation))
    fair, usage, demand = (each[:, order] for each in (shares.fair_share, shares.usage_share, shares.demand_share))
    local = local_satisfaction_ratios(usage, fair, demand)
    fifo_index, effective_index = fixed.fifo_index[order], shares.effective_fifo_index[order]
    fifo_place = np.where(effective_index < 0, fifo_index, effective_index)
    within = within_fifo_count(cut, elements, given.pending, fifo_place, fair)
    schedulable = np.concatenate((np.ones(elements.pools, np.bool_), given.pending & within))
    strong, rank = fixed.strong[:, order], np.where(fifo_index < 0, elements.order, fifo_place)
    judged = judge(cut, given, JudgedShares(usage, fair, demand, strong, fixed.weight[order], rank), schedulable)
    clocks, starvation = judged.clocks, judged.clocks.starvation
    due_to_fair_share, due_to_min_share, claims = due_amounts(elements, judged.yarn.dues)
    results = ElementResults(
        usage=shares.usage[:, order],
        demand=shares.demand[:, order],
        fair_share=fair,
        strong_part=details.strong[:, order],
        integral_part=details.integral[:, order],
        weight_proportional_part=details.weight_proportional[:, order],
        usage_share=usage,
        demand_share=demand,
        limits_share=shares.limits[:, order],
        tag_filter_limits=given.tag_filter_limits,
        strong_guarantee_share=strong,
        promised_fair_share=shares.promised[:, order],
        estimated_guarantee_share=fixed.estimated[:, order],
        proposed_integral_share=shares.proposed[:, order],
        grant_ratio=_grants(shares)[order],
        weight=fixed.weight[order],
        dominant_resource=shares.dominant_resources()[order],
        satisfaction=satisfaction_ratios(local, elements.parent, elements.pools),
        local_satisfaction=local,
        below_since_ms=_unix_ms(clocks.below_since, cut),
        starving_since_ms=_unix_ms(clocks.since, cut),
        starvation=starvation,
        schedulable=schedulable,
        owed_everything=elements.is_operation & owed_everything(fair, demand),
        preemption_priority=_priorities(cut, elements, starvation, schedulable),
        starvation_reason=clocks.reason,
        ratio_volume=_ratio_volumes(cut, elements),
        fifo_index=fifo_index,
        effective_fifo_index=effective_index,
        rank=rank,
        short_of=shares.short_of[order],
        flow_ratio=fixed.ratios.flow[order],
        burst_ratio=fixed.ratios.burst[order],
        total_flow_ratio=fixed.ratios.total_flow[order],
        total_burst_ratio=fixed.ratios.total_burst[order],
        operations=_counted(elements, np.ones(len(given.running), np.bool_)),
        running_operations=_counted(elements, given.running),
        lightweight_operations=_counted(elements, given.running_lightweight),
        schedulable_operations=_counted(elements, schedulable[elements.pools :]),
        own_operations=np.bincount(elements.parent[elements.pools :], minlength=len(elements.names)),
        due_to_fair_share=due_to_fair_share,
        due_to_min_share=due_to_min_share,
        claims=claims,
    )
    return results, judged


class UpdatesDiffer(ArithmeticError):
    """An incremental update gave another fair share than an update from scratch."""


def difference(elements: Elements, anew: TreeShares, before: Elements, going_on: TreeShares) -> UpdatesDiffer | None:
    """Return an error that names the element whose fair share differs most, or None if both updates agree.

    If the demand of a gang, or a limit, exactly equals another value, rounding in the last bit of a sum decides the result, and shares can
    jump. Such a jump is reported as a difference, too.
    """
    if before.keys != elements.keys:
        return UpdatesDiffer("the two updates have different elements")
    sizes = np.abs(_in_order(anew) - _in_order(going_on)).max(axis=0)
    place = int(sizes.argmax())
    if sizes[place] <= NOTICED:
        return None
    return UpdatesDiffer(f"the fair share of {elements.names[place]} differs by {sizes[place]:.3g}")


def _in_order(shares: TreeShares) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    layout = shares.layout
    return shares.fair_share[:, np.concatenate(([0], layout.of_pool, layout.of_operation))]


def _priorities(cut: UpdateFacts, elements: Elements, starvation: Ints, schedulable: Bools) -> Ints:
    """Return the preemption priorities of operations. They are all zero under a YARN policy, which has no preemptive stages."""
    options = cut.pools.options
    causes = starvation if options.preemption_policy is PreemptionPolicy.YTSAURUS else np.zeros_like(starvation)
    scope = options.scheduling_preemption_priority_scope
    return preemption_priorities(causes, schedulable, elements.parent, elements.pools, scope)


def _grants(shares: TreeShares) -> Floats:
    """Return `ElementResults.grant_ratio` of each element; 0 if no integral share was granted to the element."""
    grants = np.zeros(shares.layout.size)
    grants[shares.fixed.integral.all] = shares.last_share_ratio
    return grants


def _unix_ms(times_ms: Ints, cut: UpdateFacts) -> Ints:
    """Convert counted time to milliseconds of Unix time. `NO_TIME` becomes `NO_VALUE`."""
    return np.where(times_ms == NO_TIME, NO_VALUE, np.maximum(0, times_ms + cut.clock_offset_ms))


def _ratio_volumes(cut: UpdateFacts, elements: Elements) -> Floats:
    ratios = np.zeros(len(elements.names))
    for name, volume in cut.volumes.items():
        place = elements.places.get(f"/{name}")
        if place is not None:
            ratios[place] = volume.ratio_volume
    return ratios


def _counted(elements: Elements, which: Bools) -> Ints:
    """Count the selected operations in each pool and below it."""
    pools = elements.pools
    counts = np.bincount(elements.parent[pools:][which], minlength=len(elements.names))
    # Lists are used because reading one element of an array takes ten times as long, and there may be thousands of pools.
    of_pools, above = counts[:pools].tolist(), elements.parent[:pools].tolist()
    for place in range(pools - 1, 0, -1):
        of_pools[above[place]] += of_pools[place]
    counts[:pools] = of_pools
    return counts


def frame_of(cut: UpdateFacts, errors: Sequence[GuaranteeError]) -> ShareFrame:
    """Return the frame of a share snapshot: facts about the update's input, and the errors that the algorithm reported."""
    return ShareFrame(
        usage_version=cut.usage_version,
        pools_revision=cut.pools_revision,
        total=cut.total,
        at_ms=cut.now_ms,
        options=cut.pools.options.for_allocation(),
        stale_volumes=cut.stale_volumes,
        downtime=cut.downtime,
        errors=[_short(text) for text in (*cut.troubles[:_MOST_TROUBLES], *(error.text for error in errors))],
        complaints=[
            ShareComplaint(error.kind, _short(error.text), [PoolName(pool) for pool in error.pools[:_MOST_POOLS_TOLD]])
            for error in errors
        ],
    )


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
