"""Limits jobs to their resources, in the strongest of three ways (kinds of isolation) that works on this host.

* `cgroup2`: a cgroup for each job in a delegated cgroup v2 folder. The cgroup limits the memory, the cpu and the number of the job's
  processes, all together, and killing the cgroup reaches each of them. A runner that is root also keeps the job from opening the GPU
  devices of other jobs.
* `rlimit`: limits only the memory of each single process. RLIMIT_DATA counts private writable memory when it is reserved. The count
  includes the full size of thread stacks, so the limit is the job's memory plus some headroom. RLIMIT_AS would count far more (mapped
  files, and address space that runtimes reserve and never touch). A process that asks for more memory is refused, not killed.
* `none`: no limits.

If a job has an account, its process gets the limits before it runs its program. The process of any other job gets them right after the
start: a child process that such a job starts at once may escape the limits, but never the kill at the job's end.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import NamedTuple

from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.host.device_filter import close_devices, why_not_filtered
from headrace_agent.runner.host.files import LinuxFiles, write_file
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.linux_processes import LinuxProcesses
from headrace_agent.runner.host.starting import ProcessLimits
from headrace_agent.runner.job_ends import out_of_memory_words
from headrace_agent.runner.protocol import Run

_CPU_PERIOD_US = 100_000
_LEAST_CPU_QUOTA_US = 1_000
_SMALL_FILE_BYTES = 64 * 1024


class CannotIsolate(Exception):
    """This kind of isolation does not work here. The text says why."""


class JobUsage(NamedTuple):
    """The resource usage of a job that ended. A number is 0 if it is not known."""

    #: Text about the memory limit if processes of the job were killed because of this limit; else empty.
    out_of_memory: str = ""
    cpu_ms: int = 0
    #: Peak memory of all processes together.
    max_rss_bytes: int = 0


class Isolation:
    """The weakest isolation, which limits nothing. The stronger kinds are subclasses."""

    #: Name of this kind of isolation in the runner's full report.
    name = "none"

    def __init__(self, detail: str) -> None:
        #: Why the isolation is not stronger, or (for a cgroup) in which folder it is; for people.
        self.detail = detail

    def prepare(self, run: Run) -> None:
        """Prepare a job's limits before its start. Raises OSError."""

    def limits(self, run: Run) -> ProcessLimits:
        """Return the limits that apply to each single process of a job."""
        return {}

    def entry(self, run: Run) -> str:
        """Return the file through which a process joins the job's limits by writing 0 to it; empty if there is none."""
        return ""

    def confine(self, run: Run, pid: int) -> None:
        """Set the limits that apply to the job as a whole, right after the start of its process.

        Raises OSError, but not if the process has ended already.
        """

    def kill(self, job: JobKey) -> None:
        """Kill all remaining processes of a job, as far as this kind of isolation can find them."""

    def usage(self, run: Run) -> JobUsage:
        """Return the resource usage of a job that ended."""
        return JobUsage()

    def remove(self, job: JobKey) -> bool:
        """Remove everything that the limits of an ended job needed on the host, such as a cgroup.

        Return False if that is not possible yet.
        """
        return True


class RlimitIsolation(Isolation):
    """Limits the memory of each single process, by prlimit. Raises `CannotIsolate` if the system refuses prlimit."""

    name = "rlimit"

    def __init__(self, processes: LinuxProcesses, headroom_bytes: int, detail: str) -> None:
        super().__init__(detail)
        self._headroom_bytes = headroom_bytes
        try:
            soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            processes.limit(os.getpid(), resource.RLIMIT_DATA, soft, hard)
        except OSError as error:
            raise CannotIsolate(f"prlimit is refused: {error.strerror}") from None
        self._most = hard

    def limits(self, run: Run) -> ProcessLimits:
        if not run.memory_bytes:
            return {}
        bound = run.memory_bytes + self._headroom_bytes
        if self._most != resource.RLIM_INFINITY:
            bound = min(bound, self._most)
        return {resource.RLIMIT_DATA: (bound, bound)}


class Cgroup2(Isolation):
    """A cgroup for each job in `<folder>/jobs`, where `folder` is a delegated cgroup v2 folder."""

    name = "cgroup2"

    def __init__(self, files: LinuxFiles, folder: str, most_processes: int = 0) -> None:
        """`most_processes` is the largest number of processes of one job; 0: no limit. Raises `CannotIsolate`."""
        super().__init__(f"in {folder}")
        self._files = files
        self._most_processes = most_processes
        why_not = why_not_filtered()
        self._filters_devices = not why_not
        if why_not:
            self.detail += f"; a job can open the GPU devices of other jobs: {why_not}"
        self._jobs = f"{folder}/jobs"
        try:
            self._set_up(folder)
        except OSError as error:
            raise CannotIsolate(f"{error.filename or folder}: {error.strerror}") from None

    def prepare(self, run: Run) -> None:
        group = self._group(run.job)
        self._make_group(group)
        if run.memory_bytes:
            self._write(f"{group}/memory.max", str(run.memory_bytes))
            self._write(f"{group}/memory.oom.group", "1")
            self._write_if_there(f"{group}/memory.swap.max", "0")
        if self._most_processes:
            self._write(f"{group}/pids.max", str(self._most_processes))
        if run.cpu:
            quota_us = max(_LEAST_CPU_QUOTA_US, run.cpu * _CPU_PERIOD_US // 100)
            self._write(f"{group}/cpu.max", f"{quota_us} {_CPU_PERIOD_US}")
        if self._filters_devices and run.closed_files:
            close_devices(group, run.closed_files)

    def entry(self, run: Run) -> str:
        return f"{self._group(run.job)}/cgroup.procs"

    def confine(self, run: Run, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._write(self.entry(run), str(pid))

    def kill(self, job: JobKey) -> None:
        self._write_if_there(f"{self._group(job)}/cgroup.kill", "1")

    def usage(self, run: Run) -> JobUsage:
        group = self._group(run.job)
        events = self._table(f"{group}/memory.events")
        ended_by_memory = events.get("oom_kill", 0) > 0 or events.get("oom_group_kill", 0) > 0
        return JobUsage(
            out_of_memory=out_of_memory_words(run) if ended_by_memory else "",
            cpu_ms=self._table(f"{group}/cpu.stat").get("usage_usec", 0) // 1000,
            max_rss_bytes=self._figure(f"{group}/memory.peak"),
        )

    def remove(self, job: JobKey) -> bool:
        try:
            self._files.remove_folder(self._group(job))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _set_up(self, folder: str) -> None:
        offered = self._files.read_file(f"{folder}/cgroup.controllers", _SMALL_FILE_BYTES).decode().split()
        missing = sorted({"cpu", "memory"} - set(offered))
        if missing:
            raise CannotIsolate(f"{folder} offers no controller for {' and '.join(missing)}")
        # A cgroup that gives controllers to its children must not hold a process itself. So all processes in the folder's own cgroup, of
        # which this process may be one, are moved to a child cgroup.
        own = f"{folder}/supervisor"
        self._files.make_folder(own)
        for pid in self._files.read_file(f"{folder}/cgroup.procs", _SMALL_FILE_BYTES).decode().split():
            self._write(f"{own}/cgroup.procs", pid)
        controllers = "+cpu +memory"
        if "pids" in offered:
            controllers += " +pids"
        else:
            self._most_processes = 0
            self.detail += f"; the processes of a job are not counted: {folder} offers no controller for pids"
        self._write(f"{folder}/cgroup.subtree_control", controllers)
        self._make_group(self._jobs)
        self._write(f"{self._jobs}/cgroup.subtree_control", controllers)

    def _make_group(self, path: str) -> None:
        self._files.make_folder(path)
        # Language runtimes such as Java choose the sizes of heaps and thread pools by the limits that they read here. If they cannot read
        # the limits, they go by the memory and the cores of the whole host.
        self._files.let_others_read(path)

    def _group(self, job: JobKey) -> str:
        return f"{self._jobs}/{job_name(job)}"

    def _write(self, path: str, text: str) -> None:
        # The file is never created: if a control file does not exist, the kernel lacks the feature.
        write_file(self._files, path, text.encode(), os.O_WRONLY)

    def _write_if_there(self, path: str, text: str) -> None:
        with contextlib.suppress(OSError):
            self._write(path, text)

    def _table(self, path: str) -> dict[str, int]:
        try:
            lines = self._files.read_file(path, _SMALL_FILE_BYTES).decode().splitlines()
            return {name: int(figure) for name, _, figure in (line.partition(" ") for line in lines)}
        except (OSError, ValueError):
            return {}

    def _figure(self, path: str) -> int:
        try:
            return int(self._files.read_file(path, _SMALL_FILE_BYTES))
        except (OSError, ValueError):
            return 0


def choose_isolation(host: Host, wanted: str, cgroup: str, headroom_bytes: int, most_processes: int = 0) -> Isolation:
    """Return the strongest isolation that works here and is not stronger than `wanted` (`auto`, `cgroup2`, `rlimit` or `none`).

    `most_processes` is the largest number of processes of one job; 0: no limit. It applies only if cgroups count processes here.
    """
    if wanted == "none":
        return Isolation("switched off by the settings")
    why_not = "the settings ask for rlimit only" if wanted == "rlimit" else "no delegated cgroup v2 folder is given"
    if cgroup and wanted != "rlimit":
        try:
            return Cgroup2(host.files, cgroup, most_processes)
        except CannotIsolate as refusal:
            why_not = str(refusal)
    limits = "memory of each process is limited, cpu and the number of processes are not"
    try:
        return RlimitIsolation(host.processes, headroom_bytes, f"{limits}; no cgroup2: {why_not}")
    except CannotIsolate as refusal:
        return Isolation(f"no cgroup2: {why_not}; no rlimit: {refusal}")
