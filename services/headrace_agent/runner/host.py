"""The one port to the host: every file, process and clock that the runner touches is touched through a `Host`.

A simulator can take its place and fail any single call. All calls raise OSError as the system does; paths are absolute.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import subprocess
import time
from typing import NamedTuple, Protocol

from headrace_agent.runner.engine import NS_PER_MS, Moment

__all__ = ["MARKER", "Entry", "Files", "Host", "LinuxHost", "Processes", "Reaped", "Spawn", "write_file"]

#: Every process of a job carries it: `HEADRACE_JOB=<operation>.<index>.<attempt>`.
MARKER = "HEADRACE_JOB"
_FIONREAD = 0x541B
_PR_SET_CHILD_SUBREAPER = 36
_PROC_BYTES = 65536
#: States of /proc/<pid>/stat: a zombie, and two names of one that is going this moment.
_DEAD = (b"Z", b"X", b"x")


class Entry(NamedTuple):
    """One entry of a folder; a symbolic link is none of a folder and is not followed."""

    name: str
    is_folder: bool
    size_bytes: int
    changed_at: float


class Spawn(NamedTuple):
    """A process to start."""

    argv: list[str]
    environment: dict[str, str]
    working_directory: str
    stdout_fd: int
    stderr_fd: int


class Reaped(NamedTuple):
    """A child that ended and was collected. Times and memory include its own children as far as it waited for them."""

    exit_code: int | None
    signal: int | None
    cpu_ms: int
    max_rss_bytes: int


class Files(Protocol):
    """Files and folders. Nothing here follows a symbolic link in the last part of a path."""

    def make_folder(self, path: str) -> None:
        """Makes the folder, for its owner only; its parent must exist, an existing one is left as it is."""

    def open(self, path: str, flags: int) -> int: ...
    def read(self, fd: int, buffer: bytearray) -> int: ...
    def write(self, fd: int, data: bytes | memoryview) -> int: ...
    def close(self, fd: int) -> None: ...
    def inode(self, fd: int) -> int: ...
    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def remove_folder(self, path: str) -> None: ...
    def entries(self, path: str) -> list[Entry]: ...
    def read_file(self, path: str, limit: int) -> bytes: ...


class Processes(Protocol):
    """Processes and clocks."""

    def now(self) -> Moment: ...
    def pause(self, length_ms: int) -> None: ...

    def spawn(self, order: Spawn) -> int:
        """Starts a session of its own and returns its pid. Raises OSError, and ValueError for what no process can be given."""

    def pipe(self) -> tuple[int, int]:
        """The end to read from, which never blocks, and the end to write to."""

    def pidfd(self, pid: int) -> int: ...
    def waiting(self, fd: int) -> int:
        """Bytes that a pipe holds."""

    def signal(self, pid: int, number: int) -> bool:
        """False: there is no such process."""

    def signal_group(self, pgid: int, number: int) -> bool:
        """False: the group has no member, not even one that waits to be collected."""

    def signal_pidfd(self, pidfd: int, number: int) -> bool:
        """As `signal`, and never to another process that got the same number."""

    def exited(self, pid: int) -> bool:
        """Whether a child has ended; it is not collected."""

    def reap(self, pid: int) -> Reaped | None:
        """Collects a child; None while it lives."""

    def limit(self, pid: int, which: int, soft: int, hard: int) -> None: ...
    def children(self) -> list[int]:
        """Children of the runner: main processes of jobs and what was orphaned below them. Empty if orphans do not come to us."""

    def pids(self) -> list[int]: ...
    def stat(self, pid: int) -> tuple[int, int] | None:
        """Session and start time (clock ticks since boot); None: there is no such process, or it is dead and uncollected."""

    def marker(self, pid: int) -> str:
        """Value of `MARKER` in the environment with which the process was started; empty: none, or not ours to read."""


class Host(Files, Processes, Protocol):
    """All of it."""


def write_file(files: Files, path: str, data: bytes, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> None:
    """Writes all of `data`. Raises OSError with the path in it; what was written by then stays."""
    try:
        fd = files.open(path, flags)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[files.write(fd, rest) :]
        finally:
            files.close(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


class LinuxHost:
    """The real one."""

    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._children_file = f"/proc/self/task/{os.getpid()}/children"
        self._is_reaper = False

    def become_reaper(self) -> bool:
        """Makes orphans below us our children, whatever they did to get away. False where the kernel refuses."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._is_reaper = libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        return self._is_reaper

    def now(self) -> Moment:
        return Moment(time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.time_ns() // NS_PER_MS)

    def pause(self, length_ms: int) -> None:
        time.sleep(length_ms / 1000)

    def make_folder(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path) or os.path.islink(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW, 0o600)

    def read(self, fd: int, buffer: bytearray) -> int:
        return os.readv(fd, [buffer])

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def close(self, fd: int) -> None:
        os.close(fd)

    def inode(self, fd: int) -> int:
        return os.fstat(fd).st_ino

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def entries(self, path: str) -> list[Entry]:
        found = []
        with os.scandir(path) as listing:
            for entry in listing:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                found.append(Entry(entry.name, entry.is_dir(follow_symlinks=False), status.st_size, status.st_mtime))
        return found

    def read_file(self, path: str, limit: int) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            return os.read(fd, limit)
        finally:
            os.close(fd)

    def spawn(self, order: Spawn) -> int:
        process = subprocess.Popen(
            order.argv,
            env=order.environment,
            cwd=order.working_directory,
            stdin=self._null,
            stdout=order.stdout_fd,
            stderr=order.stderr_fd,
            start_new_session=True,
            close_fds=True,
        )
        # We collect it ourselves, with its usage; Popen must not try to when the object goes.
        process.returncode = 0
        return process.pid

    def pipe(self) -> tuple[int, int]:
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(ours, False)
        return ours, theirs

    def pidfd(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def waiting(self, fd: int) -> int:
        return int.from_bytes(fcntl.ioctl(fd, _FIONREAD, bytes(4)), "little")

    def signal(self, pid: int, number: int) -> bool:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def signal_group(self, pgid: int, number: int) -> bool:
        try:
            os.killpg(pgid, number)
        except ProcessLookupError:
            return False
        return True

    def signal_pidfd(self, pidfd: int, number: int) -> bool:
        try:
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def exited(self, pid: int) -> bool:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self, pid: int) -> Reaped | None:
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
        if not self._is_reaper:  # then children that we do not know are not ours to judge
            return []
        try:
            return [int(pid) for pid in _read_all(self._children_file).split()]
        except FileNotFoundError:  # a kernel built without it
            me = os.getpid()
            return [pid for pid in self.pids() if _parent(pid) == me]

    def pids(self) -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]

    def stat(self, pid: int) -> tuple[int, int] | None:
        fields = _stat_fields(pid)
        return (int(fields[3]), int(fields[19])) if fields is not None and fields[0] not in _DEAD else None

    def marker(self, pid: int) -> str:
        try:
            environment = _read_all(f"/proc/{pid}/environ")
        except OSError:
            return ""
        start = MARKER.encode() + b"="
        for variable in environment.split(b"\0"):
            if variable.startswith(start):
                return variable[len(start) :].decode(errors="replace")
        return ""


def _read_all(path: str) -> bytes:
    """A file of /proc, which does not know its size beforehand. Half the cost of Python's own file objects, and asked at every end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while more := os.read(fd, _PROC_BYTES):
            data += more
        return data
    finally:
        os.close(fd)


def _stat_fields(pid: int) -> list[bytes] | None:
    """The fields after the name, so that index 0 is the state (field 3): a name may hold blanks and brackets."""
    try:
        return _read_all(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _parent(pid: int) -> int:
    fields = _stat_fields(pid)
    return int(fields[1]) if fields is not None else 0
