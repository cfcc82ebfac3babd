"""Removes folders a little at a time, so that a folder of a million files blocks nothing.

Each folder is first renamed into a trash folder, which costs nothing and frees its name at once. A folder inside another folder
is moved into the trash too, before its content is read. So a job may nest folders as deep as it can, and every path here stays
short. Other accounts cannot enter the trash, so only the last part of a path can belong to another account, and the last part
is never followed if it is a link.
"""

from __future__ import annotations

import contextlib
from collections import deque

from headrace_agent.runner.host.files import LinuxFiles


class Removal:
    """The folder `trash`. After an error files stay where they are, and the next runner tries again."""

    def __init__(self, files: LinuxFiles, trash: str) -> None:
        """Make the trash folder. What an earlier runner left in it is removed too. Raises OSError."""
        self._files = files
        self._trash = trash
        files.make_folder(trash)
        left = [entry.name for entry in files.entries(trash)]
        #: Folders to empty. None is inside another.
        self._folders = deque(f"{trash}/{name}" for name in left)
        numbers = (name.partition(".")[0] for name in left)
        self._serial = max((int(number) for number in numbers if number.isdecimal()), default=0)

    @property
    def busy(self) -> bool:
        return bool(self._folders)

    def remove(self, path: str) -> None:
        """Remove a folder: at once if it is empty, otherwise step by step. Raises OSError if the folder cannot even be moved."""
        try:
            self._files.remove_folder(path)
            return
        except OSError:
            # The folder is not empty. If there is another reason for the error, moving the folder shows the reason.
            pass
        self._move(path)

    def step(self, entries: int = 200) -> None:
        """Remove about `entries` files."""
        while self._folders and entries > 0:
            folder = self._folders[0]
            try:
                self._files.unlock(folder)
                found = self._files.entries(folder, entries)
            except OSError:
                self._folders.popleft()
                # The entry may be a file, so it is removed as a file. If that fails too, the entry is left for the next runner.
                self._unlink(folder)
                continue
            is_cleared = all([self._clear(f"{folder}/{entry.name}", is_folder=entry.is_folder) for entry in found])
            if not is_cleared or len(found) < entries:
                self._folders.popleft()
                # If this fails, the next runner tries again.
                with contextlib.suppress(OSError):
                    self._files.remove_folder(folder)
            entries -= len(found) + 1

    def _clear(self, path: str, *, is_folder: bool) -> bool:
        """Remove one entry of a folder. Return False if the entry stays there."""
        if not is_folder:
            return self._unlink(path)
        try:
            self._move(path)
        except OSError:
            return False
        return True

    def _move(self, path: str) -> None:
        # The entry may be a file, which need not be unlocked. If unlocking failed for another reason, renaming shows whether it matters.
        with contextlib.suppress(OSError):
            # A folder that its owner may not write in can be renamed only within its parent folder, so it is unlocked first.
            self._files.unlock(path)
        self._serial += 1
        target = f"{self._trash}/{self._serial}"
        self._files.rename(path, target)
        self._folders.append(target)

    def _unlink(self, path: str) -> bool:
        try:
            self._files.unlink(path)
        except OSError:
            return False
        return True
