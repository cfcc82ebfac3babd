"""Pauses before a socket is read again, and between slices of long work. In the pause before a read, messages collect: waking up for each
single message would cost more than most answers.
"""

from __future__ import annotations

import math
from typing import Final

import anyio
import anyio.lowlevel

from headrace.bus.protocol import Subscription

#: Seconds between two reads of the socket under load, so that messages that arrive in between are read, answered and sent together.
_SPACING_S: Final = 0.004
#: Number of reads that may follow one another without a pause, so that no message waits for a pause while few messages come.
_AT_ONCE: Final = 16
#: Seconds of one pause between two slices of work while more urgent messages wait.
_BEHIND_S: Final = 0.01
#: Largest number of pauses between the slices of one piece of work.
_MOST_WAYS: Final = 50


class Turns:
    """Limits how often a socket is read: some reads may follow one another at once, but in the long run there is one
    read every 4 ms at most.
    """

    def __init__(self) -> None:
        #: Time in seconds, by the clock of `rest_s`, at which all reads so far would be over if each read had taken `_SPACING_S`.
        self._over_s = 0.0

    def rest_s(self, now_s: float) -> float:
        """Record a read. Return the seconds until the next read may begin."""
        self._over_s = max(self._over_s, now_s) + _SPACING_S
        return max(0.0, self._over_s - now_s - _AT_ONCE * _SPACING_S)


class YieldBudget:
    """Pauses a long piece of work between its slices while messages of another subscription wait.

    The number of pauses is bounded, so that the work continues even if such messages never stop.
    """

    def __init__(self, to: Subscription) -> None:
        self._to = to
        self._left = _MOST_WAYS
        self._renewed_s = -math.inf

    def renew(self) -> None:
        """Start another piece of work. If pieces follow one another quickly, at most half of the time is spent in pauses."""
        now_s = anyio.current_time()
        if now_s >= self._renewed_s + 2 * _MOST_WAYS * _BEHIND_S:
            self._renewed_s, self._left = now_s, _MOST_WAYS

    async def give(self, times: int = 1) -> None:
        """Yield to the event loop after a slice of work, as long as messages are waiting, but at most `times` times.

        Use a larger `times` after a long slice.
        """
        given = 0
        while given < times and self._left and self._to.statistics()["pending"]:
            given += 1
            self._left -= 1
            await anyio.sleep(_BEHIND_S)
        if not given:
            await anyio.lowlevel.checkpoint()
