"""Foreign entries of buckets and streams: stored there, but not written for their subject. Readers ignore them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol

from headrace.obs.logging import logger

#: Beginning of the messages that the server itself writes: answers of its API, and acknowledgements of writes.
_SERVER_ANSWER: Final = re.compile(rb'\{"(type":"io\.nats\.jetstream\.|stream":"|error":\{)')


class StoredEntry(Protocol):
    """An entry as it is stored."""

    @property
    def sequence(self) -> int: ...

    @property
    def subject(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    @property
    def headers(self) -> Mapping[str, str]: ...


class ForeignEntries:
    """The foreign entries that the readers of one connection found. Each is counted and logged once."""

    def __init__(self) -> None:
        self.count = 0
        #: Highest sequence of a foreign entry by stream.
        self._up_to: dict[str, int] = {}

    def is_foreign(self, stream: str, stored: StoredEntry, subject: str) -> bool:
        """Return True if an entry was not written for `subject` (a prefix if it ends in a dot).

        A service chooses the subject to which the server delivers or answers, and the server does not check the service's
        permissions for that subject. So a service can have a foreign message stored in a stream. A delivered message keeps
        its own subject in the stream that stores it. An answer of the server itself has the subject of that stream, but it
        has neither data nor headers, or begins as all answers do.
        """
        is_own = stored.subject.startswith(subject) if subject.endswith(".") else stored.subject == subject
        if is_own and (stored.data or stored.headers) and not _SERVER_ANSWER.match(stored.data):
            return False
        if stored.sequence > self._up_to.get(stream, 0):
            self._up_to[stream] = stored.sequence
            self.count += 1
            logger().error("foreign entry in a stream", stream=stream, sequence=stored.sequence, subject=stored.subject)
        return True
