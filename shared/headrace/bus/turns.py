"""Turns: how soon a reader looks again at the socket. To be woken for each message alone costs more than most answers."""

from __future__ import annotations

import math
from typing import Final

import anyio
import anyio.lowlevel

from headrace.bus.protocol import Subscription

#: Between two turns under load, so that what comes meanwhile is read, answered and sent together.
_SPACING_S: Final = 0.004
#: Turns that may follow one another at once, so that nothing waits where little comes.
_AT_ONCE: Final = 16
#: Between two slices of work while messages wait that go before it, and how many times in a piece of work.
_BEHIND_S: Final = 0.01
_MOST_WAYS: Final = 50


class Turns:
    """Spaces turns once many have followed one another: at most one each 4 ms in the long run."""

    def __init__(self) -> None:
        #: When the turns until now would be over, had each taken its spacing.
        self._over_s = 0.0

    def rest_s(self, now_s: float) -> float:
        """Notes a turn. Returns the seconds until the next one may begin."""
        self._over_s = max(self._over_s, now_s) + _SPACING_S
        return max(0.0, self._over_s - now_s - _AT_ONCE * _SPACING_S)


class GivingWay:
    """Lets others have their turn between two slices of one piece of work, and longer while messages wait for them.

    Where these never end the rest goes on beside them: what comes behind the work has its turn, too.
    """

    def __init__(self, to: Subscription) -> None:
        self._to = to
        self._left = _MOST_WAYS
        self._renewed_s = -math.inf

    def renew(self) -> None:
        """Another piece of work begins. Where they follow one another soon no more than half of the time is given away."""
        now_s = anyio.current_time()
        if now_s >= self._renewed_s + 2 * _MOST_WAYS * _BEHIND_S:
            self._renewed_s, self._left = now_s, _MOST_WAYS

    async def give(self, times: int = 1) -> None:
        """One slice is done. Where it is a long one others may have several turns."""
        given = 0
        while given < times and self._left and self._to.statistics()["pending"]:
            given += 1
            self._left -= 1
            await anyio.sleep(_BEHIND_S)
        if not given:
            await anyio.lowlevel.checkpoint()
