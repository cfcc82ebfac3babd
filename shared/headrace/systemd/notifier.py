"""Messages of a process to the systemd that runs it: ready, status, and signs of life. The protocol is that of sd_notify(3).

A process that systemd does not run, or whose unit wants no messages, sends nothing. This module imports little, because the
runner uses it, too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
#: Number of signs of life within one period of the watchdog.
_SIGNS: Final = 3
#: Seconds between two signs of life if the unit has no watchdog. They are sent nevertheless, because each also carries the status.
_PERIOD_S: Final = 20.0
#: Largest number of characters of a status, because a message must fit into one datagram.
_LONGEST_STATUS: Final = 400


class Notifier:
    """The messages of one process.

    A process is not ready before `ready` is called. It must give signs of life already before, or systemd restarts it.
    """

    def __init__(self, address: str, watchdog_s: float, steady_s: Callable[[], float]) -> None:
        """`address` is the address of systemd's socket; if it is empty, nothing is sent. `watchdog_s` is the period of
        the watchdog in seconds; 0 if there is no watchdog.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._steady_s = steady_s
        #: Seconds between two signs of life.
        self.period_s = watchdog_s / _SIGNS if watchdog_s else _PERIOD_S
        self._next_s = 0.0
        self._status = ""
        self.is_ready = False

    @property
    def is_heard(self) -> bool:
        """True if a systemd wants messages of this process."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Report that the process does its work, with a text that `systemctl status` shows."""
        self.is_ready, self._status = True, status
        self._send("READY=1", *self._alive())

    def status(self, status: str) -> None:
        """Report what the process does at present."""
        self._status = status
        self._send(*self._alive())

    def alive(self) -> None:
        """Give a sign of life if the last one is `period_s` ago. Must be called more often than that."""
        if self._steady_s() >= self._next_s:
            self._send(*self._alive())

    def _alive(self) -> list[str]:
        self._next_s = self._steady_s() + self.period_s
        # The watchdog runs only after READY. Before READY, each sign of life extends the time that the start may take.
        sign = "WATCHDOG=1" if self.is_ready else f"EXTEND_TIMEOUT_USEC={int(self.period_s * _SIGNS * 1e6)}"
        return [sign, f"STATUS={' '.join(self._status.split())[:_LONGEST_STATUS]}"]

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # A message that systemd cannot take is lost, because the process must not wait for systemd. The next sign of life follows soon.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), self._address)


def notifier_of(environment: MutableMapping[str, str], pid: int, steady_s: Callable[[], float]) -> Notifier:
    """Return the notifier of the process `pid`. Remove the variables that it reads from `environment`, so that no child
    process sends messages to systemd.

    If systemd runs the process, a fatal signal such as the watchdog's SIGABRT writes a traceback to stderr, which shows
    where the process hung.
    """
    address, period_us, watched = (environment.pop(name, "") for name in _VARIABLES)
    is_watched = period_us.isdecimal() and watched in ("", str(pid))
    if address:
        faulthandler.enable()
    return Notifier(address, int(period_us) / 1e6 if is_watched else 0.0, steady_s)


def silent_notifier() -> Notifier:
    """Return a notifier that sends nothing."""
    return Notifier("", 0.0, lambda: 0.0)
