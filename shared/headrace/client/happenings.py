"""The history of an operation from the log, and the stream of all events from now on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from headrace.client.asking import Asker
from headrace.client.following import Follower, HappeningFilter
from headrace.ids import operation_id
from headrace.wire.happenings import GetOperationHistory, Happening, OperationHistory
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

    async def log(self) -> AsyncIterator[LogPage]:
        """Yield pages of all that the log keeps, the oldest entry first. Raises `Refused`, `Unanswered`."""
        request = ReadEvents()
        while True:
            page = await self._asker.ask("op.log", request, LogPage)
            yield page
            if page.next is None:
                return
            request = ReadEvents(page.next)

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
