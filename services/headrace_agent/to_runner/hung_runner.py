"""A runner that lives and does nothing: stopped, swapped out, or held up by a disk. It is judged by its answers.

A runner that has much to do is slow to read what it is told, and says something all the time. So only a runner that was asked something
and says nothing at all at several looks in a row is hung. Looks are counted, not seconds: an agent that was stopped itself has looked once.
"""

from __future__ import annotations

import enum
import os
import select
import signal
import socket
import struct
from contextlib import suppress
from typing import Final

LOOK_S: Final = 3.0
#: A runner is hung that was asked and said nothing at so many looks in a row.
_HUNG: Final = 10
#: A runner that is hung for twice as long is killed: a new one ends its jobs and reports them lost.
_KILL: Final = 20
_CREDENTIALS: Final = struct.Struct("3i")


class Finding(enum.Enum):
    """The outcome of a look at a runner that was asked something."""

    NOTHING = enum.auto()
    #: It answers again after it was said to be hung.
    ANSWERS = enum.auto()
    #: It is hung. That is said again each time when it was silent twice as long.
    HUNG = enum.auto()
    #: It is hung, and has to be killed.
    KILL = enum.auto()


class Silence:
    """Counts the looks at which a runner owed an answer and had said nothing since the look before. Pure."""

    def __init__(self) -> None:
        self._looks = 0
        self._has_spoken = False

    @property
    def length_s(self) -> float:
        """Seconds since the runner said something, at least."""
        return self._looks * LOOK_S

    def heard(self) -> None:
        """The runner said something, whatever it was."""
        self._has_spoken = True

    def look(self, *, is_asked: bool) -> Finding:
        """Judges the time since the look before. `is_asked`: the runner owed an answer all that time."""
        before, has_spoken, self._has_spoken = self._looks, self._has_spoken, False
        self._looks = 0 if has_spoken or not is_asked else before + 1
        if not self._looks:
            return Finding.ANSWERS if before >= _HUNG else Finding.NOTHING
        if self._looks == _KILL:
            return Finding.KILL
        doublings, rest = divmod(self._looks, _HUNG)
        return Finding.HUNG if not rest and doublings & (doublings - 1) == 0 else Finding.NOTHING


class RunnerProcess:
    """The process at the other end of a connection, as far as it is certain to be the runner of the state folder."""

    def __init__(self, connection: socket.socket, state: str) -> None:
        self.pid = 0
        self._pidfd = -1
        with suppress(OSError):
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid = _CREDENTIALS.unpack(credentials)[0]
            if pid > 0 and pid == _holder_of(state):
                self._pidfd = os.pidfd_open(pid)
                self.pid = pid

    def kill(self) -> bool:
        """Kills the process. Returns False if it is not known, not ours to kill, or gone."""
        if self._pidfd < 0:
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except OSError:
            return False
        return True

    def has_ended(self) -> bool:
        """True if it is certain that the process has ended."""
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _holder_of(state: str) -> int:
    """The process that has the lock of the runner, 0 if it is not known."""
    try:
        with open(f"{state}/runner.lock", "rb") as file:
            return int(file.read(32))
    except (OSError, ValueError):
        return 0
