"""Scratch folders of jobs. One that its job leaves as it got it goes to a later job: to remove and make it costs four times as much."""

from __future__ import annotations

import contextlib

from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.host.files import LinuxFiles

_MOST_SPARE = 64


class ScratchFolders:
    """The folders `scratch` and `spare` in the state folder. Raises OSError where they cannot be made."""

    def __init__(self, files: LinuxFiles, state: str, removal: Removal) -> None:
        self._files = files
        self._removal = removal
        self._spare_folder = f"{state}/spare"
        files.make_folder(f"{state}/scratch")
        files.make_folder(self._spare_folder)
        #: Empty folders that no job has.
        self._spare: list[str] = []
        self._serial = 0
        for entry in files.entries(self._spare_folder):
            with contextlib.suppress(OSError):  # the next runner tries again
                removal.take(f"{self._spare_folder}/{entry.name}")

    def make(self, path: str) -> None:
        """Makes the folder of a job, empty and for its owner only. Raises OSError."""
        if self._spare:
            with contextlib.suppress(OSError):  # there is something of that name, or making one will show why not
                self._files.rename(self._spare[-1], path)
                self._spare.pop()
                return
        self._files.make_folder(path)

    def give_back(self, path: str, *, is_left: bool) -> None:
        """Takes the folder of a job that is over. `is_left`: nothing of the job lives. Raises OSError if it cannot even be moved."""
        if is_left and len(self._spare) < _MOST_SPARE and self._files.is_fresh_folder(path):
            self._serial += 1
            spare = f"{self._spare_folder}/{self._serial}"
            self._files.rename(path, spare)
            self._spare.append(spare)
        else:
            self._removal.take(path)
