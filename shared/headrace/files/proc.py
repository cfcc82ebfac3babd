"""Reading files of other processes under `/proc`, up to a bound.

The bound is needed because a process can, without any privilege, make the kernel show another range of its memory as its
environment or command line. That range may have gigabytes, and may be larger than the memory that the process uses.
"""

from __future__ import annotations

import os

_FIRST_BYTES = 4096
#: Largest number of bytes that are read of a process's environment. The runner's variables are found nevertheless, because the
#: runner puts them first.
LARGEST_ENVIRONMENT_BYTES = 256 * 1024
LARGEST_COMMAND_LINE_BYTES = 16 * 1024


def read_proc(path: str, most_bytes: int = LARGEST_ENVIRONMENT_BYTES, *, folder: int | None = None) -> bytes:
    """Return the first `most_bytes` of a file of `/proc`, in half the time that Python's own file objects take."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        data = os.pread(fd, _FIRST_BYTES, 0)
        return data if len(data) < _FIRST_BYTES else data + os.pread(fd, most_bytes - len(data), len(data))
    finally:
        os.close(fd)
