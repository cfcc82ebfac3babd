"""Indexes of jobs as people write them: `1-99:7,200` are 1, 8, 15, … 99 and 200. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Final

from headrace.errors import BadInput

#: Largest index that is accepted. For comparison: in Slurm, the indexes of an array end at 4,000,001.
LARGEST_INDEX: Final = 10**9
MOST_INDEXES: Final = 1_000_000
#: Largest number of pairs of overlapping ranges that are compared to find an index that occurs twice, so that one text cannot
#: occupy a service for long. 10,000 pairs take some milliseconds. The alternative, a set of up to a million indexes, would take
#: 0.3 s.
_MOST_PAIRS: Final = 10_000
_PART: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([1-9][0-9]{0,9}))?)?\Z")


class JobIndexes:
    """The index of each job of an operation, by the job's number: its position in the operation, from 0."""

    def __init__(self, parts: Iterable[range]) -> None:
        self._parts = list(parts)
        #: For each part the number of indexes before it; the last item is the number of all indexes.
        self._before = [0, *accumulate(map(len, self._parts))]

    def __len__(self) -> int:
        return self._before[-1]

    def of_job(self, number: int) -> int:
        """Return the index of the job with this number."""
        part = bisect_right(self._before, number) - 1
        return self._parts[part][number - self._before[part]]

    def highest(self) -> int:
        """Return the highest index."""
        return max(part[-1] for part in self._parts)

    def text_without(self, numbers: Iterable[int]) -> str:
        """Write the indexes in ascending ranges, leaving out the jobs whose numbers are given.

        This is fast for millions of indexes: the time grows only with the number of ranges and of left-out jobs.
        """
        left_out, ranges = sorted(numbers), list[range]()
        for part, before in zip(self._parts, self._before, strict=False):
            start = 0
            for number in left_out[bisect_left(left_out, before) : bisect_left(left_out, before + len(part))]:
                ranges.append(part[start : number - before])
                start = number - before + 1
            ranges.append(part[start:])
        return _ranges_text(sorted(filter(None, ranges), key=itemgetter(0)))


def _ranges_text(ranges: Iterable[range]) -> str:
    merged = list[range]()
    for each in ranges:
        part = range(each[0], each[0] + 1) if len(each) == 1 else each
        if merged and merged[-1].step == part.step == 1 and merged[-1].stop == part.start:
            merged[-1] = range(merged[-1].start, part.stop)
        else:
            merged.append(part)
    steps = (f":{part.step}" if part.step > 1 else "" for part in merged)
    return ",".join(
        f"{part[0]}-{part[-1]}{step}" if len(part) > 1 else str(part[0])
        for part, step in zip(merged, steps, strict=True)
    )


@lru_cache(maxsize=64)
def parse_indexes(text: str, *, place: str = "indexes") -> JobIndexes:
    """Read indexes: numbers and ranges with an optional step, separated by commas. Raises `BadInput`."""
    parts, count = [], 0
    for word in text.split(","):
        found = _range_in(word.strip())
        if not found or found[-1] > LARGEST_INDEX:
            raise BadInput(place, word[:100], f"numbers and ranges from 0 to {LARGEST_INDEX}, such as 1-99:7,200")
        parts.append(found)
        count += len(found)
        if count > MOST_INDEXES:
            raise BadInput(place, text[:100], f"at most {MOST_INDEXES} indexes")
    if _are_doubled(parts, text, place):
        raise BadInput(place, text[:100], "each index once")
    return JobIndexes(parts)


def _are_doubled(parts: Sequence[range], text: str, place: str) -> bool:
    """True if an index is in two ranges. Raises `BadInput` if so many ranges overlap that comparing them would take too long."""
    pairs, open_parts = 0, list[range]()
    parts = sorted(parts, key=itemgetter(0))
    if all(one[-1] < other[0] for one, other in pairwise(parts)):
        return False
    for part in parts:
        open_parts = [each for each in open_parts if each[-1] >= part[0]]
        pairs += len(open_parts)
        if pairs > _MOST_PAIRS:
            raise BadInput(place, text[:100], f"at most {_MOST_PAIRS} pairs of ranges that lie within each other")
        if any(_share_an_index(each, part) for each in open_parts):
            return True
        open_parts.append(part)
    return False


def _share_an_index(one: range, other: range) -> bool:
    """True if an index is in both ranges."""
    common = math.gcd(one.step, other.step)
    apart, odd = divmod(other[0] - one[0], common)
    if odd:
        return False
    # Distance between successive indexes that are in both ranges, counted in steps of `one`.
    distance = other.step // common
    steps = apart * pow(one.step // common, -1, distance) % distance
    first = one[0] + steps * one.step
    lowest = max(one[0], other[0])
    first += -(-(lowest - first) // (distance * one.step)) * distance * one.step
    return first <= min(one[-1], other[-1])


def _range_in(word: str) -> range:
    """Return the indexes that a word such as `7` or `1-99:7` stands for. The result is empty if the word is no number and no range."""
    if word.isdigit() and word.isascii() and len(word) <= 10:
        # This avoids the slower regular expression for plain numbers: a text may have thousands of words, most of them
        # plain numbers.
        return range(int(word), int(word) + 1)
    match = _PART.match(word)
    return range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)) if match is not None else range(0)


def indexes_text(indexes: Iterable[int]) -> str:
    """Write ascending indexes as numbers and ranges without a step, in as few parts as possible. `parse_indexes` reads them back."""
    parts: list[list[int]] = []
    for index in indexes:
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
