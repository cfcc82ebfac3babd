"""The history of an operation from the log, and the stream of all events from now on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from headrace.client.asking import Asker
from headrace.client.following import Follower, HappeningFilter
from headrace.ids import operation_id
from headrace.wire.happenings import GetOperationHistory, Happening, OperationHistory, happenings_of
from headrace.wire.replay import LogPage, ReadEvents


class Happenings:
    """Requests for past and present events."""

    def __init__(self, asker: Asker, follower: Follower) -> None:
        self._asker = asker
        self._follower = follower

    async def history(self, operation: str) -> AsyncIterator[OperationHistory]:
        """Yield pages of all that the log keeps of an operation, the oldest first. Raises `Refused`, `Unanswered`, `BadInput`."""
        request = GetOperationHistory(operation_id(operation))
        while True:
            page = await self._asker.ask("op.history", request, OperationHistory)
            yield page
            if page.next is None:
                return
            request = GetOperationHistory(request.operation, page.next)

    async def log(self, since_ms: int = 0) -> AsyncIterator[LogPage]:
        """Yield pages of all that the log keeps, or of what it keeps since a Unix time in milliseconds, the oldest entry first.

        Raises `Refused`, `Unanswered`.
        """
        request = ReadEvents(since_ms=since_ms)
        while True:
            page = await self._asker.ask("op.log", request, LogPage)
            yield page
            if page.next is None:
                return
            request = ReadEvents(page.next)

    async def since(self, since_ms: int, wanted: HappeningFilter) -> AsyncIterator[Happening]:
        """Yield the selected events that the log keeps since a Unix time in milliseconds: of operations, and ends of jobs.

        Raises `Refused`, `Unanswered`.
        """
        async for page in self.log(since_ms):
            for happening in (
                each for entry in page.entries for event in entry.events for each in happenings_of(event)
            ):
                if happening.at_ms >= since_ms and wanted.wants(happening):
                    yield happening

    async def follow_decisions(self, on_decision: Callable[[Happening], None]) -> None:
        """Call `on_decision` with each decision of the allocator, or with a `Missed`, until cancelled. Raises `BusError`."""
        await self._follower.run_decisions(on_decision)

    async def follow(
        self,
        wanted: HappeningFilter,
        on_happening: Callable[[Happening], None],
        on_following: Callable[[], None] = lambda: None,
        on_connection: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Call `on_happening` with each selected event from now on, until cancelled.

        `on_connection` is called with False when the connection is lost, and with True when it is back. Raises `NotRunning` if the
        connection is lost for a minute. Also raises `Refused`, `Unanswered`, `BusError`.
        """
        await self._follower.run(wanted, on_happening, on_following, on_connection)
