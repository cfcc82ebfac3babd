"""Removes folders a few files at a time, so that the removal of a million files does not block the runner.

Each folder is first renamed into a trash folder, which is quick and frees the folder's name at once. A folder inside another folder is
moved into the trash too, before its content is read. So every path here stays short, however deep a job nests folders. Other accounts
cannot enter the trash, so they can replace only the last part of a path here by a link, and the last part is never followed if it is a
link.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque

from headrace_agent.runner.host.files import LinuxFiles

#: Largest number of folders in the trash whose names are kept in memory. A job may leave millions of folders.
MOST_KNOWN = 1_000


class Removal:
    """The folder `trash`, and what is to be removed from it. What cannot be removed stays in it, and the next process tries again."""

    def __init__(self, files: LinuxFiles, trash: str) -> None:
        """Make the trash folder. What an earlier process left in it will be removed too. Raises OSError."""
        self._files = files
        self._trash = trash
        files.make_folder(trash)
        #: Known folders in the trash that are to be removed. None is inside another. The trash may hold further folders.
        self._folders = deque[str]()
        #: Paths in the trash that could not be removed.
        self._stuck = set[str]()
        #: True if the trash may have folders that are not in `_folders`.
        self._has_more = True
        #: Random beginning of the names that this process uses in the trash, so that they differ from the names that earlier processes
        #: used.
        self._life = os.urandom(8).hex()
        self._serial = 0
        self._look()

    @property
    def busy(self) -> bool:
        return bool(self._folders) or self._has_more

    def remove(self, path: str) -> None:
        """Remove a folder: at once if it is empty, otherwise by later calls of `step`. Raises OSError if the folder cannot even be
        moved to the trash.
        """
        try:
            self._files.remove_folder(path)
            return
        except OSError:
            # Most likely the folder is not empty. If there is another reason for the error, moving the folder fails too.
            pass
        self._move(path)

    def step(self, entries: int = 200) -> None:
        """Remove about `entries` files from the trash."""
        if not self._folders and self._has_more:
            self._has_more = False
            with contextlib.suppress(OSError):
                self._look()
        while self._folders and entries > 0:
            folder = self._folders[0]
            try:
                self._files.unlock(folder)
                found = self._files.entries(folder, entries)
            except OSError:
                self._folders.popleft()
                # The entry may be a file, so it is removed as a file. If that fails too, the entry is left for the next runner.
                if not self._unlink(folder):
                    self._stuck.add(folder)
                continue
            is_cleared = all([self._clear(f"{folder}/{entry.name}", is_folder=entry.is_folder) for entry in found])
            if not is_cleared or len(found) < entries:
                self._folders.popleft()
                try:
                    self._files.remove_folder(folder)
                except OSError:
                    self._stuck.add(folder)  # the next runner tries again
            entries -= len(found) + 1

    def _look(self) -> None:
        """Find folders in the trash that are to be removed, at most `MOST_KNOWN` of them."""
        most = MOST_KNOWN + len(self._stuck)
        left = [f"{self._trash}/{entry.name}" for entry in self._files.entries(self._trash, most)]
        self._folders.extend(path for path in left if path not in self._stuck)
        self._has_more = len(left) == most and len(self._stuck) < MOST_KNOWN

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
        # The path may be a file, which cannot be unlocked and need not be. Any other error of `unlock` matters only if renaming fails too.
        with contextlib.suppress(OSError):
            # A folder that its owner may not write in can be renamed only within its parent folder, so it is unlocked first.
            self._files.unlock(path)
        self._serial += 1
        target = f"{self._trash}/{self._life}.{self._serial}"
        self._files.rename(path, target)
        if len(self._folders) < MOST_KNOWN:
            self._folders.append(target)
        else:
            self._has_more = True

    def _unlink(self, path: str) -> bool:
        try:
            self._files.unlink(path)
        except OSError:
            return False
        return True
