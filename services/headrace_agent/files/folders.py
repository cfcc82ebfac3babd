"""The folders on this host's disk that hold the files of operations.

A folder is filled under another name and renamed when it is complete. Folders are used for one boot only: after a crash of the host, their
content is uncertain.

The folder of an operation belongs to the account of its jobs, whose processes may change the folder at any time. So an agent that runs as
root never uses a path that leads through such a folder. The folder is given to the account when it is complete. To remove the folder, the
agent first moves it into the trash folder, which the account cannot enter.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headrace.errors import BadInput
from headrace_agent.files.operation_files import operation_of
from headrace_agent.files.unpacking import FilesOwner, unpack
from headrace_agent.host.own_folder import make_own_folder
from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.host.accounts import NoAccount, account_named
from headrace_agent.runner.host.files import LinuxFiles

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
#: Prefix of the names of incomplete files and folders. No operation id begins with this prefix or equals the name of the trash folder.
_UNFINISHED: Final = ".unfinished-"
_TRASH: Final = ".trash"
#: Permissions of the root folder and of the boot's folder in it: the account of a job can pass through both to its operation's folder.
_PASSED_THROUGH: Final = 0o711


class OperationFolders:
    """The folders of operations in the folder `root`. Each method may be called from any thread."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.folder = f"{root}/{_BOOT.read_text()[:8]}"
        self._lock = threading.Lock()
        self._removal: Removal | None = None

    def found(self) -> list[str]:
        """Return the names of the folders with files of operations."""
        found = []
        with suppress(OSError):
            for name in os.listdir(self.folder):
                with suppress(BadInput):
                    operation_of(name)
                    found.append(name)
        return found

    def remove_left_over(self) -> None:
        """Remove the incomplete folders of earlier agent processes, and the folders of earlier boots. What cannot be removed is left."""
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
    def archive(self, name: str) -> Iterator[str]:
        """Provide a path to which the archive for the folder `name` can be written. The archive is removed afterwards. Raises OSError."""
        self._make()
        path = f"{self.folder}/{_UNFINISHED}{name}.archive"
        try:
            yield path
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def unpack(self, name: str, archive: str, account: str) -> None:
        """Unpack an archive into the folder `name` for `account`; empty: for the agent's own account. Raises `UnusableArchive`, OSError."""
        new = f"{self.folder}/{_UNFINISHED}{name}"
        self._remove(new)
        os.mkdir(new, 0o700)
        try:
            folder = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                owner = _owner(account)
                unpack(archive, folder, owner)
                if owner is not None:
                    # Only now is the folder given to the account: from now on the account can enter and change it.
                    os.fchown(folder, owner.uid, owner.gid)
            finally:
                os.close(folder)
            os.rename(new, f"{self.folder}/{name}")
        except BaseException:
            self._remove(new)
            raise

    def remove(self, name: str) -> None:
        """Remove a folder with files. What cannot be removed is left for the next agent process."""
        self._remove(f"{self.folder}/{name}")

    def _make(self) -> None:
        """Make the root folder and the boot's folder in it. Raises OSError, also if one of them exists and belongs to another account."""
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
                self._removal.remove(path)
            self._empty_trash()

    def _empty_trash(self) -> None:
        assert self._removal is not None
        while self._removal.busy:
            with self._lock:
                self._removal.step()


def _owner(account: str) -> FilesOwner | None:
    """Return the uid and gid of an account. Return None for the agent's own account (empty), or if there is no such account.

    If the account is missing, the runner later reports why it does not start the job.
    """
    try:
        found = account_named(account) if account else None
    except NoAccount:
        return None
    return FilesOwner(found.uid, found.gid) if found is not None else None
