"""Computes the functions by suggestion from the share by fit factor: the maximal fit factor, MFF, and the share, FS.

A suggestion s lets an element have min(guarantee + s, limit) of every resource. Conversely, the suggestion that the fit factor f needs is

    S(f) = max(0, max over resources r of share_r(f) - guarantee_r)

Following f up to the point where a limit is passed gives the points of both functions at once: MFF has (S(f), f), FS has (S(f), share(f)).
S bends where another resource becomes the resource that exceeds its guarantee most. A jump of share(f) is passed only when the suggestion
covers the upper end of the jump. Where S is constant while f grows, MFF and FS jump. Neither of them jumps at s = 1.

    share (0.9 f, 0.6 f), guarantee (0.3, 0.4): S(f) = 0.9 f - 0.3 from f = 1/3 on, so MFF(0.15) = 0.5 and FS(0.15) = (0.45, 0.3)

Section: docs/reference/fair-share-algorithm.md#12-functions-by-suggestion
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace_fair_share.hdrf.arrays import RESOURCES, ROUNDING, Bools, Floats, Ints, between, beyond, ranges, starts_of
from headrace_fair_share.hdrf.functions.curves import Curves, Functions


@dataclass(slots=True)
class _Points:
    """Points of functions by suggestion: suggestion, fit factor, shares, and the element that each point belongs to."""

    suggestion: Floats
    fit: Floats
    shares: Floats
    owner: Ints


def functions_by_suggestion(curves: Curves, guarantees: Floats, limits: Floats) -> Functions:
    """Compute functions by suggestion from curves of shares by fit factor. `guarantees` and `limits` have shape (5, elements)."""
    floor, ceiling = within_limits(
        curves.y[:, curves.start[:-1]], curves.y[:, curves.start[1:] - 1], guarantees, limits
    )
    curves = _up_to_limits(curves, ceiling)
    owner = curves.owner()
    over = beyond(curves.y, floor.take(owner, axis=1))
    suggestion = np.maximum(over.max(axis=0), 0.0)
    same = owner[1:] == owner[:-1]
    after, t, flat = _bends(curves, over, suggestion, same)
    jumps = np.flatnonzero((curves.x[1:] == curves.x[:-1]) & same)
    points = _Points(suggestion, curves.x, curves.y, owner)
    if len(after) or len(jumps):
        points = _merged(points, floor, after, t, flat, jumps)
    return _tidied(points, len(curves))


def within_limits(low: Floats, high: Floats, guarantees: Floats, limits: Floats) -> tuple[Floats, Floats]:
    """Clip guarantees and limits to the range of values of each curve. A limit that the curve does not pass becomes infinite.

    A curve passes a limit only if it exceeds the limit by more than a rounding error. Otherwise a curve that reaches a limit exactly and
    then stays level could end there.
    """
    ceiling = np.minimum(np.maximum(limits, low), high)
    floor = np.minimum(np.maximum(guarantees, low), ceiling)
    return floor, np.where(beyond(high, ceiling) > 0.0, ceiling, np.inf)


def _up_to_limits(curves: Curves, ceiling: Floats) -> Curves:
    """Return curves that end where they pass a limit: at the limit itself on a stretch between two points, or before a jump."""
    limited = np.flatnonzero(np.isfinite(ceiling).any(axis=0))
    if not len(limited):
        return curves
    counts = curves.start[1:] - curves.start[:-1]
    places = ranges(curves.start[limited], counts[limited])
    owner = limited.repeat(counts[limited])
    over = np.flatnonzero((curves.y[:, places] > (ceiling * (1.0 + ROUNDING)).take(owner, axis=1)).any(axis=0))
    first = over[np.concatenate(([True], owner[over][1:] != owner[over][:-1]))]
    stop, of = places[first], owner[first]
    last = curves.start[1:] - 1
    jumps = curves.x[stop] == curves.x[stop - 1]
    last[of] = np.where(jumps, stop - 1, stop)
    _end_at_crossing(curves, stop[~jumps], ceiling[:, of[~jumps]])
    kept = ranges(curves.start[:-1], last - curves.start[:-1] + 1)
    return Curves(curves.x[kept], curves.y.take(kept, axis=1), starts_of(last - curves.start[:-1] + 1))


def _end_at_crossing(curves: Curves, stop: Ints, ceiling: Floats) -> None:
    """Move the points `stop` back, each along the stretch that ends there, to where the first component reaches its ceiling."""
    y0, y1 = curves.y[:, stop - 1], curves.y[:, stop]
    over = y1 > ceiling * (1.0 + ROUNDING)
    t = np.where(over, (np.where(over, ceiling, 0.0) - y0) / np.where(over, y1 - y0, 1.0), 2.0).min(axis=0)
    t = np.maximum(t, 0.0)  # rounding may have put the previous point slightly above the ceiling
    curves.y[:, stop] = between(y0, y1, t)
    curves.x[stop] = curves.x[stop - 1] + (curves.x[stop] - curves.x[stop - 1]) * t


def _bends(curves: Curves, over: Floats, suggestion: Floats, same: Bools) -> tuple[Ints, Floats, Bools]:
    """Find the bends between two points of a curve: there another resource becomes the resource that exceeds its guarantee most.

    Returns for each bend the point before it, the fraction of the stretch from this point to the next point at which the bend lies, and
    whether the suggestion is constant up to the bend.

    On a stretch the suggestion is the upper envelope of one line per resource and of 0. The search follows the envelope from left to right;
    at each bend it continues on the line that is the first to cross the present line. Few stretches have bends; stretches without bends are
    left out first.
    """
    rise = curves.y[:, 1:] - curves.y[:, :-1]
    level = suggestion[:-1]
    steepest = np.where(over[:, :-1] == level, rise, 0.0).max(axis=0)
    at = np.flatnonzero((level + steepest < suggestion[1:]) & (curves.x[1:] > curves.x[:-1]) & same)
    height, slope = over[:, at], rise[:, at]
    top, top_slope, t = level[at], steepest[at], np.zeros(len(at))
    found: list[tuple[Ints, Floats, Bools]] = []
    for _ in range(RESOURCES + 1):
        # Divide by the difference of two slopes only for a line that meets the envelope within the stretch; otherwise the difference may be
        # too small to divide by.
        closer = slope - top_slope
        crosses = (closer > 0.0) & (top - height < closer)
        meets = np.where(crosses, (top - height) / np.where(crosses, closer, 1.0), 2.0)
        meets = np.where((meets < 1.0) & (meets >= t), meets, 2.0)
        nearest = meets.min(axis=0)
        going = nearest < 1.0
        at, height, slope, meets, t = at[going], height[:, going], slope[:, going], meets[:, going], nearest[going]
        flat = top_slope[going] == 0.0
        if not len(at):
            break
        line = np.where(meets == t, slope, -1.0).argmax(axis=0)
        rows = np.arange(len(at))
        top, top_slope = height[line, rows], slope[line, rows]
        inside = t > 0.0
        found.append((at[inside], t[inside], flat[inside]))
    if not found:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.bool_)
    places, distances, still = zip(*found, strict=True)
    return np.concatenate(places), np.concatenate(distances), np.concatenate(still)


def _merged(points: _Points, floor: Floats, after: Ints, t: Floats, flat: Bools, jumps: Ints) -> _Points:
    """Return the points, with two kinds of points added: one at every bend, and one before every jump.

    The point before a jump has the suggestion that covers the upper end of the jump.
    """
    bend = np.argsort(after, kind="stable")
    after, t, flat = after[bend], t[bend], flat[bend]
    y = between(points.shares[:, after], points.shares[:, after + 1], t)
    owner = points.owner[after]
    # If the suggestion is constant up to a bend, the functions jump there. The suggestion is then copied, not computed: a rounding error
    # would turn the jump into a steep slope, and shares could stop half-way up the slope.
    needs = np.where(flat, points.suggestion[after], np.maximum(beyond(y, floor[:, owner]).max(axis=0), 0.0))
    places = np.concatenate((after, jumps))
    order = np.argsort(places, kind="stable")
    count = len(points.fit) + len(places)
    new = places[order] + 1 + np.arange(len(places))
    old = np.ones(count, np.bool_)
    old[new] = False
    fit = points.fit[after] + (points.fit[after + 1] - points.fit[after]) * t

    def joined(before: Floats, bends: Floats, waits: Floats) -> Floats:
        row = np.empty((*before.shape[:-1], count))
        row[..., old] = before
        row[..., new] = np.concatenate((bends, waits), axis=-1)[..., order]
        return row

    of = np.empty(count, np.int64)
    of[old] = points.owner
    of[new] = points.owner[places[order]]
    return _Points(
        suggestion=joined(points.suggestion, needs, points.suggestion[jumps + 1]),
        fit=joined(points.fit, fit, points.fit[jumps]),
        shares=joined(points.shares, y, points.shares[:, jumps]),
        owner=of,
    )


def _tidied(points: _Points, count: int) -> Functions:
    """Return functions for suggestions from 0 to 1, and leave out points that have no effect."""
    kept = np.flatnonzero(_that_matter(points, count))
    suggestion, owner = points.suggestion[kept], points.owner[kept]
    as_before = np.zeros(len(kept), np.bool_)
    as_before[1:] = (suggestion[1:] == suggestion[:-1]) & (owner[1:] == owner[:-1])
    inside = as_before.copy()
    inside[:-1] &= as_before[1:]
    inside[-1:] = False
    last = np.cumsum(np.bincount(owner, minlength=count)) - 1
    full = suggestion[last] >= 1.0
    inside[last[full]] |= as_before[last[full]]  # nothing jumps at 1
    times = np.where(inside, 0, 1)
    alone = np.bincount(owner, minlength=count) == 1
    times[last[~full | alone]] += 1  # level up to 1
    index = np.repeat(np.arange(len(kept)), times)
    start = starts_of(np.bincount(owner[index], minlength=count))
    suggestion = suggestion[index]
    suggestion[start[1:] - 1] = 1.0
    chosen = kept[index]
    return Functions(suggestion, points.fit[chosen], points.shares.take(chosen, axis=1), start)


def _that_matter(points: _Points, count: int) -> Bools:
    """Return True for points that have an effect.

    Of the points at suggestion 0, only those at the largest fit factor have an effect. A jump at the final fit factor has no effect. The
    suggestions of a curve must not fall from point to point. Where rounding made them fall, they are raised first, in `points` itself.
    """
    suggestion, owner = points.suggestion, points.owner
    same = owner[1:] == owner[:-1]
    while len(fallen := np.flatnonzero((suggestion[1:] < suggestion[:-1]) & same)):
        suggestion[fallen + 1] = suggestion[fallen]
    start = starts_of(np.bincount(owner, minlength=count))
    final = points.fit == points.fit[start[1:] - 1][owner]
    matter = np.ones(len(owner), np.bool_)
    matter[1:] &= ~(final[1:] & final[:-1] & same)
    idle = suggestion == 0.0
    idle_kept = np.bincount(owner, idle & matter, count).astype(np.int64)
    # Of the points of a curve at suggestion 0, the points kept so far come first, because the points dropped so far are at the final fit
    # factor, which comes last.
    last_idle = points.fit[start[:-1] + np.maximum(idle_kept, 1) - 1]
    matter &= ~(idle & (points.fit != last_idle[owner]))
    return matter
