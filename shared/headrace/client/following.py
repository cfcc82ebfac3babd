"""The stream of all events, joined from the events of admission, allocator and fair_share. A gap in the events of one of these services is
reported as an event, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import anyio
import msgspec

from headrace.bus import Bus, Inbox
from headrace.client.asking import LONGEST_ABSENCE_S
from headrace.client.errors import Unanswered
from headrace.client.place import Place
from headrace.ids import OperationId, TreeName
from headrace.runtime.clock import Clock
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode
from headrace.wire.happenings import (
    AllocationPreempted,
    AllocationStarted,
    Decisions,
    Happening,
    JobEnded,
    Missed,
    NodeSuspected,
    OperationChanged,
    OperationStep,
    Recorded,
    SessionStep,
    StarvationChanged,
)
from headrace.wire.operations import FINAL_STATES
from headrace.wire.snapshots import ElementKind, ShareItem, SharePart, StarvationStatus
from headrace.wire.version import Version

#: Seconds between two checks of the connection, and between two checks for missing parts of snapshots.
_LOOK_AGAIN_S: Final = 1.0

M = TypeVar("M", bound=msgspec.Struct)


class LogTail:
    """Entries of the log as admission publishes them, in order."""

    def __init__(self) -> None:
        self._last: int | None = None

    def new_happenings(self, told: Recorded, now_ms: int) -> Iterator[Happening]:
        """Yield the new events of an entry, preceded by the number of entries that are missing before it."""
        last, self._last = self._last, max(told.sequence, self._last or 0)
        if last is not None and told.sequence <= last:
            return
        if last is not None:
            # The entry that announces a term does not count as missing: it has no events and is not published.
            missed = told.previous - last - (last < told.announced <= told.previous)
            if missed > 0:
                yield Missed(now_ms, "admission", told.tree, missed)
        yield from told.happenings


class DecisionTail:
    """Decisions of an allocator, in order. Each term numbers its decisions from 0."""

    def __init__(self) -> None:
        self._term = self._next = 0

    def new_happenings(self, told: Decisions, now_ms: int) -> Iterator[Happening]:
        """Yield decisions, preceded by the number of decisions that are missing before them."""
        if told.term < self._term:
            return
        known, expected = self._term, self._next if told.term == self._term else 0
        self._term, self._next = told.term, told.first + len(told.decisions)
        if known and told.first > expected:
            yield Missed(now_ms, "allocator", told.tree, told.first - expected)
        yield from told.decisions
        yield from told.suspects


class StarvationTail:
    """Changes of starvation, derived from the parts of share snapshots."""

    def __init__(self, tree: TreeName) -> None:
        self._tree = tree
        #: Status of everything that starves, by `ShareItem.key`.
        self._known: dict[str, StarvationStatus] = {}
        self._version: Version | None = None
        self._next_part = 0
        #: True from the time when parts were missing until `know` is called.
        self.has_gap = False

    def know(self, starving: Iterable[ShareItem]) -> None:
        """Replace the known statuses by the statuses of everything that starves now. This reports no events."""
        self._known = {item.key: item.starvation_status for item in starving if _starves(item)}
        self.has_gap = False

    def new_happenings(self, part: SharePart, now_ms: int) -> Iterator[Happening]:
        """Yield the changes in a part of a snapshot, preceded by a `Missed` if earlier parts are missing."""
        before, expected = self._version, self._next_part
        self._version, self._next_part = part.version, part.part + 1
        if before is not None:
            goes_on = part.version == before and part.part == expected
            begins = part.part == 0 and part.builds_on in (None, before)
            if not goes_on and not begins:
                self.has_gap = True
                yield Missed(now_ms, "fair_share", self._tree)
        for item in part.items:
            known = self._known.get(item.key, StarvationStatus.NON_STARVING)
            if item.starvation_status is known:
                continue
            if _starves(item):
                self._known[item.key] = item.starvation_status
            else:
                del self._known[item.key]
            status, reason = item.starvation_status, item.starvation_reason
            at_ms = part.frame.at_ms
            yield StarvationChanged(at_ms, self._tree, item.kind, item.name, item.parent, status, reason)
        for key in part.removed:
            self._known.pop(key, None)


class HappeningFilter:
    """Selects events: all events, the events of one operation, or the events of one pool."""

    def __init__(self, *, pool: str = "", operation: str = "", members: Iterable[OperationId] = ()) -> None:
        self._pool = pool
        self._operation = operation
        #: Live operations of the pool.
        self._members = set(members)

    def wants(self, happening: Happening) -> bool:
        """True if the event is selected. A `Missed` is always selected."""
        if isinstance(happening, Missed):
            return True
        if isinstance(happening, StarvationChanged):
            return self._wants_element(happening)
        if isinstance(happening, NodeSuspected):
            return (not self._operation or self._operation in happening.operations) and (
                not self._pool or not self._members.isdisjoint(happening.operations)
            )
        # If one operation is selected, the preemptions of other operations' allocations in favour of this operation are selected, too.
        is_for_it = isinstance(happening, AllocationPreempted) and happening.record.beneficiary == self._operation
        if self._operation and not is_for_it and happening.operation != self._operation:
            return False
        return not self._pool or self._is_member(happening)

    def _wants_element(self, changed: StarvationChanged) -> bool:
        is_operation = changed.kind is ElementKind.OPERATION
        if self._operation and not (is_operation and changed.name == self._operation):
            return False
        return not self._pool or self._pool == changed.parent or (not is_operation and self._pool == changed.name)

    def _is_member(self, happening: Happening) -> bool:
        match happening:
            case AllocationPreempted():
                return happening.pool == self._pool
            case OperationStep(operation=name):
                if happening.cause == "started" and happening.pool == self._pool:
                    self._members.add(name)
                is_member = name in self._members
                if happening.state in FINAL_STATES:
                    self._members.discard(name)
                return is_member
            case OperationChanged(operation=name) if happening.pool is not None:
                was_member = name in self._members
                (self._members.add if happening.pool == self._pool else self._members.discard)(name)
                return was_member or name in self._members
            case (
                OperationChanged(operation=name)
                | JobEnded(operation=name)
                | SessionStep(operation=name)
                | AllocationStarted(operation=name)
            ):
                return name in self._members
            case _:
                return False


class Follower:
    """Delivers events from now on. `starving` returns everything that starves when it is called."""

    def __init__(
        self, bus: Bus, clock: Clock, place: Place, starving: Callable[[], Awaitable[Iterable[ShareItem]]]
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._place = place
        self._tree = place.tree
        self._starving = starving

    async def run(
        self,
        wanted: HappeningFilter,
        on_happening: Callable[[Happening], None],
        on_following: Callable[[], None],
        on_connection: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Call `on_happening` with each selected event, until cancelled.

        `on_following` is called once; after that, no event is left out while the bus is connected. `on_connection` is
        called with False when the connection is lost, and with True when it is back. Raises `NotRunning` if the
        connection does not come back, `BusClosed`, and the errors of `starving` at the beginning.
        """

        def report(happenings: Iterable[Happening]) -> None:
            for happening in happenings:
                if wanted.wants(happening):
                    on_happening(happening)

        log, made, starvation = LogTail(), DecisionTail(), StarvationTail(self._tree)
        async with anyio.create_task_group() as tasks:
            readers: dict[str, tuple[Any, Any]] = {
                subjects.HAPPENINGS: (Recorded, log.new_happenings),
                subjects.decisions(self._tree): (Decisions, made.new_happenings),
                subjects.share(self._tree): (SharePart, starvation.new_happenings),
            }
            # One inbox for all three subjects keeps the order in which messages arrive: the event of a job's end must come after the event
            # of the job's allocation.
            tasks.start_soon(self._read, await self._bus.subscribe(*readers), readers, report)
            starvation.know(await self._starving())
            on_following()
            tasks.start_soon(self._keep_known, starvation)
            tasks.start_soon(self._watch_bus, on_connection)

    async def run_decisions(self, on_decision: Callable[[Happening], None]) -> None:
        """Call `on_decision` with each decision of the allocator, until cancelled. Raises `BusError`."""

        def report(happenings: Iterable[Happening]) -> None:
            for happening in happenings:
                on_decision(happening)

        subject = subjects.decisions(self._tree)
        await self._read(
            await self._bus.subscribe(subject), {subject: (Decisions, DecisionTail().new_happenings)}, report
        )

    async def _read(
        self,
        inbox: Inbox,
        readers: Mapping[str, tuple[type[M], Callable[[M, int], Iterator[Happening]]]],
        report: Callable[[Iterable[Happening]], None],
    ) -> None:
        try:
            async for message in inbox:
                kind, read = readers[message.subject]
                # A damaged message is left out. The numbers in the next message show how many events are missing.
                with contextlib.suppress(BadMessage):
                    report(read(decode(message.data, kind), self._clock.wall_ms()))
        finally:
            with anyio.CancelScope(shield=True):
                await inbox.close()

    async def _watch_bus(self, on_connection: Callable[[bool], None]) -> None:
        """Report when the connection is lost and when it is back, because no message of a service shows this. Raises `NotRunning` if the
        connection does not come back.
        """
        gone_at_s: float | None = None
        while True:
            await anyio.sleep(_LOOK_AGAIN_S)
            now_s = self._clock.steady_s()
            if self._bus.connected == (gone_at_s is None):
                if gone_at_s is not None and now_s - gone_at_s >= LONGEST_ABSENCE_S:
                    raise self._place.not_running(f"gone for {now_s - gone_at_s:.0f} s")
                continue
            gone_at_s = now_s if gone_at_s is None else None
            on_connection(gone_at_s is None)

    async def _keep_known(self, starvation: StarvationTail) -> None:
        """Whenever parts of a snapshot were missing, request the statuses of everything that starves again."""
        while True:
            await anyio.sleep(_LOOK_AGAIN_S)
            if starvation.has_gap:
                with contextlib.suppress(Unanswered):
                    starvation.know(await self._starving())


def _starves(item: ShareItem) -> bool:
    return item.starvation_status is not StarvationStatus.NON_STARVING
