"""From a `Run` to a process with its pipes, limits and folders, or to words on why there is none."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from typing import Final

import msgspec

from headrace.runtime.engine import Moment
from headrace_agent.runner.files.job_log import LogUnwritable, job_name
from headrace_agent.runner.files.kept_jobs import JobRecord, KeptJobs, ProcessRecord
from headrace_agent.runner.files.log_folders import LogFolders
from headrace_agent.runner.files.log_retention import Retention
from headrace_agent.runner.files.scratch import ScratchFolders
from headrace_agent.runner.host.accounts import Account, NoAccount, account_named
from headrace_agent.runner.host.port import Host
from headrace_agent.runner.host.processes import MARKER, RUNNER_MARKER, Limits, Spawn
from headrace_agent.runner.job_ends import NOT_RUNNABLE
from headrace_agent.runner.jobs.isolation import Isolation
from headrace_agent.runner.protocol import Run
from headrace_agent.runner.settings import Settings

#: A shell returns it for a command that is not there.
_NOT_FOUND = 127
#: With less on the disk of the logs a job would start, and fail for want of room for its output.
_LEAST_ROOM_BYTES: Final = 2**20


class NotStarted(Exception):
    """The job has no process. `exit_code` is what a shell would have returned, or None where the host is at fault."""

    def __init__(self, reason: str, exit_code: int | None) -> None:
        self.exit_code = exit_code
        super().__init__(reason)


class Launched(msgspec.Struct, frozen=True):
    """A job that has a process. The descriptors are the reader's to close."""

    pid: int
    pidfd: int
    stdout_fd: int
    stderr_fd: int
    #: When it was started, as its file says too.
    at: Moment
    #: The scratch folder that was made for it; empty: none.
    scratch: str
    #: What the host could not do for the job right after the start; the process lives and must be ended. Empty: nothing.
    failure: str = ""


class Launcher:
    """Starts jobs. `open_files` is the (soft, hard) limit that they get: not the one that the runner raised for itself."""

    def __init__(
        self,
        host: Host,
        settings: Settings,
        kept: KeptJobs,
        isolation: Isolation,
        scratch: ScratchFolders,
        retention: Retention,
        open_files: tuple[int, int],
    ) -> None:
        self._host = host
        self._settings = settings
        self._kept = kept
        self._isolation = isolation
        self._scratch = scratch
        self._retention = retention
        self._log_folders = LogFolders(host.files, settings.logs)
        self._open_files = open_files
        self._raised = resource.getrlimit(resource.RLIMIT_NOFILE) != open_files
        #: Identity of this boot of the host.
        self.boot = host.files.read_file("/proc/sys/kernel/random/boot_id", 64).decode().strip()

    def launch(self, run: Run) -> Launched:
        """Starts a job. Raises `NotStarted`, and nothing of the job is left then."""
        _refuse_nonsense(run)
        account = _account_of(run)
        scratch = ""
        try:
            scratch = self._prepare(run, needs_scratch=not run.working_directory and account is None)
            return self._start(run, scratch, account)
        except NotStarted:
            self._isolation.remove(run.job)
            if scratch:
                with contextlib.suppress(OSError):
                    self._host.files.remove_folder(scratch)
            raise

    def make_spare(self) -> None:
        """Makes beforehand what the next job will need. A time when no job runs is a good one."""
        self._log_folders.make_spare()

    def _prepare(self, run: Run, *, needs_scratch: bool) -> str:
        """Makes all that the job needs on disk. Returns its scratch folder, or nothing if it needs none."""
        try:
            if not self._retention.holds(run.job.operation):
                self._log_folders.open(run.job.operation)
            self._host.files.check_room(self._settings.logs, _LEAST_ROOM_BYTES)
            self._kept.write_job(JobRecord(run.job, run.allocation, self.boot, run.start))
            self._isolation.prepare(run)
            return self._scratch.take() if needs_scratch else ""
        except LogUnwritable as error:
            raise NotStarted(f"not started: {error}", None) from None
        except OSError as error:
            raise NotStarted(f"not started: {error.filename} cannot be written: {error.strerror}", None) from None

    def _start(self, run: Run, scratch: str, account: Account | None) -> Launched:
        folder = scratch or run.working_directory or (account.home if account is not None else "")
        pipes: list[int] = []
        try:
            pipes += self._host.processes.pipe()
            pipes += self._host.processes.pipe()
            out, out_end, err, err_end = pipes
            own = account.environment() if account is not None else {}
            marks = {MARKER: job_name(run.job), RUNNER_MARKER: self._settings.state}
            environment = {**own, **run.environment, **marks}
            limits = self._limits(run)
            own_limits = limits if account is not None else {}
            order = Spawn(run.argv, environment, folder, out_end, err_end, account, own_limits)
            pid = self._host.processes.spawn(order)
            pidfd = self._watch(pid)
        except (OSError, ValueError) as error:
            for fd in pipes:
                self._host.files.close(fd)
            raise _not_started(run, folder, error) from None
        self._host.files.close(out_end)
        self._host.files.close(err_end)
        at = self._host.processes.now()
        failure = self._after_start(run, pid, at, {} if own_limits else limits)
        return Launched(pid, pidfd, out, err, at, scratch, failure)

    def _limits(self, run: Run) -> Limits:
        return {**self._isolation.limits(run), **({resource.RLIMIT_NOFILE: self._open_files} if self._raised else {})}

    def _watch(self, pid: int) -> int:
        try:
            return self._host.processes.pidfd(pid)
        except OSError:
            self._host.processes.signal_group(pid, signal.SIGKILL)
            while self._host.processes.reap(pid) is None:
                self._host.processes.pause(1)
            raise

    def _after_start(self, run: Run, pid: int, at: Moment, limits: Limits) -> str:
        failure = ""
        try:
            self._isolation.confine(run, pid)
            for which, bounds in limits.items():
                self._host.processes.limit(pid, which, *bounds)
        except ProcessLookupError:
            # It is over already, and its end is told like any other.
            pass
        except OSError as error:
            failure = f"its limits could not be set: {error.filename or 'prlimit'}: {error.strerror}"
        # Should it fail: the marker finds the process as well, and the end's file will say that the disk is full.
        with contextlib.suppress(OSError):
            self._kept.write_process(run.job, ProcessRecord(pid, at.wall_ms))
        return failure


def _refuse_nonsense(run: Run) -> None:
    if not run.argv or not run.argv[0]:
        raise NotStarted("not started: no command is given", _NOT_FOUND)
    if run.working_directory and not run.working_directory.startswith("/"):
        raise NotStarted(f"not started: the working directory {run.working_directory} is not absolute", NOT_RUNNABLE)


def _account_of(run: Run) -> Account | None:
    try:
        return account_named(run.account) if run.account else None
    except NoAccount as error:
        raise NotStarted(f"not started: {error}", NOT_RUNNABLE) from None


def _not_started(run: Run, folder: str, error: OSError | ValueError) -> NotStarted:
    command = run.argv[0][:500]
    if not isinstance(error, OSError):
        return NotStarted(f"not started: {command}: {error}", NOT_RUNNABLE)
    if error.filename == folder and not os.path.isdir(folder):
        return NotStarted(f"not started: the working directory {folder}: {error.strerror}", NOT_RUNNABLE)
    match error.errno:
        case errno.ENOENT if "/" in command and os.path.exists(os.path.join(folder, command)):
            return NotStarted(f"not started: {command} is there, but not the interpreter that it names", _NOT_FOUND)
        case errno.ENOENT | errno.ENOTDIR if "/" in command:
            return NotStarted(f"not started: {command}: no such file", _NOT_FOUND)
        case errno.ENOENT | errno.ENOTDIR:
            path = run.environment.get("PATH", os.defpath)
            return NotStarted(f"not started: {command}: no such command in PATH={path[:1000]}", _NOT_FOUND)
        case errno.EACCES if error.filename == folder:
            return NotStarted(f"not started: the working directory {folder}: {error.strerror}", NOT_RUNNABLE)
        case errno.EAGAIN | errno.ENOMEM:
            return NotStarted(f"not started: the host has no room for another process: {error.strerror}", None)
        case errno.EMFILE | errno.ENFILE:
            return NotStarted(f"not started: no file descriptor is left: {error.strerror}", None)
        case _:
            return NotStarted(f"not started: {command}: {error.strerror}", NOT_RUNNABLE)
