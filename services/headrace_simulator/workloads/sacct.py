"""Reader of the accounting records of Slurm: the output of `sacct --parsable2` or `--parsable`, with its header. Pure.

Source: Slurm's manual page of sacct. A column is found by its name, in any order and in any case. Times have no zone in this output.
sacct neither quotes nor escapes a value, so the lines are no CSV: a value that contains `|` makes its line unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from headrace.errors import BadInput
from headrace.resources import LARGEST_AMOUNT
from headrace.wire.operation_spec import LARGEST_JOB_COUNT
from headrace_simulator.workloads.columns import (
    KIB,
    LATEST_MS,
    LONGEST_S,
    MIB,
    Damaged,
    bounded,
    checked_count,
    column_positions,
    date_ms,
    job_size,
    missing_columns,
    numbered_lines,
    same_text,
    shown,
    whole,
)
from headrace_simulator.workloads.workload import Workload, WorkloadJob

_PLACE: Final = "sacct"
_CPUS: Final = ("AllocCPUS", "NCPUS", "ReqCPUS")
_NODES: Final = ("AllocNodes", "NNodes", "ReqNodes")
_NEEDED: Final = (
    "JobID or JobIDRaw, Submit, one of ElapsedRaw and Elapsed, one of AllocCPUS, NCPUS and ReqCPUS. Such a file is the output of "
    "`sacct --parsable2 --allusers --format=JobID,User,Account,Partition,Submit,Start,ElapsedRaw,State,AllocCPUS,AllocNodes,"
    "AllocTRES,TimelimitRaw`"
)
_UNKNOWN: Final = frozenset({"", "unknown", "none"})
_NO_LIMIT: Final = frozenset({"", "unlimited", "infinite", "partition_limit", "unknown", "none"})
_GOES_ON: Final = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
_FAILED: Final = frozenset({"FAILED", "OUT_OF_MEMORY"})
_JOB: Final = re.compile(r"[0-9]{1,20}(?:[_+][0-9]{1,20})?\Z", re.ASCII)
_PENDING_RANGE: Final = re.compile(r"[0-9]{1,20}_\[[^\]]*\]?\Z", re.ASCII)
_ELAPSED: Final = re.compile(r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9})(?:\.([0-9]{1,9}))?\Z")
_MEMORY: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)([KMGTPE]?)B?([cn]?)\Z", re.IGNORECASE)
_UNITS: Final = {"K": KIB, "": MIB, "M": MIB, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}
_HOSTS: Final = re.compile(r"[^,\[\]]*(?:\[([0-9,-]*)\][^,\[\]]*)*(?:,|\Z)")
_RANGE: Final = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?\Z")


def read_sacct(lines: Iterable[str]) -> Workload:
    """Return the jobs of the output of sacct. Raises `BadInput` if there is no header with the needed columns."""
    workload, rows = Workload("sacct"), numbered_lines(_PLACE, lines)
    _, header = next(rows, (0, ""))
    reader = _Reader(workload, header)
    for number, text in rows:
        if text != header:
            try:
                reader.add(text)
            except Damaged as error:
                workload.add_damaged(number, str(error))
    reader.add_notes()
    return workload


class _Reader:
    """Adds the jobs of lines to a workload."""

    def __init__(self, workload: Workload, header: str) -> None:
        self._workload = workload
        names = header.split("|")
        positions = column_positions(names)
        self._width = len(names)
        self._dates = self._running = self._whole_job_memory = 0

        def column(*accepted: str) -> int:
            return next((positions[name.lower()] for name in accepted if name.lower() in positions), -1)

        self._job, self._submit, self._start = column("JobID", "JobIDRaw"), column("Submit"), column("Start")
        raw = column("ElapsedRaw")
        self._elapsed = raw if raw >= 0 else column("Elapsed")
        self._elapsed_ms: Callable[[str], int] = _seconds_ms if raw >= 0 else _clock_ms
        self._cpus = [positions[name.lower()] for name in _CPUS if name.lower() in positions]
        self._nodes = [positions[name.lower()] for name in _NODES if name.lower() in positions]
        self._tres = [positions[name] for name in ("alloctres", "reqtres") if name in positions]
        self._memory, self._hosts, self._state = column("ReqMem"), column("NodeList"), column("State")
        raw = column("TimelimitRaw")
        self._limit, self._minutes = (raw, True) if raw >= 0 else (column("Timelimit"), False)
        self._user, self._group, self._account = column("User"), column("Group"), column("Account")
        self._queue = column("Partition", "QOS")
        if not self._cpus or min(self._job, self._submit, self._elapsed) < 0:
            if not header:
                raise BadInput.because(_PLACE, f"there are no lines; needed is a header with the columns {_NEEDED}")
            raise missing_columns(_PLACE, names, _NEEDED)

    def add(self, text: str) -> None:
        """Add the job of a line, or count it as left out. Raises `Damaged`."""
        cells = text.split("|")
        cells.append("")  # A missing column has the position -1, so it is read as empty.
        if len(cells) - 1 != self._width:
            raise Damaged(f"{len(cells) - 1} values in place of {self._width}: {shown(text)}")
        name = cells[self._job].strip()
        if "." in name:
            return  # a step of a job
        workload, left_out = self._workload, self._workload.left_out
        state = cells[self._state].strip().partition(" ")[0].upper()  # such as CANCELLED by 1000
        if "[" in name and _PENDING_RANGE.match(name):
            left_out["pending tasks of an array"] += 1
        elif not _JOB.match(name):
            raise Damaged(f"JobID is {shown(name)}; expected a job such as 123, 123_4 or 123+0")
        elif state == "PENDING":
            left_out["pending"] += 1
        elif cells[self._submit].strip().lower() in _UNKNOWN or cells[self._elapsed].strip().lower() in _UNKNOWN:
            left_out["without a run time or a submit time"] += 1
        else:
            submitted_ms, runs_ms = _time_ms(cells[self._submit], "Submit"), self._elapsed_ms(cells[self._elapsed])
            started_ms = -1
            if cells[self._start].strip().lower() not in _UNKNOWN:
                started_ms = _time_ms(cells[self._start], "Start")
            if runs_ms == 0 and state == "CANCELLED":
                left_out["cancelled before the start"] += 1
            elif runs_ms == 0 and started_ms < 0 <= self._start:
                left_out["never started"] += 1
            elif job := self._read(cells, name, state, (submitted_ms, started_ms, runs_ms)):
                workload.jobs.append(job)
                self._dates += "T" in cells[self._submit]
                self._running += state in _GOES_ON
            else:
                left_out["without a number of processors"] += 1

    def _read(self, cells: list[str], name: str, state: str, times_ms: tuple[int, int, int]) -> WorkloadJob | None:
        """Return a job, or None if it has no number of processors. `times_ms` are submission, start and length of the run."""
        submitted_ms, started_ms, runs_ms = times_ms
        cpus = _first(cells, self._cpus, "the number of processors", LARGEST_AMOUNT // 100)
        if cpus == 0:
            return None
        memory, nodes, gpus = 0, 0, 0
        for column in self._tres:
            more_memory, more_nodes, more_gpus = _tres(cells[column])
            memory, nodes, gpus = memory or more_memory, nodes or more_nodes, gpus or more_gpus
        nodes = _first(cells, self._nodes, "the number of nodes", LARGEST_AMOUNT) or nodes
        if nodes == 0:
            nodes = max(1, _number_of_hosts(cells[self._hosts]))
        nodes, cpu = checked_count(nodes, "the number of nodes"), -(-cpus // nodes)
        if not memory:
            size, per = _requested_memory(cells[self._memory])
            self._whole_job_memory += per == "" and size > 0
            memory = size * {"c": cpu * nodes, "n": nodes}.get(per, 1)
        return WorkloadJob(
            name=name,
            submitted_ms=submitted_ms,
            runs_ms=runs_ms,
            count=nodes,
            size=job_size(100 * cpu, -(-gpus // nodes), -(-memory // nodes)),
            together=nodes > 1,
            user=same_text(cells[self._user]),
            group=same_text(cells[self._group]),
            account=same_text(cells[self._account]),
            queue=same_text(cells[self._queue]),
            limit_ms=_limit_ms(cells[self._limit], minutes=self._minutes),
            waited_ms=started_ms - submitted_ms if started_ms >= submitted_ms else -1,
            failed=state in _FAILED,
        )

    def add_notes(self) -> None:
        """Add what was assumed to the workload."""
        notes, jobs = self._workload.notes, self._workload.jobs
        if self._dates:
            notes.append("the times have no zone and are read as UTC")
        if self._running:
            notes.append(f"{self._running} jobs were still running: their run time is the time elapsed so far")
        if any(job.together for job in jobs):
            notes.append(
                "a job on several nodes is one job for each node, with equal parts of its resources, rounded up"
            )
        if self._whole_job_memory:
            notes.append("a ReqMem without c or n is the memory of all nodes of a job together")


def _first(cells: Sequence[str], columns: Iterable[int], name: str, most: int) -> int:
    """Return the first number above 0 in the columns, 0 if there is none. Raises `Damaged`."""
    for column in columns:
        text = cells[column].strip()
        if text and (value := whole(text, name, most)):
            return value
    return 0


@lru_cache(maxsize=4096)
def _time_ms(text: str, name: str) -> int:
    """Return a time in milliseconds: an ISO time, or seconds if the variable SLURM_TIME_FORMAT was %s. Raises `Damaged`."""
    text = text.strip()
    return 1_000 * whole(text, name, LATEST_MS // 1_000) if text.isdigit() else date_ms(text, name)


def _seconds_ms(text: str) -> int:
    return 1_000 * whole(text.strip(), "ElapsedRaw", LONGEST_S)


@lru_cache(maxsize=4096)
def _clock_ms(text: str) -> int:
    """Return the milliseconds of a length of time such as `1-02:03:04.500`. Raises `Damaged`."""
    found = _ELAPSED.match(text.strip())
    if not found:
        raise Damaged(f"the length of time is {shown(text)}; expected one such as 1-02:03:04")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    total_s = 86_400 * days + 3_600 * hours + 60 * minutes + seconds
    bounded(total_s, "the length of time in seconds", LONGEST_S)
    return 1_000 * total_s + int((found[5] or "0").ljust(3, "0")[:3])


@lru_cache(maxsize=4096)
def _limit_ms(text: str, *, minutes: bool) -> int:
    """Return a time limit in milliseconds, 0 if there is none. Raises `Damaged`."""
    text = text.strip()
    if text.lower() in _NO_LIMIT:
        return 0
    return 60_000 * whole(text, "TimelimitRaw", LONGEST_S // 60) if minutes else _clock_ms(text)


@lru_cache(maxsize=4096)
def _requested_memory(text: str) -> tuple[int, str]:
    """Return the bytes of a memory such as `4Gc`, and its suffix: `c` for each core, `n` for each node. Raises `Damaged`."""
    text = text.strip()
    if text.lower() in _UNKNOWN:
        return 0, ""
    found = _MEMORY.match(text)
    if not found:
        raise Damaged(f"the memory is {shown(text)}; expected one such as 4000M, 16G or 4Gc")
    figure, unit = found[1], _UNITS[found[2].upper()]
    amount = int(figure) * unit if figure.isdigit() else round(float(figure) * unit)
    bounded(amount, "the memory", LARGEST_AMOUNT)
    return amount, found[3].lower()


@lru_cache(maxsize=4096)
def _tres(text: str) -> tuple[int, int, int]:
    """Return memory in bytes, nodes and GPUs of resources such as `cpu=8,mem=16G,gres/gpu=2`, 0 for each that is absent.

    Raises `Damaged`.
    """
    memory, nodes, gpus, gpus_by_kind = 0, 0, 0, 0
    for part in text.strip().split(","):
        name, equals, value = part.strip().partition("=")
        if part.strip() and not equals:
            raise Damaged(f"the resources are {shown(text)}; expected ones such as cpu=8,mem=16G,node=1")
        name = name.lower()
        if name == "mem":
            memory = _requested_memory(value)[0]
        elif name == "node":
            nodes = whole(value, "the number of nodes", LARGEST_AMOUNT)
        elif name == "gres/gpu":
            gpus = whole(value, "the number of GPUs", LARGEST_AMOUNT)
        elif name.startswith("gres/gpu:"):
            gpus_by_kind += whole(value, "the number of GPUs", LARGEST_AMOUNT)
    return memory, nodes, max(gpus, gpus_by_kind)


@lru_cache(maxsize=4096)
def _number_of_hosts(text: str) -> int:
    """Return the number of hosts in a list such as `alpha,node[01-16,20]`; 0 if the list is empty or cannot be read."""
    text = text.strip()
    if text.lower() in _UNKNOWN or text.lower() == "none assigned":
        return 0
    count, end = 0, 0
    while end < len(text):
        found = _HOSTS.match(text, end)
        if not found or found.end() == end:
            return 0
        hosts = 1
        for ranges in re.findall(r"\[([0-9,-]*)\]", found[0]):
            each = [_RANGE.match(part) for part in ranges.split(",")]
            hosts *= sum(int(part[2] or part[1]) - int(part[1]) + 1 if part else 0 for part in each)
            if hosts > LARGEST_JOB_COUNT:
                return hosts
        count, end = count + hosts, found.end()
    return max(0, count)
