"""`srun` inside of a job: the tasks of a step are processes on the node of the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

from headrace.errors import BadInput
from headrace_cli.slurm.command_line import Given
from headrace_cli.slurm.request import OF_ONE_JOB, exported, size_of
from headrace_cli.slurm.values import in_pattern

#: Signals to the process group that `srun` ignores. The tasks are in the same group and get them too, and `srun` waits for the tasks.
_OF_TASKS: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)


def is_in_job(environment: Mapping[str, str]) -> bool:
    """True if this process belongs to a job that `sbatch` or `srun` started."""
    return "SLURM_JOB_ID" in environment and "HEADRACE_OPERATION_ID" in environment


def run_step(given: Given) -> int:
    """Run the tasks of a step, and return the largest of their exit statuses. Raises `BadInput`, `NoCounterpart`, `OSError`."""
    own = os.environ
    if not given.words:
        raise BadInput.because("srun", "no command is given. Name a command, such as srun ./work")
    asked = given.over(_of_job(own))
    size = size_of(asked)
    cores = own.get("SLURM_CPUS_ON_NODE", "")
    if given.has("ntasks") and cores and size.cpus > int(cores):
        raise BadInput.because(
            "srun", f"{size.tasks} tasks of {size.cpus_per_task} cores need more cores than the job has, {cores}"
        )
    for number in _OF_TASKS:
        signal.signal(number, lambda *_: None)  # unlike SIG_IGN, the tasks do not inherit it
    tasks, readers = list[subprocess.Popen[bytes]](), list[threading.Thread]()
    for task in range(size.tasks):
        environment = _environment(given, own, task, size.tasks, size.cpus_per_task)
        with _Files(given, environment) as files:
            process = subprocess.Popen(given.words, env=environment, cwd=given.one("chdir"), **files.streams(task))
        tasks.append(process)
        if given.has("label"):
            readers += [_labelled(process.stdout, sys.stdout, task), _labelled(process.stderr, sys.stderr, task)]
    return _wait(tasks, readers, ends_all=given.has("kill-on-bad-exit"))


def _of_job(own: Mapping[str, str]) -> Given:
    """Return the options that a step has from its job."""
    names = {"ntasks": "SLURM_NTASKS", "cpus-per-task": "SLURM_CPUS_PER_TASK"}
    return Given({option: [own[name]] for option, name in names.items() if own.get(name)})


def _environment(given: Given, own: Mapping[str, str], task: int, tasks: int, cpus: int) -> dict[str, str]:
    kept = {name: value for name, value in own.items() if not given.has("export") or OF_ONE_JOB.match(name)}
    chosen = exported(given, own) if given.has("export") else {}
    return {
        **kept,
        **chosen,
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task),
        "SLURM_NODEID": "0",
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_NODELIST": own.get("SLURM_JOB_NODELIST", own.get("HEADRACE_NODE", "")),
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NODELIST": own.get("SLURM_JOB_NODELIST", own.get("HEADRACE_NODE", "")),
        "SLURM_CPUS_PER_TASK": str(cpus),
    }


class _Files:
    """Opens the input and output files of one task. At the end of the block, this process closes the files; the task keeps them open."""

    def __init__(self, given: Given, environment: Mapping[str, str]) -> None:
        self._given = given
        job = environment.get("SLURM_JOB_ID", "")
        self._words = {
            "j": job,
            "J": f"{job}.0",
            "A": environment.get("SLURM_ARRAY_JOB_ID", job),
            "a": environment.get("SLURM_ARRAY_TASK_ID", "4294967294"),
            "t": environment["SLURM_PROCID"],
            "n": "0",
            "s": "0",
            "N": environment.get("HEADRACE_NODE", ""),
            "u": environment.get("SLURM_JOB_USER", ""),
            "x": environment.get("SLURM_JOB_NAME", ""),
        }
        self._open: dict[str, IO[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def streams(self, task: int) -> dict[str, Any]:
        """Return stdin, stdout and stderr for `Popen`."""
        if self._given.has("label"):
            return {"stdin": self._stdin(task), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        output, error = self._given.one("output"), self._given.one("error")
        found: dict[str, Any] = {"stdin": self._stdin(task)}
        if output and output != "none":
            found["stdout"] = self._written(output)
            found["stderr"] = self._written(error or output)
        elif error and error != "none":
            found["stderr"] = self._written(error)
        return found

    def _stdin(self, task: int) -> Any:
        name = self._given.one("input")
        if name and name not in ("all", "none"):
            return self._opened(in_pattern(name, self._words), "rb")
        return subprocess.DEVNULL if task or name == "none" else None

    def _written(self, pattern: str) -> IO[bytes]:
        path = Path(self._given.one("chdir") or "") / in_pattern(pattern, self._words)
        path.parent.mkdir(parents=True, exist_ok=True)
        return self._opened(str(path), "ab" if self._given.one("open-mode") != "truncate" else "wb")

    def _opened(self, name: str, mode: str) -> IO[bytes]:
        if name not in self._open:
            self._open[name] = self._stack.enter_context(open(name, mode))  # noqa: SIM115 - the stack closes it
        return self._open[name]


def _labelled(stream: IO[bytes] | None, target: IO[str], task: int) -> threading.Thread:
    """Print the lines of a task with its number in front, in a thread."""
    assert stream is not None

    def copy() -> None:
        for line in stream:
            target.write(f"{task}: {line.decode(errors='replace')}")
            target.flush()

    thread = threading.Thread(target=copy)
    thread.start()
    return thread


def _wait(tasks: list[subprocess.Popen[bytes]], readers: list[threading.Thread], *, ends_all: bool) -> int:
    worst = 0
    for task in tasks:
        code = task.wait()
        worst = max(worst, 128 - code if code < 0 else code)
        if worst and ends_all:
            for other in tasks:
                other.kill()
    for reader in readers:
        reader.join()
    return worst
