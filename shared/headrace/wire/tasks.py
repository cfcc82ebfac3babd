"""Tasks: the kinds of jobs of an operation that has jobs of several kinds.

Each task has a range of the job indexes of its operation: the first task has the indexes from 0 on, the second task the indexes that
follow. The index of a job therefore also determines its task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from headrace.resources import Resources

#: Largest number of tasks of one operation. The number is bounded because each heartbeat looks at every task of the operations that have
#: waiting jobs.
MOST_TASKS: Final = 32
#: Longest name of a task, in characters.
LONGEST_TASK_NAME: Final = 64
#: Command in the spec of an operation with tasks. An older agent, which does not know tasks, finds no program of this name. The job then
#: fails with these words, and does not run the command of another task.
SEVERAL_TASKS: Final = "(several tasks)"


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """Jobs of one kind: their number, their size and their command."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TASK_NAME)]
    argv: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=131_072)]], msgspec.Meta(min_length=1, max_length=10_000)
    ]
    job_count: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1
    #: Resources of each job.
    resources: Resources = Resources(user_slots=1, cpu=100)
    #: Variables of the jobs, besides those of the operation.
    environment: dict[str, str] = {}
    #: In an operation that runs jobs of another operation again: index of the task's first job in that other operation. Given if and only
    #: if the operation has `indexes`.
    first_index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    #: True if the jobs belong to the gang of the operation: all jobs of all tasks with this flag start together or not at all. The jobs of
    #: the other tasks start one by one.
    is_gang: bool = False


Tasks = Annotated[list[Task], msgspec.Meta(max_length=MOST_TASKS)]


class TaskOfJob(NamedTuple):
    """The task of a job."""

    #: Number of the task, from 0.
    number: int
    task: Task
    #: Index of the job within its task, from 0.
    index_in_task: int


def ranges_of(tasks: Sequence[Task]) -> list[range]:
    """Return the indexes of the jobs of each task."""
    found, first = [], 0
    for task in tasks:
        found.append(range(first, first + task.job_count))
        first += task.job_count
    return found


def task_of(tasks: Sequence[Task], index: int) -> TaskOfJob | None:
    """Return the task of a job by its index in the operation; None if the operation has no tasks or no job with this index."""
    for number, task in enumerate(tasks):
        if index < task.job_count:
            return TaskOfJob(number, task, index)
        index -= task.job_count
    return None
