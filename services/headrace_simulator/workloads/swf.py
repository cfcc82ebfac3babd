"""Reader of the Standard Workload Format, version 2.2: 18 numbers a line, -1 where a value is not known. Pure.

Source: D. Feitelson, The Standard Workload Format, Parallel Workloads Archive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from headrace.resources import LARGEST_AMOUNT, Resources
from headrace.wire.operation_spec import LARGEST_JOB_COUNT
from headrace_simulator.workloads.columns import (
    KIB,
    LATEST_MS,
    LONGEST_S,
    Damaged,
    bounded,
    bounded_lines,
    job_size,
    shown,
    whole,
)
from headrace_simulator.workloads.workload import Workload, WorkloadJob, WorkloadNode

_PLACE: Final = "swf"
_FIELDS: Final = 18
_CANCELLED, _FAILED = 5, 0
#: Latest beginning of a trace, in seconds since the Unix epoch.
_LATEST_S: Final = LATEST_MS // 2_000
#: Name and largest value of each field with a bound, by its position.
_BOUNDS: Final = {
    1: ("the submit time in seconds", _LATEST_S),
    2: ("the wait in seconds", LONGEST_S),
    3: ("the run time in seconds", LONGEST_S),
    4: ("the number of processors", LARGEST_JOB_COUNT),
    7: ("the number of processors requested", LARGEST_JOB_COUNT),
    8: ("the time requested in seconds", LONGEST_S),
    9: ("the memory requested in KiB", LARGEST_AMOUNT // KIB),
}


def read_swf(lines: Iterable[str]) -> Workload:
    """Return the jobs of a file. Lines that cannot be read are counted in `damaged`. Raises `BadInput` if the file is too long."""
    workload, header = Workload("swf"), dict[str, str]()
    for number, line in bounded_lines(_PLACE, lines):
        text = line.strip()
        if text.startswith(";"):
            name, _, value = text.lstrip("; ").partition(":")
            header.setdefault(name.strip().lower(), value.strip())
        elif text:
            _add(workload, number, text)
    begin_ms = 1_000 * _number(header.get("unixstarttime", ""), _LATEST_S)
    workload.jobs = [_moved(job, begin_ms) for job in workload.jobs] if begin_ms > 0 else workload.jobs
    processors, nodes = (_number(header.get(name, ""), LARGEST_JOB_COUNT) for name in ("maxprocs", "maxnodes"))
    count = nodes if 0 < nodes <= processors or processors <= 0 else processors
    if count > 0:
        each = max(1, processors // count)
        workload.nodes = [WorkloadNode(count, Resources(user_slots=each, cpu=100 * each))]
    if workload.jobs and all(job.waited_ms < 0 for job in workload.jobs):
        workload.notes.append("the trace has no waits: its submit times may be start times")
    return workload


def _add(workload: Workload, number: int, text: str) -> None:
    try:
        values = _values(text)
    except Damaged as error:
        workload.add_damaged(number, str(error))
        return
    integers = [int(each) for each in values]
    job, submit_s, wait_s, run_s, used = integers[:5]
    asked, limit_s, memory_kib, status, user, group, _, queue = integers[7:15]
    processors = asked if asked > 0 else used
    if status == _CANCELLED and run_s <= 0:
        workload.left_out["cancelled before the start"] += 1
    elif run_s < 0 or submit_s < 0:
        workload.left_out["without a run time or a submit time"] += 1
    elif processors <= 0:
        workload.left_out["without a number of processors"] += 1
    else:
        workload.jobs.append(
            WorkloadJob(
                name=str(job),
                submitted_ms=1_000 * submit_s,
                runs_ms=round(1_000 * values[3]),
                count=processors,
                size=job_size(100, 0, max(0, memory_kib) * KIB),
                together=processors > 1,
                user=_name("user", user),
                group=_name("group", group),
                queue=_name("queue", queue),
                limit_ms=max(0, limit_s) * 1_000,
                waited_ms=1_000 * wait_s if wait_s >= 0 else -1,
                failed=status == _FAILED,
            )
        )


def _values(text: str) -> list[float]:
    """Return the values of a line. A negative value is not known. Raises `Damaged`."""
    try:
        values = [float(each) for each in text.split()]
    except ValueError:
        raise Damaged(f"a value is no number: {shown(text)}") from None
    if len(values) != _FIELDS:
        raise Damaged(f"{len(values)} values in place of {_FIELDS}: {shown(text)}")
    for position, value in enumerate(values):
        name, most = _BOUNDS.get(position, ("a value", LARGEST_AMOUNT))
        bounded(abs(value), name, most)
    return values


def _moved(job: WorkloadJob, by_ms: int) -> WorkloadJob:
    return replace(job, submitted_ms=job.submitted_ms + by_ms)


def _name(kind: str, number: int) -> str:
    return f"{kind}{number}" if number >= 0 else ""


def _number(text: str, most: int) -> int:
    """Return the first number of a header, 0 if there is none or if it is above `most`."""
    words = text.split()
    try:
        return whole(words[0], "a header", most) if words else 0
    except Damaged:
        return 0
