"""The processes and clocks of the host, by system calls and /proc."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from headrace.files.proc import LARGEST_COMMAND_LINE_BYTES, read_proc
from headrace.own_process import adopt_orphans
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace_agent.runner.host.starting import Starter
from headrace_agent.runner.protocol import HELPER_PREFIX, MARKER, RUNNER_MARKER

#: Word in the command line of a runner, by which the command line is recognized.
_RUNNER_MODULE = b"headrace_agent.runner"
_FIONREAD = 0x541B
_PROC_BYTES = 4096
#: States in /proc/<pid>/stat that mean a dead process: a zombie, and two names for a process that is just being removed.
_DEAD = (b"Z", b"X", b"x")
#: Position of the start time among the fields of /proc/<pid>/stat, where the state has position 0. proc(5) calls it field 22.
_BEGUN = 19
#: Positions, among the same fields, of three addresses: where the process's code begins, where its environment begins, and where its
#: environment ends. proc(5) calls them fields 26, 50 and 51. The address of the code is 0 only during exec, which sets it last, and for a
#: process without memory.
_CODE_ADDRESS = 23
_ENVIRONMENT_BEGINS = 47
_ENVIRONMENT_ENDS = 48


class Reaped(NamedTuple):
    """A child that ended and was reaped. Times and memory include the usage of the processes that this child itself waited for."""

    exit_code: int | None
    signal: int | None
    cpu_ms: int
    max_rss_bytes: int


class LinuxProcesses:
    """The processes and clocks of the host.

    `runner` is the state folder of the runner whose jobs `marker` recognizes.
    """

    def __init__(self, runner: str = "") -> None:
        self._runner = runner
        self.starter = Starter(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        self._is_reaper = False
        self._children_fd = -1
        # Some kernels are built without this file. `children` then looks at all processes instead.
        with contextlib.suppress(FileNotFoundError):
            self._children_fd = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)

    def become_reaper(self) -> bool:
        """Make this process a subreaper: descendants of it that lose their parent become its children, even daemons. Return False if
        the kernel refuses.
        """
        self._is_reaper = adopt_orphans(True)
        return self._is_reaper

    def now(self) -> Moment:
        return Moment(time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.time_ns() // NS_PER_MS)

    def pause(self, length_ms: int) -> None:
        time.sleep(length_ms / 1000)

    def pipe(self) -> tuple[int, int]:
        """Return the two ends of a new pipe: the reading end, which never blocks, and the writing end."""
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(ours, False)
        return ours, theirs

    def pidfd(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def waiting(self, fd: int) -> int:
        """Return the number of bytes that a pipe holds."""
        return int.from_bytes(fcntl.ioctl(fd, _FIONREAD, bytes(4)), "little")

    def signal(self, pid: int, number: int) -> bool:
        """Send a signal. Return False if there is no such process.

        Return True also if this account may not signal the process, such as a process that a job started by `sudo`.
        """
        return _is_there(lambda: os.kill(pid, number))

    def signal_group(self, pgid: int, number: int) -> bool:
        """Send a signal to a process group. Return False if the group has no process, not even a dead process that was not reaped."""
        return _is_there(lambda: os.killpg(pgid, number))

    def signal_pidfd(self, pidfd: int, number: int) -> bool:
        """Send a signal as `signal` does, but never to another process that got the same pid."""
        return _is_there(lambda: signal.pidfd_send_signal(pidfd, number))

    def exited(self, pid: int) -> bool:
        """True if a child has ended. This does not reap the child."""
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self, pid: int) -> Reaped | None:
        """Reap a child. Return None while it lives."""
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
        """Return the pids of the runner's children: main processes of jobs and of commands beside jobs, and orphans that they left.

        Empty if the kernel refused to make the runner a subreaper.
        """
        # If the runner is no subreaper, orphans do not become its children, and a child may be no process of a job, so it must not be
        # killed.
        if not self._is_reaper:
            return []
        if self._children_fd < 0:
            me = os.getpid()
            return [pid for pid in self.pids() if _parent(pid) == me]
        # The file is read whenever a job ends. It stays open, because opening it takes ten times as long as reading it.
        return [int(pid) for pid in _all_of(self._children_fd).split()]

    def pids(self) -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]

    def session(self, pid: int) -> int | None:
        """Return the session of a process, or None if the process does not exist or is dead."""
        fields = _stat_fields(pid)
        return int(fields[3]) if fields is not None and fields[0] not in _DEAD else None

    def begun(self, pid: int) -> int | None:
        """Return the time at which a process began, in clock ticks since the boot. Return None if the process does not exist or is dead."""
        fields = _stat_fields(pid)
        return int(fields[_BEGUN]) if fields is not None and fields[0] not in _DEAD else None

    def is_copy(self, pid: int) -> bool:
        """True if another process has the command line of a runner of this state folder.

        This process holds the lock of the folder, so the other process is no runner. It is a copy of an earlier runner that was to become
        the process of a job, and does not run the job's program yet.
        """
        try:
            words = read_proc(f"/proc/{pid}/cmdline", LARGEST_COMMAND_LINE_BYTES).split(b"\0")
            state = words[words.index(b"--state") + 1]
        except (OSError, ValueError, IndexError):
            return False
        is_runner = _RUNNER_MODULE in words and pid != os.getpid()
        return is_runner and os.path.realpath(state) == os.fsencode(os.path.realpath(self._runner))

    def marker(self, pid: int) -> str | None:
        """Return the value of `MARKER` in the environment of a process. Return None while the process is starting another program or is
        ending.

        The value is empty if there is no marker, if the environment cannot be read, or if the process belongs to another
        runner.
        """
        try:
            environment = b"\0" + read_proc(f"/proc/{pid}/environ")
        except OSError:
            environment = b"\0"
        if environment == b"\0" and _is_changing(pid):
            return None
        # A job of an older version has no variable `RUNNER_MARKER`. The paths are resolved, because one folder may have two paths.
        runner = _value(environment, RUNNER_MARKER)
        if runner not in ("", self._runner) and os.path.realpath(runner) != os.path.realpath(self._runner):
            return ""
        return _value(environment, MARKER)


def _is_there(send: Callable[[], None]) -> bool:
    """Return False if the process that `send` signals does not exist."""
    try:
        send()
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _value(environment: bytes, name: str) -> str:
    for prefix in ("", HELPER_PREFIX):
        _, found, rest = environment.partition(f"\0{prefix}{name}=".encode())
        if found:
            return rest.partition(b"\0")[0].decode(errors="replace")
    return ""


def _all_of(fd: int) -> bytes:
    """Return the present content of an open file of /proc, whose size is not known in advance."""
    data = b""
    while more := os.pread(fd, _PROC_BYTES, len(data)):
        data += more
    return data


def _stat_fields(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/<pid>/stat behind the process's name, which may contain blanks and brackets.

    Index 0 is the state, which proc(5) calls field 3.
    """
    try:
        return read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _is_changing(pid: int) -> bool:
    """True while the process is in exec, and while it ends. Its environment cannot be read then.

    A process that is ending has no memory any more, and the runner's account has no permission to read its environment. Until the process
    has ended, its children do not become children of the runner. If the runner has no permission to read a process at all, the kernel shows
    0 for both ends of its environment, so such a process counts as not changing.
    """
    fields = _stat_fields(pid)
    if fields is None:
        return False
    return fields[_CODE_ADDRESS] == b"0" or fields[_ENVIRONMENT_BEGINS] != fields[_ENVIRONMENT_ENDS]


def _parent(pid: int) -> int:
    fields = _stat_fields(pid)
    return int(fields[1]) if fields is not None else 0
