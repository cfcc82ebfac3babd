"""Checkpoints: the state in the bucket, so that a start reads the log's end and not the whole log.

A checkpoint is cut while nothing is in flight, so it covers the log up to its sequence exactly. Its pages are written first, then
the head that names them, then the pages of the one before are removed: whatever is interrupted, some whole checkpoint stands.
The head is written by compare-and-set and carries the term of its writer: whoever was succeeded writes and removes nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.bus import KeyValue
from headrace.runtime.fenced import FencedKey
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, decode
from headrace_admission.log.byte_budget import CHECKPOINT_PAGE_BYTES, POOLS_OF_A_CHECKPOINT_PAGE, size_bytes
from headrace_admission.state.ephemeral_pools import TreePools
from headrace_admission.state.operation import OperationRecord
from headrace_admission.state.state import State

__all__ = ["Checkpoint", "CheckpointStore", "Page", "Restored", "cut", "read_page", "writer_of_checkpoint"]

_HEAD: Final = "head"


class _Head(msgspec.Struct, frozen=True):
    sequence: int
    #: Of the pages.
    term: int
    pages: int
    #: The term that claimed or wrote the head last.
    writer: int = 0

    @property
    def prefix(self) -> str:
        """The keys of its pages are below this one."""
        return f"page.{self.term}.{self.sequence}"

    @property
    def last_term(self) -> int:
        """The highest term that had to do with it."""
        return max(self.term, self.writer)


_NO_HEAD: Final = _Head(0, 0, 0)


class Page(msgspec.Struct, frozen=True):
    """Some of the operations, or some of the ephemeral pools."""

    operations: list[OperationRecord]
    pools: list[TreePools] = []


class Restored(msgspec.Struct, frozen=True):
    """A checkpoint that was read."""

    operations: list[OperationRecord] = []
    pools: list[TreePools] = []
    #: The last entry of the log that it covers.
    sequence: int = 0


class Checkpoint(msgspec.Struct, frozen=True):
    """The state as of a sequence, in pages ready to be written."""

    sequence: int
    pages: list[bytes]


def cut(state: State) -> Checkpoint:
    """Encodes the state of this moment. An operation too large for a page gets one of its own."""
    pages = [msgspec.msgpack.encode(Page([], [some])) for some in _in_pieces(state.ephemeral_pools())]
    gathered: list[OperationRecord] = []
    size = 0
    for operation in state.operations.values():
        record = operation.to_record()
        length = size_bytes(record)
        if gathered and size + length > CHECKPOINT_PAGE_BYTES:
            pages.append(msgspec.msgpack.encode(Page(gathered)))
            gathered, size = [], 0
        gathered.append(record)
        size += length
    if gathered:
        pages.append(msgspec.msgpack.encode(Page(gathered)))
    return Checkpoint(state.sequence, pages)


class CheckpointStore:
    """The checkpoint of admission, as one term may read and write it."""

    def __init__(self, bucket: KeyValue, term: int) -> None:
        self._bucket = bucket
        self._term = term
        self._key = FencedKey(bucket, _HEAD, term, lambda value: _head_of(value).last_term)
        self._head = _NO_HEAD

    async def claim(self) -> Restored:
        """Takes the head for this term and reads its checkpoint. No former term writes the head any more.

        Raises `KeyFenced` if a higher term has it, `BadMessage` if a page is missing or damaged, since the log alone may not
        tell everything, and `BusError`.
        """
        self._head = _head_of(await self._key.claim(self._restated))
        entries = await self._bucket.entries()
        operations: list[OperationRecord] = []
        pools: list[TreePools] = []
        for number in range(self._head.pages):
            prefix = f"{self._head.prefix}.{number}."
            pieces = sorted((key for key in entries if key.startswith(prefix)), key=_last_number)
            page = read_page(b"".join(entries[key].value for key in pieces))
            operations += page.operations
            pools += page.pools
        for left in {key.rsplit(".", 2)[0] for key in entries if key != _HEAD} - {self._head.prefix}:
            await self._bucket.purge(left)
        return Restored(operations, pools, self._head.sequence)

    async def save(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint. Raises `KeyFenced` if a higher term has the head. After another `BusError` the one before stands."""
        before, head = self._head, _Head(checkpoint.sequence, self._term, len(checkpoint.pages), self._term)
        for number, page in enumerate(checkpoint.pages):
            for piece, start in enumerate(range(0, len(page), LARGEST_MESSAGE_BYTES)):
                key = f"{head.prefix}.{number}.{piece}"
                await self._bucket.put(key, page[start : start + LARGEST_MESSAGE_BYTES])
        await self._key.write(msgspec.msgpack.encode(head))
        self._head = head
        if before.pages and before.prefix != head.prefix:
            await self._bucket.purge(before.prefix)

    def _restated(self, value: bytes | None) -> bytes:
        return msgspec.msgpack.encode(msgspec.structs.replace(_head_of(value), writer=self._term))


async def writer_of_checkpoint(bucket: KeyValue) -> int:
    """Returns the highest term that wrote a checkpoint, 0 for none. Raises `BusError`."""
    entry = await bucket.get(_HEAD)
    return _head_of(None if entry is None else entry.value).last_term


def read_page(data: bytes) -> Page:
    """Reads a page that `cut` made. Raises `BadMessage` or `msgspec.DecodeError`."""
    if len(data) <= LARGEST_MESSAGE_BYTES:
        return decode(data, Page)
    return msgspec.msgpack.decode(data, type=Page)


def _in_pieces(pools: list[TreePools]) -> Iterator[TreePools]:
    for tree in pools:
        for first in range(0, len(tree.pools), POOLS_OF_A_CHECKPOINT_PAGE):
            yield TreePools(tree.tree, tree.pools[first : first + POOLS_OF_A_CHECKPOINT_PAGE])


def _head_of(value: bytes | None) -> _Head:
    return _NO_HEAD if value is None else msgspec.msgpack.decode(value, type=_Head)


def _last_number(key: str) -> int:
    return int(key.rpartition(".")[2])
