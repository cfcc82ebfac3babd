"""Ends of failed runs as people write them: `75`, `64-78`, `SIGSEGV`, `oom`. Pure."""

from __future__ import annotations

import re
import signal
from functools import lru_cache
from typing import Final, NamedTuple

from headrace.errors import BadInput

#: Word for every end by out of memory.
OUT_OF_MEMORY: Final = "oom"
#: Difference between the status of a run that a signal ended and the number of the signal, as in a shell.
_SIGNAL_STATUS: Final = 128
_LARGEST_STATUS: Final = 255
_RANGE: Final = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?\Z")
_ACCEPTED: Final = "exit codes from 1 to 255, ranges, names of signals and oom, such as 75,100-120,SIGSEGV,oom"


class FailureSet(NamedTuple):
    """A set of ends of failed runs."""

    #: Exit statuses as a shell reports them.
    statuses: frozenset[int]
    #: True if the set has all runs that ended out of memory, regardless of their statuses.
    out_of_memory: bool

    def has(self, status: int, *, out_of_memory: bool) -> bool:
        """True if the set has an end with this status, or with this cause."""
        return status in self.statuses or (out_of_memory and self.out_of_memory)


@lru_cache(maxsize=64)
def parse_failures(text: str, *, place: str = "failures") -> FailureSet:
    """Read exit codes, ranges of exit codes, names of signals and `oom`, separated by commas. Raises `BadInput`.

    >>> sorted(parse_failures("75,9-11,SEGV").statuses)
    [9, 10, 11, 75, 139]
    """
    statuses: set[int] = set()
    out_of_memory = False
    for word in map(str.strip, text.split(",")):
        if word.lower() == OUT_OF_MEMORY:
            out_of_memory = True
            continue
        found = _statuses(word)
        if not found:
            raise BadInput(place, word[:100], _ACCEPTED)
        statuses.update(found)
    return FailureSet(frozenset(statuses), out_of_memory)


def _statuses(word: str) -> range:
    """Return the statuses that a word names; empty for a word that is not accepted."""
    match = _RANGE.match(word)
    if match is None:
        number = signal.Signals.__members__.get("SIG" + word.upper().removeprefix("SIG"))
        return range(0) if number is None else range(_SIGNAL_STATUS + number, _SIGNAL_STATUS + number + 1)
    first, last = int(match[1]), int(match[2] or match[1])
    return range(first, last + 1) if first >= 1 and last <= _LARGEST_STATUS else range(0)
