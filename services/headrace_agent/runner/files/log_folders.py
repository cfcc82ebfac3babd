"""Folders for the logs of operations, and an empty spare folder, which is renamed for the next operation. Renaming it takes a third of the
time of making a new folder.
"""

from __future__ import annotations

import contextlib

from headrace_agent.runner.files.job_log import LogUnwritable
from headrace_agent.runner.host.files import LinuxFiles

#: Name of the spare folder; no operation has such a name.
SPARE = ".spare"


class LogFolders:
    """The folder `logs`, which may be missing or unusable."""

    def __init__(self, files: LinuxFiles, logs: str) -> None:
        self._files = files
        self._logs = logs
        self._spare = f"{logs}/{SPARE}"
        self._has_spare = False

    def make_spare(self) -> None:
        """Make the spare folder for the next operation if there is none. It may be called at any time."""
        if self._has_spare:
            return
        # An error is ignored here. It is reported when a job is to start and its folder cannot be made either.
        with contextlib.suppress(OSError):
            self._files.make_folder(self._spare)
            self._has_spare = self._files.is_fresh_folder(self._spare)

    def open(self, operation: str) -> None:
        """Make the folder for an operation's logs if there is none. Raises `LogUnwritable`."""
        path = f"{self._logs}/{operation}"
        try:
            if self._take_spare(path):
                return
            try:
                self._files.make_folder(path)
            # The logs folder could not be made when the runner started, or was removed since.
            except FileNotFoundError:
                self._files.make_folder(self._logs)
                self._files.make_folder(path)
        except OSError as error:
            raise LogUnwritable(path, error) from None

    def _take_spare(self, path: str) -> bool:
        if not self._has_spare:
            return False
        self._has_spare = False
        try:
            self._files.rename(self._spare, path)
        except OSError:
            return False
        return True
