"""The log of a job: two streams (stdout and stderr), each of which keeps its newest output and never exceeds its cap.

When the file of a stream has reached half of the cap, it is renamed to `….1`, replacing the older file of that name, and a new file
is begun. Offsets into a stream are logical: they count every byte that the job ever wrote. From the first rotation on, a third
file, `….at`, holds the inode of one of the two files and the offset of the first byte of that file. A reader can derive all offsets
from the third file at any time, even if the runner was killed during a rotation (`headrace_agent.job_logs.reader`).
"""

from __future__ import annotations

import contextlib
import os
from typing import Literal

from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.host.files import LinuxFiles, write_file

Stream = Literal["stdout", "stderr"]
#: Smallest cap of a stream in bytes. With a smaller cap the file would be rotated every few lines.
SMALLEST_CAP_BYTES = 64 * 1024
TAIL_BYTES = 2048
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class LogUnwritable(Exception):
    """The log of a job cannot be written. The text names the path and the error."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"the log {path} cannot be written: {error.strerror}")


def job_name(job: JobKey) -> str:
    """Return the job's name as one word. The job's processes carry it as their marker, and the names of the job's files contain it."""
    return f"{job.operation}.{job.index}.{job.attempt}"


def job_fields(job: JobKey, allocation: str = "") -> dict[str, object]:
    """Return the fields of a log line by which a job and its operation can be followed through the logs of all services."""
    fields: dict[str, object] = {"operation": job.operation, "index": job.index, "attempt": job.attempt}
    return fields | {"allocation": allocation} if allocation else fields


def log_name(job: JobKey, stream: Stream) -> str:
    """Return the name of the stream's file in the folder of its operation."""
    return f"{job.index}.{job.attempt}.{stream}"


class StreamWriter:
    """Writes one stream. The file is made when the first byte is written."""

    def __init__(self, files: LinuxFiles, path: str, cap_bytes: int, *, with_tail: bool) -> None:
        self.path = path
        self._files = files
        self._half_bytes = max(cap_bytes, SMALLEST_CAP_BYTES) // 2
        self._fd = -1
        self._size_bytes = 0
        self._start = 0
        self._older_bytes = 0
        self._tail = bytearray() if with_tail else None

    def write(self, data: memoryview) -> int:
        """Append all of the data, and return by how many bytes the log grew on disk.

        The number is negative if more older output was removed than was written. Raises `LogUnwritable`.
        """
        if self._tail is not None:
            self._tail += data[-TAIL_BYTES:]
            del self._tail[:-TAIL_BYTES]
        before = self._older_bytes + self._size_bytes
        path = self.path
        try:
            while data:
                if self._fd < 0:
                    self._begin()
                if self._size_bytes >= self._half_bytes:
                    self._rotate()
                written = self._files.write(self._fd, data[: self._half_bytes - self._size_bytes])
                self._size_bytes += written
                data = data[written:]
        except OSError as error:
            raise LogUnwritable(path, error) from None
        return self._older_bytes + self._size_bytes - before

    def tail(self) -> str:
        """Return the last `TAIL_BYTES` of the stream as text, with replacements for bytes that are not UTF-8."""
        return bytes(self._tail or b"").decode("utf-8", errors="replace")

    def close(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    def _begin(self) -> None:
        # Remove files that an earlier job with the same name left here. They are not output of this job.
        for leftover in (self.path, f"{self.path}.1", f"{self.path}.at"):
            self._unlink(leftover)
        try:
            self._fd = self._files.open(self.path, _NEW_FILE)
        # The folder was removed before the job wrote anything.
        except FileNotFoundError:
            self._files.make_folder(os.path.dirname(self.path))
            self._fd = self._files.open(self.path, _NEW_FILE)

    def _rotate(self) -> None:
        self._files.rename(self.path, f"{self.path}.1")
        fresh = self._files.open(self.path, _NEW_FILE | os.O_EXCL)
        self._files.close(self._fd)
        self._fd = fresh
        self._start += self._size_bytes
        self._older_bytes, self._size_bytes = self._size_bytes, 0
        place = f"{self.path}.at"
        write_file(self._files, f"{place}.new", b"%d %d\n" % (self._files.inode(fresh), self._start))
        self._files.rename(f"{place}.new", place)

    def _unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(path)
