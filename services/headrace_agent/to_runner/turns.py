"""Turns of sessions that the runner has not answered yet."""

from __future__ import annotations

import asyncio
from typing import Final

from headrace_agent.runner.protocol import Turned

#: Upper bound of the turns of all users together that wait for the runner at the same time.
MOST_TURNS: Final = 512


class Turns:
    """The turns that wait for an answer on one connection to the runner."""

    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[int, asyncio.Future[bytes | None]] = {}

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= MOST_TURNS

    def begin(self) -> tuple[int, asyncio.Future[bytes | None]]:
        """Return the number of a new turn, and its answer: the message for the person, or None if the connection ends before the
        runner answers.
        """
        self._number += 1
        answer = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        return self._number, answer

    def on_turned(self, message: Turned) -> None:
        """Pass on the answer to a turn. The answer to a turn that nobody waits for is dropped."""
        answer = self._waiting.pop(message.number, None)
        if answer is not None and not answer.done():
            answer.set_result(message.answer)

    def give_up(self, number: int) -> None:
        """Stop waiting for a turn."""
        self._waiting.pop(number, None)

    def give_up_all(self) -> None:
        """Answer all turns with None, because the connection has ended."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(None)
        self._waiting.clear()
