"""Scratch folders of jobs. One that its job leaves as it got it goes to a later job: to remove and make it costs four times as much."""

from __future__ import annotations

from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.host.files import LinuxFiles

_MOST_SPARE = 64


class ScratchFolders:
    """The folder `scratch` in the state folder. Raises OSError where it cannot be made."""

    def __init__(self, files: LinuxFiles, state: str, removal: Removal) -> None:
        self._files = files
        self._removal = removal
        self._folder = f"{state}/scratch"
        files.make_folder(self._folder)
        #: Empty folders that no job has.
        self._spare: list[str] = []
        numbers = (int(entry.name) for entry in files.entries(self._folder) if entry.name.isdecimal())
        #: The newest folder's name. What a former runner left may still be there.
        self._serial = max(numbers, default=0)

    def take(self) -> str:
        """Returns a folder for a job, empty and for its owner only. Raises OSError."""
        if self._spare:
            return self._spare.pop()
        self._serial += 1
        path = f"{self._folder}/{self._serial}"
        self._files.make_folder(path)
        return path

    def give_back(self, path: str, *, is_left: bool) -> None:
        """Takes the folder of a job that is over. `is_left`: nothing of the job lives. Raises OSError if it cannot even be moved."""
        if is_left and len(self._spare) < _MOST_SPARE and self._files.is_fresh_folder(path):
            self._spare.append(path)
        else:
            self._removal.take(path)
