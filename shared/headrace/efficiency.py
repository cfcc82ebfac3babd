"""Comparison of the resources that jobs requested with the resources that they used, and a suggestion for the next request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.resources import LARGEST_SUM, Resources
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import OperationSpec, OperationView, RunUsage, TaskEnds

#: Fraction of the measured peak that a suggestion adds to the peak, because the next run may use more.
_HEADROOM: Final = 0.25
#: A smaller request is suggested if it is at most this fraction of the present request.
_WORTHWHILE: Final = 0.75
_MIB: Final = 1024**2
#: Smallest step to which suggested memory is rounded, in bytes.
_LEAST_MEMORY_STEP: Final = 16 * _MIB
#: Smallest step to which suggested cores are rounded, in hundredths of a core.
_CPU_STEP: Final = 50

#: Shortest run time in milliseconds, of all runs together, for which a mean number of cores is computed.
_LEAST_RUN_MS: Final = 1_000


class Efficiency(msgspec.Struct, frozen=True):
    """The resources that the jobs of an operation or a task asked for, the usage of their runs, and suggestions for the
    next request.
    """

    #: Resources that each job asked for.
    asked: Resources
    #: Usage of the measured runs, by their result.
    used: dict[JobResult, RunUsage]
    #: Mean number of cores that the completed runs used; None if no completed run was measured.
    mean_cores: float | None
    #: Largest peak memory of the completed runs, in bytes; None if no completed run was measured.
    max_rss_bytes: int | None
    #: Core-seconds that the measured runs reserved and did not use.
    unused_core_seconds: int
    #: Byte-seconds of memory that the measured runs reserved and did not use.
    unused_byte_seconds: int
    #: Options of `headrace run` for the next operation of this kind, such as `--memory 3G`. Empty if the request fits the usage.
    suggestions: list[str]
    #: Efficiency of the jobs of each task with ended runs, by the name of the task. In the efficiency of an operation with tasks,
    #: `asked` is zero and `suggestions` is empty.
    tasks: dict[str, Efficiency] = {}


def efficiency_of(view: OperationView) -> Efficiency:
    """Return what the jobs of an operation asked for, what their runs used, and what to ask for instead."""
    tasks = {
        task.name: _efficiency(task.resources, view.task_ends[number].used)
        for number, task in enumerate(view.spec.tasks)
        if number in view.task_ends
    }
    found = _efficiency(view.spec.resources, view.used)
    if not view.spec.tasks:
        return found
    core_seconds, byte_seconds = unused_of(view.spec, view.used, view.task_ends)
    return msgspec.structs.replace(
        found, unused_core_seconds=core_seconds, unused_byte_seconds=byte_seconds, suggestions=[], tasks=tasks
    )


def _efficiency(asked: Resources, used: dict[JobResult, RunUsage]) -> Efficiency:
    """Return the efficiency of jobs that each asked for `asked`."""
    completed = used.get(JobResult.COMPLETED)
    core_seconds, byte_seconds = unused(asked, used)
    return Efficiency(
        asked=asked,
        used=used,
        mean_cores=mean_cores(completed) if completed is not None else None,
        max_rss_bytes=completed.max_rss_bytes if completed is not None else None,
        unused_core_seconds=core_seconds,
        unused_byte_seconds=byte_seconds,
        suggestions=_suggestions(asked, used) if completed is not None else [],
    )


def mean_cores(usage: RunUsage) -> float | None:
    """Return the mean number of cores that runs used; None if they took less than a second together.

    CPU time is measured in whole milliseconds, which is too coarse for such short runs.
    """
    return usage.cpu_ms / usage.ran_ms if usage.ran_ms >= _LEAST_RUN_MS else None


def unused_of(
    spec: OperationSpec, used: Mapping[JobResult, RunUsage], task_ends: Mapping[int, TaskEnds]
) -> tuple[int, int]:
    """Return the core-seconds and the byte-seconds of memory that the measured runs of an operation reserved and did not use.

    In an operation with tasks, the runs of each task are compared with the resources of the task.
    """
    if not spec.tasks:
        return unused(spec.resources, used)
    by_task = [unused(task.resources, task_ends.get(n, TaskEnds()).used) for n, task in enumerate(spec.tasks)]
    return sum(cores for cores, _ in by_task), sum(memory for _, memory in by_task)


def unused(asked: Resources, used: Mapping[JobResult, RunUsage]) -> tuple[int, int]:
    """Return the core-seconds and the byte-seconds of memory that measured runs reserved and did not use.

    Memory counts as used up to the largest peak among the runs with the same result, for the whole time of each run.
    """
    core_ms = byte_ms = 0
    for usage in used.values():
        core_ms += max(0, asked.cpu * usage.ran_ms // 100 - usage.cpu_ms)
        peak = usage.max_rss_bytes
        byte_ms += max(0, asked.memory - peak) * max(0, usage.ran_ms - usage.raised_ms)
        byte_ms += max(0, usage.raised_byte_seconds * 1000 - peak * usage.raised_ms)
    return min(core_ms // 1000, LARGEST_SUM), min(byte_ms // 1000, LARGEST_SUM)


def _suggestions(asked: Resources, used: Mapping[JobResult, RunUsage]) -> list[str]:
    """Return options of `headrace run` that ask for the peak of all measured runs plus headroom.

    An option is left out if the present request is close enough to the peak. Failed and preempted runs count too, because the
    jobs of the next operation need enough for such peaks as well. If jobs completed only with raised memory, that memory is the suggestion:
    a peak that was measured without a cgroup may be lower than what the jobs need.
    """
    completed = used.get(JobResult.COMPLETED, RunUsage())
    memory = max(usage.max_rss_bytes for usage in used.values())
    cpu = max(usage.most_cpu for usage in used.values())
    wanted = _rounded_memory(memory)
    words = []
    if completed.raised_memory_bytes > asked.memory:
        words.append(f"--memory {_memory_words(_rounded_up(completed.raised_memory_bytes, _MIB))}")
    elif memory and (wanted <= asked.memory * _WORTHWHILE or memory > asked.memory):
        words.append(f"--memory {_memory_words(wanted)}")
    wanted = _rounded_up(int(cpu * (1 + _HEADROOM)), _CPU_STEP if cpu < 2 * _CPU_STEP else 100)
    if cpu and (wanted <= asked.cpu * _WORTHWHILE or cpu > asked.cpu * (1 + _HEADROOM)):
        words.append(f"--cpu {wanted / 100:g}")
    return words


def _rounded_memory(peak_bytes: int) -> int:
    """Return the peak with headroom, rounded up to a multiple of a step.

    The step is the largest power of two up to a quarter of the result before rounding, and at least 16 MiB.
    """
    amount = int(peak_bytes * (1 + _HEADROOM))
    step = 1 << max(amount // 4, 1).bit_length() - 1
    return _rounded_up(amount, max(step, _LEAST_MEMORY_STEP))


def _rounded_up(amount: int, step: int) -> int:
    return -(-amount // step) * step


def _memory_words(amount: int) -> str:
    gib, rest = divmod(amount, 1024 * _MIB)
    return f"{amount // _MIB}M" if rest else f"{gib}G"
