"""Folders of the operations' logs, and a spare one. To rename it costs a third of what a new folder does."""

from __future__ import annotations

import contextlib

from headrace_agent.runner.files.job_log import LogUnwritable
from headrace_agent.runner.host.files import LinuxFiles

#: No operation has such a name.
SPARE = ".spare"


class LogFolders:
    """The folder `logs`, which may be missing or unusable."""

    def __init__(self, files: LinuxFiles, logs: str) -> None:
        self._files = files
        self._logs = logs
        self._spare = f"{logs}/{SPARE}"
        self._has_spare = False

    def make_spare(self) -> None:
        """Makes the spare folder for the next operation where there is none. It may be called at any time."""
        if self._has_spare:
            return
        # Whatever is wrong shows, and is told, when a job is to start.
        with contextlib.suppress(OSError):
            self._files.make_folder(self._spare)
            self._has_spare = self._files.is_fresh_folder(self._spare)

    def open(self, operation: str) -> None:
        """Makes the folder of an operation's logs where there is none. Raises `LogUnwritable`."""
        path = f"{self._logs}/{operation}"
        try:
            if self._take_spare(path):
                return
            try:
                self._files.make_folder(path)
            except FileNotFoundError:  # the logs folder could not be made when the runner started, or is gone since
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
