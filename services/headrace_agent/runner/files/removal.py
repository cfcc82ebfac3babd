"""Removes folders a little at a time, so that a folder of a million files holds nobody up.

Each is first renamed into a trash folder, which costs nothing and frees its name at once.
"""

from __future__ import annotations

import contextlib

from headrace_agent.runner.host.files import LinuxFiles


class Removal:
    """The folder `trash`. Errors leave things where they are, to be tried again by the next runner."""

    def __init__(self, files: LinuxFiles, trash: str) -> None:
        """Makes the folder. What a former runner left in it is removed too. Raises OSError."""
        self._files = files
        self._trash = trash
        files.make_folder(trash)
        #: Folders to empty; one stays below those that are inside it until they are gone.
        self._folders = [f"{trash}/{entry.name}" for entry in files.entries(trash) if entry.is_folder]
        self._serial = 0

    @property
    def busy(self) -> bool:
        return bool(self._folders)

    def take(self, path: str) -> None:
        """The folder goes: at once if it is empty, otherwise by and by. Raises OSError if it cannot even be moved."""
        try:
            self._files.remove_folder(path)
            return
        except OSError:
            pass  # it is not empty, or there is another reason that moving it will show
        self._serial += 1
        target = f"{self._trash}/{self._serial}.{path.rpartition('/')[2]}"
        self._files.rename(path, target)
        self._folders.append(target)

    def step(self, entries: int = 200) -> None:
        """Removes about `entries` files."""
        while self._folders and entries > 0:
            folder = self._folders[-1]
            try:
                found = self._files.entries(folder)
            except OSError:
                self._folders.pop()  # the next runner tries again
                continue
            inner = [f"{folder}/{entry.name}" for entry in found if entry.is_folder]
            plain = [f"{folder}/{entry.name}" for entry in found if not entry.is_folder]
            kept = False
            for path in plain[:entries]:
                entries -= 1
                kept = not self._unlink(path) or kept
            if kept:
                self._folders.pop()
            elif inner:
                self._folders += inner
            elif len(plain) <= entries or not plain:
                self._remove(folder)
                entries -= 1

    def _unlink(self, path: str) -> bool:
        try:
            self._files.unlink(path)
        except OSError:
            return False  # the folder stays, and the next runner tries again
        return True

    def _remove(self, folder: str) -> None:
        self._folders.pop()
        with contextlib.suppress(OSError):  # the next runner tries again
            self._files.remove_folder(folder)
