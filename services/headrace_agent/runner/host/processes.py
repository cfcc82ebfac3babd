"""Processes and clocks of the real host."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from headrace.own_process import adopt_orphans
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace_agent.runner.host.accounts import Account, acting_as

#: Every process of a job carries both: `HEADRACE_JOB=<operation>.<index>.<attempt>`, and the state folder of its runner. People name
#: operations, so two clusters on one host may have jobs of one name.
MARKER = "HEADRACE_JOB"
RUNNER_MARKER = "HEADRACE_RUNNER"

_FIONREAD = 0x541B
_PROC_BYTES = 4096
#: States of /proc/<pid>/stat: a zombie, and two names of one that is going this moment.
_DEAD = (b"Z", b"X", b"x")
#: Field 26 of it, counted from the state: of a program that can be looked into it is 0 only within exec, which sets it last.
_CODE_ADDRESS = 23


_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

#: Soft and hard limits by number.
Limits = Mapping[int, tuple[int, int]]


class Spawn(NamedTuple):
    """A process to start."""

    argv: list[str]
    environment: dict[str, str]
    working_directory: str
    stdout_fd: int
    stderr_fd: int
    #: None: the runner's own.
    account: Account | None = None
    #: Limits, soft and hard, that a process with an account gives itself before it becomes its program. To set them from outside
    #: takes a right (CAP_SYS_RESOURCE) that root does not have in a container.
    limits: Limits = MappingProxyType({})


class Reaped(NamedTuple):
    """A child that ended and was collected. Times and memory include its own children as far as it waited for them."""

    exit_code: int | None
    signal: int | None
    cpu_ms: int
    max_rss_bytes: int


def _limit_oneself(limits: Limits) -> None:
    for which, bounds in limits.items():
        resource.setrlimit(which, bounds)


def _program(order: Spawn) -> str | None:
    """The path of the program, or None where the system is to find it. Each folder that it tries in vain costs as much as ten looks."""
    name = order.argv[0]
    if "/" in name:
        return name
    for folder in order.environment.get("PATH", "").split(":"):
        path = f"{folder}/{name}"
        if not folder.startswith("/"):
            return None  # of the job's own folder
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


class LinuxProcesses:
    """Processes and clocks by system calls and /proc. `runner` is the state folder of the runner whose jobs `marker` knows."""

    def __init__(self, runner: str = "") -> None:
        self._runner = runner
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._own_folder = os.open(".", os.O_PATH | os.O_CLOEXEC)
        self._is_reaper = False
        self._children_fd = -1
        with contextlib.suppress(FileNotFoundError):  # a kernel built without it
            self._children_fd = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)

    def become_reaper(self) -> bool:
        """Makes orphans below us our children, whatever they did to get away. False where the kernel refuses."""
        self._is_reaper = adopt_orphans(True)
        return self._is_reaper

    def now(self) -> Moment:
        return Moment(time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.time_ns() // NS_PER_MS)

    def pause(self, length_ms: int) -> None:
        time.sleep(length_ms / 1000)

    def spawn(self, order: Spawn) -> int:
        """Starts a session of its own and returns its pid. Raises OSError, and ValueError for what no process can be given."""
        account = order.account
        if account is None:
            program = _program(order)
            return self._spawn(order) if program is None else self._spawn_found(order, program)
        for fd in (order.stdout_fd, order.stderr_fd):
            # It may open them by name, as /dev/stderr.
            os.fchown(fd, account.uid, account.gid)
        # The folder and the program are found with the rights of the account.
        with acting_as(account):
            return self._spawn(order, user=account.uid, group=account.gid)

    def _spawn_found(self, order: Spawn, program: str) -> int:
        """Costs the runner half of what `Popen` does. All descriptors of the runner close on exec, and it has one thread."""
        streams = (self._null, order.stdout_fd, order.stderr_fd)
        os.chdir(order.working_directory)
        try:
            return os.posix_spawn(
                program,
                order.argv,
                order.environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(streams)],
                setsid=True,
                setsigdef=_IGNORED_BY_PYTHON,
            )
        finally:
            os.fchdir(self._own_folder)

    def _spawn(self, order: Spawn, *, user: int | None = None, group: int | None = None) -> int:
        process = subprocess.Popen(
            order.argv,
            env=order.environment,
            cwd=order.working_directory,
            stdin=self._null,
            stdout=order.stdout_fd,
            stderr=order.stderr_fd,
            start_new_session=True,
            close_fds=True,
            user=user,
            group=group,
            # The runner has one thread.
            preexec_fn=partial(_limit_oneself, order.limits) if order.limits else None,
        )
        # We collect it ourselves, with its usage; Popen must not try to when the object goes.
        process.returncode = 0
        return process.pid

    def pipe(self) -> tuple[int, int]:
        """The end to read from, which never blocks, and the end to write to."""
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(ours, False)
        return ours, theirs

    def pidfd(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def waiting(self, fd: int) -> int:
        """Bytes that a pipe holds."""
        return int.from_bytes(fcntl.ioctl(fd, _FIONREAD, bytes(4)), "little")

    def signal(self, pid: int, number: int) -> bool:
        """Sends a signal. Returns False if there is no such process."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def signal_group(self, pgid: int, number: int) -> bool:
        """Sends a signal to a group. Returns False if it has no member, not even one that waits to be collected."""
        try:
            os.killpg(pgid, number)
        except ProcessLookupError:
            return False
        return True

    def signal_pidfd(self, pidfd: int, number: int) -> bool:
        """Signals as `signal` does, and never another process that got the same number."""
        try:
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def exited(self, pid: int) -> bool:
        """True if a child has ended. It is not collected."""
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self, pid: int) -> Reaped | None:
        """Collects a child. Returns None while it lives."""
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        return Reaped(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            cpu_ms=round((usage.ru_utime + usage.ru_stime) * 1000),
            max_rss_bytes=usage.ru_maxrss * 1024,
        )

    def limit(self, pid: int, which: int, soft: int, hard: int) -> None:
        resource.prlimit(pid, which, (soft, hard))

    def children(self) -> list[int]:
        """Children of the runner: main processes of jobs and what was orphaned below them. Empty if orphans do not come to us."""
        if not self._is_reaper:  # then children that we do not know are not ours to judge
            return []
        if self._children_fd < 0:
            me = os.getpid()
            return [pid for pid in self.pids() if _parent(pid) == me]
        # Asked for at every end, and kept open: to find it anew costs ten times the answer.
        return [int(pid) for pid in _all_of(self._children_fd).split()]

    def pids(self) -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]

    def session(self, pid: int) -> int | None:
        """The session of a process, or None if there is no such process or it is dead."""
        fields = _stat_fields(pid)
        return int(fields[3]) if fields is not None and fields[0] not in _DEAD else None

    def marker(self, pid: int) -> str | None:
        """Value of `MARKER` in the environment with which the process was started. None: it is becoming another program just now.

        It is empty if there is none, if it is not ours to read, or if the process belongs to another runner.
        """
        try:
            environment = _read_all(f"/proc/{pid}/environ")
            if not environment:
                # For a moment within exec it has none; one that was started without variables has none for good. Read between two
                # looks at what exec sets last, or an exec that ends between two reads would pass for the other.
                if not _has_its_program(pid):
                    return None
                environment = _read_all(f"/proc/{pid}/environ")
                if not environment and not _has_its_program(pid):
                    return None
        except OSError:
            return ""
        variables = environment.split(b"\0")
        # A job of an older version names no runner. One and the same folder may be spelled in two ways.
        runner = _value(variables, RUNNER_MARKER)
        if runner not in ("", self._runner) and os.path.realpath(runner) != os.path.realpath(self._runner):
            return ""
        return _value(variables, MARKER)


def _value(variables: list[bytes], name: str) -> str:
    start = name.encode() + b"="
    return next((each[len(start) :].decode(errors="replace") for each in variables if each.startswith(start)), "")


def _read_all(path: str) -> bytes:
    """A file of /proc. Half the cost of Python's own file objects."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _all_of(fd)
    finally:
        os.close(fd)


def _all_of(fd: int) -> bytes:
    """All of an open file of /proc, which does not know its size beforehand, as it is now."""
    data = b""
    while more := os.pread(fd, _PROC_BYTES, len(data)):
        data += more
    return data


def _stat_fields(pid: int) -> list[bytes] | None:
    """The fields after the name, which may hold blanks and brackets. Index 0 is the state (field 3)."""
    try:
        return _read_all(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _has_its_program(pid: int) -> bool:
    """False while it is becoming another program: the address of its code is not set yet. True of one that has gone meanwhile."""
    fields = _stat_fields(pid)
    return fields is None or fields[_CODE_ADDRESS] != b"0"


def _parent(pid: int) -> int:
    fields = _stat_fields(pid)
    return int(fields[1]) if fields is not None else 0
