"""The size of all logs, and the choice of logs to remove: those of the operation that was idle for the longest time, among the operations
of the person whose logs take the most bytes. So a person whose jobs write very much causes no logs of other persons to be removed.

Operations are named by their log folders (`folder_of_start`). Logs of an operation that has a job running here are never removed. Sizes are
bytes of content, not of disk blocks. The owners of logs that an earlier runner wrote are not known; these logs count together, as if they
were of one person.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from headrace_agent.runner.files.log_folders import SPARE
from headrace_agent.runner.host.files import LinuxFiles


class _Held(msgspec.Struct):
    size_bytes: int
    used_at: float
    #: Owner of the operation; empty: not known.
    user: str = ""
    jobs: int = 0


class Retention:
    """Records the size of each operation's logs, and chooses the logs to remove. Times are seconds of Unix time."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[str, _Held] = {}
        self.total_bytes = 0

    def survey(self, files: LinuxFiles, logs: str) -> None:
        """Record the logs that exist already. Raises OSError."""
        for folder in files.entries(logs):
            if folder.is_folder and folder.name != SPARE:
                size = sum(entry.size_bytes for entry in files.entries(f"{logs}/{folder.name}"))
                self._held[folder.name] = _Held(size, folder.changed_at)
                self.total_bytes += size

    def holds(self, operation: str) -> bool:
        """True if logs of the operation are recorded here, so that its log folder exists."""
        return operation in self._held

    def job_started(self, operation: str, now: float, user: str = "") -> None:
        held = self._held.setdefault(operation, _Held(0, now))
        held.user = user
        held.jobs += 1
        held.used_at = now

    def job_ended(self, operation: str, now: float) -> None:
        held = self._held[operation]
        held.jobs -= 1
        held.used_at = now

    def grew(self, operation: str, size_bytes: int) -> None:
        self._held[operation].size_bytes += size_bytes
        self.total_bytes += size_bytes

    @property
    def next_is_due(self) -> bool:
        """True if the logs exceed the bound, and at least one operation that has logs here has no running job here."""
        return self.total_bytes > self._most_bytes and any(held.jobs == 0 for held in self._held.values())

    def next_to_go(self) -> str | None:
        """Return the operation whose logs must be removed now. The size of these logs no longer counts.

        Return None if the logs are within the bound, or if all of them are in use.
        """
        if self.total_bytes <= self._most_bytes:
            return None
        idle = {name: held for name, held in self._held.items() if held.jobs == 0}
        if not idle:
            return None
        bytes_of = Counter[str]()
        for held in self._held.values():
            bytes_of[held.user] += held.size_bytes
        user = max({held.user for held in idle.values()}, key=lambda each: (bytes_of[each], each))
        name = min((held.used_at, name) for name, held in idle.items() if held.user == user)[1]
        self.total_bytes -= self._held.pop(name).size_bytes
        return name

    def check(self) -> list[str]:
        """Return a description of each broken invariant."""
        total_bytes = sum(held.size_bytes for held in self._held.values())
        broken = (
            [f"logs: {self.total_bytes} bytes are booked, {total_bytes} held"]
            if total_bytes != self.total_bytes
            else []
        )
        return broken + [
            f"logs of {name}: {held.size_bytes} bytes, {held.jobs} jobs"
            for name, held in self._held.items()
            if held.jobs < 0 or held.size_bytes < 0
        ]
