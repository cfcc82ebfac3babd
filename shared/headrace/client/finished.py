"""Finished operations, each once, in the order of their ends in the log. The caller stores the position in the log up to which it has read.

A page is made of the log and of what admission remembers. The log shows which operations ended, in which order. The figures of an operation
are taken from admission's view of it. If admission has forgotten the operation, the figures are added up from the entries of the log that
were read.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import anyio
import msgspec

from headrace.bus import Bus, Inbox
from headrace.client.asking import LONGEST_ABSENCE_S, Asker, Pauses
from headrace.client.errors import Unanswered
from headrace.errors import BadInput
from headrace.ids import OperationId, PoolName, TreeName
from headrace.resources import LARGEST_SUM, Resources
from headrace.runtime.clock import Clock
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode
from headrace.wire.happenings import Recorded
from headrace.wire.heartbeat import JobResult
from headrace.wire.log import (
    Event,
    JobsEnded,
    OperationEvent,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    ParametersChanged,
)
from headrace.wire.operations import (
    FINAL_STATES,
    ListOperations,
    OperationList,
    OperationSpec,
    OperationView,
    TaskEnds,
)
from headrace.wire.replay import LogPage, ReadEvents, ToldEntry

#: Largest number of operations of a page.
MOST_ON_A_PAGE: Final = 200
#: Seconds after which the log is read again if no message announced a new entry.
_LOOK_AGAIN_S: Final = 5.0

#: A number of ends that no entry of the log can have. A position with this number means that all ends of the entry were read.
_ALL_ENDS: Final = 1_000_000

_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class LogPosition(msgspec.Struct, frozen=True, order=True):
    """The position up to which a reader has read the log. Later positions are larger, even if the log lost its newest
    entries meanwhile.
    """

    #: Term of the last entry that was read; 0: no entry was read.
    term: int = 0
    sequence: int = 0
    #: Number of ends of operations that were read in this entry.
    ends: int = 0

    def __str__(self) -> str:
        return f"{self.term}.{self.sequence}.{self.ends}"

    @staticmethod
    def parse(text: str, place: str) -> LogPosition:
        """Read a position as `str` writes it. Raises `BadInput`."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
            raise BadInput(place, text, "a position in the log such as 3.1204.1")
        return LogPosition(*map(int, parts))


class FinishedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One finished operation, as every person may see it. Times are Unix milliseconds."""

    operation: str
    user: str
    pool: str
    tree: str
    title: str
    #: Program that the jobs run, without arguments.
    program: str
    #: `completed`, `failed` or `aborted`.
    state: str
    #: Cause of the end, such as `jobs_done`.
    cause: str
    reason: str
    started_at_ms: int
    ended_at_ms: int
    job_count: int
    completed_jobs: int
    #: Four numbers of runs: runs that failed, that Headrace ended, that were lost, and that timed out.
    failed_jobs: int
    aborted_jobs: int
    lost_jobs: int
    timed_out_jobs: int
    #: Cores, bytes of memory and GPUs of one job; the mean if its jobs are of several kinds.
    cpu: float
    memory: int
    gpu: int
    #: Sums over the measured runs, and the largest peak memory of a run.
    ran_ms: int
    cpu_ms: int
    max_rss_bytes: int
    #: False if neither the log nor admission has the start of the operation any more: then only id, state, cause, reason and end are known.
    is_complete: bool
    #: Position from which a reader continues after this operation.
    position: str


class LostEntries(NamedTuple):
    """Entries that were removed from the log before they were read. Operations whose end was in these entries are not reported."""

    #: Sequence numbers of the first and the last missing entry.
    first: int
    last: int


class FinishedPage(NamedTuple):
    """The next finished operations."""

    operations: Sequence[FinishedOperation]
    #: Position from which a reader continues after this page.
    position: LogPosition
    #: Entries before this page that were removed before they were read; None if no entry was.
    lost: LostEntries | None
    #: True if the page reaches the end of the log.
    is_last: bool


class _Known(msgspec.Struct):
    """The facts about an operation that are known besides its end."""

    user: str
    spec: OperationSpec
    pool: str
    started_at_ms: int
    ends: TaskEnds = TaskEnds()
    reason: str = ""


class _End(NamedTuple):
    event: OperationStateChanged
    #: Facts about the operation from the entries that were read; None if the operation's start was not in these entries.
    known: _Known | None
    position: LogPosition


class _Reading:
    """Follows the entries of the log and finds the ends of operations. The number of live operations bounds its memory."""

    def __init__(self, position: LogPosition) -> None:
        self.position = position
        self._live: dict[OperationId, _Known] = {}
        #: Term and sequence of the last entry that was read.
        self._last = (0, 0)

    def is_followed_by(self, page: LogPage) -> bool:
        """True if reading continues with this page: it begins with the entry of the position, or the log has removed
        that entry.

        False means that the log lost its newest entries (the server's disk can lose its newest data), or that the log is not the log of the
        position.
        """
        at = self.position
        head = page.entries[0] if page.entries else None
        is_there = head is not None and (head.term, head.sequence) == (at.term, at.sequence)
        return is_there or not at.sequence or page.oldest > at.sequence

    def lost_before(self, page: LogPage) -> LostEntries | None:
        """Return the entries after the position that the log removed before it sent the first page."""
        first, last = self.position.sequence + 1, page.oldest - 1
        return LostEntries(first, last) if self.position.sequence and first <= last else None

    def begin_again(self) -> None:
        """Prepare for reading all of the log. Entries that are not newer than the position are passed over."""
        self._live.clear()
        self._last = (0, 0)

    def has_other_log(self) -> bool:
        """Correct the position after the whole log was read. Return True if the log is that of another cluster.

        The position stays if the log has newer entries. Otherwise, if the terms of the log are lower than the
        position's term, the log is that of another cluster: the position is reset, so that the log is read from its
        beginning. If not, the position is set to the last entry of the log.
        """
        if self._last > (self.position.term, self.position.sequence):
            return False
        is_other = self._last[0] < self.position.term
        self.position = LogPosition() if is_other else LogPosition(*self._last, ends=_ALL_ENDS)
        return is_other

    def ends(self, entries: Sequence[ToldEntry]) -> Iterator[_End]:
        """Yield the ends of operations that are after the position, and move the position."""
        for entry in entries:
            at = (entry.term, entry.sequence)
            own = (self.position.term, self.position.sequence)
            is_new = at > self._last
            self._last = max(at, self._last)
            known, nth = self.position.ends if at == own else 0, 0
            for event in entry.events:
                if is_new:
                    self._remember(event)
                if isinstance(event, OperationStateChanged) and event.state in FINAL_STATES:
                    nth += 1
                    live = self._live.pop(event.operation, None)
                    if nth > known and at >= own:
                        yield _End(event, live, LogPosition(*at, nth))
            if at >= own:
                self.position = LogPosition(*at, max(nth, known))

    def _remember(self, event: Event) -> None:
        if isinstance(event, OperationStarted):
            self._live[event.operation] = _Known(event.user, event.spec, event.spec.pool, event.at_ms)
            return
        known = self._live.get(event.operation) if isinstance(event, OperationEvent) else None
        match event:
            case ParametersChanged() if known is not None:
                known.pool = event.pool
            case OperationPlaced() if known is not None and event.placement.tree == known.spec.tree:
                known.pool = event.placement.pool
            case JobsEnded() if known is not None:
                for logged in event.ends:
                    known.ends = known.ends.plus(logged.end)


class FinishedOperations:
    """Requests for finished operations."""

    def __init__(self, asker: Asker, bus: Bus, clock: Clock) -> None:
        self._asker = asker
        self._bus = bus
        self._clock = clock

    async def pages(
        self, position: LogPosition | None = None, *, since_ms: int = 0, follow: bool = False
    ) -> AsyncGenerator[FinishedPage, None]:
        """Yield the operations that finished after a position, or since a Unix time in milliseconds, each once, in the
        order of their ends.

        With `follow` the iteration goes on until cancelled, and yields a page without operations whenever it has reached the end of the
        log. Waits up to a minute for unavailable services. Raises `Refused`, `Unanswered`, `BusError`.
        """
        reading = _Reading(position or LogPosition())
        news = await self._bus.subscribe(subjects.HAPPENINGS, key=lambda _: None) if follow else None
        try:
            while True:
                async for page in self._to_the_end(reading, since_ms):
                    yield page
                if news is None:
                    return
                await self._wait_for_entry(news, reading.position.sequence)
        finally:
            if news is not None:
                with anyio.CancelScope(shield=True):
                    await news.close()

    async def _to_the_end(self, reading: _Reading, since_ms: int) -> AsyncGenerator[FinishedPage, None]:
        at = reading.position.sequence
        page = await self._ask("op.log", ReadEvents(max(0, at - 1), 0 if at else since_ms), LogPage)
        lost, is_whole = reading.lost_before(page), not reading.is_followed_by(page)
        if is_whole:
            reading.begin_again()
            page = await self._ask("op.log", ReadEvents(), LogPage)
        while True:
            ends = [end for end in reading.ends(page.entries) if end.event.at_ms >= since_ms]
            for first in range(0, len(ends), MOST_ON_A_PAGE):
                some = ends[first : first + MOST_ON_A_PAGE]
                views = await self._views([end.event.operation for end in some])
                yield FinishedPage(
                    [_finished(end, _of_this_end(views, end)) for end in some], some[-1].position, lost, is_last=False
                )
                lost = None
            if page.next is None:
                break
            if lost is not None or not ends:
                yield FinishedPage([], reading.position, lost, is_last=False)
                lost = None
            page = await self._ask("op.log", ReadEvents(page.next), LogPage)
        if is_whole and reading.has_other_log():
            async for each in self._to_the_end(reading, since_ms):
                yield each
            return
        yield FinishedPage([], reading.position, lost, is_last=True)

    async def _views(self, operations: list[OperationId]) -> dict[str, OperationView]:
        found: dict[str, OperationView] = {}
        after = ""
        while True:
            request = ListOperations(limit=MOST_ON_A_PAGE, after=after, operations=operations)
            page = await self._ask("op.list", request, OperationList)
            found |= {view.operation: view for view in page.operations}
            if not page.more or not page.operations:
                return found
            after = page.operations[-1].operation

    async def _ask(self, verb: str, request: msgspec.Struct, kind: type[_Answer]) -> _Answer:
        gone_at_s: float | None = None
        pauses = Pauses()
        while True:
            try:
                return await self._asker.ask(verb, request, kind)
            except Unanswered as error:
                now_s = self._clock.steady_s()
                gone_at_s = now_s - error.waited_s if gone_at_s is None else gone_at_s
                if now_s - gone_at_s >= LONGEST_ABSENCE_S:
                    raise
            await anyio.sleep(pauses.next_s())

    async def _wait_for_entry(self, news: Inbox, known: int) -> None:
        """Wait until the log has an entry after `known`, but at most a few seconds."""
        with anyio.move_on_after(_LOOK_AGAIN_S):
            async for message in news:
                with contextlib.suppress(BadMessage):
                    if decode(message.data, Recorded).sequence > known:
                        return


def _of_this_end(views: Mapping[str, OperationView], end: _End) -> OperationView | None:
    """Return admission's view of the operation, or None if the view has another end. The id may belong to a later
    operation: an id that admission has forgotten can be used again.
    """
    view = views.get(end.event.operation)
    return view if view is not None and view.state is end.event.state and view.ended_at_ms == end.event.at_ms else None


def _finished(end: _End, view: OperationView | None) -> FinishedOperation:
    """Return the operation with its figures. They are taken from `view`, or from the entries that were read if `view` is None."""
    event = end.event
    known = end.known if view is None else _known_of(view)
    empty = _Known("", OperationSpec(PoolName(""), [""], job_count=0, tree=TreeName("")), "", 0)
    of = known or empty
    used, counts, job = of.ends.used.values(), of.ends.counts, of.spec.mean_job if known else Resources()
    return FinishedOperation(
        operation=event.operation,
        user=of.user,
        pool=of.pool,
        tree=of.spec.tree,
        title=of.spec.title,
        program=of.spec.argv[0],
        state=event.state.value,
        cause=event.cause.value,
        reason=of.reason or event.reason,
        started_at_ms=of.started_at_ms,
        ended_at_ms=event.at_ms,
        job_count=of.spec.job_count,
        completed_jobs=counts.get(JobResult.COMPLETED, 0),
        failed_jobs=counts.get(JobResult.FAILED, 0),
        aborted_jobs=counts.get(JobResult.ABORTED, 0),
        lost_jobs=counts.get(JobResult.LOST, 0),
        timed_out_jobs=counts.get(JobResult.TIMED_OUT, 0),
        cpu=job.cpu / 100,
        memory=job.memory,
        gpu=job.gpu,
        ran_ms=min(sum(each.ran_ms for each in used), LARGEST_SUM),
        cpu_ms=min(sum(each.cpu_ms for each in used), LARGEST_SUM),
        max_rss_bytes=max((each.max_rss_bytes for each in used), default=0),
        is_complete=known is not None,
        position=str(end.position),
    )


def _known_of(view: OperationView) -> _Known:
    counts = {
        JobResult.COMPLETED: view.completed_jobs,
        JobResult.FAILED: view.failed_jobs,
        JobResult.ABORTED: view.aborted_jobs,
        JobResult.LOST: view.lost_jobs,
        JobResult.TIMED_OUT: view.timed_out_jobs,
    }
    return _Known(view.user, view.spec, view.spec.pool, view.started_at_ms, TaskEnds(counts, view.used), view.reason)
