"""Reader of workloads of YARN in JSON: the applications of a ResourceManager, or a trace of the Scheduler Load Simulator. Pure.

Sources: Hadoop's pages "ResourceManager REST APIs" (Cluster Applications API, `{"apps": {"app": [...]}}`) and "YARN Scheduler Load
Simulator" (SLS: a sequence or an array of jobs with `job.start.ms` and `job.tasks`).

The ResourceManager reports of an application only the sums of its containers over time, memorySeconds and vcoreSeconds. So an
application becomes jobs of one core that run from its launch to its end; their number is the mean number of its cores. An SLS trace has
each container, but the simulator uses of their times only the lengths, and so does this reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final

from headrace.durations import LONGEST_MS
from headrace.errors import BadInput
from headrace.resources import LARGEST_AMOUNT
from headrace.wire.operation_spec import LARGEST_JOB_COUNT
from headrace_simulator.workloads.columns import (
    LATEST_MS,
    LONGEST_LINE,
    MIB,
    Damaged,
    bounded,
    checked_count,
    decimal,
    job_size,
    same_text,
    shown,
)
from headrace_simulator.workloads.workload import Workload, WorkloadJob

_PLACE: Final = "yarn"
#: Upper bound of the characters of a file. Its text and its values are in memory at the same time.
_LARGEST_TEXT: Final = 2**28
_ACCEPTED: Final = (
    'the applications of a ResourceManager, {"apps": {"app": [...]}}, as GET /ws/v1/cluster/apps answers, or a trace of the '
    "Scheduler Load Simulator, whose jobs have job.start.ms and job.tasks"
)
_APPLICATION_KEYS: Final = frozenset({"startedTime", "elapsedTime", "vcoreSeconds", "memorySeconds"})
_SLS_KEYS: Final = frozenset({"job.start.ms", "job.tasks"})
_NOT_STARTED: Final = frozenset({"NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED"})
_GOES_ON: Final = frozenset({"RUNNING", "FINISHING", "FINAL_SAVING"})
#: Size of a container that does not say its size: Hadoop's default, 1 core and 1,024 MiB.
_SLS_CORES, _SLS_MIB = 1, 1_024


def read_yarn(lines: Iterable[str]) -> Workload:
    """Return the jobs of a file. Raises `BadInput` if it has neither applications nor jobs of the Scheduler Load Simulator."""
    workload, seen = Workload("yarn"), Counter[str]()
    text = _text_of(lines)
    for position, (number, item) in enumerate(_items(workload, text, seen), 1):
        try:
            if isinstance(item, dict) and not _SLS_KEYS.isdisjoint(item):
                seen["sls"] += 1
                _add_sls_job(workload, item, position)
            elif isinstance(item, dict) and not _APPLICATION_KEYS.isdisjoint(item):
                seen["applications"] += 1
                _add_application(workload, item, seen)
            else:
                raise Damaged("this is neither an application nor a job of the Scheduler Load Simulator")
        except Damaged as error:
            # An array of many jobs may be a single line, so the position of the job is needed.
            workload.add_damaged(number, f"job {position}: {error}")
    if not (seen["sls"] or seen["applications"] or seen["answers"]):
        raise BadInput.because(_PLACE, f"the file has no jobs that can be read; accepted are {_ACCEPTED}")
    if seen["applications"]:
        workload.notes.append(
            "an application is round(vcoreSeconds / run time in seconds) jobs, at least one, each of 1 core and memorySeconds / "
            "vcoreSeconds MiB, from its launch to its end"
        )
    if seen["running"]:
        workload.notes.append(
            f"{seen['running']} applications were still running: their run time is the time elapsed so far"
        )
    if seen["sls"]:
        workload.notes.append(
            "all containers of a job are requested when the job begins; only the lengths of their runs are used"
        )
    return workload


def _text_of(lines: Iterable[str]) -> str:
    """Return the whole text. Raises `BadInput` if it is too long."""
    parts, size = list[str](), 0
    for line in lines:
        parts.append(line if len(line) >= LONGEST_LINE else line.rstrip("\r\n") + "\n")
        size += len(line)
        if size > _LARGEST_TEXT:
            raise BadInput.because(_PLACE, f"the file is too long; expected at most {_LARGEST_TEXT} characters")
    return "".join(parts).lstrip("\ufeff")


def _items(workload: Workload, text: str, seen: Counter[str]) -> Iterator[tuple[int, Any]]:
    """Yield the applications and jobs of all JSON values of a text, with the number of the line where the value begins."""
    decoder, at, number, counted = JSONDecoder(), 0, 1, 0
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at == len(text):
            return
        number, counted = number + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
        except (JSONDecodeError, RecursionError, ValueError) as error:
            why = (
                f"{error.msg} in column {error.colno}"
                if isinstance(error, JSONDecodeError)
                else "nested too deeply or too long a number"
            )
            workload.add_damaged(number, f"this is no JSON ({why}): {shown(text[at : at + 100])}")
            # A line that begins with a brace may be the beginning of the next job.
            following = text.find("\n{", at)
            at = following + 1 if following >= 0 else len(text)
            continue
        for item in _unwrapped(value, seen):
            yield number, item


def _unwrapped(value: Any, seen: Counter[str]) -> list[Any]:
    """Return the applications of an answer of a ResourceManager, or the items of an array, or else the value itself."""
    if isinstance(value, dict) and "apps" in value:
        seen["answers"] += 1
        value = value["apps"] or {}
        value = value.get("app") or [] if isinstance(value, dict) else value
    elif isinstance(value, dict) and isinstance(value.get("app"), dict):
        value = value["app"]
    return value if isinstance(value, list) else [value]


def _add_application(workload: Workload, item: dict[str, Any], seen: Counter[str]) -> None:
    """Add the jobs of an application, or count it as left out. Raises `Damaged`."""
    state = _text(item, "state").upper()
    if state in _NOT_STARTED:
        workload.left_out["not started"] += 1
        return
    submitted_ms = round(_number(item, "startedTime", LATEST_MS))
    launched_ms = round(_number(item, "launchTime", LATEST_MS, default=0))
    finished_ms = round(_number(item, "finishedTime", LATEST_MS, default=0))
    elapsed_ms = round(_number(item, "elapsedTime", LONGEST_MS, default=max(0, finished_ms - submitted_ms)))
    waited_ms = launched_ms - submitted_ms if 0 < submitted_ms <= launched_ms else -1
    runs_ms = elapsed_ms - max(0, waited_ms)
    core_s = _number(item, "vcoreSeconds", LARGEST_AMOUNT, default=0)
    mib_s = _number(item, "memorySeconds", LARGEST_AMOUNT, default=0)
    if submitted_ms == 0:
        workload.left_out["without a submit time"] += 1
    elif runs_ms <= 0 or core_s <= 0:
        workload.left_out["without a run time or without vcoreSeconds"] += 1
    else:
        mean = 1_000 * core_s / runs_ms
        bounded(mean, "the mean number of cores", LARGEST_JOB_COUNT)
        mib = mib_s / core_s
        bounded(mib, "the memory of a core in MiB", LARGEST_AMOUNT // MIB)
        job = WorkloadJob(
            name=_text(item, "id", needed=True),
            submitted_ms=submitted_ms,
            runs_ms=runs_ms,
            count=max(1, round(mean)),
            size=job_size(100, 0, round(mib * MIB)),
            user=_text(item, "user"),
            queue=_text(item, "queue"),
            waited_ms=waited_ms,
            failed=_text(item, "finalStatus").upper() == "FAILED",
        )
        workload.jobs.append(job)
        seen["running"] += state in _GOES_ON


def _add_sls_job(workload: Workload, item: dict[str, Any], position: int) -> None:
    """Add a job for each group of equal containers, or count the job as left out. Raises `Damaged`."""
    tasks = item.get("job.tasks") or []
    if not isinstance(tasks, list):
        raise Damaged("job.tasks is no array")
    if not tasks:
        workload.left_out["without containers"] += 1
        return
    name = _text(item, "job.id", needed="job.id" in item) or f"job{position}"
    submitted_ms = round(_number(item, "job.start.ms", LATEST_MS))
    times = _whole(item, "job.count", 1)
    groups = Counter[tuple[int, int, int]]()
    for task in tasks:
        if not isinstance(task, dict):
            raise Damaged("a container is no object")
        cores, mib = _whole(task, "container.vcores", _SLS_CORES), _whole(task, "container.memory", _SLS_MIB)
        groups[_run_ms(task), cores, mib] += times * _whole(task, "count", 1)
    counts = [checked_count(count, "the number of equal containers") for count in groups.values()]
    jobs = [
        WorkloadJob(
            name=name if number == 1 else f"{name}/{number}",
            submitted_ms=submitted_ms,
            runs_ms=runs_ms,
            count=count,
            size=job_size(100 * cores, 0, mib * MIB),
            user=_text(item, "job.user"),
            queue=_text(item, "job.queue.name"),
        )
        for number, ((runs_ms, cores, mib), count) in enumerate(zip(groups, counts, strict=True), 1)
    ]
    workload.jobs += jobs


def _run_ms(task: dict[str, Any]) -> int:
    """Return the length of the run of a container in milliseconds. Raises `Damaged`."""
    name = next((name for name in ("duration.ms", "container.duration.ms") if name in task), "")
    if name:
        runs_ms = round(_number(task, name, LONGEST_MS))
    else:
        runs_ms = round(_number(task, "container.end.ms", LATEST_MS) - _number(task, "container.start.ms", LATEST_MS))
    bounded(runs_ms, "the length of the run of a container in milliseconds", LONGEST_MS)
    return runs_ms


def _number(item: dict[str, Any], name: str, most: float, default: float | None = None) -> float:
    """Return a number, which may be written as a text. -1 stands for an unknown value. Raises `Damaged`."""
    value = item.get(name)
    if value is None or (default is not None and value in (-1, "-1", "")):
        if default is None:
            raise Damaged(f"there is no {name}")
        return default
    if isinstance(value, str):
        return decimal(value.strip(), name, most)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Damaged(f"{name} is no number")
    bounded(value, name, most)
    return value


def _whole(item: dict[str, Any], name: str, default: int) -> int:
    number = _number(item, name, LARGEST_AMOUNT, default)
    if number != int(number):
        raise Damaged(f"{name} is {number:.6g}; expected a whole number")
    return int(number)


def _text(item: dict[str, Any], name: str, *, needed: bool = False) -> str:
    """Return a text, "" if it is absent. JSON may contain halves of characters, which no message can carry. Raises `Damaged`."""
    value = item.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_AMOUNT:
        value = str(value)
    text = same_text(value.encode(errors="replace").decode()) if isinstance(value, str) else ""
    if needed and (not text or "\ufffd" in text):
        raise Damaged(f"{name} is {shown(text)}; expected a text")
    return text
