"""Detection of a runner that lives but does nothing: it was stopped, swapped out, or blocked by a disk.

A busy runner is slow to read its messages, but it keeps sending something. So every few seconds the agent makes a look: it checks whether
the runner sent anything since the previous look. A runner counts as hung only if it owed an answer and had sent nothing at several looks in
a row. The agent counts looks and not seconds: if the agent itself was stopped for a minute, it made only one look in that minute, and the
runner is not blamed.
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
#: Number of silent looks in a row after which a runner counts as hung. At a silent look the runner owed an answer, but had sent nothing
#: since the previous look.
_HUNG: Final = 10
#: Number of silent looks in a row after which the runner is killed. The next runner ends the jobs of the killed runner and reports them as
#: lost.
KILL_AT_LOOK: Final = 20
_CREDENTIALS: Final = struct.Struct("3i")


class Finding(enum.Enum):
    """The outcome of a look at a runner that owes an answer."""

    NOTHING = enum.auto()
    #: The runner answers again after it was reported as hung.
    ANSWERS = enum.auto()
    #: The runner is hung. This outcome is repeated each time the silence has doubled.
    HUNG = enum.auto()
    #: The runner is hung and must be killed.
    KILL = enum.auto()


class RunnerSilence:
    """Counts the looks in a row at which a runner owed an answer but had sent nothing since the previous look. Pure."""

    def __init__(self) -> None:
        self._looks = 0
        self._has_spoken = False

    @property
    def length_s(self) -> float:
        """Return a lower bound of the seconds for which the runner has been silent."""
        return self._looks * LOOK_S

    def heard(self) -> None:
        """Record that the runner sent something."""
        self._has_spoken = True

    def judge(self, *, is_asked: bool) -> Finding:
        """Make a look: judge the time since the previous look. `is_asked` is True if the runner owed an answer for all of that time."""
        before, has_spoken, self._has_spoken = self._looks, self._has_spoken, False
        self._looks = 0 if has_spoken or not is_asked else before + 1
        if not self._looks:
            return Finding.ANSWERS if before >= _HUNG else Finding.NOTHING
        if self._looks == KILL_AT_LOOK:
            return Finding.KILL
        doublings, rest = divmod(self._looks, _HUNG)
        return Finding.HUNG if not rest and doublings & (doublings - 1) == 0 else Finding.NOTHING


class RunnerProcess:
    """The process at the other end of a connection. `pid` is 0 unless the process certainly is the runner of the state folder."""

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
        """Kill the process. Return False if its pid is not known, if the agent may not kill it, or if it has already ended."""
        if self._pidfd < 0:
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except OSError:
            return False
        return True

    def has_ended(self) -> bool:
        """True if the process has ended. False if it lives, or if its pid is not known."""
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
    """Return the pid of the process that holds the runner's lock, or 0 if the pid cannot be read."""
    try:
        with open(f"{state}/runner.lock", "rb") as file:
            return int(file.read(32))
    except (OSError, ValueError):
        return 0
