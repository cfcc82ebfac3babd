"""Reads the logs of jobs back, over rotation, by logical offsets: byte 0 is the first ever written.

It never leaves the logs folder: names are made of checked ids only, and no symbolic link is followed. `runner.files.job_log` tells
what the runner writes. A reader may come at any moment of a rotation, and after a runner that was killed in the middle of one.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

import msgspec

from headrace.errors import BadInput
from headrace.ids import operation_id
from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.files.job_log import Stream, log_name

LARGEST_CHUNK_BYTES = 1024 * 1024
#: Rotations that may come between our looks at the files before we give up.
_ATTEMPTS = 100


class LogPiece(msgspec.Struct, frozen=True):
    """A piece of a stream. `next_offset - len(data)` is where it begins: later than asked for if what was there is gone."""

    data: bytes
    #: Where to go on reading.
    next_offset: int
    #: All that the job has written so far.
    size: int
    #: False: the stream has no file, since the job has written nothing or its logs were removed.
    exists: bool = True


class _Part(NamedTuple):
    """One file of the stream."""

    fd: int
    start: int
    size: int


def read_log(folder: str, job: JobKey, stream: Stream, offset: int = 0, limit: int = 64 * 1024) -> LogPiece:
    """Reads at most `limit` bytes (and `LARGEST_CHUNK_BYTES`) from `offset`. A negative offset counts from the end.

    An offset past the end gives no data and is handed back. Raises `BadInput` for what is no id or no stream, OSError where files
    cannot be read.
    """
    _check(job, stream)
    limit = max(0, min(limit, LARGEST_CHUNK_BYTES))
    logs = _open_folder(folder, job.operation)
    if logs is None:
        return LogPiece(b"", max(0, offset), 0, exists=False)
    try:
        for _ in range(_ATTEMPTS):
            fds: list[int] = []
            try:
                parts = _parts(logs, log_name(job, stream), fds)
                if parts is not None:
                    return _read(parts, offset, limit)
            finally:
                for fd in fds:
                    os.close(fd)
    finally:
        os.close(logs)
    raise BlockingIOError(errno.EAGAIN, "the log is rotated faster than it can be read", f"{folder}/{job.operation}")


def newest_attempt(folder: str, operation: str, index: int) -> int | None:
    """The highest attempt at a job that has a log here, or None. Raises `BadInput` for what is no id."""
    _check(JobKey(operation_id(operation), index), "stdout")
    logs = _open_folder(folder, operation)
    if logs is None:
        return None
    try:
        names = (name.split(".") for name in os.listdir(logs))
        attempts = [int(name[1]) for name in names if len(name) == 3 and name[0] == str(index) and name[1].isdecimal()]
    finally:
        os.close(logs)
    return max(attempts, default=None)


def _open_folder(folder: str, operation: str) -> int | None:
    try:
        return os.open(f"{folder}/{operation}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None


def _check(job: JobKey, stream: str) -> None:
    operation_id(job.operation)
    if stream not in ("stdout", "stderr"):
        raise BadInput("stream", stream, "stdout or stderr")
    for name, number, least in (("index", job.index, 0), ("attempt", job.attempt, 1)):
        if type(number) is not int or number < least:
            raise BadInput(name, number, f"a whole number, {least} or more")


def _read(parts: list[_Part], offset: int, limit: int) -> LogPiece:
    if not parts:
        return LogPiece(b"", max(0, offset), 0, exists=False)
    size = parts[-1].start + parts[-1].size
    if offset < 0:
        offset = max(0, size + offset)
    offset = max(offset, parts[0].start)
    data = b""
    for part in parts:
        at = offset + len(data) - part.start
        if 0 <= at < part.size and len(data) < limit:
            data += os.pread(part.fd, min(limit - len(data), part.size - at), at)
    return LogPiece(data, offset + len(data), size)


def _parts(logs: int, name: str, fds: list[int]) -> list[_Part] | None:
    """The files of the stream in order, each with the offset of its beginning. None if they changed meanwhile.

    `fds` collects what is to be closed.
    """
    older, newer = _open(logs, f"{name}.1", fds), _open(logs, name, fds)
    inode, start = _place(logs, name, fds)
    # A rotation in between shows in the older file: it is another one than it was. Ours stays open, so its number is not given again.
    if _inode(_open(logs, f"{name}.1", fds)) != _inode(older):
        return None
    if newer is not None and inode == newer[1]:
        return [*_before(older, start), _Part(newer[0], start, newer[2])]
    # The runner stands (or was killed) between two steps of a rotation: the place still speaks of the file that is the older now.
    older_start = start if older is not None and inode == older[1] else 0
    found = [_Part(older[0], older_start, older[2])] if older is not None else []
    if newer is not None:
        found.append(_Part(newer[0], older_start + (older[2] if older is not None else 0), newer[2]))
    return found


def _before(older: tuple[int, int, int] | None, end: int) -> list[_Part]:
    return [_Part(older[0], end - older[2], older[2])] if older is not None else []


def _open(logs: int, name: str, fds: list[int]) -> tuple[int, int, int] | None:
    """Descriptor, inode and size."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=logs)
    except FileNotFoundError:
        return None
    fds.append(fd)
    status = os.fstat(fd)
    return fd, status.st_ino, status.st_size


def _inode(file: tuple[int, int, int] | None) -> int:
    return file[1] if file is not None else 0


def _place(logs: int, name: str, fds: list[int]) -> tuple[int, int]:
    """The inode of a file and the offset at which it begins, zeros before the first rotation."""
    found = _open(logs, f"{name}.at", fds)
    if found is None:
        return 0, 0
    try:
        inode, start = os.pread(found[0], 64, 0).split()
        return int(inode), int(start)
    except ValueError:
        return 0, 0
