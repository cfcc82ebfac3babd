"""Reading what the kernel shows of foreign processes.

Without any right a process can have the kernel show any range of its memory in place of its environment and of its command line: gigabytes,
and even more than it has.
"""

from __future__ import annotations

import os

_FIRST_BYTES = 4096
#: Upper bound of what is read of an environment. The runner puts its own variables first.
LARGEST_ENVIRONMENT_BYTES = 256 * 1024
LARGEST_COMMAND_LINE_BYTES = 16 * 1024


def read_proc(path: str, most_bytes: int = LARGEST_ENVIRONMENT_BYTES, *, folder: int | None = None) -> bytes:
    """Return the beginning of a file of /proc. This takes half the time of Python's own file objects."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        data = os.pread(fd, _FIRST_BYTES, 0)
        return data if len(data) < _FIRST_BYTES else data + os.pread(fd, most_bytes - len(data), len(data))
    finally:
        os.close(fd)
