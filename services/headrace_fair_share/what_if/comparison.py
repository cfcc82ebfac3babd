"""Compares two worlds, the tree before and after supposed changes: computes an update of each, and finds the elements that differ. Pure,
but too slow for the event loop.

Both updates are computed from scratch. They neither use nor change the data that the service keeps for its published updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np

from headrace.counted import counted
from headrace.ids import OperationId, PoolName
from headrace.pools import PreemptionPolicy
from headrace.pools.amounts import out_of_bounds
from headrace.resources import EPS, Resources
from headrace.suggestions import some
from headrace.wire.what_if import MOST_OVER_LIMITS, ComparedElement, ElementShares, JobsOverLimits, WhatIfAnswer
from headrace_fair_share.configuration.differences import fitting
from headrace_fair_share.hdrf.arrays import Floats, Ints, column
from headrace_fair_share.starvation.clocks import NO_TIME, Clocks, coming
from headrace_fair_share.update.algorithm_input import InputMaker, UpdateInput
from headrace_fair_share.update.elements import Elements
from headrace_fair_share.update.results import ElementResults
from headrace_fair_share.update.statuses import timeouts_of
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.update.updater import results_of, share_updater
from headrace_fair_share.what_if.over_limits import jobs_over_limits
from headrace_fair_share.what_if.supposing import Supposed

#: Largest size of the plan in an answer.
_PLAN_BYTES: Final = 200 * 1024
#: Largest size of the elements in an answer.
_ELEMENTS_BYTES: Final = 240 * 1024

_encode = msgspec.msgpack.Encoder().encode


class WorldShares(NamedTuple):
    """The input of one world and the results of its update."""

    cut: UpdateFacts
    elements: Elements
    results: ElementResults
    #: Milliseconds until each element starves; infinite if it will not.
    starves_in_ms: Floats

    def over_limits(self) -> list[JobsOverLimits]:
        """Return the pools that use more than their resource limits."""
        elements, usage = self.elements, self.results.usage[:, self.elements.pools :]
        rows = zip(elements.names[elements.pools :], usage.T.tolist(), strict=True)
        return jobs_over_limits(
            self.cut, elements, {OperationId(name): Resources(*row) for name, row in rows if any(row)}
        )

    def refused_sizes(self) -> set[str]:
        """Return the operations whose job size is outside the bounds of their pool."""
        elements, operations = self.elements, self.cut.operations
        bounds = (elements.options[place] for place in elements.above[elements.pools :])
        return {
            name
            for name, bound in zip(elements.names[elements.pools :], bounds, strict=True)
            if out_of_bounds(
                operations[OperationId(name)].job, bound.min_job_resource_limits, bound.max_job_resource_limits
            )
        }

    def shares(self, place: int) -> ElementShares:
        """Return the shares of one element."""
        results, total = self.results, self.cut.total
        fair = tuple(results.fair_share[:, place].tolist())
        in_ms = float(self.starves_in_ms[place])
        return ElementShares(
            weight=float(results.weight[place]),
            fair_share=fair,
            fair_resources=total.part(fair).within_wire(),
            guarantee=total.part(tuple(results.strong_guarantee_share[:, place].tolist())).within_wire(),
            usage=Resources(*results.usage[:, place].tolist()).within_wire(),
            demand=Resources(*results.demand[:, place].tolist()).within_wire(),
            starves_in_ms=None if np.isinf(in_ms) else int(in_ms),
        )


def world_of(cut: UpdateFacts) -> WorldShares:
    """Compute the update of one world. Raises `BrokenInvariant` and the other `FAULTS` of an update."""
    given = InputMaker().make(cut)
    shares = share_updater(given.tree.options.sharing).update(given.tree)
    results, judged = results_of(cut, given, shares)
    results.check(given.elements)
    return WorldShares(cut, given.elements, results, _starves_in_ms(cut, given, judged.clocks))


def compared(supposed: Supposed) -> WhatIfAnswer:
    """Compute both worlds, and return an answer with their elements.

    If not all elements fit, the elements that differ most are included. Raises `BrokenInvariant` and the other `FAULTS` of an update.
    """
    plan, cut, after_cut = fitting(supposed.plan, _PLAN_BYTES), supposed.before, supposed.after
    if after_cut is None:
        return WhatIfAnswer(plan, cut.total, cut.total)
    pairs = _Pairs(world_of(cut), world_of(after_cut))
    differs = pairs.differences > 0.0
    told = pairs.told(_ELEMENTS_BYTES)
    return WhatIfAnswer(
        plan=plan,
        total_before=cut.total,
        total_after=after_cut.total,
        elements=told,
        left_out=int(differs.sum()) - sum(each.differs for each in told),
        unchanged_pools=int((pairs.is_pool & ~differs).sum()),
        unchanged_operations=int((~pairs.is_pool & ~differs).sum()),
        notes=[*supposed.notes, *pairs.refused_sizes(), *_notes(after_cut)],
        over_limits=pairs.over_limits(),
    )


class _Pairs:
    """All elements of both worlds: pools before operations, parents before children."""

    def __init__(self, before: WorldShares, after: WorldShares) -> None:
        self._before, self._after = before, after
        places = before.elements.places | after.elements.places
        pools = [key for key in places if key.startswith("/")]
        #: Keys of all pools, then keys of all operations. Among the pools, and among the operations, the elements that exist after the
        #: changes come first, in their order. The elements that exist only before the changes follow.
        self._keys = [
            *after.elements.keys[: after.elements.pools],
            *(key for key in pools if key not in after.elements.places),
            *after.elements.keys[after.elements.pools :],
            *(key for key in before.elements.keys[before.elements.pools :] if key not in after.elements.places),
        ]
        self._there = [_places(world, self._keys) for world in (before, after)]
        self.is_pool = np.arange(len(self._keys)) < len(pools)
        #: A measure of how much each element differs; 0 if it does not differ.
        self.differences = self._differences()

    def over_limits(self) -> list[JobsOverLimits]:
        """Return the pools that are over their limits after the changes, except pools that are over them by as many jobs before."""
        before = set(self._before.over_limits())
        return [each for each in self._after.over_limits() if each not in before][:MOST_OVER_LIMITS]

    def refused_sizes(self) -> list[str]:
        """Return a note on the operations that start no further jobs because of the changes. Empty if there are none."""
        refused = sorted(self._after.refused_sizes() - self._before.refused_sizes())
        words = "no further jobs start, because their size is outside the bounds of job sizes; running jobs continue"
        return [f"of {counted(len(refused), 'operation')} {words}: {some(refused)}"] if refused else []

    def told(self, most_bytes: int) -> list[ComparedElement]:
        """Return as many elements as fit: the most different first, each with all pools above it; pools that do not differ come last."""
        order = np.lexsort((np.arange(len(self._keys)), -self.differences))
        place_of = {key: place for place, key in enumerate(self._keys)}
        found: dict[int, ComparedElement] = {}
        for place in order.tolist():
            if not (self.differences[place] or self.is_pool[place]):
                continue
            way = [each for each in self._upwards(place, place_of) if each not in found]
            made = {each: self._element(each) for each in way}
            most_bytes -= sum(len(_encode(each)) for each in made.values())
            if most_bytes < 0:
                break
            found |= made
        return [found[place] for place in sorted(found)]

    def _upwards(self, place: int, place_of: dict[str, int]) -> Iterator[int]:
        while True:
            yield place
            parent = self._parent(place)
            if not parent:
                return
            place = place_of[f"/{parent}"]

    def _parent(self, place: int) -> PoolName:
        world, there = self._world_of(place)
        return world.elements.parents[there]

    def _world_of(self, place: int) -> tuple[WorldShares, int]:
        """Return a world that contains the element, and its position there. If both contain it, the world after the changes is used."""
        before, after = (int(there[place]) for there in self._there)
        return (self._after, after) if after >= 0 else (self._before, before)

    def _element(self, place: int) -> ComparedElement:
        world, there = self._world_of(place)
        before, after = (int(each[place]) for each in self._there)
        return ComparedElement(
            kind=world.elements.kind(there),
            name=world.elements.names[there],
            parent=world.elements.parents[there],
            before=self._before.shares(before) if before >= 0 else None,
            after=self._after.shares(after) if after >= 0 else None,
            differs=bool(self.differences[place]),
        )

    def _differences(self) -> Floats:
        """Return how much each element differs.

        The number is the difference in fair share as a fraction of the cluster, plus 1 if the element starves at another time, plus 2 if
        only one world has the element.
        """
        before, after = (
            _figures(world, there) for world, there in zip((self._before, self._after), self._there, strict=True)
        )
        scale = np.maximum(np.maximum(column(self._before.cut.total), column(self._after.cut.total)), 1)
        fair, *others = (
            (np.abs(one - other) / scale).max(axis=0) for one, other in zip(before.amounts, after.amounts, strict=True)
        )
        fair = np.where(fair > EPS, fair, 0.0)
        is_other = (np.max(others, axis=0) > EPS) | (before.weight != after.weight)
        starves = before.starves_in_ms != after.starves_in_ms
        comes_or_goes = (self._there[0] < 0) != (self._there[1] < 0)
        return np.asarray(fair + EPS * is_other + 1.0 * starves + 2.0 * comes_or_goes)


class _Figures(NamedTuple):
    """Figures of elements in one world. An element that this world does not contain has zeros, and never starves."""

    #: Fair share, guarantee and demand. Usage is the same in both worlds.
    amounts: tuple[Floats, Floats, Floats]
    weight: Floats
    starves_in_ms: Floats


def _figures(world: WorldShares, there: Ints) -> _Figures:
    results, total = world.results, column(world.cut.total)
    shares = (results.fair_share * total, results.strong_guarantee_share * total, results.demand.astype(np.float64))
    is_there = there >= 0
    fair, guarantee, demand = (np.where(is_there, each[:, there], 0.0) for each in shares)
    return _Figures(
        (fair, guarantee, demand),
        np.where(is_there, results.weight[there], 0.0),
        np.where(is_there, world.starves_in_ms[there], np.inf),
    )


def _places(world: WorldShares, keys: list[str]) -> Ints:
    places = world.elements.places
    return np.fromiter((places.get(key, -1) for key in keys), np.int64, len(keys))


def _starves_in_ms(cut: UpdateFacts, given: UpdateInput, clocks: Clocks) -> Floats:
    """Return the milliseconds until each element starves if nothing else changes.

    Under a YARN policy nothing is predicted: the result is 0 for elements that already starve, and infinite for all other elements.
    """
    starves = (clocks.starving > 0) | (clocks.short_starving_since != NO_TIME)
    if cut.pools.options.preemption_policy is not PreemptionPolicy.YTSAURUS:
        return np.where(starves, 0.0, np.inf)
    to_come = coming(clocks, timeouts_of(cut, given))
    left_ms = np.minimum(_left_ms(to_come.starving, cut.clock_ms), _left_ms(to_come.short, cut.clock_ms))
    if not cut.pools.options.enable_pool_starvation:
        left_ms = np.where(given.elements.is_operation, left_ms, np.inf)
    return np.where(starves, 0.0, left_ms)


def _left_ms(times_ms: Ints, now_ms: int) -> Floats:
    """Return the time until the timeout of each element, which is one millisecond before the time at which the element starves."""
    comes = times_ms != NO_TIME
    return np.where(comes, np.maximum(np.where(comes, times_ms, 0) - 1 - now_ms, 0), np.inf)


def _notes(cut: UpdateFacts) -> list[str]:
    """Return notes about why future starvation cannot be predicted."""
    if cut.pools.options.preemption_policy is not PreemptionPolicy.YTSAURUS:
        return ["under a YARN policy, only what already starves is known, and not what will starve"]
    if cut.pools.options.pause_starts:
        return ["starts are paused, so nothing begins to starve"]
    if not cut.usage_counts:
        return ["usage is not complete yet, so nothing begins to starve"]
    return []
