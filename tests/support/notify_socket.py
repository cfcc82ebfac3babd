"""The socket at which systemd listens for messages of a process, for a test that takes systemd's part."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType


class NotifySocket:
    """Bound to a path in a folder. `variables` are those that systemd sets for a process of a unit with a watchdog."""

    def __init__(self, folder: Path, watchdog_s: float = 60.0) -> None:
        self._path = folder / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._path))
        self.variables = {"NOTIFY_SOCKET": str(self._path), "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}

    def __enter__(self) -> NotifySocket:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._socket.close()

    def received(self) -> list[dict[str, str]]:
        """The messages since the last look, each by its keys."""
        found = []
        self._socket.setblocking(False)
        while True:
            try:
                found.append(_parsed(self._socket.recv(4096)))
            except BlockingIOError:
                return found

    def until(self, key: str, value: str, limit_s: float = 30.0) -> list[dict[str, str]]:
        """The messages up to the first whose value of a key contains a text."""
        found: list[dict[str, str]] = []
        self._socket.settimeout(limit_s)
        while True:
            try:
                found.append(_parsed(self._socket.recv(4096)))
            except TimeoutError:
                raise AssertionError(f"no {key} with {value}: {found}") from None
            if value in found[-1].get(key, ""):
                return found


def _parsed(message: bytes) -> dict[str, str]:
    return dict(line.split("=", 1) for line in message.decode().splitlines())
