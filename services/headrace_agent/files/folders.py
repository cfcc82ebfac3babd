"""The folders with files of operations, on this host's disk.

Each appears whole, by a rename. They are those of one boot: after a crash of the host nobody knows what its disk had.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headrace.errors import BadInput
from headrace.ids import OperationId, operation_id
from headrace_agent.files.unpacking import unpack
from headrace_agent.runner.host.accounts import NoAccount, account_named

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
#: What is not whole, or on its way out. No operation is named so.
_UNFINISHED: Final = ".unfinished-"


class OperationFolders:
    """The folders of operations in `root`."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.folder = f"{root}/{_BOOT.read_text()[:8]}"

    def found(self) -> list[OperationId]:
        """Operations whose files are there."""
        found = []
        with suppress(OSError):
            for name in os.listdir(self.folder):
                with suppress(BadInput):
                    found.append(operation_id(name))
        return found

    def remove_left_over(self) -> None:
        """Removes what former lives left unfinished, and the folders of former boots, as far as they can be."""
        with suppress(OSError):
            for entry in os.scandir(self._root):
                if entry.path != self.folder:
                    _remove(entry.path)
            for name in os.listdir(self.folder):
                if name.startswith(_UNFINISHED):
                    _remove(f"{self.folder}/{name}")

    @contextmanager
    def archive(self, operation: OperationId) -> Iterator[str]:
        """The path of a file for the archive of an operation. It is gone afterwards. Raises OSError."""
        for folder in (self._root, self.folder):
            with suppress(FileExistsError):
                os.mkdir(folder)
                # Accounts of jobs pass through, each to its own.
                os.chmod(folder, 0o711)
        path = f"{self.folder}/{_UNFINISHED}{operation}.archive"
        try:
            yield path
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def unpack(self, operation: OperationId, archive: str, account: str) -> None:
        """Unpacks an archive, as the account's if one is named. Raises `UnusableArchive`, OSError."""
        new = f"{self.folder}/{_UNFINISHED}{operation}"
        _remove(new)
        os.mkdir(new, 0o700)
        try:
            unpack(archive, new)
            if account:
                # The runner says why it starts nothing as one that is not there.
                with suppress(NoAccount):
                    _give(new, account)
            os.rename(new, f"{self.folder}/{operation}")
        except BaseException:
            _remove(new)
            raise

    def remove(self, operation: OperationId) -> None:
        """Removes the files of an operation. What cannot be removed is tried again by the next life."""
        gone = f"{self.folder}/{_UNFINISHED}{operation}.gone"
        with suppress(OSError):
            os.rename(f"{self.folder}/{operation}", gone)
            _remove(gone)


def _give(folder: str, account: str) -> None:
    owner = account_named(account)
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(f"{above}/{name}", owner.uid, owner.gid, follow_symlinks=False)
    os.chown(folder, owner.uid, owner.gid)


def _remove(path: str) -> None:
    """Removes a file or folder as far as it can be, also where a job took its rights away."""
    if not os.path.isdir(path) or os.path.islink(path):
        with suppress(OSError):
            os.unlink(path)
        return
    with suppress(OSError):
        os.chmod(path, 0o700)
        for above, folders, _ in os.walk(path):
            for name in folders:
                inner = f"{above}/{name}"
                if not os.path.islink(inner):
                    os.chmod(inner, 0o700)
    shutil.rmtree(path, ignore_errors=True)
