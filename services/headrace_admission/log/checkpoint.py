"""Checkpoints: the state in a bucket, so that a start reads only the end of the log.

A checkpoint is taken while all decided events are durable, so it covers the log exactly up to its sequence. It is encoded page by
page, while decisions go on. Its pages are written first, then the head that names them; then the pages of the previous checkpoint are
removed. So a complete checkpoint exists at any time, even if the process ends in between.

The head is written by compare-and-set and carries the term of its writer. A process that has a successor can neither write nor
remove anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Final

import msgspec
from anyio import lowlevel

from headrace.bus import Entry, KeyValue
from headrace.ids import OperationId, TreeName
from headrace.obs.logging import logger
from headrace.runtime.fenced_writes import FencedKey
from headrace.wire import subjects
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, UNREADABLE, BadMessage, decode, runs_of_bytes, runs_within
from headrace_admission.log.byte_budget import CHECKPOINT_PAGE_BYTES
from headrace_admission.state.ephemeral_pools import TreePools
from headrace_admission.state.operation import Operation
from headrace_admission.state.state import Page, Restored, State

_HEAD: Final = "head"
#: Prefix of the keys of all pages.
_PAGES: Final = "page"


class _Head(msgspec.Struct, frozen=True):
    sequence: int
    #: Term that wrote the pages.
    term: int
    pages: int
    #: The term that claimed or wrote the head last.
    writer: int = 0
    #: Term of each tree's newest allocator.
    allocator_terms: dict[TreeName, int] = {}
    #: Sum of all recorded moves of the wall clock, in milliseconds.
    clock_moved_ms: int = 0

    @property
    def prefix(self) -> str:
        """Return the common prefix of the keys of the pages."""
        return f"{_PAGES}.{self.term}.{self.sequence}"

    @property
    def last_term(self) -> int:
        """Return the highest term that wrote the pages or claimed the head."""
        return max(self.term, self.writer)

    def page(self, number: int) -> str:
        """Return a name of page `number`, counted from 0, for error messages."""
        where = f"page {number + 1} of {self.pages} (keys {self.prefix}.{number}.*)"
        return f"bucket {subjects.CHECKPOINT_BUCKET}, {where}"


_NO_HEAD: Final = _Head(0, 0, 0)
_encode: Final = msgspec.msgpack.Encoder().encode


class _RawPage(msgspec.Struct, frozen=True):
    """A `Page` whose operations are encoded already."""

    operations: list[msgspec.Raw]


class Checkpoint:
    """The state as it is when this object is made. At that time every decided event must be durable.

    The state is encoded page by page, and may change meanwhile. An operation that is about to change is encoded before the change.
    """

    def __init__(self, state: State, *, page_bytes: int = CHECKPOINT_PAGE_BYTES) -> None:
        self.state = state
        self._page_bytes = page_bytes
        state.before_change = self._keep
        self.sequence = state.sequence
        self.allocator_terms = dict(state.allocator_terms)
        self.clock_moved_ms = state.clock_moved_ms
        self._pools = state.ephemeral_pools()
        self._lost_work = state.lost_work.rows()
        #: Operations that are in no page yet.
        self._to_do = dict(state.operations)
        #: Encoded records of operations in `_to_do` that have changed since this object was made. The records show the operations before
        #: the change.
        self._records: dict[OperationId, bytes] = {}

    def pages(self) -> Iterator[bytes]:
        """Yield the pages, each encoded when it is requested. A record too large for a page gets a page of its own."""
        for tree in self._pools:
            for pools in runs_within(tree.pools, self._page_bytes):
                yield _encode(Page([], [TreePools(tree.tree, pools)]))
        for rows in runs_within(self._lost_work, self._page_bytes):
            yield _encode(Page([], lost_work=rows))
        for records in runs_of_bytes(self._encoded(), self._page_bytes):
            yield _encode(_RawPage([msgspec.Raw(record) for record in records]))

    def close(self) -> None:
        """Stop tracking changes of the state; no more pages are requested."""
        self.state.before_change = None

    def _keep(self, operation: Operation) -> None:
        if self._to_do.get(operation.id) is operation and operation.id not in self._records:
            self._records[operation.id] = _encode(operation.to_record())

    def _encoded(self) -> Iterator[bytes]:
        for name, operation in list(self._to_do.items()):
            del self._to_do[name]
            yield self._records.pop(name, b"") or _encode(operation.to_record())


class CheckpointStore:
    """Reads and writes the checkpoint of admission for one term, until a later term claims it."""

    def __init__(self, bucket: KeyValue, term: int) -> None:
        self._bucket = bucket
        self._term = term
        self._key = FencedKey(bucket, _HEAD, term, lambda value: _head_of(value).last_term)
        self._head = _NO_HEAD
        #: Revision of the bucket when this term claimed it; a successor's writes have higher revisions.
        self._claimed_at = 0

    @property
    def last_term(self) -> int:
        """Return the highest term that claimed or wrote the head before this term."""
        return self._head.last_term

    async def claim(self) -> None:
        """Claim the head for this term, so that no earlier term can write it any more.

        Raises `KeyFenced` if a higher term has it, `BadMessage` or `DamagedValue` if it cannot be read, and `BusError`.
        """
        self._claimed_at = await self._bucket.revision()
        self._head = _head_of(await self._key.claim(self._restated))

    async def begin_anew(self) -> None:
        """Remove an unreadable checkpoint, and claim the head of a new one.

        Allowed only if the log, or the state of this process, has everything that the checkpoint had. Raises the errors of `claim`.
        """
        await self._bucket.clear(self._claimed_at)
        await self._key.claim(lambda _: _encode(msgspec.structs.replace(_NO_HEAD, writer=self._term)))
        self._head = _NO_HEAD

    async def read(self, take: Callable[[Page], None]) -> Restored:
        """Read the present checkpoint and pass each page to `take` as it arrives, so that only one page is in memory at a time.

        The checkpoint may be replaced meanwhile unless this term has claimed the head. Raises `BusError`, and `BadMessage` if a page
        is missing or damaged: the log alone may not hold everything, so the page is not skipped. Some pages may have been passed to
        `take` before an error.
        """
        entry = await self._bucket.get(_HEAD)
        head = _head_of(None if entry is None else entry.value)
        taken = 0
        if head.pages:
            async with aclosing(self._bucket.read(head.prefix)) as pieces:
                async for number, data in _pages(pieces):
                    if number != taken or number >= head.pages:
                        raise BadMessage(f"{head.page(taken)}: page {number + 1} was found instead")
                    try:
                        page = read_page(data)
                    except (BadMessage, *UNREADABLE) as error:
                        raise BadMessage(f"{head.page(number)}: {error}") from None
                    take(page)
                    taken += 1
        if taken < head.pages:
            raise BadMessage(f"{head.page(taken)}: missing")
        return Restored(head.sequence, head.allocator_terms, head.clock_moved_ms)

    async def is_lost(self, first: int) -> bool:
        """Return True if the bucket has lost the checkpoint, or if entries are missing between the checkpoint and the log.

        `first` is the first entry of the log.

        Raises `KeyFenced` if a higher term has the head, and `BusError`.
        """
        head = _head_of(await self._key.read())
        return head.prefix != self._head.prefix or first > head.sequence + 1

    async def sweep(self) -> None:
        """Remove pages of this and earlier terms that the head does not name.

        Pages of a successor stay, since its head may soon name them.
        """
        async with aclosing(self._bucket.read(_PAGES)) as pieces:
            prefixes = {piece.key.rsplit(".", 2)[0] async for piece in pieces} - {self._head.prefix}
        for prefix in prefixes:
            if int(prefix.split(".")[1]) <= self._term:
                await self._bucket.purge(prefix)

    async def save(
        self, checkpoint: Checkpoint, between_pages: Callable[[], Awaitable[None]] = lowlevel.checkpoint
    ) -> None:
        """Write a checkpoint.

        Raises `KeyFenced` if a higher term has the head. After any other `BusError` the previous checkpoint stays valid.
        """
        before, terms = self._head, checkpoint.allocator_terms
        head = _Head(checkpoint.sequence, self._term, 0, self._term, terms, checkpoint.clock_moved_ms)
        number = -1
        for number, page in enumerate(checkpoint.pages()):
            if number:
                await between_pages()
            for piece, start in enumerate(range(0, len(page), LARGEST_MESSAGE_BYTES)):
                key = f"{head.prefix}.{number}.{piece}"
                await self._bucket.put(key, page[start : start + LARGEST_MESSAGE_BYTES])
        head = msgspec.structs.replace(head, pages=number + 1)
        await self._key.write(_encode(head))
        self._head = head
        if before.pages and before.prefix != head.prefix:
            await self._bucket.purge(before.prefix)

    def _restated(self, value: bytes | None) -> bytes:
        return _encode(msgspec.structs.replace(_head_of(value), writer=self._term))


async def writer_of_checkpoint(bucket: KeyValue) -> int:
    """Return the highest term that wrote a checkpoint; 0 if there is none or it cannot be read. Raises `BusError`."""
    entry = await bucket.get(_HEAD)
    try:
        return _head_of(None if entry is None else entry.value).last_term
    except BadMessage as error:
        # The caller also reads the newest term from the log, so 0 does no harm here.
        logger().error("checkpoint cannot be read", error=str(error))
        return 0


def read_page(data: bytes) -> Page:
    """Decode a page of a checkpoint. Raises `BadMessage` or `msgspec.DecodeError`."""
    if len(data) <= LARGEST_MESSAGE_BYTES:
        return decode(data, Page)
    return msgspec.msgpack.decode(data, type=Page)


def _head_of(value: bytes | None) -> _Head:
    try:
        return _NO_HEAD if value is None else msgspec.msgpack.decode(value, type=_Head)
    except UNREADABLE as error:
        raise BadMessage(f"bucket {subjects.CHECKPOINT_BUCKET}, key {_HEAD}: {error}") from None


async def _pages(pieces: AsyncIterable[Entry]) -> AsyncIterator[tuple[int, bytes]]:
    """Join the pieces of each page. The pieces come in the order in which they were written."""
    number, data = 0, b""
    async for piece in pieces:
        page = int(piece.key.split(".")[-2])
        if data and page != number:
            yield number, data
            data = b""
        number, data = page, data + piece.value
    if data:
        yield number, data
