"""Rules of retries as people write them. Pure.

* Ends of failed runs: `75`, `64-78`, `SIGSEGV`, `oom`.
* Memory of jobs that are retried because they ran out of memory: `x2`, `16G`.
"""

from __future__ import annotations

import re
import signal
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from headrace.errors import BadInput, shortened
from headrace.resources import LARGEST_AMOUNT, Resources, parse_amount
from headrace.wire.heartbeat import MOST_MEMORY_STEPS
from headrace.wire.operation_spec import OperationSpec

#: Word that stands for every run that failed because it ran out of memory.
OUT_OF_MEMORY: Final = "oom"
#: Number that is added to the number of a signal: a run that signal N ended has the status 128 + N, as in a shell.
_SIGNAL_STATUS: Final = 128
_LARGEST_STATUS: Final = 255
_RANGE: Final = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?\Z")
_ACCEPTED: Final = "exit codes from 1 to 255, ranges, names of signals and oom, such as 75,100-120,SIGSEGV,oom"
_FACTOR: Final = re.compile(r"[xX]([0-9]{1,3}(?:\.[0-9]{1,3})?)\Z")
_LEAST_FACTOR: Final = 1.1
_LARGEST_FACTOR: Final = 100.0
_ACCEPTED_MEMORY: Final = "a factor from x1.1 to x100, or an amount with its unit, such as x2 or 16G"
#: Fields that must be empty in the spec of an operation with `memory_on_oom`, each with the text that says what is
#: accepted.
_ONE_SIZE_ONLY: Final = {
    "is_gang": "no gang: a gang that starts again with more memory might fit on no nodes",
    "tasks": "no tasks: with memory_on_oom all jobs begin with one size",
    "after_each": "no `after_each`: use `after`",
}


class FailureSet(NamedTuple):
    """A set of ways in which a run can fail: exit statuses, and running out of memory."""

    #: Exit statuses as a shell reports them.
    statuses: frozenset[int]
    #: True if the set includes every run that ran out of memory, whatever its exit status is.
    out_of_memory: bool

    def has(self, status: int, *, out_of_memory: bool) -> bool:
        """True if the set includes a failed run with this exit status. `out_of_memory` says whether the run ran out of memory."""
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


class MemoryOnOom(NamedTuple):
    """The memory of a job after it ran out of memory: a multiple of the memory of the former run, or an amount."""

    #: Factor of the memory of the former run; 0 if the rule is an amount.
    factor: float = 0.0
    #: Amount of memory in bytes; 0 if the rule is a factor.
    memory: int = 0


@lru_cache(maxsize=64)
def parse_memory_on_oom(text: str, *, place: str = "memory_on_oom") -> MemoryOnOom:
    """Read a factor or an amount. Raises `BadInput`.

    >>> parse_memory_on_oom("x1.5"), parse_memory_on_oom("16G")
    (MemoryOnOom(factor=1.5, memory=0), MemoryOnOom(factor=0.0, memory=17179869184))
    """
    match = _FACTOR.match(text.strip())
    if match is not None:
        factor = float(match[1])
        if not _LEAST_FACTOR <= factor <= _LARGEST_FACTOR:
            raise BadInput(place, text, _ACCEPTED_MEMORY)
        return MemoryOnOom(factor=factor)
    try:
        amount = parse_amount("memory", text, place=place)
    except BadInput:
        raise BadInput(place, shortened(text), _ACCEPTED_MEMORY) from None
    if not amount:
        raise BadInput(place, text, _ACCEPTED_MEMORY)
    return MemoryOnOom(memory=amount)


def sizes_of_retries(spec: OperationSpec) -> list[Resources]:
    """Return the sizes of a job: at first, and after it ran out of memory once, twice, and so on. Nodes and pools may allow less memory.

    The list has one size if the operation does not ask for more memory on retries.
    """
    size = spec.resources
    if not spec.memory_on_oom:
        return [size]
    rule = parse_memory_on_oom(spec.memory_on_oom)
    if rule.memory:
        return [size, msgspec.structs.replace(size, memory=max(size.memory, rule.memory))]
    amounts = (min(int(size.memory * rule.factor**step), LARGEST_AMOUNT) for step in range(MOST_MEMORY_STEPS + 1))
    return [msgspec.structs.replace(size, memory=amount) for amount in amounts]


def last_step(spec: OperationSpec) -> int:
    """Return the number of times that the memory of a job can be raised."""
    if not spec.memory_on_oom:
        return 0
    return 1 if parse_memory_on_oom(spec.memory_on_oom).memory else MOST_MEMORY_STEPS


def check_memory_on_oom(spec: OperationSpec) -> None:
    """Check that an operation with `memory_on_oom` can have more memory on retries. Raises `BadInput`."""
    if not spec.memory_on_oom:
        return
    rule = parse_memory_on_oom(spec.memory_on_oom, place="spec.memory_on_oom")
    for field, accepted in _ONE_SIZE_ONLY.items():
        if value := getattr(spec, field):
            raise BadInput(
                f"spec.{field}", shortened(str(value)), f"{accepted}; or an operation without `memory_on_oom`"
            )
    if trees := [*spec.pool_trees, *spec.tentative_pool_trees][1:]:
        raise BadInput("spec.pool_trees", shortened(", ".join(trees)), "one tree for an operation with `memory_on_oom`")
    if not spec.resources.memory:
        raise BadInput.because(
            "spec.resources.memory",
            "`memory_on_oom` raises the memory of a job, but these jobs request no memory. Request memory for each job",
        )
    if rule.memory and rule.memory <= spec.resources.memory:
        raise BadInput("spec.memory_on_oom", spec.memory_on_oom, "more memory than the jobs have at first")
    if spec.no_retry_on and parse_failures(spec.no_retry_on).out_of_memory:
        raise BadInput("spec.no_retry_on", shortened(spec.no_retry_on), "a list without oom, or no `memory_on_oom`")
