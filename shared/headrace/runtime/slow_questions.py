"""Turns for questions that take the loop for milliseconds, so that a flood of them leaves half of the time to everything else.

A list of 500 operations takes some 20 ms, and nothing else runs meanwhile. Eight of them at a time, as a flood had it, made each step of a
start wait for 160 ms.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from headrace.runtime.clock import Clock

#: The longest pause after a question, seconds.
_LONGEST_PAUSE_S: Final = 0.05


class SlowQuestions:
    """Lets one question at a time be answered, with a pause after it that is as long as the question took, up to 50 ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = anyio.Lock(fast_acquire=True)
        self._free_at_s = -math.inf

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits until it is the turn of this question. The next one begins after the block and its pause."""
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
