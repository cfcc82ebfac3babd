"""One update: from a cut of everything known to the figures of every element; pure, meant for a worker thread."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from headrace.ids import PoolName
from headrace.wire.snapshots import ShareComplaint, ShareFrame, ShareItem
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_shares import TreeShares
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from headrace_fair_share.starvation.clocks import Clock, step
from headrace_fair_share.starvation.satisfaction import (
    below_fair_share,
    local_satisfaction_ratios,
    owed_everything,
    satisfaction_ratios,
)
from headrace_fair_share.update.cut import Cut
from headrace_fair_share.update.figures import (
    NO_MOMENT,
    STARVATION,
    Figures,
    PoolFigures,
    differing,
    items_of,
    pool_figures_of,
)
from headrace_fair_share.update.input import Elements, Roll, Roster

__all__ = ["Update", "Updater"]


class Update(msgspec.Struct, frozen=True):
    """The outcome of an update: how the snapshot differs from the one before, and what holds for it as a whole."""

    frame: ShareFrame
    #: Items that are new or different; keys of those that are gone.
    changed: list[ShareItem]
    removed: list[str]
    #: Of the pools among the changed items.
    figures: dict[PoolName, PoolFigures]
    #: Of all elements that are below their fair share.
    clocks: dict[str, Clock]


class _Told(NamedTuple):
    """What was told by the update before."""

    elements: Elements
    figures: Figures


class Updater:
    """Updates of one tree, one after another. What has not changed since the update before is neither worked out nor made again."""

    def __init__(self) -> None:
        self._roster = Roster()
        self._engine = TreeUpdater()
        self._told: _Told | None = None
        #: What the update that was begun last worked on; to look into when it failed.
        self.tree: TreeInput | None = None

    def update(self, cut: Cut, *, afresh: bool = False) -> Update:
        """All figures of the tree; `afresh`: nothing that was kept of the updates before is used to work them out.

        Raises `BrokenInvariant`; then the outcome of the update before still holds.
        """
        if afresh:
            self._roster, self._engine = Roster(), TreeUpdater()
        self.tree = None
        roll = self._roster.take(cut)
        self.tree = roll.tree
        outcome = self._engine.update(roll.tree)
        figures, clocks = _judged(cut, roll, outcome)
        figures.check(roll.elements)
        changed, removed = self._difference(roll.elements, figures)
        self._told = _Told(roll.elements, figures)
        return Update(
            frame=_frame(cut, outcome),
            changed=items_of(roll.elements, figures, changed),
            removed=removed,
            figures=pool_figures_of(roll.elements, figures, changed),
            clocks=clocks,
        )

    def _difference(self, elements: Elements, figures: Figures) -> tuple[Ints, list[str]]:
        """Places of what is new or different, and keys of what is gone."""
        if self._told is None:
            return np.arange(len(elements.names)), []
        told = self._told
        if told.elements is elements:
            return differing(figures, told.figures, None), []
        there = told.elements.places
        before = np.fromiter((there.get(key, -1) for key in elements.keys), np.int64, len(elements.names))
        places = differing(figures, told.figures, before)
        moved = [
            place
            for place, old in enumerate(before.tolist())
            if old >= 0
            and (
                elements.parents[place] != told.elements.parents[old]
                or elements.is_ephemeral(place) != told.elements.is_ephemeral(old)
            )
        ]
        return np.union1d(places, np.array(moved, np.int64)), [key for key in there if key not in elements.places]


def _judged(cut: Cut, roll: Roll, outcome: TreeShares) -> tuple[Figures, dict[str, Clock]]:
    """Figures of all elements in the order of the roster, and the clocks of those that are below their fair share."""
    elements, standing, details = roll.elements, outcome.fixed, outcome.details
    order = np.concatenate(([0], outcome.layout.of_pool, outcome.layout.of_operation))
    fair, usage, demand = (each[:, order] for each in (outcome.fair_share, outcome.usage_share, outcome.demand_share))
    local = local_satisfaction_ratios(usage, fair, demand)
    schedulable = np.ones(len(order), np.bool_)
    schedulable[elements.pools :] = roll.wants
    judge = _judges(elements)
    tolerance = np.array([each.tolerance for each in roll.patience])[judge]
    short = schedulable & below_fair_share(usage, fair, demand, tolerance, elements.is_operation)
    short[0] = False
    clocks = _clocks(cut, roll, judge, short)
    below_since, starving_since, starvation = _moments(cut, elements, clocks)
    grants = np.zeros(outcome.layout.size)
    grants[standing.integral.all] = outcome.drawn
    figures = Figures(
        usage=outcome.usage[:, order],
        demand=outcome.demand[:, order],
        fair_share=fair,
        strong_part=details.strong[:, order],
        integral_part=details.integral[:, order],
        weight_proportional_part=details.weight_proportional[:, order],
        usage_share=usage,
        demand_share=demand,
        limits_share=outcome.limits[:, order],
        strong_guarantee_share=standing.strong[:, order],
        promised_fair_share=outcome.promised[:, order],
        estimated_guarantee_share=standing.estimated[:, order],
        proposed_integral_share=outcome.proposed[:, order],
        grant_ratio=grants[order],
        weight=standing.weight[order],
        dominant_resource=outcome.dominant_resources()[order],
        satisfaction=satisfaction_ratios(local, elements.parent, elements.pools),
        local_satisfaction=local,
        below_since_ms=below_since,
        starving_since_ms=starving_since,
        starvation=starvation,
        schedulable=schedulable,
        preemptible=~(elements.is_operation & owed_everything(fair, demand)),
        ratio_volume=_ratio_volumes(cut, elements),
        fifo_index=standing.fifo_rank[order],
        effective_fifo_index=outcome.effective_rank[order],
        flow_ratio=standing.ratios.flow[order],
        burst_ratio=standing.ratios.burst[order],
        total_flow_ratio=standing.ratios.total_flow[order],
        total_burst_ratio=standing.ratios.total_burst[order],
        operations=_counted(elements, np.ones(len(roll.runs), np.bool_)),
        running_operations=_counted(elements, roll.runs),
        schedulable_operations=_counted(elements, roll.wants),
        own_operations=np.bincount(elements.parent[elements.pools :], minlength=len(elements.names)),
    )
    return figures, clocks


def _judges(elements: Elements) -> Ints:
    """Of each element the place of the pool whose patience holds for it: its own, an operation's is its pool."""
    return np.where(elements.is_operation, elements.parent, np.arange(len(elements.names)))


def _clocks(cut: Cut, roll: Roll, judge: Ints, short: Bools) -> dict[str, Clock]:
    """The clocks of all elements that are below their fair share; of those that are not looked at, as they were."""
    elements = roll.elements
    if not cut.judged:
        return {key: clock for key, clock in cut.clocks.items() if key in elements.places}
    clocks: dict[str, Clock] = {}
    if not cut.pools.options.enable_pool_starvation:
        pools = elements.keys[: elements.pools]
        clocks = {key: cut.clocks[key] for key in pools if key in cut.clocks}
        short = short & elements.is_operation
    for place in np.flatnonzero(short).tolist():
        key = elements.keys[place]
        clocks[key] = step(cut.clocks.get(key), cut.clock_ms, roll.patience[judge[place]].timeouts)
    return clocks


def _moments(cut: Cut, elements: Elements, clocks: dict[str, Clock]) -> tuple[Ints, Ints, Ints]:
    """Since when elements are below their fair share and starve, and how badly."""
    below, starving = np.full((2, len(elements.names)), NO_MOMENT)
    starvation = np.zeros(len(elements.names), np.int64)
    for key, clock in clocks.items():
        place = elements.places[key]
        below[place] = max(0, clock.below_since + cut.clock_offset_ms)
        if clock.starving_since is not None:
            starving[place] = max(0, clock.starving_since + cut.clock_offset_ms)
        starvation[place] = STARVATION.index(clock.starvation)
    return below, starving, starvation


def _ratio_volumes(cut: Cut, elements: Elements) -> Floats:
    ratios = np.zeros(len(elements.names))
    for name, volume in cut.volumes.items():
        place = elements.places.get(f"/{name}")
        if place is not None:
            ratios[place] = volume.ratio_volume
    return ratios


def _counted(elements: Elements, which: Bools) -> Ints:
    """How many of some operations stand in each pool and below it."""
    counts = np.zeros(len(elements.names), np.int64)
    np.add.at(counts, elements.parent[elements.pools :], which)
    for place in range(elements.pools - 1, 0, -1):
        counts[elements.parent[place]] += counts[place]
    return counts


def _frame(cut: Cut, outcome: TreeShares) -> ShareFrame:
    errors = outcome.fixed.errors
    return ShareFrame(
        usage_version=cut.usage_version,
        pools_revision=cut.pools_revision,
        total=cut.total,
        at_ms=cut.now_ms,
        stale_volumes=cut.stale_volumes,
        downtime=cut.downtime,
        errors=[*cut.troubles, *(error.text for error in errors)],
        complaints=[
            ShareComplaint(error.kind, error.text, [PoolName(pool) for pool in error.pools]) for error in errors
        ],
    )
