"""An HTTP endpoint that gets finished operations as JSON lines, at least once.

Before a request is sent, the range of its operations is written to the position file. If the process is killed, its next start sends
the same range again with the same `Idempotency-Key`. An endpoint that compares keys can therefore ignore operations that it already has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from headrace.client.finished import MOST_ON_A_PAGE, FinishedOperation, LogPosition
from headrace_cli.export.line_file import Kept
from headrace_cli.outgoing.delivery import Undelivered, deliver, post
from headrace_cli.outgoing.position_file import PositionFile
from headrace_cli.show.screen import Screen


class Endpoint:
    """Sends finished operations to an endpoint, in their order."""

    def __init__(self, url: str, headers: Mapping[str, str], file: PositionFile[Kept], screen: Screen) -> None:
        self._url = url
        self._headers = headers
        self._file = file
        self._screen = screen
        kept = file.read()
        self.position = LogPosition.parse(kept.position, str(file.path))
        #: Position after the operations that a killed process was sending, and which must be sent again as one request; None if there are
        #: no such operations.
        self._until = LogPosition.parse(kept.until, str(file.path)) if kept.until else None
        #: Operations up to `_until` that were read again so far.
        self._again: list[FinishedOperation] = []

    async def append(self, operations: Sequence[FinishedOperation], position: LogPosition) -> None:
        """Send operations, and return when the endpoint has accepted them and the position is on disk. Raises OSError."""
        if self._until is not None:
            places = [LogPosition.parse(each.position, "position") for each in operations]
            count = sum(place <= self._until for place in places)
            self._again.extend(operations[:count])
            is_range_read = count < len(operations) or position >= self._until or len(self._again) >= MOST_ON_A_PAGE
            if not is_range_read:
                return
            again, self._again, until, self._until = self._again, [], self._until, None
            await self._send(again, until)
            operations = operations[count:]
        await self._send(operations, position)

    async def keep(self, position: LogPosition) -> None:
        """Record that the endpoint has all operations up to this position. Raises OSError."""
        if self._until is not None and position >= self._until:
            await self.append([], position)
        if self._until is None:
            self._moved(position)

    async def _send(self, operations: Sequence[FinishedOperation], until: LogPosition) -> None:
        if operations:
            self._file.write(Kept(str(self.position), str(until)))
            data = b"".join(msgspec.json.encode(each) + b"\n" for each in operations)
            key = f"{self.position}-{until}"
            headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key, **self._headers}
            await deliver(partial(post, self._url, data, headers), self._say)
        self._moved(until)

    def _moved(self, position: LogPosition) -> None:
        self.position = position
        self._file.write(Kept(str(position)))

    def _say(self, error: Undelivered, pause_s: float) -> None:
        self._screen.say(f"the endpoint did not accept operations: {error}; next attempt in {pause_s:.1f} s")
