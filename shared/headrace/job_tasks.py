"""Operations with tasks: how their spec is made and checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.errors import BadInput, shortened
from headrace.job_indexes import parse_indexes
from headrace.resources import RESOURCE_NAMES, ZERO, Resources
from headrace.wire.operation_spec import LARGEST_JOB_COUNT, OperationSpec
from headrace.wire.tasks import LONGEST_TASK_NAME, SEVERAL_TASKS, Task, ranges_of

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
#: Fields that must be empty in the spec of an operation with tasks, each with the text that says what is accepted.
_ONE_KIND_ONLY: Final = {
    "terminal": "no terminal: an operation with a terminal has one job",
    "lines": "no lines: an operation with tasks has no lines",
    "after_each": "no `after_each`: an operation with tasks can wait only for whole operations, with `after`",
}


def _check_indexes(spec: OperationSpec) -> None:
    """Check that each task has `first_index` if the operation has `indexes`, and that no task has it otherwise. Raises `BadInput`."""
    named = parse_indexes(spec.indexes, place="spec.indexes") if spec.indexes else None
    if named is not None and len(named) != spec.job_count:
        raise BadInput.because(
            "spec.indexes", f"there are {len(named)} indexes for {spec.job_count} jobs. Name one index for each job"
        )
    for number, (task, indexes) in enumerate(zip(spec.tasks, ranges_of(spec.tasks), strict=True)):
        first, place = task.first_index, f"spec.tasks.{number}.first_index"
        if (first is None) != (named is None):
            raise BadInput.because(
                place, "each task needs `first_index` if the operation has `indexes`; otherwise no task may have it"
            )
        if first is not None and named is not None and min(map(named.of_job, (indexes[0], indexes[-1]))) < first:
            raise BadInput(place, first, f"at most {named.of_job(indexes[0])}, the index of the task's first job")


def with_tasks(spec: OperationSpec, tasks: Sequence[Task]) -> OperationSpec:
    """Return the spec with these tasks. The tasks replace the spec's command, its number of jobs and the size of its jobs. Raises
    `BadInput`.
    """
    job_count = sum(task.job_count for task in tasks)
    if job_count > LARGEST_JOB_COUNT:
        raise BadInput.because(
            "spec.tasks", f"all tasks together have {job_count} jobs; at most {LARGEST_JOB_COUNT} are allowed"
        )
    return msgspec.structs.replace(spec, argv=[SEVERAL_TASKS], job_count=job_count, resources=ZERO, tasks=[*tasks])


def check_size(size: Resources, place: str) -> None:
    """Check that the resources of a job are enough to start it. Raises `BadInput`, which names `place`."""
    if size.user_slots < 1:
        raise BadInput(f"{place}.user_slots", size.user_slots, "at least 1")
    if not any(size.as_tuple()[1:]):
        names = ", ".join(RESOURCE_NAMES[1:])
        raise BadInput.because(place, f"a job needs an amount of at least one of {names}")


def check_tasks(spec: OperationSpec) -> None:
    """Check the tasks of an operation, or the size of its jobs if it has no tasks. Raises `BadInput`."""
    if not spec.tasks:
        check_size(spec.resources, "spec.resources")
        return
    names: set[str] = set()
    for number, task in enumerate(spec.tasks):
        place = f"spec.tasks.{number}"
        if not _NAME.fullmatch(task.name):
            accepted = (
                f"at most {LONGEST_TASK_NAME} letters, digits, `_`, `.` and `-`, beginning with a letter or a digit"
            )
            raise BadInput(f"{place}.name", task.name, accepted)
        if task.name in names:
            raise BadInput(f"{place}.name", task.name, "a name that no other task has")
        names.add(task.name)
        if task.is_gang and spec.is_gang:
            words = "`gang` of the operation starts all jobs of all tasks together. Leave out `gang` of the operation or of the task"
            raise BadInput.because(place, words)
        check_size(task.resources, f"{place}.resources")
    _check_indexes(spec)
    for field, accepted in _ONE_KIND_ONLY.items():
        if value := getattr(spec, field):
            raise BadInput(f"spec.{field}", shortened(str(value)), accepted)
    if trees := [*spec.pool_trees, *spec.tentative_pool_trees][1:]:
        raise BadInput("spec.pool_trees", ", ".join(trees), "one tree for an operation with tasks")
    whole = with_tasks(spec, spec.tasks)
    for field in ("argv", "job_count", "resources"):
        if getattr(spec, field) != getattr(whole, field):
            value = shortened(str(getattr(spec, field)))
            raise BadInput(f"spec.{field}", value, f"{getattr(whole, field)}, as an operation with these tasks has")
