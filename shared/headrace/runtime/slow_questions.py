"""Turns for requests that block the loop for milliseconds, so that a flood of them leaves half of the time to everything else.

For example, a list of 500 operations takes about 20 ms, in which nothing else runs. Without turns, eight such requests at a time
delayed each step of the start of an operation by 160 ms.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from headrace.runtime.clock import Clock

#: Longest pause after a request, in seconds.
_LONGEST_PAUSE_S: Final = 0.05


class SlowQuestions:
    """Answers one slow request at a time. The pause after a request is as long as the request took, up to 50 ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = anyio.Lock(fast_acquire=True)
        self._free_at_s = -math.inf

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn of this request. The next turn begins after the block and its pause."""
        async with self._turn:
            pause_s = self._free_at_s - self._clock.steady_s()
            if pause_s > 0:
                await anyio.sleep(min(pause_s, _LONGEST_PAUSE_S))
            began_s = self._clock.steady_s()
            try:
                yield
            finally:
                now_s = self._clock.steady_s()
                self._free_at_s = now_s + min(now_s - began_s, _LONGEST_PAUSE_S)
