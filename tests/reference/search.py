"""The largest double for which a predicate still holds, found by bisecting the integers that order doubles by value."""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.reference.values import ensure

__all__ = ["double_of", "largest_double", "rank_of"]

_SIGN = 1 << 63


def rank_of(number: float) -> int:
    """An integer that orders doubles as their values do; both zeros are 0."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return -(bits - _SIGN) if bits >= _SIGN else int(bits)


def double_of(rank: int) -> float:
    """The double of that rank."""
    (number,) = struct.unpack("<d", struct.pack("<Q", _SIGN - rank if rank < 0 else rank))
    return float(number)


def largest_double(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """The largest double in [low, high] with `holds`, which is true first and false after; it has to hold at `low`."""
    ensure(low <= high, f"a search needs bounds in order: {low} and {high}")
    if low == high:
        return low
    ensure(holds(low), f"the predicate of a search does not hold at its lower end {low}")
    if holds(high):
        return high
    good, bad = rank_of(low), rank_of(high)
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(double_of(middle)):
            good = middle
        else:
            bad = middle
    return double_of(good)
