"""The shell of the history: records samples beside the updates, and answers requests for them.

Recording is best effort: a sample that cannot be stored is dropped and counted. Neither updates nor heartbeats wait for the history. A
process that is no longer the leader adds no further samples, so only one term at a time adds samples.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import anyio
import anyio.to_thread
import msgspec

from headrace.bus import Bus, BusError, Records
from headrace.ids import ROOT_POOL, TreeName
from headrace.obs.logging import logger
from headrace.resources import RESOURCE_NAMES
from headrace.runtime.endpoints import Caller, CallerKind, Endpoints
from headrace.runtime.engine import Figure, counter
from headrace.runtime.fenced_writes import FencedRecords, KeyFenced
from headrace.runtime.role import Role
from headrace.suggestions import near
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode
from headrace.wire.history import GetHistory, HistorySample, PoolHistory
from headrace.wire.refusals import BadRequest, NotFound, NotReady, Refusal
from headrace.wire.version import Term
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.history.downsampling import Downsampler
from headrace_fair_share.history.sampling import HistoryOptions, SampleInput, Sampler

_ADD_TIMEOUT_S = 5.0
#: Seconds before the next try to open the stream.
_OPEN_AGAIN_S = 60.0
#: Largest number of messages that are read for one request; the client then requests the rest.
_MESSAGES_PER_ANSWER = 2_000
#: Number of bytes after which no further message is read for one request.
_BYTES_PER_ANSWER = 16 * 2**20
#: Number of messages that the worker thread decodes at a time.
_BATCH = 100
#: Largest expected difference in milliseconds between the server's clock and the clock of this process.
_CLOCKS_DIFFER_MS = 60_000
#: Longest expected time in milliseconds from computing the results of a sample to storing the sample in the stream.
_JUST_BEFORE_MS = 1_000
#: Largest number of requests that are answered at the same time. It is low because the messages that are read for a request are held in
#: memory.
_READERS = 2


async def term_of_history(bus: Bus, tree: TreeName, options: HistoryOptions) -> Term:
    """Return the term of the fair_share process that recorded last; 0 if nothing is recorded or the records cannot be read."""
    try:
        last = await (await _records_of(bus, tree, options)).last()
    except BusError as error:
        logger().info(
            "the number of the leader that wrote the history last cannot be read", tree=tree, error=str(error)
        )
        return 0
    return _term_of(last.data)


class HistoryKeeper:
    """Records the history of one tree, in one term of its fair_share service, and answers requests for it."""

    def __init__(self, bus: Bus, tree: TreeName, engine: FairShareEngine, options: HistoryOptions, role: Role) -> None:
        self._bus = bus
        self._tree = tree
        self._engine = engine
        self._options = options
        self._role = role
        self._sampler = Sampler(tree, options, role.term)
        self._updated = anyio.Event()
        self._records: Records | None = None
        self._unknown_tree: Callable[[str], NotFound | None] = _nothing_to_say
        #: Number of samples that could not be recorded.
        self.lost = 0
        #: Number of messages in the stream that are not samples.
        self.unreadable = 0

    def on_updated(self) -> None:
        """Note that the engine has new results."""
        self._updated.set()

    def figures(self) -> list[Figure]:
        """Return metrics: samples taken and lost, and unreadable messages in the stream."""
        return [
            *self._sampler.figures(),
            counter("samples_lost", "samples", self.lost, "Samples that were not recorded."),
            counter("samples_unreadable", "messages", self.unreadable, "Recorded samples that could not be read."),
        ]

    async def run(self) -> None:
        """Record samples until cancelled."""
        records = await self._open()
        await self._add(records, [self._sampler.first()])
        while True:
            await self._updated.wait()
            self._updated = anyio.Event()
            configuration = self._engine.configuration
            if not self._sampler.wants(self._engine.frame, configuration.pools, configuration.revision):
                continue
            if not await self._record(records, SampleInput.of(self._engine)):
                # Open the stream again: the sample may have been lost because the stream was deleted.
                records = await self._open()

    async def serve(self, endpoints: Endpoints, unknown_tree: Callable[[str], NotFound | None]) -> None:
        """Start to answer `pool.history`. `unknown_tree` returns the answer for a tree that this process does not serve."""
        self._unknown_tree = unknown_tree
        subject = subjects.user("*", "pool.history")
        await endpoints.serve(
            subject,
            GetHistory,
            CallerKind.USER,
            self._on_request,
            concurrency=_READERS,
            pending=100,
        )

    async def _open(self) -> FencedRecords:
        while True:
            try:
                self._records = await _records_of(self._bus, self._tree, self._options)
                return FencedRecords(self._records, self._role.term, _term_of)
            except BusError as error:
                logger().warning("the history of pools is not recorded", tree=self._tree, error=str(error))
            await anyio.sleep(_OPEN_AGAIN_S)

    async def _record(self, records: FencedRecords, given: SampleInput) -> bool:
        """Record one sample. Return False if it was lost."""
        taken = await anyio.to_thread.run_sync(self._sampler.sample, given)
        self._sampler.on_taken(given, taken)
        return await self._add(records, taken.pages)

    async def _add(self, records: FencedRecords, pages: list[bytes]) -> bool:
        try:
            for page in pages:
                await records.add(page, timeout_s=_ADD_TIMEOUT_S)
        except KeyFenced as error:
            self._role.step_down(str(error))
            return False
        except BusError as error:
            self.lost += 1
            logger().debug("a sample of pools was lost", tree=self._tree, error=str(error))
            return False
        return True

    async def _on_request(self, request: GetHistory, caller: Caller) -> PoolHistory | Refusal | None:
        if request.tree != self._tree:
            return self._unknown_tree(request.tree)
        if request.resource not in RESOURCE_NAMES:
            return BadRequest("resource", request.resource, "one of " + ", ".join(RESOURCE_NAMES))
        if request.until_ms <= request.since_ms:
            return BadRequest("until_ms", str(request.until_ms), f"a time later than since_ms, {request.since_ms}")
        if self._records is None:
            return NotReady("the history of pools is not open yet")
        try:
            return await self._read(self._records, request)
        except BusError as error:
            return NotReady(f"the history cannot be read: {error}")

    async def _read(self, records: Records, request: GetHistory) -> PoolHistory:
        oldest_ms = await records.oldest_ms()
        if request.from_oldest and oldest_ms is not None:
            begin_ms = min(max(request.since_ms, oldest_ms - _JUST_BEFORE_MS), request.until_ms - 1)
            request = msgspec.structs.replace(request, since_ms=begin_ms)
        gathered = Downsampler(request)
        # If the stream was empty a moment ago, read nothing: samples that were added since then are left to the client's next request.
        next_ = None if oldest_ms is None else await self._gather(records, request, gathered)
        engine = self._engine
        there = {ROOT_POOL, *engine.configuration.pools.pools, *engine.operations.in_use(), *engine.pool_results}
        known = gathered.named or request.pool in there
        return PoolHistory(
            pool=request.pool,
            tree=self._tree,
            resource=request.resource,
            since_ms=request.since_ms,
            until_ms=request.until_ms,
            points=gathered.points,
            next=next_,
            known_until_ms=gathered.known_until_ms,
            oldest_ms=oldest_ms,
            known=known,
            near=[] if known else near(request.pool, there),
        )

    async def _gather(self, records: Records, request: GetHistory, gathered: Downsampler) -> int | None:
        """Read the recorded samples. Return the sequence number after which the client's next request must continue; None if all samples
        were read.
        """
        since_ms = max(0, request.since_ms - _CLOCKS_DIFFER_MS)
        next_: int | None = None
        messages = size = 0
        batch: list[bytes] = []
        async with aclosing(records.read(after=request.first, since_ms=since_ms)) as entries:
            async for entry in entries:
                batch.append(entry.data)
                messages += 1
                size += len(entry.data)
                if len(batch) == _BATCH or size > _BYTES_PER_ANSWER:
                    self.unreadable += await anyio.to_thread.run_sync(_take, gathered, batch)
                    batch = []
                if gathered.past_end:
                    break
                if messages >= _MESSAGES_PER_ANSWER or size > _BYTES_PER_ANSWER:
                    next_ = entry.sequence
                    break
        self.unreadable += await anyio.to_thread.run_sync(_take, gathered, batch)
        return next_


async def _records_of(bus: Bus, tree: TreeName, options: HistoryOptions) -> Records:
    return await bus.records(
        subjects.history_stream(tree),
        subjects.history(tree),
        max_age_s=options.max_age_ms / 1000,
        max_bytes=options.max_bytes,
    )


def _term_of(data: bytes) -> Term:
    """Return the term of an entry, 0 if fair_share did not write it."""
    try:
        return decode(data, HistorySample).term
    except BadMessage:
        return 0


def _nothing_to_say(_: str) -> NotFound | None:
    return None


def _take(gathered: Downsampler, batch: list[bytes]) -> int:
    """Add the samples of a batch of messages. Return the number of messages that are not samples: another program wrote them into the
    stream.
    """
    unreadable = 0
    for data in batch:
        try:
            gathered.add(decode(data, HistorySample))
        except BadMessage:
            unreadable += 1
    return unreadable
