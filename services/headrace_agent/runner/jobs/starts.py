"""Jobs whose process is starting, and processes whose start failed or was given up.

A job can block its own start for ever, so nothing here waits for the start. The poll reports when a process runs its program. A start that
takes too long is given up, and its process is killed. If the process does not die at once because it is blocked in the kernel, it is reaped
later.
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
from headrace_agent.runner.host.poll import Poll
from headrace_agent.runner.host.starting import CannotStart
from headrace_agent.runner.jobs.launch import Begun, Launched, Launcher, NotStarted, too_slow
from headrace_agent.runner.protocol import Run

#: Number of given-up starts whose processes have not ended at which no further job starts.
_MOST_GIVEN_UP: Final = 256
#: Milliseconds for which the loop waits for a new process to run its program, before the loop goes on with other work.
_QUICK_MS: Final = 2


class Starts:
    """The starts of jobs that are in progress. If `poll` reports an event of their descriptors, the caller must call `on_event`."""

    def __init__(self, host: Host, poll: Poll, launcher: Launcher, timeout_ms: int) -> None:
        self._host = host
        self._poll = poll
        self._launcher = launcher
        self._timeout_ms = timeout_ms
        #: Starts by job, the earliest first. All have the same timeout, so the earliest start is the first to be given up.
        self._begun: dict[JobKey, Begun] = {}
        self._by_fd: dict[int, Begun] = {}
        #: Starts that were given up, but whose process neither runs its program nor has ended yet, by descriptor.
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
        """Begin to start a job. Return the process if it runs its program by now, else None. Raises `NotStarted`.

        Most programs run within a fraction of a millisecond, and another turn of the loop costs as much as the start. So this method waits
        up to `_QUICK_MS` for the program, unless an earlier start is still in progress.
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
        """Return the job of a start that is over, with its process or the error. Return None if the start was given up before."""
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
        """Give up the starts that took too long, and kill their processes. `running` holds the pids of processes that run their program."""
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
        """If the job is starting, kill its process. `on_event` then reports the end of the start."""
        begun = self._begun.get(job)
        if begun is not None:
            self._host.processes.starter.kill(begun.starting, running)

    def kill_all(self, running: Collection[int]) -> None:
        """Kill the processes of all starts in progress. Their ends are not tracked, because the runner ends."""
        for begun in self._begun.values():
            self._host.processes.starter.kill(begun.starting, running)

    def names(self) -> set[str]:
        """Return the names of the jobs that are starting, as the markers of their processes contain them."""
        return {job_name(job) for job in self._begun}

    def pids(self) -> set[int]:
        """Return the pids, as far as they are known, of processes that are starting or were killed before they ran their program.

        Reaped processes are left out.
        """
        on_their_way = {begun.starting.pid for each in (self._by_fd, self._given_up) for begun in each.values()}
        return on_their_way | self._dying

    def tidy(self, running: Collection[int]) -> None:
        """Reap killed processes that have ended. Repeat the kill of given-up starts: a process may have appeared just after the first
        kill.
        """
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
        """Clean up after a start that was given up and is over now."""
        with suppress(CannotStart):
            self._host.processes.starter.result(begun.starting)
        self._launcher.discard(begun)
        self.end_process(begun.starting.pid)

    def end_process(self, pid: int) -> None:
        """Kill the child of a start that failed, and reap it now or later. If `pid` is 0, there is no child."""
        if not pid:
            return
        # The process may have begun to run its program just before and have children, so its process group is killed, too.
        self._host.processes.signal_group(pid, signal.SIGKILL)
        self._host.processes.signal(pid, signal.SIGKILL)
        self._dying.add(pid)
        self._reap()
