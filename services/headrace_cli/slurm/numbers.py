"""Numbers of jobs. Slurm's tools expect whole numbers, and operations have ids of letters and digits. Pure.

The id of an operation that `sbatch` starts is `slurm-` and then the number of the job, so that every host finds the operation by the
number, and the number by the operation, without a table. The number is the time of the submission in tenths of a second since the
beginning of 2026. Admission accepts an id for one operation only: if a number is taken, `sbatch` tries a later number. Numbers rise with
time, so a number is not used again after admission has forgotten its operation.

A task of an array has a number of its own, as in Slurm: the array's number times 1,000,000, plus the index of the task. A number
below 10**11 belongs to a job or an array, and a larger number to a task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from headrace.errors import BadInput
from headrace.ids import OperationId
from headrace.job_indexes import parse_indexes

_PREFIX: Final = "slurm-"
#: 2026-01-01 00:00:00 UTC in milliseconds of Unix time.
_EPOCH_MS: Final = 1_767_225_600_000
_TICK_MS: Final = 100
#: Factor between the number of an array and the numbers of its tasks.
_TASKS: Final = 1_000_000
#: Largest index of a task in an array.
LARGEST_ARRAY_INDEX: Final = _TASKS - 1
_LEAST_NUMBER: Final = 100_000
_FIRST_OF_TASKS: Final = _LEAST_NUMBER * _TASKS
_NUMBER: Final = re.compile(r"([1-9][0-9]{0,17})(?:_([0-9]{1,7})|_\[([0-9,:-]+)(?:%[0-9]+)?\])?(?:\.(\w+))?\Z")
_ID: Final = re.compile(rf"{_PREFIX}([1-9][0-9]{{5,10}})\Z")


class JobName(NamedTuple):
    """The name of a job on a command line: the number of a job or of an array, and the indexes of tasks.

    If `indexes` is None, the name stands for the whole job or for all tasks.
    """

    number: int
    indexes: frozenset[int] | None = None
    #: Step of the job, such as `batch`; empty: the job itself.
    step: str = ""

    @property
    def raw(self) -> int:
        """The number that the job or the task finds in `SLURM_JOB_ID`; the number of the array if several tasks are named."""
        if self.indexes is None or len(self.indexes) != 1:
            return self.number
        return task_number(self.number, *self.indexes)

    def has(self, number: int, task: int | None) -> bool:
        """True if the name stands for this job, or for this task of an array."""
        return number == self.number and (self.indexes is None or task in self.indexes)


def number_at(now_ms: int) -> int:
    """Return the number for a submission at a Unix time in milliseconds.

    >>> number_at(1_767_225_600_000 + 86_400_000)
    864000
    """
    return max(_LEAST_NUMBER, (now_ms - _EPOCH_MS) // _TICK_MS)


def operation_of(number: int) -> OperationId:
    """Return the id of the operation with a number."""
    return OperationId(f"{_PREFIX}{number}")


def number_of(operation: str) -> int | None:
    """Return the number of an operation; None if `sbatch` did not start it.

    >>> number_of("slurm-286000000"), number_of("array-one")
    (286000000, None)
    """
    found = _ID.match(operation)
    return int(found[1]) if found else None


def task_number(number: int, index: int) -> int:
    """Return the number of a task of an array."""
    return number * _TASKS + index


def parse_job(text: str, place: str) -> JobName:
    """Read `17`, `17_3`, `17_[0-3,7]`, the number of a task, or one of these and a step, such as `17.batch`. Raises `BadInput`."""
    found = _NUMBER.match(text.strip())
    if not found:
        raise BadInput(
            place, text, "the number of a job, such as 286000000, or of a task of an array, such as 286000000_3"
        )
    number, index, indexes, step = int(found[1]), found[2], found[3], found[4] or ""
    if number >= _FIRST_OF_TASKS and index is None and indexes is None:
        number, of_task = divmod(number, _TASKS)
        return JobName(number, frozenset([of_task]), step)
    if indexes is not None:
        listed = parse_indexes(indexes, place=place)
        return JobName(number, frozenset(listed.of_job(each) for each in range(len(listed))), step)
    return JobName(number, None if index is None else frozenset([int(index)]), step)


def parse_jobs(texts: Iterable[str], place: str) -> list[JobName]:
    """Read lists of jobs that are separated by commas. Raises `BadInput`."""
    return [parse_job(each, place) for text in texts for each in _split(text) if each]


def _split(text: str) -> Iterator[str]:
    """Split at commas outside of brackets."""
    return (each.strip() for each in re.split(r",(?![^\[]*\])", text))
