"""Jobs whose process is starting, and processes that never got to run their program.

A job can block its start for ever, so nothing here waits for it. The poll reports when a process runs its program. A start that
takes too long is given up and its process is killed. A process that does not die at once (it is blocked in the kernel) is
reaped later.
"""

from __future__ import annotations

import select
import signal
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from headrace.runtime.engine import Moment
from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.starting import CannotStart
from headrace_agent.runner.jobs.launch import Begun, Launched, Launcher, NotStarted, too_slow
from headrace_agent.runner.protocol import Run

#: Upper bound of given-up starts whose processes do not end; at this number no further job starts.
_MOST_GIVEN_UP: Final = 256
#: Milliseconds for which the loop waits for a process to run its program, before it goes on with other work.
_QUICK_MS: Final = 2


class Starts:
    """The starts of jobs that are in progress. If `poll` reports an event of their descriptors, the caller must call `on_event`."""

    def __init__(self, host: Host, poll: select.epoll, launcher: Launcher, timeout_ms: int) -> None:
        self._host = host
        self._poll = poll
        self._launcher = launcher
        self._timeout_ms = timeout_ms
        #: Starts by job, the earliest first. All have the same timeout.
        self._begun: dict[JobKey, Begun] = {}
        self._by_fd: dict[int, Begun] = {}
        #: Starts that were given up and are not over yet, by descriptor.
        self._given_up: dict[int, Begun] = {}
        #: Children that belong to no job, were killed, and must be reaped.
        self._dying: set[int] = set()

    def __len__(self) -> int:
        return len(self._begun)

    @property
    def has_dying(self) -> bool:
        """True if `tidy` still has work: killed processes that must be reaped, or starts that were given up."""
        return bool(self._dying or self._given_up)

    def begin(self, run: Run) -> Launched | None:
        """Begin to start a job. Return the process if it runs by now, else None. Raises `NotStarted`.

        Most programs run within a fraction of a millisecond, and another turn of the loop costs as much as the start. So the loop
        waits up to `_QUICK_MS` for the program, unless the loop waits for an earlier start already.
        """
        if len(self._given_up) >= _MOST_GIVEN_UP:
            raise NotStarted(f"not started: {len(self._given_up)} processes of failed starts do not end", None)
        begun = self._launcher.begin(run)
        if not self._begun and self._host.processes.starter.is_over(begun.starting, _QUICK_MS):
            return self._finish(begun)
        self._begun[run.job] = self._by_fd[begun.starting.fd] = begun
        self._poll.register(begun.starting.fd, select.EPOLLIN)
        return None

    def owns(self, fd: int) -> bool:
        return fd in self._by_fd or fd in self._given_up

    def on_event(self, fd: int) -> tuple[Run, Launched | NotStarted] | None:
        """Return the job with its process or its refusal. Return None for a start that was given up before."""
        self._poll.unregister(fd)
        begun = self._by_fd.pop(fd, None)
        if begun is None:
            self._bury(self._given_up.pop(fd))
            return None
        del self._begun[begun.run.job]
        try:
            return begun.run, self._finish(begun)
        except NotStarted as refusal:
            return begun.run, refusal

    def late(self, now: Moment, running: Collection[int]) -> list[tuple[Run, NotStarted]]:
        """Give up the starts that took too long, and kill their processes. `running` holds the pids of jobs."""
        found = []
        for begun in list(self._begun.values()):
            if begun.until_ns > now.steady_ns:
                break
            self._host.processes.starter.kill(begun.starting, running)
            del self._begun[begun.run.job], self._by_fd[begun.starting.fd]
            self._given_up[begun.starting.fd] = begun
            found.append((begun.run, too_slow(begun, self._timeout_ms)))
        return found

    def next_late_ns(self) -> int | None:
        """Return the CLOCK_BOOTTIME in nanoseconds at which `late` has something to do, or None."""
        return next((begun.until_ns for begun in self._begun.values()), None)

    def kill(self, job: JobKey, running: Collection[int]) -> None:
        """Kill the process of a start, if the job is starting. `on_event` reports its end."""
        begun = self._begun.get(job)
        if begun is not None:
            self._host.processes.starter.kill(begun.starting, running)

    def kill_all(self, running: Collection[int]) -> None:
        """Kill the processes of all starts. Nothing tracks them afterwards."""
        for begun in self._begun.values():
            self._host.processes.starter.kill(begun.starting, running)

    def names(self) -> set[str]:
        """Return the names of the jobs that are starting, as the markers of their processes contain them."""
        return {job_name(job) for job in self._begun}

    def pids(self) -> set[int]:
        """Return the known pids of processes that are starting or were killed before their start was over.

        Reaped processes are left out.
        """
        on_their_way = {begun.starting.pid for each in (self._by_fd, self._given_up) for begun in each.values()}
        return on_their_way | self._dying

    def tidy(self, running: Collection[int]) -> None:
        """Reap killed processes that have ended. Kill processes that appeared just when their start was given up."""
        for begun in (*self._begun.values(), *self._given_up.values()):
            if begun.starting.is_unwanted:
                self._host.processes.starter.kill(begun.starting, running)
        self._reap()

    def _reap(self) -> None:
        for pid in list(self._dying):
            with suppress(ChildProcessError):
                if self._host.processes.reap(pid) is None:
                    continue
            self._dying.discard(pid)

    def _finish(self, begun: Begun) -> Launched:
        try:
            return self._launcher.finish(begun)
        except NotStarted:
            self.end_process(begun.starting.pid)
            raise

    def _bury(self, begun: Begun) -> None:
        """Handle the end of a start that was given up."""
        with suppress(CannotStart):
            self._host.processes.starter.result(begun.starting)
        self._launcher.discard(begun)
        self.end_process(begun.starting.pid)

    def end_process(self, pid: int) -> None:
        """Kill a child that did not become its program, and reap the child now or later. If `pid` is 0, there is no child."""
        if not pid:
            return
        # The process may have become its program just before this, so its process group is killed, too.
        self._host.processes.signal_group(pid, signal.SIGKILL)
        self._host.processes.signal(pid, signal.SIGKILL)
        self._dying.add(pid)
        self._reap()
