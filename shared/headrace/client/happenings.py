"""The history of an operation, as the log has it, and the stream of all that happens from now on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from headrace.client.asking import Asker
from headrace.client.following import Follower, HappeningFilter
from headrace.ids import operation_id
from headrace.wire.happenings import GetOperationHistory, Happening, OperationHistory
from headrace.wire.replay import LogPage, ReadEvents


class Happenings:
    """Questions about what happened."""

    def __init__(self, asker: Asker, follower: Follower) -> None:
        self._asker = asker
        self._follower = follower

    async def history(self, operation: str) -> AsyncIterator[OperationHistory]:
        """Pages of all that the log keeps of an operation, the oldest first. Raises `Refused`, `Unanswered`, `BadInput`."""
        request = GetOperationHistory(operation_id(operation))
        while True:
            page = await self._asker.ask("op.history", request, OperationHistory)
            yield page
            if page.next is None:
                return
            request = GetOperationHistory(request.operation, page.next)

    async def log(self) -> AsyncIterator[LogPage]:
        """Pages of all that the log keeps, the oldest entry first. Raises `Refused`, `Unanswered`."""
        request = ReadEvents()
        while True:
            page = await self._asker.ask("op.log", request, LogPage)
            yield page
            if page.next is None:
                return
            request = ReadEvents(page.next)

    async def follow_decisions(self, on_decision: Callable[[Happening], None]) -> None:
        """Calls with each decision of the allocator, and with the number of missed ones, until cancelled. Raises `BusError`."""
        await self._follower.run_decisions(on_decision)

    async def follow(
        self,
        wanted: HappeningFilter,
        on_happening: Callable[[Happening], None],
        on_following: Callable[[], None] = lambda: None,
        on_connection: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Calls with each thing that happens from now on, until cancelled.

        `on_connection` is told False when the bus is gone, and True when it is back. Gone for a minute, it is `NotRunning`.
        Raises `Refused`, `Unanswered`, `BusError` as well.
        """
        await self._follower.run(wanted, on_happening, on_following, on_connection)
