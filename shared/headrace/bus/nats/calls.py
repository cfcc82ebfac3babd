"""Requests under way: who waits for the answers that come to our inbox.

Whoever was asked once knows how our inboxes begin, and may be a node, which the server lets answer anybody. So no token can be guessed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from headrace.bus.protocol import BusError, Message

#: Of the name of an inbox that nobody can guess.
TOKEN_BYTES: Final = 16


class _Call(msgspec.Struct, frozen=True, eq=False):
    #: In lower case, as the server's refusals come.
    subject: str
    on_answer: Callable[[Message], None]
    on_error: Callable[[BusError], None]


class Calls:
    """A table of tokens. An answer for a token that nobody waits for any more is dropped."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._calls: dict[str, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @contextmanager
    def expecting(
        self, subject: str, on_answer: Callable[[Message], None], on_error: Callable[[BusError], None]
    ) -> Iterator[str]:
        """Yields the subject for the answers, which are handed over while the block lasts."""
        token = secrets.token_hex(TOKEN_BYTES)
        self._calls[token] = _Call(subject.lower(), on_answer, on_error)
        try:
            yield f"{self._prefix}.{token}"
        finally:
            del self._calls[token]

    def on_answer(self, message: Message) -> None:
        """An answer has come."""
        call = self._calls.get(message.subject.rpartition(".")[2])
        if call is not None:
            call.on_answer(message)

    def refuse(self, subject: str, error: BusError) -> None:
        """The server refused a publication on `subject`, so whoever asks there gets no answer."""
        for call in tuple(self._calls.values()):
            if call.subject == subject:
                call.on_error(error)

    def fail(self, error: BusError) -> None:
        """No answer will come to anybody."""
        for call in tuple(self._calls.values()):
            call.on_error(error)
