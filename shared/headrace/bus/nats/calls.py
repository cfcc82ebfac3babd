"""Requests under way, and the callers that wait for the answers in this connection's inbox.

A process that received one request knows the prefix of this connection's inboxes. The process may be the agent of a node, and the server
lets nodes send answers to any inbox. So each request has a random token in the subject for its answer, which no other process can guess.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from headrace.bus.protocol import BusError, Message

#: Number of random bytes in an inbox name, so that the name cannot be guessed.
TOKEN_BYTES: Final = 16


class _Call(msgspec.Struct, frozen=True, eq=False):
    #: Subject of the request in lower case, as in a refusal from the server.
    subject: str
    on_answer: Callable[[Message], None]
    on_error: Callable[[BusError], None]


class Calls:
    """A table of requests by token. An answer whose token is no longer in the table is dropped."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._calls: dict[str, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @contextmanager
    def expecting(
        self, subject: str, on_answer: Callable[[Message], None], on_error: Callable[[BusError], None]
    ) -> Iterator[str]:
        """Yield the subject for the answers. Answers are passed to `on_answer` while the block lasts."""
        token = secrets.token_hex(TOKEN_BYTES)
        self._calls[token] = _Call(subject.lower(), on_answer, on_error)
        try:
            yield f"{self._prefix}.{token}"
        finally:
            del self._calls[token]

    def on_answer(self, message: Message) -> None:
        """Pass an answer to the caller that waits for it."""
        call = self._calls.get(message.subject.rpartition(".")[2])
        if call is not None:
            call.on_answer(message)

    def refuse(self, subject: str, error: BusError) -> None:
        """Pass an error to the callers on `subject`: the server refused the publication, so no answer will come."""
        for call in tuple(self._calls.values()):
            if call.subject == subject:
                call.on_error(error)

    def fail(self, error: BusError) -> None:
        """Pass an error to all callers: no answer will come any more."""
        for call in tuple(self._calls.values()):
            call.on_error(error)
