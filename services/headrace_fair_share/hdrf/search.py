"""Finds the largest double for which a condition still holds.

Bisection runs over the integers that order doubles by value, so it ends at two adjacent doubles after at most 64 steps. A factor that is
computed by a division instead would have a rounding error, and a sum scaled by it could exceed the bound into which it must fit.

    largest(0.0, 1.0, lambda f: 3.0 * f <= 1.0) = 0.3333333333333333, where 3 f is exactly 1

Section: docs/reference/fair-share-algorithm.md#15-search-over-doubles
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from headrace_fair_share.hdrf.arrays import Bools, BrokenInvariant, Floats, Ints

_SIGN = 1 << 63
#: Distances from a guess, counted in doubles, at which the condition is tried too. Small distances help if the guess is wrong by the
#: rounding error of a sum, large distances help if the line has a bend near the guess.
_NEAR: Final = (0, 1, -1, 8, -8, 2**8, -(2**8), 2**20, -(2**20), 2**36, -(2**36))


def place_of(number: float) -> int:
    """Return the position of a double in the order of all doubles. Both zeros have the position 0."""
    bits: int = struct.unpack("<Q", struct.pack("<d", number))[0]
    return _SIGN - bits if bits & _SIGN else bits


def double_at(place: int) -> float:
    """Return the double at a position in the order of all doubles."""
    number: float = struct.unpack("<d", struct.pack("<Q", place if place >= 0 else _SIGN - place))[0]
    return number


def largest(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """Find the largest double from `low` to `high` for which `holds` is true. From `low` to `high`, `holds` may change only once, from true
    to false.

    Raises `BrokenInvariant` if `low` is above `high`, or if `holds` is false at `low` and the bounds differ.
    """
    if not low <= high:
        raise BrokenInvariant(f"nothing to search between {low} and {high}")
    if low == high:
        return low
    if not holds(low):
        raise BrokenInvariant(f"the condition does not hold at the lower bound {low}")
    if holds(high):
        return high
    good, bad = place_of(low), place_of(high)
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(double_at(middle)):
            good = middle
        else:
            bad = middle
    return double_at(good)


def largest_each(high: Floats, holds: Callable[[Floats], Bools]) -> Floats:
    """Find the largest double from 0 to `high` for which `holds` is true, in many searches at once. The result of a search is 0 if there is
    no such double.

    `high` is not negative. If rounding in the last bit makes the condition fail even at 0, the result is still 0.
    """
    good: Ints = np.zeros(len(high), np.int64)
    bad = np.ascontiguousarray(high, np.float64).view(np.int64).copy()
    good = np.where(holds(high), bad, good)
    while True:
        open_ = bad - good > 1
        if not open_.any():
            return good.view(np.float64)
        middle = np.where(open_, good + (bad - good) // 2, good)
        fits = holds(middle.view(np.float64))
        good = np.where(open_ & fits, middle, good)
        bad = np.where(open_ & ~fits, middle, bad)


def largest_of_many(high: float, rooms: Sequence[float], room: Callable[[Floats], Floats], tries: int) -> float:
    """Find the largest double from 0 to `high` at which `room` is not negative; 0 if there is none. Once `room` is negative, it must be
    negative for all larger doubles.

    `rooms` contains the values of `room` at 0 and at `high`. The search evaluates `tries` doubles at a time: some divide the remaining
    interval evenly, and the rest lie near a guess, the point at which a straight line between the values at both ends is zero. If `room` is
    piecewise linear, as with shares, a few evaluations are enough for any number of bits.
    """
    good_room, bad_room = rooms
    if bad_room >= 0.0:
        return high
    good, bad, is_near = 0, place_of(high), True
    while (width := bad - good) > 1:
        # The more tries lie near the guess, the fewer are left to divide the interval. If a guess did not help, as before a jump, the next
        # step makes no guess and divides the interval with all its tries.
        even = max(1, tries // 3) if is_near and good_room > 0.0 else tries
        middles = [good + width * number // (even + 1) for number in range(1, even + 1)]
        if even < tries:
            begin, end = double_at(good), double_at(bad)
            guess = place_of(begin + (end - begin) * (good_room / (good_room - bad_room)))
            middles += [guess + distance for distance in itertools.islice(itertools.cycle(_NEAR), tries - even)]
        middles = sorted(min(max(middle, good + 1), bad - 1) for middle in middles)
        left = room(np.array(middles, np.int64).view(np.float64)).tolist()
        held = next((number for number, each in enumerate(left) if each < 0.0), tries)
        good, bad = ([good, *middles])[held], ([*middles, bad])[held]
        good_room, bad_room = ([good_room, *left])[held], ([*left, bad_room])[held]
        is_near = (bad - good) * tries < width
    return double_at(good)
