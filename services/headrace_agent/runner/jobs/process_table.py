"""The processes of the jobs: their start, their output, their signals, and the end of every process that a job leaves behind.

The runner is a subreaper: if a process of a job loses its parent, it becomes a child of the runner. So all processes of a job are found at
the job's end, even daemons. The end is reported only when no process of the job lives (or after `REST_TIMEOUT_MS`).
"""

from __future__ import annotations

import contextlib
import itertools
import select
import signal
from collections.abc import Collection, Iterable

from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.effects import JobExit
from headrace_agent.runner.files.job_log import LogUnwritable, StreamWriter, job_name, log_name
from headrace_agent.runner.files.log_retention import Retention
from headrace_agent.runner.files.scratch import ScratchFolders
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.linux_processes import Reaped
from headrace_agent.runner.host.poll import Poll
from headrace_agent.runner.jobs.beside import CommandsBesideJobs
from headrace_agent.runner.jobs.isolation import Isolation
from headrace_agent.runner.jobs.launch import Launched, Launcher, NotStarted
from headrace_agent.runner.jobs.starts import Starts
from headrace_agent.runner.protocol import Run
from headrace_agent.runner.settings import Settings

_READ_BYTES = 64 * 1024
#: Upper bound in milliseconds of the time from the end of a job's main process to the report of the job's end. In this time the other
#: processes of the job get SIGKILL and should end.
REST_TIMEOUT_MS = 2_000
_FIRST_LOOK_MS = 1
_SLOWEST_LOOK_MS = 50
_MOST_SWEEPS = 20
#: Largest number of orphans without a marker whose environment is read again in one sweep. A job may have thousands of such orphans, each
#: with a long environment.
_MOST_LOOKED_AT_AGAIN = 50


class _Process:
    """A job whose main process lives, or whose main process has ended and whose end is not reported yet."""

    def __init__(self, run: Run, launched: Launched) -> None:
        self.run = run
        self.pid = launched.pid
        self.pidfd = launched.pidfd
        self.scratch = launched.scratch
        self.name = job_name(run.job)
        self.streams: dict[int, StreamWriter] = {}
        self.failure = launched.failure
        self.reaped: Reaped | None = None
        self.give_up_ns = 0
        self.look_ns = 0
        self.main_ended_ns = 0
        self.pause_ms = _FIRST_LOOK_MS
        #: False once the process group has no process any more. Its number may then be used again, so it gets no further signal.
        self.has_group = True


class ProcessTable:
    """The processes of all jobs. If `poll` reports output of a job, the caller must call `on_output`.

    If `poll` reports the end of a main process, the caller must call `on_main_ended`.
    """

    def __init__(
        self,
        host: Host,
        settings: Settings,
        poll: Poll,
        launcher: Launcher,
        isolation: Isolation,
        scratch: ScratchFolders,
        retention: Retention,
    ) -> None:
        self._host = host
        self._settings = settings
        self._poll = poll
        self._starts = Starts(host, poll, launcher, settings.start_timeout_ms)
        self._isolation = isolation
        self._scratch = scratch
        self.retention = retention
        self._jobs: dict[JobKey, _Process] = {}
        #: Jobs whose main process lives, by the pid of that process.
        self._pids: dict[int, _Process] = {}
        self._names: set[str] = set()
        self._pipes: dict[int, _Process] = {}
        self._pidfds: dict[int, _Process] = {}
        #: Jobs whose main process has ended, but whose other processes may still be dying.
        self._closing: list[_Process] = []
        #: Jobs whose isolation (cgroup) could not be removed yet.
        self._to_remove: list[JobKey] = []
        #: Markers of living orphans, by pid; empty: no marker was found. The orphans that were looked at last come last. A pid is not used
        #: again before the runner has reaped the process.
        self._orphans: dict[int, str] = {}
        #: True if orphans that belong to no job were killed and must still be reaped.
        self._strays = False
        self.beside = CommandsBesideJobs(host, self._starts)
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)

    @property
    def known_pids(self) -> Collection[int]:
        """Pids of the main processes of jobs and of the commands beside jobs, without processes that do not run their program yet."""
        return {*self._pids, *self.beside.running} if self.beside.running else self._pids

    def __len__(self) -> int:
        return len(self._jobs) + len(self._starts)

    def begin(self, run: Run) -> Launched | None:
        """Begin to start the job.

        Return the job's process if it runs its program by now; else `on_start` returns the process later. Raises `NotStarted`.
        """
        launched = self._starts.begin(run)
        self.retention.job_started(run.log_folder, self._host.processes.now().wall_ms / 1000, run.user)
        if launched is not None:
            self._add(run, launched)
        return launched

    def owns_start(self, fd: int) -> bool:
        return self._starts.owns(fd)

    def on_start(self, fd: int) -> tuple[Run, Launched | NotStarted] | None:
        """Return the job of a start that is over, with the outcome. Return None if the start was given up before."""
        found = self._starts.on_event(fd)
        if found is None:
            return None
        run, outcome = found
        if isinstance(outcome, NotStarted):
            self._did_not_start(run)
        else:
            self._add(run, outcome)
        return found

    def late_starts(self, now: Moment) -> list[tuple[Run, NotStarted]]:
        """Give up the starts that took too long. Return their jobs, each with the error."""
        found = self._starts.late(now, self.known_pids)
        for run, _ in found:
            self._did_not_start(run)
        return found

    def end_starts(self) -> None:
        """Kill the processes that do not run their program yet, because the runner ends."""
        self._starts.kill_all(self.known_pids)

    def _did_not_start(self, run: Run) -> None:
        self.retention.job_ended(run.log_folder, self._host.processes.now().wall_ms / 1000)

    def _add(self, run: Run, launched: Launched) -> None:
        process = _Process(run, launched)
        folder = f"{self._settings.logs}/{run.log_folder}"
        cap = run.log_cap_bytes or self._settings.log_cap_bytes
        pipes = ((launched.stdout_fd, "stdout"), (launched.stderr_fd, "stderr"))
        # If the job has a terminal, its session reads the output, not this table.
        for fd, stream in () if run.terminal else pipes:
            path = f"{folder}/{log_name(run.job, 'stderr' if stream == 'stderr' else 'stdout')}"
            process.streams[fd] = StreamWriter(self._host.files, path, cap, with_tail=stream == "stderr")
            self._pipes[fd] = process
            self._poll.register(fd, select.EPOLLIN)
        self._jobs[run.job] = process
        self._pids[process.pid] = process
        self._names.add(process.name)
        self._pidfds[process.pidfd] = process
        self._poll.register(process.pidfd, select.EPOLLIN)

    def signal(self, job: JobKey, number: int) -> None:
        """Send a signal to the process group of a job.

        A process that was paused (SIGSTOP) is continued, so that it can react. A process that is still starting gets no signal but SIGKILL.
        """
        if number == signal.SIGKILL:
            self._starts.kill(job, self.known_pids)
        process = self._jobs.get(job)
        if process is None or process.reaped is not None:
            return
        self._host.processes.signal_group(process.pid, number)
        if number == signal.SIGKILL:
            self._isolation.kill(job)
        else:
            self._host.processes.signal_group(process.pid, signal.SIGCONT)

    def owns_pipe(self, fd: int) -> bool:
        return fd in self._pipes

    def owns_pidfd(self, fd: int) -> bool:
        return fd in self._pidfds

    def on_output(self, fd: int) -> tuple[JobKey, str] | None:
        """Read once from a pipe, and write to the log. If the log of the job turns out to be unwritable, return the job and the reason,
        else None.
        """
        process = self._pipes[fd]
        before = process.failure
        try:
            count = self._host.files.read(fd, self._buffer)
        except BlockingIOError:
            return None
        if count == 0:
            self._close_pipe(process, fd)
            return None
        self._store(process, fd, count)
        return (process.run.job, process.failure) if process.failure and not before else None

    def ended_unseen(self, jobs: Iterable[JobKey]) -> list[int]:
        """Return the pidfds of those jobs whose main process has ended without `on_main_ended` having been called yet.

        Called before the runner sends a signal, so that a job which ended before the signal does not count as ended by the signal.
        """
        found = [self._jobs[job] for job in jobs if job in self._jobs]
        return [
            process.pidfd for process in found if process.reaped is None and self._host.processes.exited(process.pid)
        ]

    def jobs(self) -> list[JobKey]:
        return list(self._jobs)

    def running(self, operation: str, index: int) -> tuple[Run, str] | None:
        """Return the run of the newest attempt of a job whose main process lives, and the scratch folder of this run (empty: it has none).
        Return None if no main process of the job lives.
        """
        found = [
            process
            for process in self._pids.values()
            if (process.run.job.operation, process.run.job.index) == (operation, index)
        ]
        newest = max(found, key=lambda process: process.run.job.attempt, default=None)
        return None if newest is None else (newest.run, newest.scratch)

    def on_main_ended(self, pidfd: int, now: Moment) -> None:
        """Handle the end of a main process: write the output that is left to the log, and kill the other processes of the job."""
        process = self._pidfds[pidfd]
        for fd in list(process.streams):
            if self._pipes.get(fd) is process:
                self._drain(process, fd)
        self._host.processes.signal_group(process.pid, signal.SIGKILL)
        self._isolation.kill(process.run.job)
        process.reaped = self._host.processes.reap(process.pid)
        # The process cannot be reaped while some of its threads are still ending. The poll reports the event again when they have ended.
        if process.reaped is None:
            return
        del self._pidfds[pidfd], self._pids[process.pid]
        self._names.discard(process.name)
        self._poll.unregister(pidfd)
        self._host.files.close(pidfd)
        process.main_ended_ns = now.steady_ns
        process.give_up_ns = now.steady_ns + REST_TIMEOUT_MS * NS_PER_MS
        process.look_ns = now.steady_ns
        self._closing.append(process)

    def next_look_ns(self) -> int | None:
        due = (*(process.look_ns for process in self._closing), self._starts.next_late_ns())
        return min((due_ns for due_ns in due if due_ns is not None), default=None)

    def collect_ended(self, now: Moment) -> list[tuple[JobKey, JobExit]]:
        """Return the jobs whose end can be reported, each with its exit.

        An end can be reported when no process of the job is left, or when `REST_TIMEOUT_MS` have passed since the main process ended.
        """
        due = [process for process in self._closing if process.look_ns <= now.steady_ns]
        if not due:
            return []
        with_orphans = self._sweep()
        over = []
        for process in due:
            process.has_group = process.has_group and self._host.processes.signal_group(process.pid, signal.SIGKILL)
            alive = process.has_group or process.name in with_orphans
            alive |= self.beside.end_with(process.run.job, {*self._pids})
            if alive and now.steady_ns < process.give_up_ns:
                process.look_ns = now.steady_ns + process.pause_ms * NS_PER_MS
                process.pause_ms = min(process.pause_ms * 2, _SLOWEST_LOOK_MS)
            else:
                over.append((process.run.job, self._conclude(process, now, is_left=not alive)))
        self._closing = [process for process in self._closing if process.run.job in self._jobs]
        return over

    def _sweep(self) -> set[str]:
        """Reap dead orphans, and kill living orphans whose job's main process has ended.

        Return the names of those jobs in `_closing` that still have orphans.
        """
        found: set[str] = set()
        self._strays = False
        # A child that died during the sweep may have left children, which became children of the runner after the list was made. So the
        # list is made again until nothing new died. Children that were seen before are skipped: otherwise a sweep would take long while
        # processes of a job die all the time.
        seen: set[int] = set()
        for _ in range(_MOST_SWEEPS):
            if not self._sweep_once(found, seen):
                break
        return found

    def _sweep_once(self, found: set[str], seen: set[int]) -> bool:
        """Look at all children that are not in `seen`, and add them to `seen`. Add the names of closing jobs that have orphans to `found`.

        Return True if one of these children has died, so that there may be new children.
        """
        closing = {process.name: process for process in self._closing}
        sessions = {process.pid: process for process in self._closing}
        died = False
        starting, names = self._starts.pids(), self._names | self._starts.names()
        starting |= {each.pid for each in self.beside.starting}
        hidden = (pid for pid, marker in self._orphans.items() if not marker)
        again = set(itertools.islice(hidden, _MOST_LOOKED_AT_AGAIN))
        for pid in self._host.processes.children():
            if pid in seen:
                continue
            seen.add(pid)
            if pid in self._pids or pid in starting or pid in self.beside.running:
                continue
            session = self._host.processes.session(pid) if self._host.processes.reap(pid) is None else None
            if session is None:
                self._orphans.pop(pid, None)
                died = True
                continue
            if session in self._pids:
                continue
            name = self._marker(pid, again) if session not in sessions else ""
            if name is None:
                # It is not known yet to which job the process belongs, so for now each closing job counts as having an orphan.
                found.update(closing)
                continue
            owner = sessions.get(session) or closing.get(name)
            if owner is not None:
                found.add(owner.name)
            elif not name and self._host.processes.session(pid) is None:
                died = True
            elif (self._pids or len(self._starts)) and (not name or name in names):
                # The process belongs to a job that runs or starts, or it has no marker and may belong to such a job. A process without a
                # marker is killed when no job runs any more.
                continue
            else:
                self._strays = True
            self._host.processes.signal(pid, signal.SIGKILL)
        return died

    def _marker(self, pid: int, again: Collection[int]) -> str | None:
        """Return the marker of an orphan; empty if it has none, None if that is not known yet. The marker is read if the process is
        new. If no marker was found before, it is read again if the process is in `again`.
        """
        known = self._orphans.get(pid)
        if known or (known is not None and pid not in again):
            return known
        found = self._host.processes.marker(pid)
        self._orphans.pop(pid, None)
        if found is not None:
            self._orphans[pid] = found
        return found

    def remove_later(self, job: JobKey) -> None:
        """Let `tidy` remove the cgroup of a job that an earlier runner left."""
        self._to_remove.append(job)

    @property
    def untidy(self) -> bool:
        """True if `tidy` has something to do even if nothing runs."""
        return bool(self._to_remove) or self._strays or self._starts.has_dying

    def tidy(self) -> None:
        """Do the work that was not possible when a job ended: kill and reap orphans, and remove cgroups. Called once a second."""
        self._sweep()
        self._starts.tidy(self.known_pids)
        self._to_remove = [job for job in self._to_remove if not self._isolation.remove(job)]

    def _store(self, process: _Process, fd: int, count: int) -> None:
        if process.failure:
            return
        try:
            grown = process.streams[fd].write(self._view[:count])
            self.retention.grew(process.run.log_folder, grown)
        except LogUnwritable as error:
            process.failure = str(error)

    def _drain(self, process: _Process, fd: int) -> None:
        """Write the bytes that the pipe holds now to the log, and close the pipe. What a remaining child process writes later is lost."""
        rest = self._host.processes.waiting(fd)
        while rest > 0:
            try:
                count = self._host.files.read(fd, self._buffer)
            except BlockingIOError:
                break
            if count == 0:
                break
            self._store(process, fd, count)
            rest -= count
        self._close_pipe(process, fd)

    def _close_pipe(self, process: _Process, fd: int) -> None:
        del self._pipes[fd]
        self._poll.unregister(fd)
        self._host.files.close(fd)
        process.streams[fd].close()

    def _conclude(self, process: _Process, now: Moment, *, is_left: bool) -> JobExit:
        job = process.run.job
        del self._jobs[job]
        self.retention.job_ended(process.run.log_folder, now.wall_ms / 1000)
        usage = self._isolation.usage(process.run)
        if not self._isolation.remove(job):
            self._to_remove.append(job)
        if process.scratch:
            # If the folder stays, the next runner finds and removes it.
            with contextlib.suppress(OSError):
                self._scratch.give_back(process.scratch, is_left=is_left)
        reaped = process.reaped
        assert reaped is not None
        out_of_memory = usage.out_of_memory if reaped.exit_code != 0 else ""
        tails = [stream.tail() for stream in process.streams.values()]
        return JobExit(
            main_ended_ns=process.main_ended_ns,
            exit_code=reaped.exit_code,
            signal=reaped.signal,
            failure=process.failure or out_of_memory,
            stderr_tail=tails[1] if tails else "",
            cpu_ms=max(reaped.cpu_ms, usage.cpu_ms),
            # Without a cgroup, only the memory of the largest single process is known (from `wait4`). The number includes memory that this
            # process shared with the runner before its program ran.
            max_rss_bytes=usage.max_rss_bytes or reaped.max_rss_bytes,
            from_cgroup=usage.max_rss_bytes > 0,
            out_of_memory=bool(out_of_memory),
        )
