"""Reads the logs of jobs by logical offsets, which rotations do not change: offset 0 is the first byte that the job ever wrote.

The reader never leaves the logs folder: names are made of checked ids only, and no symbolic link is followed. `runner.files.job_log`
describes what the runner writes. A log can be read at any point of a rotation, and also after a runner was killed in the middle of a
rotation.
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
from headrace_agent.runner.files.start_folder import folder_of_start

LARGEST_CHUNK_BYTES = 1024 * 1024
#: Largest number of tries of one read. A try fails if the log is rotated while its files are opened.
_ATTEMPTS = 100


class LogPiece(msgspec.Struct, frozen=True):
    """A piece of a stream. It begins at `next_offset - len(data)`, which is later than the requested offset if older output is gone."""

    data: bytes
    #: Offset at which to continue reading.
    next_offset: int
    #: Number of bytes that the job has written to the stream so far, including removed bytes.
    size: int
    #: False: the stream has no file, because the job has written nothing or its logs were removed.
    exists: bool = True


class _Part(NamedTuple):
    """One of the files of a stream (at most two), with the logical offset of its first byte."""

    fd: int
    start: int
    size: int


def read_log(
    folder: str, job: JobKey, stream: Stream, offset: int = 0, limit: int = 64 * 1024, *, started_at_ms: int = 0
) -> LogPiece:
    """Read at most `limit` bytes (and at most `LARGEST_CHUNK_BYTES`) from `offset`. A negative offset counts from the end.

    `started_at_ms` is the start of the operation, as in `folder_of_start`.
    For an offset past the end, the piece has no data, and `next_offset` is that offset. Raises `BadInput` for an illegal id or stream,
    OSError if the files cannot be read.
    """
    _check(job, stream)
    limit = max(0, min(limit, LARGEST_CHUNK_BYTES))
    logs = _open_folder(folder, folder_of_start(job.operation, started_at_ms))
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


def newest_attempt(folder: str, operation: str, index: int, *, started_at_ms: int = 0) -> int | None:
    """Return the highest attempt of a job that has a log here, or None. Raises `BadInput` for an illegal id."""
    _check(JobKey(operation_id(operation), index), "stdout")
    logs = _open_folder(folder, folder_of_start(operation, started_at_ms))
    if logs is None:
        return None
    try:
        names = (name.split(".") for name in os.listdir(logs))
        attempts = [int(name[1]) for name in names if len(name) == 3 and name[0] == str(index) and name[1].isdecimal()]
    finally:
        os.close(logs)
    return max(attempts, default=None)


def _open_folder(folder: str, name: str) -> int | None:
    try:
        return os.open(f"{folder}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
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
    """Return the files of the stream, the older file first, or None if they were rotated meanwhile.

    The opened descriptors are added to `fds`; the caller closes them.
    """
    older, newer = _open(logs, f"{name}.1", fds), _open(logs, name, fds)
    inode, start = _place(logs, name, fds)
    # If a rotation happened meanwhile, `.1` is another file by now. Its inode differs from that of the earlier `.1`, which is still open
    # here, so that its inode cannot have been reused.
    if _inode(_open(logs, f"{name}.1", fds)) != _inode(older):
        return None
    if newer is not None and inode == newer[1]:
        return [*_before(older, start), _Part(newer[0], start, newer[2])]
    # The runner is in the middle of a rotation, or was killed there. It has renamed the stream's file to `.1`, but the `.at` file still
    # holds the inode and the offset of the renamed file.
    older_start = start if older is not None and inode == older[1] else 0
    found = [_Part(older[0], older_start, older[2])] if older is not None else []
    if newer is not None:
        found.append(_Part(newer[0], older_start + (older[2] if older is not None else 0), newer[2]))
    return found


def _before(older: tuple[int, int, int] | None, end: int) -> list[_Part]:
    return [_Part(older[0], end - older[2], older[2])] if older is not None else []


def _open(logs: int, name: str, fds: list[int]) -> tuple[int, int, int] | None:
    """Open a file, and add its descriptor to `fds`. Return descriptor, inode and size, or None if the file does not exist."""
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
    """Return the content of the `.at` file: an inode, and the offset of the first byte of the file with that inode.

    Both numbers are 0 before the first rotation.
    """
    found = _open(logs, f"{name}.at", fds)
    if found is None:
        return 0, 0
    try:
        inode, start = os.pread(found[0], 64, 0).split()
        return int(inode), int(start)
    except ValueError:
        return 0, 0
