"""Files that go wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable

from headrace_agent.runner.host.files import LinuxFiles


class PowerCut(Exception):
    """The process was killed at this very call."""


class MortalFiles(LinuxFiles):
    """Lets `calls` calls that change files pass, and is dead from then on: the next one does not happen."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls_left = calls

    def _live(self) -> None:
        if self.calls_left == 0:
            raise PowerCut
        self.calls_left -= 1

    def open(self, path: str, flags: int) -> int:
        self._live()
        return super().open(path, flags)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._live()
        return super().write(fd, data)

    def write_at(self, fd: int, data: bytes | memoryview, place: int) -> int:
        self._live()
        return super().write_at(fd, data, place)

    def rename(self, old: str, new: str) -> None:
        self._live()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._live()
        super().unlink(path)


class WatchedFiles(LinuxFiles):
    """Calls `look` before every call that changes files."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self._look = look

    def open(self, path: str, flags: int) -> int:
        self._look()
        return super().open(path, flags)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._look()
        return super().write(fd, data)

    def write_at(self, fd: int, data: bytes | memoryview, place: int) -> int:
        self._look()
        return super().write_at(fd, data, place)

    def rename(self, old: str, new: str) -> None:
        self._look()
        super().rename(old, new)


class ShortWritingFiles(LinuxFiles):
    """Writes at most `most` bytes a call, as a nearly full disk may."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return super().write(fd, data[: self._most])

    def write_at(self, fd: int, data: bytes | memoryview, place: int) -> int:
        return super().write_at(fd, data[: self._most], place)
