"""Feeds, by which a service follows the state of another service. A feed subscribes to the changes, requests the whole state,
passes on the changes that are published, and notices gaps.

Both kinds of feeds decide nothing: they pass messages on in order and without gaps. Changes that are published while a feed waits
for the whole state are kept, and passed on after it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from headrace.bus import Bus, BusError, Log, YieldBudget
from headrace.ids import TreeName
from headrace.obs import tracing
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.runtime.endpoints import Endpoints
from headrace.runtime.role import Deposed
from headrace.runtime.terms import TermBook
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.ledger import LiveOperation, WholeOperations, WholeOperationsRequest
from headrace.wire.log import EphemeralPoolSet, Event, LogBatch, Published
from headrace.wire.placements import EphemeralPool
from headrace.wire.refusals import Refused, decode_answer
from headrace.wire.snapshot_parts import Applied, SnapshotReader
from headrace.wire.snapshots import WholeRequest
from headrace.wire.version import Term

Item = TypeVar("Item", bound=msgspec.Struct)
Frame = TypeVar("Frame", bound=msgspec.Struct)
T = TypeVar("T")

_ASK_TIMEOUT_S = 2.0
_RETRY_S = 0.2
#: Largest number of pauses after each part of a snapshot. More than one pause is needed because a part takes as long to apply as
#: two slices of most other work, and because parts arrive in a row: without pauses other messages would wait until the whole
#: snapshot is applied.
_WAYS_OF_A_PART = 4
_NO_SPAN = nullcontext()
#: Random delays that spread the retries of many readers in time. No decision depends on them.
_jitter = random.Random()


class OperationsReader(Protocol):
    """The receiver of operations and their events. Both methods are called from one task, in order."""

    def on_operations(self, operations: list[LiveOperation], sequence: int) -> Awaitable[None]:
        """Replace the known operations by all live operations, as of the log entry `sequence`."""
        ...

    def on_events(self, events: list[Event], sequence: int) -> Awaitable[None]:
        """Take the events of the log entries up to `sequence` that the reader has not taken yet.

        Right after a call of `on_operations`, the tree's ephemeral pools are passed as events, if there are any. Later events may repeat
        what the list of live operations already contains.
        """
        ...


class OperationsFeed:
    """Follows admission's log of operations. `sequence` is the number of the last log entry that the reader has."""

    def __init__(
        self, bus: Bus, endpoints: Endpoints, tree: TreeName, reader: OperationsReader, terms: TermBook | None = None
    ) -> None:
        self._bus = bus
        self._endpoints = endpoints
        self._tree = tree
        self._reader = reader
        self._terms = terms
        self._progress = anyio.Event()
        #: Set after the reader has received all live operations once.
        self._ready = anyio.Event()
        self.sequence = 0
        #: The term that wrote the newest known entry, or a later term.
        self._term: Term = 0

    async def catch_up(self) -> None:
        """Return when the reader has all entries that the log has at the time of the call."""
        await self._ready.wait()
        while True:
            try:
                _, last = await (await self._bus.log(subjects.STREAM, subjects.LOG)).bounds()
                break
            except BusError as error:
                logger().warning("log cannot be read", error=str(error))
                await anyio.sleep(_RETRY_S * (1 + _jitter.random()))
        while self.sequence < last:
            await self._progress.wait()

    async def run(self) -> None:
        """Follow the log until cancelled. Raises `Deposed` if the log has lost entries that the reader has."""
        inbox = await self._bus.subscribe(subjects.EVENTS)
        log = await self._bus.log(subjects.STREAM, subjects.LOG)
        await self._take_whole()
        self._ready.set()
        async for message in inbox:
            published = self._endpoints.decode(message, Published)
            # The reader gets the events of all trees, since admission and its log serve all trees, and picks those of
            # its own tree.
            if published is None:
                continue
            if self._terms is not None and not await self._terms.believes(self._bus, "admission", published.term):
                # Either another process with a higher term took the role of admission from the sender, or the message names a
                # term that no process has taken. In both cases the events of the message are dropped, and read from the log
                # instead.
                published = msgspec.structs.replace(published, events=[], term=0)
            await self._take(published, log)
            progress, self._progress = self._progress, anyio.Event()
            progress.set()
            # Other tasks get their turn here. Without it, all messages that already wait in the inbox would be read without a pause.
            await anyio.lowlevel.checkpoint()

    async def _take(self, published: Published, log: Log) -> None:
        if published.term > self._term:
            # The log has lost entries if the new leader's first entry has a number that this reader already knows. A reader that
            # knows no earlier term cannot tell.
            lost_entries = self._term and 0 < published.announced <= self.sequence
            self._term = published.term
            if lost_entries:
                # This process cannot tell which parts of its state came from the lost entries. So it ends; after its restart it
                # begins with the entries that the log still has.
                raise Deposed(
                    f"the log has lost entries: entry {published.announced} is new, but entries up to {self.sequence} were known"
                )
        if published.sequence <= self.sequence:
            return
        if published.previous > self.sequence or not published.events:
            await self._catch_up(published.sequence, log)
            return
        self.sequence = published.sequence
        await self._reader.on_events(published.events, published.sequence)

    async def _catch_up(self, sequence: int, log: Log) -> None:
        logger().info("events missed", known=self.sequence, told=sequence)
        while self.sequence < sequence:
            try:
                first, last = await log.bounds()
                if last <= self.sequence:
                    # Admission publishes an entry only after the entry is durable in the log. So a message about an entry that
                    # the log does not have is forged.
                    self._endpoints.report_forged(
                        subjects.EVENTS, subjects.EVENTS, f"it names entry {sequence}, but the log ends at entry {last}"
                    )
                    return
                if first > self.sequence + 1:
                    await self._take_whole()
                    continue
                before = self.sequence
                async for entry in log.read(self.sequence):
                    if entry.sequence != self.sequence + 1:
                        break
                    self.sequence = entry.sequence
                    try:
                        batch = decode(entry.data, LogBatch)
                    except BadMessage as error:
                        # This entry is not from admission. Admission skips such an entry when it reads the log, and so does the feed.
                        self._endpoints.report_forged("log", subjects.LOG, f"entry {entry.sequence}: {error}")
                        continue
                    self._term = max(self._term, batch.term)
                    await self._reader.on_events(batch.events, entry.sequence)
                if self.sequence == before:
                    # The next entry is damaged, or was just removed. Admission knows its content, so the whole state
                    # is requested.
                    await self._take_whole()
            except BusError as error:
                logger().warning("log cannot be read", error=str(error))
                await anyio.sleep(_RETRY_S * (1 + _jitter.random()))

    async def _take_whole(self) -> None:
        while True:
            try:
                operations, pools, sequence = await self._ask_whole()
            except (BusError, BadMessage, Refused) as error:
                logger().info("operations not known yet", error=str(error))
                await anyio.sleep(_RETRY_S * (1 + _jitter.random()))
                continue
            self.sequence = sequence
            await self._reader.on_operations(operations, sequence)
            if pools:
                await self._reader.on_events([EphemeralPoolSet(self._tree, pool) for pool in pools], sequence)
            return

    async def _ask_whole(self) -> tuple[list[LiveOperation], list[EphemeralPool], int]:
        operations: dict[str, LiveOperation] = {}
        pools: list[EphemeralPool] = []
        sequence: int | None = None
        request = WholeOperationsRequest(tree=self._tree)
        while True:
            data = await self._bus.request(subjects.OPERATIONS_WHOLE, encode(request), timeout_s=_ASK_TIMEOUT_S)
            answer = decode_answer(data, WholeOperations)
            if not isinstance(answer, WholeOperations):
                raise Refused(answer)
            sequence = answer.sequence if sequence is None else sequence
            pools += answer.ephemeral_pools
            operations.update((operation.operation, operation) for operation in answer.operations)
            last = next(reversed(operations.values()), None)
            if last is not None:
                last.attempts.extend(answer.more_attempts)
            if not answer.more:
                return list(operations.values()), pools, sequence
            request = WholeOperationsRequest(
                tree=self._tree,
                after=last.operation if last is not None else "",
                after_pool=answer.ephemeral_pools[-1].name if answer.ephemeral_pools else request.after_pool,
                next_index=last.attempts[-1].index + 1 if last is not None and last.attempts else 0,
            )


class SnapshotFeed(Generic[Item, Frame]):
    """Passes the snapshots of a publisher on to a `SnapshotReader`.

    Requests the whole snapshot at the start, after a gap, and if nothing was published for `silence_s` seconds.
    """

    def __init__(
        self,
        bus: Bus,
        endpoints: Endpoints,
        clock: Clock,
        subject: str,
        whole_subject: str,
        part_type: type[msgspec.Struct],
        reader: SnapshotReader[Item, Frame],
        on_applied: Callable[[Applied], Awaitable[None]],
        *,
        silence_s: float,
        terms: TermBook | None = None,
        publisher: str = "",
    ) -> None:
        """`publisher` is the role of the publisher. With `terms`, parts from a process that does not lead this role are ignored."""
        self._bus = bus
        self._endpoints = endpoints
        self._clock = clock
        self._subject = subject
        self._whole_subject = whole_subject
        self._part_type = part_type
        self.reader = reader
        self._on_applied = on_applied
        self._silence_s = silence_s
        self._terms = terms
        self._publisher = publisher
        #: If set, makes the feed pause after each part of a snapshot, so that other messages are handled before the
        #: next part.
        self.way: YieldBudget | None = None
        #: Number of parts that were refused because a higher term is known, or because no process has taken the term of the part.
        self.refused = 0
        self._heard_s = 0.0
        self._missing = anyio.Event()
        #: Number of requests for the whole snapshot.
        self.asked = 0

    def age_s(self) -> float:
        """Return the seconds since the last part was applied."""
        return self._clock.steady_s() - self._heard_s

    async def run(self) -> None:
        """Follow the publisher until cancelled."""
        inbox = await self._bus.subscribe(self._subject)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_whole)
            self._missing.set()
            async for message in inbox:
                with tracing.linked("apply snapshot", message.headers, self._subject) if message.headers else _NO_SPAN:
                    part = self._endpoints.decode(message, self._part_type)
                    if part is not None:
                        await self._apply(part)
                await (anyio.lowlevel.checkpoint() if self.way is None else self.way.give(_WAYS_OF_A_PART))

    async def _apply(self, part: Any) -> None:
        if self._terms is not None and not await self._terms.believes(self._bus, self._publisher, part.version.term):
            self.refused += 1
            return
        applied = self.reader.on_part(part)
        if applied is not None:
            self._heard_s = self._clock.steady_s()
            if self.way is not None:
                self.way.renew()
            await self._on_applied(applied)
        elif self.reader.needs_whole:
            self._missing.set()

    async def _keep_whole(self) -> None:
        while True:
            with anyio.move_on_after(self._silence_s * (1 + _jitter.random() / 2)):
                await self._missing.wait()
            # A part that arrived during the last request may have set the old event, although nothing is missing now. The event
            # is renewed before the check, so that a part that arrives after the check sets the new event.
            self._missing = anyio.Event()
            if not self.reader.needs_whole and self.age_s() < self._silence_s:
                continue
            try:
                await self._ask()
            except (BusError, BadMessage) as error:
                logger().debug("snapshot not there yet", subject=self._whole_subject, error=str(error))
            if self.reader.needs_whole:
                await anyio.sleep(_RETRY_S * (1 + _jitter.random()))
                self._missing.set()

    async def _ask(self) -> None:
        self.asked += 1
        request = WholeRequest()
        while True:
            data = await self._bus.request(self._whole_subject, encode(request), timeout_s=_ASK_TIMEOUT_S)
            part: Any = decode(data, self._part_type)
            await self._apply(part)
            has_it = not self.reader.needs_whole and part.version <= self.reader.version
            if has_it or part.part + 1 >= part.parts:
                return
            request = WholeRequest(version=part.version, part=part.part + 1)


def slices(items: list[T], most: int) -> list[list[T]]:
    """Split items into slices of at most `most` items, in order. There is at least one slice, which may be empty."""
    return [items[first : first + most] for first in range(0, max(1, len(items)), most)]
