"""Finds the largest double for which a condition still holds.

Bisection runs over the integers that order doubles by their values, so it ends at two neighbouring doubles after 64 steps at most.
A quotient would be off by a rounding, and a sum that is scaled with it could end up above the room that it has to fit into.

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
#: How far from a guess it is worth to try, in doubles: roundings of a sum are seen first, bends of a line last.
_NEAR: Final = (0, 1, -1, 8, -8, 2**8, -(2**8), 2**20, -(2**20), 2**36, -(2**36))


def place_of(number: float) -> int:
    """Finds the place of a double in the order of all doubles. Both zeros stand at 0."""
    bits: int = struct.unpack("<Q", struct.pack("<d", number))[0]
    return _SIGN - bits if bits & _SIGN else bits


def double_at(place: int) -> float:
    """Finds the double at a place in the order of all doubles."""
    number: float = struct.unpack("<d", struct.pack("<Q", place if place >= 0 else _SIGN - place))[0]
    return number


def largest(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """Finds the largest double from `low` to `high` for which `holds`, which turns from true to false once.

    Raises `BrokenInvariant` if the bounds are in no order, or if it does not even hold at `low` (unless that is all there is).
    """
    if not low <= high:
        raise BrokenInvariant(f"nothing to search between {low} and {high}")
    if low == high:
        return low
    if not holds(low):
        raise BrokenInvariant(f"what is searched for does not hold at the lower bound {low}")
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
    """Finds for many searches at once the largest doubles from 0 to `high` for which `holds`, or else 0.

    `high` is not negative. If rounding spoils the condition at 0 by a last bit, 0 is still the answer that everybody means.
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
    """Finds the largest double from 0 to `high` that leaves room, which falls to below 0 once, or else 0.

    `rooms` are what 0 and `high` leave. It asks for `tries` doubles at a time: some divide what is left evenly, the others lie close
    to where a line between its ends comes to 0. Where room falls in lines, as that of shares does, a few times are enough for any
    number of bits.
    """
    good_room, bad_room = rooms
    if bad_room >= 0.0:
        return high
    good, bad, is_near = 0, place_of(high), True
    while (width := bad - good) > 1:
        # A guess costs other tries; one that came to nothing, as before a jump, is not repeated at once.
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
