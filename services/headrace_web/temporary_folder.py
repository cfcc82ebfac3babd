"""A folder for the secrets of one process. If a process is killed, the next process removes the folder that it left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headrace.runtime.clock import SystemClock

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: A folder without a lock that is older than this many seconds is left over. Before, it may be a new folder that is not locked yet.
_LEFT_OVER_S: Final = 60.0


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Make a folder of this account alone for the block. Before, remove folders of killed processes with this prefix. Raises `OSError`."""
    _remove_left_over(Path(tempfile.gettempdir()), prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as made:
        descriptor = os.open(made, _OPEN)
        try:
            # The lock is released when the process ends, even if it is killed.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(made)
        finally:
            os.close(descriptor)


def _remove_left_over(folder: Path, prefix: str) -> None:
    for path in folder.glob(f"{prefix}*"):
        with suppress(OSError):
            descriptor = os.open(path, _OPEN)
            try:
                status = os.fstat(descriptor)
                is_own = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700
                if is_own and SystemClock().wall_ms() / 1000 - status.st_mtime > _LEFT_OVER_S:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
            finally:
                os.close(descriptor)
