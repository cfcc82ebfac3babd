"""Scratch folders: the working folders of jobs that name no working folder and run as the runner's own account.

A folder that its job leaves empty and unchanged is used again for a later job: removing it and making a new one costs four
times as much.
"""

from __future__ import annotations

from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.host.files import LinuxFiles

_MOST_SPARE = 64


class ScratchFolders:
    """The scratch folders, in the folder `scratch` of the state folder. Raises OSError if `scratch` cannot be made."""

    def __init__(self, files: LinuxFiles, state: str, removal: Removal) -> None:
        self._files = files
        self._removal = removal
        self._folder = f"{state}/scratch"
        files.make_folder(self._folder)
        #: Empty folders that belong to no job.
        self._spare: list[str] = []
        numbers = (int(entry.name) for entry in files.entries(self._folder) if entry.name.isdecimal())
        #: Number of the newest folder, which is its name. Folders that an earlier runner left may still exist.
        self._serial = max(numbers, default=0)

    def take(self) -> str:
        """Return an empty folder for a job, which only its owner can enter. Raises OSError."""
        if self._spare:
            return self._spare.pop()
        self._serial += 1
        path = f"{self._folder}/{self._serial}"
        self._files.make_folder(path)
        return path

    def give_back(self, path: str, *, is_left: bool) -> None:
        """Take back the folder of a job that has ended.

        `is_left` is True if no process of the job lives, so that the folder may be used again. Raises OSError if the folder can neither be
        used again nor be moved to the trash.
        """
        if is_left and len(self._spare) < _MOST_SPARE and self._files.is_fresh_folder(path):
            self._spare.append(path)
        else:
            self._removal.remove(path)
