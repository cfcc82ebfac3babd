"""Indexes of jobs as people write them: `1-99:7,200` are 1, 8, 15, … 99 and 200. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from math import gcd
from typing import Final

from headrace.errors import BadInput

#: Largest index. Slurm's arrays end at 4,000,001.
LARGEST_INDEX: Final = 10**9
MOST_INDEXES: Final = 1_000_000
#: Most pairs of ranges that lie within each other, such as `0-98:2,1-99:2`: each pair is compared.
_MOST_PAIRS: Final = 10_000
_PART: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([1-9][0-9]{0,9}))?)?\Z")


class JobIndexes:
    """The indexes of an operation's jobs, in the order of the jobs' numbers."""

    def __init__(self, parts: Iterable[range]) -> None:
        self._parts = list(parts)
        #: Number of indexes before each part, and in all parts.
        self._before = [0, *accumulate(map(len, self._parts))]

    def __len__(self) -> int:
        return self._before[-1]

    def of_job(self, number: int) -> int:
        """Return the index of the job with a number from 0."""
        part = bisect_right(self._before, number) - 1
        return self._parts[part][number - self._before[part]]

    def highest(self) -> int:
        """Return the highest index."""
        return max(part[-1] for part in self._parts)


# An entry of the cache takes up to 2 MB.
@lru_cache(maxsize=16)
def parse_indexes(text: str, *, place: str = "indexes") -> JobIndexes:
    """Read indexes: numbers and ranges with an optional step, separated by commas. Raises `BadInput`."""
    parts, count = [], 0
    for word in text.split(","):
        match = _PART.match(word.strip())
        found = range(0) if match is None else _range(*match.groups())
        if not found or found[-1] > LARGEST_INDEX:
            raise BadInput(place, word[:100], f"numbers and ranges from 0 to {LARGEST_INDEX}, such as 1-99:7,200")
        parts.append(found)
        count += len(found)
        if count > MOST_INDEXES:
            raise BadInput(place, text[:100], f"at most {MOST_INDEXES} indexes")
    _refuse_repeated(parts, place, text)
    return JobIndexes(parts)


def _refuse_repeated(parts: list[range], place: str, text: str) -> None:
    """Raise `BadInput` if an index is in two ranges. The work does not depend on the number of indexes, which may be a million."""
    pairs, open_parts = 0, list[range]()
    for part in sorted(parts, key=lambda each: each.start):
        open_parts = [each for each in open_parts if each[-1] >= part.start]
        pairs += len(open_parts)
        if pairs > _MOST_PAIRS:
            raise BadInput(place, text[:100], f"at most {_MOST_PAIRS} pairs of ranges that lie within each other")
        if any(_share_an_index(each, part) for each in open_parts):
            raise BadInput(place, text[:100], "each index once")
        open_parts.append(part)


def _share_an_index(one: range, other: range) -> bool:
    """True if an index is in both ranges; `other` does not start before `one`."""
    common = gcd(one.step, other.step)
    distance, step = other.start - one.start, other.step // common
    if distance % common:
        return False
    # The first index of `one`, at or after the start of `other`, that `other` would have if it had no end.
    first = one.start + one.step * (distance // common * pow(one.step // common, -1, step) % step)
    every = one.step * step
    first += max(0, -(-(other.start - first) // every)) * every
    return first <= min(one[-1], other[-1])


def _range(first: str, last: str | None, step: str | None) -> range:
    return range(int(first), int(last or first) + 1, int(step or 1))


def indexes_text(indexes: Iterable[int]) -> str:
    """Write ascending indexes in as few parts as ranges without a step allow. `parse_indexes` reads them back."""
    parts: list[list[int]] = []
    for index in indexes:
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
