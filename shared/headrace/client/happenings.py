"""The history of an operation from the log, and the stream of all events from now on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing

from headrace.client.asking import Asker
from headrace.client.following import Follower, HappeningFilter
from headrace.ids import operation_id
from headrace.wire.happenings import (
    MOST_JOBS_OF_HISTORY,
    GetOperationHistory,
    Happening,
    JobEnded,
    OperationHistory,
    happenings_of,
    time_of,
)
from headrace.wire.heartbeat import JobSlot
from headrace.wire.plain_values import plain
from headrace.wire.replay import LogPage, ReadEvents


def plain_happening(happening: Happening) -> dict[str, object]:
    """Return an event as a JSON object. `happened` is its kind, `at_ms` its time in Unix milliseconds."""
    fields = plain(happening)
    assert isinstance(fields, dict)
    return {"happened": happening.__struct_config__.tag, "at_ms": time_of(happening), **fields}


class Happenings:
    """Requests for past and present events."""

    def __init__(self, asker: Asker, follower: Follower) -> None:
        self._asker = asker
        self._follower = follower

    async def history(
        self, operation: str, jobs: Sequence[int] = (), *, after: int = 0
    ) -> AsyncGenerator[OperationHistory, None]:
        """Yield pages of all entries that the log keeps of an operation, the oldest entries first.

        With `after`, the `read_to` of an earlier page, yield only what the log got since that page.
        With `jobs`, the pages have only the ended runs of these jobs; at most 1,000 indexes are possible. Raises
        `Refused`, `Unanswered`, `BadInput`.
        """
        request = GetOperationHistory(operation_id(operation), after, list(jobs))
        while True:
            page = await self._asker.ask("op.history", request, OperationHistory)
            yield page
            if page.next is None:
                return
            request = GetOperationHistory(request.operation, page.next, request.jobs)

    async def ends(self, operation: str, runs: Iterable[JobSlot]) -> dict[JobSlot, JobEnded]:
        """Return the ends of these runs of an operation's jobs, with start, CPU time and peak memory of each.

        Runs that have not ended, and runs whose end the log no longer has, are left out. Raises `Refused`, `Unanswered`, `BadInput`.
        """
        left, found = set(runs), dict[JobSlot, JobEnded]()
        jobs = sorted({run.index for run in left})
        # If there are too many jobs to name them in one request, all entries of the operation are read instead.
        async with aclosing(self.history(operation, jobs if len(jobs) <= MOST_JOBS_OF_HISTORY else ())) as pages:
            while left:
                page = await anext(pages, None)
                if page is None:
                    break
                found |= {
                    each.slot: each for each in page.happenings if isinstance(each, JobEnded) and each.slot in left
                }
                left -= found.keys()
        return found

    async def log(self, since_ms: int = 0, *, after: int = 0) -> AsyncGenerator[LogPage, None]:
        """Yield the pages of the log, the oldest entry first. Without arguments yield all entries that the log keeps; with `since_ms`, a
        Unix time in milliseconds, only entries since this time; with `after` only entries after this entry.

        Raises `Refused`, `Unanswered`.
        """
        request = ReadEvents(after, since_ms)
        while True:
            page = await self._asker.ask("op.log", request, LogPage)
            yield page
            if page.next is None:
                return
            request = ReadEvents(page.next)

    async def since(self, since_ms: int, wanted: HappeningFilter) -> AsyncIterator[Happening]:
        """Yield the selected events that the log has since a Unix time in milliseconds: changes of operations, and ends
        of jobs.

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
