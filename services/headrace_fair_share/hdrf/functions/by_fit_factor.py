"""Shares by fit factor: how much an operation takes, and how much the children of a pool take together.

    operation   f in [0, 1]: min(f * u, usage), u the largest component of usage. f in [1, 2]: usage + (f - 1) * (demand - usage)
    gang        0 up to f = 1, its demand above
    fair share  sum over children of FS(min(1, f * ratio)), for f in [0, 1]
    fifo        sum over children of FS(f - rank, clipped to [0, 1]), for f in [0, number of children]

To add up the functions of children, the points of all children are sorted, and slopes and jumps are added up from left to right. Plain
running sums would collect rounding errors. Slopes and values are therefore split into coarse parts, whose sums are exact, and a rest that
is so small that its rounding errors do not matter.

Sections: docs/reference/fair-share-algorithm.md#11-share-by-fit-factor, docs/reference/fair-share-algorithm.md#14-distribution
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, Floats, Ints, fits_into, starts_of, sums_by
from headrace_fair_share.hdrf.functions.curves import Curves, PointStore

#: Largest width, in units of the suggestion, of a stretch between two points that counts as a jump.
STEEP: Final = 1e-16
#: Adding and subtracting this number rounds to multiples of 2^-10.
_COARSE_SLOPE: Final = 1.5 * 2.0 ** (52 - 10)
#: Adding and subtracting this number rounds to multiples of 2^30.
_HUGE_SLOPE: Final = 1.5 * 2.0 ** (52 + 30)
#: Adding and subtracting this number rounds to multiples of 2^-30.
_COARSE_VALUE: Final = 1.5 * 2.0 ** (52 - 30)
#: Slope above which sums of coarse slopes are no longer exact.
_HUGE: Final = 2.0**38
#: Largest number of pools whose numbers fit into 16-bit integers. Such integers are sorted faster, digit by digit.
_SMALL: Final = 2**15 - 1


@dataclass(slots=True)
class Breakpoints:
    """Breakpoints: points where a child's function bends or jumps. In improved mode, the breakpoints of a pool are at its fit factors 0, 1,
    2 and so on.

    `left` and `right` are the sums of all children's shares just before and just after the child passes this point.
    """

    x: Floats
    child: Ints
    left: Floats
    right: Floats
    start: Ints


@dataclass(slots=True)
class _Events:
    """Groups of points of the children of each pool, in the order in which the pool's sum passes them. Points that are passed at the same
    time form one group.
    """

    x: Floats
    pool: Ints
    child: Ints
    left: Floats
    jump: Floats
    #: Index of the first group of each pool; the last entry is the number of all groups.
    start: Ints


def operation_by_fit_factor(usage: Floats, demand: Floats, gang: Bools) -> Curves:
    """Return the shares by fit factor of operations, for fit factors from 0 to 2.

    Each curve has some of these nine points: the origin, one point for each of the five components of the usage in ascending order, the
    point at which the stretch of a zero usage ends, the upper end of a gang's jump, and the demand.
    """
    count = usage.shape[1]
    used = np.sort(usage, axis=0)
    most = used[-1]
    uses = (most > 0.0) & ~gang
    x, y = np.zeros((count, 9)), np.zeros((RESOURCES, count, 9))
    there = np.zeros((count, 9), np.bool_)
    x[:, 1:6] = np.where(uses, used / np.where(uses, most, 1.0), 0.0).T
    y[:, :, 1:6] = np.minimum(used.T, usage[:, :, np.newaxis])
    there[:, 1:6] = x[:, 1:6] > x[:, 0:5]
    x[:, 6:8], x[:, 8] = 1.0, 2.0
    y[:, :, 7] = y[:, :, 8] = demand
    there[:, 0] = there[:, 8] = True
    there[:, 6], there[:, 7] = ~uses, gang
    points = np.flatnonzero(there)
    return Curves(x.ravel()[points], y.reshape(RESOURCES, -1).take(points, axis=1), starts_of(there.sum(axis=1)))


def sum_of_children(children: Curves, ratio: Floats, pool: Ints, pools: int) -> Curves:
    """Sum the curves of the children of each pool. The arguments of these curves have already been divided by `ratio`.

    `pool` gives the pool of each child, in ascending order.
    """
    events = _events(children, ratio, pool, pools, apart=False)
    return _as_curves(events.x, events)


def sum_one_move_at_a_time(children: Curves, ratio: Floats, pool: Ints, pools: int) -> tuple[Curves, Breakpoints]:
    """Sum the curves of the children of each pool so that only one child moves at a time: breakpoint k of a pool is at the fit factor k.

    If points of several children coincide, each of these children has a breakpoint of its own there. While one child passes the point, the
    children before it have already passed the point, and the children after it have not.
    """
    events = _events(children, ratio, pool, pools, apart=True)
    number = np.arange(len(events.x)) - events.start[:-1].repeat(events.start[1:] - events.start[:-1])
    breakpoints = Breakpoints(events.x, events.child, events.left, events.left + events.jump, events.start)
    return _as_curves(number.astype(np.float64), events), breakpoints


def cut_at_one(curves: Curves) -> Curves:
    """Cut off the parts of curves beyond x = 1."""
    beyond = curves.x > 1.0
    if not beyond.any():
        return curves
    first = np.flatnonzero(beyond & np.concatenate(([False], ~beyond[:-1])))
    x0, x1 = curves.x[first - 1], curves.x[first]
    t = (1.0 - x0) / (x1 - x0)
    x, y = curves.x.copy(), curves.y.copy()
    y[:, first] = y[:, first - 1] + (y[:, first] - y[:, first - 1]) * t
    x[first] = 1.0
    kept = x <= 1.0
    return Curves(x[kept], y[:, kept], starts_of(np.bincount(curves.owner()[kept], minlength=len(curves))))


def _events(children: Curves, ratio: Floats, pool: Ints, pools: int, *, apart: bool) -> _Events:
    slope, steep, jump = _slopes_and_jumps(children, STEEP / ratio)
    child = children.owner()
    order = _in_order(children.x, pool[child], pools, stable=apart)
    x, of_pool, of_child = children.x[order], pool[child][order], child[order]
    begins = np.ones(len(x), np.bool_)
    begins[1:] = (x[1:] != x[:-1]) | (of_pool[1:] != of_pool[:-1])
    if apart:
        begins[1:] |= of_child[1:] != of_child[:-1]
    group = np.flatnonzero(begins)
    x, of_pool, of_child = x[group], of_pool[group], of_child[group]
    start: Ints = np.searchsorted(of_pool, np.arange(pools + 1))
    heights = _by_group(steep, jump, order, begins, len(group))
    base = sums_by(pool, children.y[:, children.start[:-1]], pools)
    left = _running_values(x, _running_slopes(slope, order, group, start), heights, base, start)
    return _Events(x, of_pool, of_child, left, heights, start)


def _slopes_and_jumps(curves: Curves, narrow: Floats) -> tuple[Floats, Ints, Floats]:
    """Return the slope behind each point, the points at which a jump begins, and the heights of the jumps. The slope is 0 behind the last
    point of a curve, and behind a point at which a jump begins.
    """
    last = curves.start[1:] - 1
    wide, rise = np.ones(len(curves.x)), np.zeros_like(curves.y)
    np.subtract(curves.x[1:], curves.x[:-1], out=wide[:-1])
    np.subtract(curves.y[:, 1:], curves.y[:, :-1], out=rise[:, :-1])
    wide[last] = 1.0
    rise[:, last] = 0.0
    steep = np.flatnonzero(wide <= narrow.repeat(curves.start[1:] - curves.start[:-1]))
    jump = rise[:, steep]
    wide[steep] = 1.0
    rise[:, steep] = 0.0
    rise /= wide
    return rise, steep, jump


def _in_order(x: Floats, pool: Ints, pools: int, *, stable: bool) -> Ints:
    """Return the order of points by pool, and in each pool from left to right. With `stable`, points with equal x keep the order of the
    children.
    """
    order = np.argsort(x, kind="stable" if stable else None)
    digits = pool.astype(np.int16) if pools <= _SMALL else pool
    places: Ints = order[np.argsort(digits[order], kind="stable")]
    return places


def _by_group(steep: Ints, jump: Floats, order: Ints, begins: Bools, groups: int) -> Floats:
    """Return the summed heights of the jumps in each group."""
    if not len(steep):
        return np.zeros((RESOURCES, groups))
    of_point = np.empty(len(order), np.int64)
    of_point[order] = np.cumsum(begins) - 1
    return sums_by(of_point[steep], jump, groups)


def _running_slopes(slope: Floats, order: Ints, group: Ints, start: Ints) -> Floats:
    """Return the slope of the sum behind each group. The slope is 0 behind the last group of a pool, so one running sum can go through all
    pools.

    The running sums of each coarse part are exact, because all values of the part are multiples of one power of two. The parts are added up
    at the end. The running sums of the rest are not exact, so what earlier pools added is subtracted. Otherwise a rounding error left by
    earlier pools could give a pool a tiny slope in a resource that none of its children takes. If the pool's guarantee of this resource is
    0, the tiny amount would exceed the guarantee at once. The pool would then get nothing from its guarantees of other resources.
    """
    ends = np.append(group[1:], slope.shape[1]) - 1
    total, rest = np.zeros((RESOURCES, len(group))), slope
    for step in (_HUGE_SLOPE, _COARSE_SLOPE) if slope.max(initial=0.0) > _HUGE else (_COARSE_SLOPE,):
        coarse = (rest + step) - step
        rest = rest - coarse
        total += _running(coarse, order)[:, ends]
    return np.maximum(total + _without_what_was_before(_running(rest, order)[:, ends], start), 0.0)


def _running(slope: Floats, order: Ints) -> Floats:
    """Return the running sum of the changes of slope at the points of all children, in the order in which the points are passed."""
    change = np.empty_like(slope)
    change[:, 0] = slope[:, 0]
    np.subtract(slope[:, 1:], slope[:, :-1], out=change[:, 1:])
    change = change.take(order, axis=1)
    return np.cumsum(change, axis=1, out=change)


def _running_values(x: Floats, slope: Floats, jump: Floats, base: Floats, start: Ints) -> Floats:
    """Return the left limit of the sum at each group."""
    step = np.zeros_like(slope)
    np.multiply(slope[:, :-1], x[1:] - x[:-1], out=step[:, 1:])
    step[:, 1:] += jump[:, :-1]
    step[:, start[:-1]] = base
    coarse = (step + _COARSE_VALUE) - _COARSE_VALUE
    step -= coarse
    np.cumsum(coarse, axis=1, out=coarse)
    np.cumsum(step, axis=1, out=step)
    return _without_what_was_before(coarse, start) + _without_what_was_before(step, start)


def _without_what_was_before(sums: Floats, start: Ints) -> Floats:
    """Return running sums that begin anew in each pool: from the running sums over all pools, subtract what earlier pools added."""
    before = np.where(start[:-1] > 0, sums[:, start[:-1] - 1], 0.0)
    less: Floats = sums - np.repeat(before, start[1:] - start[:-1], axis=1)
    return less


def _as_curves(x: Floats, events: _Events) -> Curves:
    """Return the sums as curves, with a second point at each jump."""
    points = np.where((events.jump > 0.0).any(axis=0), 2, 1)
    before = starts_of(points)
    group = np.repeat(np.arange(len(x)), points)
    y = events.left.take(group, axis=1)
    upper = before[:-1][points > 1] + 1
    y[:, upper] += events.jump[:, points > 1]
    return Curves(x[group], y, before[events.start])


class BreakpointStore(PointStore):
    """Stores the breakpoints of pools for the distribution."""

    columns = ("x", "child", "left", "right")

    def __init__(self, elements: int) -> None:
        super().__init__(elements)
        self.x = np.empty(0)
        self.child = np.empty(0, np.int64)
        self.left = np.empty((RESOURCES, 0))
        self.right = np.empty((RESOURCES, 0))

    def last_that_fits(self, pools: Ints, room: Floats) -> Ints:
        """Return for each pool the last breakpoint just before which the shares of its children still fit into `room`.

        The first breakpoint always counts as fitting.
        """
        low, high = self.first[pools], self.first[pools] + self.count[pools] - 1
        while (open_ := low < high).any():
            middle = np.where(open_, (low + high + 1) >> 1, low)
            fits = fits_into(self.left.take(middle, axis=1), room)
            low = np.where(open_ & fits, middle, low)
            high = np.where(open_ & ~fits, middle - 1, high)
        return low
