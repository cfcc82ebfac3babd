"""Starts the process of a job, with its pipes, limits and folders, from a `Run`. If that is impossible, says why."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from typing import Final, NamedTuple

import msgspec

from headrace.runtime.engine import NS_PER_MS, Moment
from headrace_agent.runner.files.exchange_folders import make_job_folder
from headrace_agent.runner.files.job_log import LogUnwritable, job_name
from headrace_agent.runner.files.kept_jobs import JobRecord, KeptJobs, ProcessRecord
from headrace_agent.runner.files.log_folders import LogFolders
from headrace_agent.runner.files.log_retention import Retention
from headrace_agent.runner.files.scratch import ScratchFolders
from headrace_agent.runner.host.accounts import Account, NoAccount, account_named
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.starting import CannotStart, ProcessLimits, Spawn, Starting
from headrace_agent.runner.job_ends import NOT_RUNNABLE
from headrace_agent.runner.jobs.isolation import Isolation
from headrace_agent.runner.protocol import MARKER, RUNNER_MARKER, Run
from headrace_agent.runner.settings import Settings

#: Exit code of a shell for a command that does not exist.
_NOT_FOUND = 127
#: Smallest number of free bytes on the disk of the logs. With less, a job would start, and then fail when it writes output.
_LEAST_ROOM_BYTES: Final = 2**20


class NotStarted(Exception):
    """The job could not be started. `exit_code` is the code that a shell would have returned; None: host fault."""

    def __init__(self, reason: str, exit_code: int | None) -> None:
        self.exit_code = exit_code
        super().__init__(reason)


class Ends(NamedTuple):
    """The descriptors that a new process gets: the process's ends of its pipes or of its terminal. The receiver of this object must
    close them after the start.
    """

    stdout_fd: int
    stderr_fd: int
    stdin_fd: int = -1
    #: Path of the terminal; empty: pipes.
    terminal: str = ""


class Begun(msgspec.Struct, frozen=True):
    """A job whose process is starting, and does not run its program yet."""

    run: Run
    order: Spawn
    starting: Starting
    #: This process's ends of the pipes. If the job has a terminal, `stdout_fd` is the terminal and `stderr_fd` is negative.
    stdout_fd: int
    stderr_fd: int
    #: The scratch folder that was made for the job; empty: none.
    scratch: str
    #: CLOCK_BOOTTIME in nanoseconds at which the start is given up.
    until_ns: int


class Launched(msgspec.Struct, frozen=True):
    """A job whose process runs its program. The receiver of this object must close the descriptors."""

    pid: int
    pidfd: int
    #: This process's ends of the pipes. If the job has a terminal, `stdout_fd` is the terminal and `stderr_fd` is negative.
    stdout_fd: int
    stderr_fd: int
    #: Time of the start. The job's file records the same time.
    at: Moment
    #: The scratch folder that was made for the job; empty: none.
    scratch: str
    #: Why the limits could not be set right after the start, so that the process must be ended; empty: the limits are set.
    failure: str = ""


class Launcher:
    """Starts jobs.

    `open_files` is the (soft, hard) limit of open files that jobs get. The runner may have raised the limit for itself, which does not
    apply to jobs.
    """

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

    def begin(self, run: Run) -> Begun:
        """Begin to start a job. Raises `NotStarted`; everything that was made for the job is then removed again."""
        _refuse_nonsense(run)
        account = account_of(run)
        scratch = ""
        try:
            scratch = self._prepare(run, account)
            return self._begin(run, scratch, account)
        except NotStarted:
            self._forget(run, scratch)
            raise

    def finish(self, begun: Begun) -> Launched:
        """Finish a start whose `starting.fd` is readable, which means that the process runs its program or cannot run it.

        Raises `NotStarted` as `begin` does.
        """
        run, order = begun.run, begun.order
        try:
            pid = self._host.processes.starter.result(begun.starting)
            if begun.starting.is_unwanted:
                raise CannotStart("process", errno.ECANCELED)
            pidfd = self._host.processes.pidfd(pid)
        except (CannotStart, OSError) as error:
            self.discard(begun)
            raise _not_started(run, order.working_directory, error) from None
        self._host.files.close(order.stdout_fd)
        self._host.files.close(order.stderr_fd)
        at = self._host.processes.now()
        failure = self._after_start(run, pid, at, {} if order.limits else self._limits(run))
        return Launched(pid, pidfd, begun.stdout_fd, begun.stderr_fd, at, begun.scratch, failure)

    def discard(self, begun: Begun) -> None:
        """Remove what was made for a job that does not start."""
        for fd in (begun.stdout_fd, begun.stderr_fd, begun.order.stdout_fd, begun.order.stderr_fd):
            if fd >= 0:
                self._host.files.close(fd)
        self._forget(begun.run, begun.scratch)

    def _forget(self, run: Run, scratch: str) -> None:
        self._isolation.remove(run.job)
        if scratch:
            with contextlib.suppress(OSError):
                self._host.files.remove_folder(scratch)

    def make_spare(self) -> None:
        """Make the spare log folder in advance, which saves time when the next operation starts. Best called while no job runs."""
        self._log_folders.make_spare()

    def _prepare(self, run: Run, account: Account | None) -> str:
        """Make everything that the job needs on disk. Return its scratch folder, or an empty string if it needs none."""
        try:
            if not self._retention.holds(run.log_folder):
                self._log_folders.open(run.log_folder)
            self._host.files.check_room(self._settings.logs, _LEAST_ROOM_BYTES)
            self._kept.write_job(JobRecord(run.job, run.allocation, self.boot, run.start))
            self._isolation.prepare(run)
            if run.exchange_folder and account is not None:
                make_job_folder(run.exchange_folder, account)
            return "" if run.working_directory or account is not None else self._scratch.take()
        except LogUnwritable as error:
            raise NotStarted(f"not started: {error}", None) from None
        except OSError as error:
            raise NotStarted(f"not started: {error.filename} cannot be written: {error.strerror}", None) from None

    def _begin(self, run: Run, scratch: str, account: Account | None) -> Begun:
        pipes: list[int] = []
        order: Spawn | None = None
        try:
            out, err, ends = self._output_ends(pipes, has_terminal=run.terminal)
            order = self._order(run, scratch, account, ends)
            starting = self._host.processes.starter.begin(order)
        except (OSError, ValueError) as error:
            for fd in pipes:
                self._host.files.close(fd)
            raise _not_started(run, order.working_directory if order is not None else scratch, error) from None
        until_ns = self._host.processes.now().steady_ns + self._settings.start_timeout_ms * NS_PER_MS
        return Begun(run, order, starting, out, err, scratch, until_ns)

    def begin_beside(self, run: Run, scratch: str, ends: Ends) -> Starting:
        """Begin to start a command beside a running job, in the cgroup of the job. Raises `NotStarted`.

        `run` is the run of the job, but with the command in place of the job's own command.
        """
        order = self._order(run, scratch, account_of(run), ends)
        try:
            return self._host.processes.starter.begin(order)
        except (OSError, ValueError) as error:
            raise _not_started(run, order.working_directory, error) from None

    def finish_beside(self, run: Run, starting: Starting) -> tuple[int, int]:
        """Finish the start of a command beside a job, when `starting.fd` is readable. Return the pid and the pidfd of the command's
        process.

        The process gets the limits of the job. If they cannot be set, the process is killed. Raises `NotStarted`.
        """
        try:
            pid = self._host.processes.starter.result(starting)
            if starting.is_unwanted:
                raise CannotStart("process", errno.ECANCELED)
            pidfd = self._host.processes.pidfd(pid)
        except (CannotStart, OSError) as error:
            raise _not_started(run, run.working_directory, error) from None
        failure = self._confine(run, pid, {} if run.account else self._limits(run))
        if failure:
            self._host.processes.signal(pid, signal.SIGKILL)
        return pid, pidfd

    def _output_ends(self, opened: list[int], *, has_terminal: bool) -> tuple[int, int, Ends]:
        """Make pipes or a terminal. Return this process's ends (stdout, stderr) and the ends for the job's process. All descriptors are
        added to `opened`. Raises OSError.
        """
        processes = self._host.processes
        if has_terminal:
            ours, theirs, path = self._host.terminals.open()
            opened += (ours, theirs)
            opened.append(self._host.terminals.copy(theirs))
            return ours, -1, Ends(opened[1], opened[2], terminal=path)
        opened += processes.pipe()
        opened += processes.pipe()
        return opened[0], opened[2], Ends(opened[1], opened[3])

    def _order(self, run: Run, scratch: str, account: Account | None, ends: Ends) -> Spawn:
        own_marks = {MARKER: job_name(run.job), RUNNER_MARKER: self._settings.state}
        prefixes = ("", *run.container.marker_prefixes) if run.container is not None else ("",)
        marks = {prefix + name: value for prefix in prefixes for name, value in own_marks.items()}
        return Spawn(
            argv=run.argv,
            # The markers come first in the environment. There the runner finds them even if the environment is longer than the part that it
            # reads.
            environment={**marks, **(account.environment() if account is not None else {}), **run.environment, **marks},
            working_directory=scratch or run.working_directory or (account.home if account is not None else ""),
            stdout_fd=ends.stdout_fd,
            stderr_fd=ends.stderr_fd,
            account=account,
            limits=self._limits(run) if account is not None else {},
            cgroup_file=self._isolation.entry(run) if account is not None else "",
            stdin_fd=ends.stdin_fd,
            terminal=ends.terminal,
        )

    def _limits(self, run: Run) -> ProcessLimits:
        return {**self._isolation.limits(run), **({resource.RLIMIT_NOFILE: self._open_files} if self._raised else {})}

    def _after_start(self, run: Run, pid: int, at: Moment, limits: ProcessLimits) -> str:
        failure = self._confine(run, pid, limits)
        # An error is ignored here: a process that is not recorded can still be found by its marker, and a full disk is reported when the
        # end of the job is written.
        with contextlib.suppress(OSError):
            self._kept.write_process(run.job, ProcessRecord(pid, at.wall_ms))
        return failure

    def _confine(self, run: Run, pid: int, limits: ProcessLimits) -> str:
        """Set the limits of a running process of a job. Return why that failed; empty if it did not fail."""
        try:
            self._isolation.confine(run, pid)
            for which, bounds in limits.items():
                self._host.processes.limit(pid, which, *bounds)
        except ProcessLookupError:
            # The process has ended already. Its end is reported like that of any other process.
            pass
        except OSError as error:
            return f"its limits could not be set: {error.filename or 'prlimit'}: {error.strerror}"
        return ""


def _refuse_nonsense(run: Run) -> None:
    if not run.argv or not run.argv[0]:
        raise NotStarted("not started: no command is given", _NOT_FOUND)
    if run.working_directory and not run.working_directory.startswith("/"):
        raise NotStarted(f"not started: the working directory {run.working_directory} is not absolute", NOT_RUNNABLE)


def account_of(run: Run) -> Account | None:
    """Return the account that a job runs as; None: the runner's own. Raises `NotStarted`."""
    try:
        return account_named(run.account, run.lowest_uid) if run.account else None
    except NoAccount as error:
        raise NotStarted(f"not started: {error}", NOT_RUNNABLE) from None


def too_slow(begun: Begun, timeout_ms: int) -> NotStarted:
    """Return the error for a job whose program did not begin to run in time."""
    command, folder = begun.run.argv[0][:500], begun.order.working_directory
    return NotStarted(
        f"not started: {command} did not begin to run within {timeout_ms / 1000:g} s in {folder}. "
        "Possible causes: a file system that does not answer, or a file lease on the program's file",
        NOT_RUNNABLE,
    )


def _not_started(run: Run, folder: str, error: OSError | ValueError | CannotStart) -> NotStarted:
    command = run.argv[0][:500]
    if isinstance(error, ValueError):
        return NotStarted(f"not started: {command}: {error}", NOT_RUNNABLE)
    number, part = (error.error, error.part) if isinstance(error, CannotStart) else (error.errno or 0, "process")
    why = os.strerror(number)
    if part == "limits":
        return NotStarted(f"not started: its limits could not be set: {why}", None)
    if part == "folder":
        return NotStarted(f"not started: the working directory {folder}: {why}", NOT_RUNNABLE)
    if part == "interpreter":
        return NotStarted(
            f"not started: {command} exists, but the interpreter that it names does not exist", _NOT_FOUND
        )
    match number:
        case errno.ENOENT | errno.ENOTDIR if "/" in command:
            return NotStarted(f"not started: {command}: no such file", _NOT_FOUND)
        case errno.ENOENT | errno.ENOTDIR:
            path = run.environment.get("PATH", os.defpath)
            return NotStarted(f"not started: {command}: no such command in PATH={path[:1000]}", _NOT_FOUND)
        case errno.EAGAIN | errno.ENOMEM:
            return NotStarted(f"not started: the host cannot start another process: {why}", None)
        case errno.EMFILE | errno.ENFILE:
            return NotStarted(f"not started: no file descriptor is left: {why}", None)
        case _:
            return NotStarted(f"not started: {command}: {why}", NOT_RUNNABLE)
