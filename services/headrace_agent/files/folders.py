"""The folders with files of operations, on this host's disk.

Each appears whole, by a rename. They are those of one boot: after a crash of the host nobody knows what its disk had.

The folders of operations belong to accounts of jobs, whose processes may change them at any moment. So an agent that is root does
nothing in them by a path: a folder becomes an account's when it is complete, and goes by way of the trash, which the account cannot enter.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headrace.errors import BadInput
from headrace.ids import OperationId, operation_id
from headrace_agent.files.unpacking import Owner, unpack
from headrace_agent.host.own_folder import make_own_folder
from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.host.accounts import NoAccount, account_named
from headrace_agent.runner.host.files import LinuxFiles

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
#: What is not whole. No operation is named so, nor so as the trash.
_UNFINISHED: Final = ".unfinished-"
_TRASH: Final = ".trash"
#: Accounts of jobs pass through, each to its own.
_PASSED_THROUGH: Final = 0o711


class OperationFolders:
    """The folders of operations in `root`. Each method may run in a thread of its own."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.folder = f"{root}/{_BOOT.read_text()[:8]}"
        self._lock = threading.Lock()
        self._removal: Removal | None = None

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
            names = os.listdir(self._root)
            self._make()
            for name in names:
                if name != _TRASH and f"{self._root}/{name}" != self.folder:
                    self._remove(f"{self._root}/{name}")
            for name in os.listdir(self.folder):
                if name.startswith(_UNFINISHED):
                    self._remove(f"{self.folder}/{name}")
            self._empty_trash()

    @contextmanager
    def archive(self, operation: OperationId) -> Iterator[str]:
        """The path of a file for the archive of an operation. It is gone afterwards. Raises OSError."""
        self._make()
        path = f"{self.folder}/{_UNFINISHED}{operation}.archive"
        try:
            yield path
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def unpack(self, operation: OperationId, archive: str, account: str) -> None:
        """Unpacks an archive, as the account's if one is named. Raises `UnusableArchive`, OSError."""
        new = f"{self.folder}/{_UNFINISHED}{operation}"
        self._remove(new)
        os.mkdir(new, 0o700)
        try:
            folder = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                owner = _owner(account)
                unpack(archive, folder, owner)
                if owner is not None:
                    # Last: from now on the account can enter.
                    os.fchown(folder, owner.uid, owner.gid)
            finally:
                os.close(folder)
            os.rename(new, f"{self.folder}/{operation}")
        except BaseException:
            self._remove(new)
            raise

    def remove(self, operation: OperationId) -> None:
        """Removes the files of an operation. What cannot be removed is tried again by the next life."""
        self._remove(f"{self.folder}/{operation}")

    def _make(self) -> None:
        """Makes the folders in which those of operations are. Raises OSError, also where they are another account's."""
        with self._lock:
            for folder in (self._root, self.folder):
                make_own_folder(folder, _PASSED_THROUGH)
            if self._removal is None:
                self._removal = Removal(LinuxFiles(), f"{self._root}/{_TRASH}")

    def _remove(self, path: str) -> None:
        with suppress(OSError):
            self._make()
            with self._lock:
                assert self._removal is not None
                self._removal.take(path)
            self._empty_trash()

    def _empty_trash(self) -> None:
        assert self._removal is not None
        while self._removal.busy:
            with self._lock:
                self._removal.step()


def _owner(account: str) -> Owner | None:
    """The account as an owner of files. The runner says why it starts nothing as an account that is not there."""
    try:
        found = account_named(account) if account else None
    except NoAccount:
        return None
    return Owner(found.uid, found.gid) if found is not None else None
