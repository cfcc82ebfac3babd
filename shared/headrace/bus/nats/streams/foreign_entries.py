"""Foreign entries of buckets and streams: messages that the server stored there although no writer wrote them for the subject under which
they are stored. Readers ignore them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol

from headrace.obs.logging import logger

#: Beginning of the messages that the server itself writes: answers of its API, and acknowledgements of writes.
_SERVER_ANSWER: Final = re.compile(rb'\{"(type":"io\.nats\.jetstream\.|stream":"|error":\{)')


class StoredEntry(Protocol):
    """An entry of a bucket or stream, with the subject under which it is stored."""

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
        #: Highest sequence number of the foreign entries found so far, by stream.
        self._up_to: dict[str, int] = {}

    def is_foreign(self, stream: str, stored: StoredEntry, subject: str) -> bool:
        """Return True if an entry was not written for `subject` (a prefix if it ends in a dot).

        A service chooses the subject to which the server delivers messages or sends answers, and the server does not
        check the service's permissions for that subject. So a service can have two kinds of foreign messages stored in
        a stream. A message that the server delivers is stored with its own subject, which is not `subject`. An answer
        of the server is stored with `subject`, but it has neither data nor headers, or it begins as all answers of the
        server do.
        """
        is_own = stored.subject.startswith(subject) if subject.endswith(".") else stored.subject == subject
        if is_own and (stored.data or stored.headers) and not _SERVER_ANSWER.match(stored.data):
            return False
        if stored.sequence > self._up_to.get(stream, 0):
            self._up_to[stream] = stored.sequence
            self.count += 1
            logger().error("foreign entry in a stream", stream=stream, sequence=stored.sequence, subject=stored.subject)
        return True
