"""Checkpoints: the engine's state in the bucket, so that a start reads the log's end and not the whole log.

A checkpoint is cut while nothing is in flight, so it covers the log up to its sequence exactly. Its pages are written first, then
the head that names them, then the pages of the one before are removed: whatever is interrupted, some whole checkpoint stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.bus import KeyValue
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, decode
from headrace_admission.state.operation import Operation, OperationRecord
from headrace_admission.state.state import TreePools

__all__ = ["Checkpoint", "Page", "Restored", "cut", "load", "read_page", "save"]

_HEAD: Final = "head"
_PAGE_BYTES: Final = 300 * 1024
_POOLS_OF_A_PAGE: Final = 500


class _Head(msgspec.Struct, frozen=True):
    sequence: int
    term: int
    pages: int


class Page(msgspec.Struct, frozen=True):
    """Some of the operations, or some of the ephemeral pools."""

    operations: list[OperationRecord]
    pools: list[TreePools] = []


class Restored(msgspec.Struct, frozen=True):
    """What a checkpoint held."""

    operations: list[OperationRecord] = []
    pools: list[TreePools] = []
    #: Of the log, up to which it covers.
    sequence: int = 0


class Checkpoint(msgspec.Struct, frozen=True):
    """The operations as of a sequence, in pages ready to be written."""

    sequence: int
    pages: list[bytes]


def cut(operations: list[Operation], pools: list[TreePools], sequence: int) -> Checkpoint:
    """The state at this moment, encoded. An operation too large for a page of its own is split off into one."""
    pages = [msgspec.msgpack.encode(Page([], [some])) for some in _in_pieces(pools)]
    waiting: list[OperationRecord] = []
    size = 0
    for operation in operations:
        record = operation.to_record()
        length = len(msgspec.msgpack.encode(record))
        if waiting and size + length > _PAGE_BYTES:
            pages.append(msgspec.msgpack.encode(Page(waiting)))
            waiting, size = [], 0
        waiting.append(record)
        size += length
    if waiting:
        pages.append(msgspec.msgpack.encode(Page(waiting)))
    return Checkpoint(sequence, pages)


async def save(bucket: KeyValue, checkpoint: Checkpoint, term: int) -> None:
    """Writes it. Raises `BusError`; the one before stands then."""
    before = await bucket.entries()
    for number, page in enumerate(checkpoint.pages):
        for piece, start in enumerate(range(0, len(page), LARGEST_MESSAGE_BYTES)):
            key = f"page.{term}.{checkpoint.sequence}.{number}.{piece}"
            await bucket.put(key, page[start : start + LARGEST_MESSAGE_BYTES])
    head = _Head(sequence=checkpoint.sequence, term=term, pages=len(checkpoint.pages))
    await bucket.put(_HEAD, msgspec.msgpack.encode(head))
    for key in before:
        if key != _HEAD and not key.startswith(f"page.{term}.{checkpoint.sequence}."):
            await bucket.delete(key)


async def load(bucket: KeyValue) -> Restored:
    """The newest whole checkpoint; nothing and sequence 0 where there is none.

    Raises `BadMessage` when a page is missing or damaged: then the log alone may not tell everything.
    """
    entries = await bucket.entries()
    if _HEAD not in entries:
        return Restored()
    head = msgspec.msgpack.decode(entries[_HEAD].value, type=_Head)
    operations: list[OperationRecord] = []
    pools: list[TreePools] = []
    for number in range(head.pages):
        prefix = f"page.{head.term}.{head.sequence}.{number}."
        pieces = sorted((key for key in entries if key.startswith(prefix)), key=lambda key: int(key.rpartition(".")[2]))
        data = b"".join(entries[key].value for key in pieces)
        page = read_page(data)
        operations += page.operations
        pools += page.pools
    return Restored(operations, pools, head.sequence)


def read_page(data: bytes) -> Page:
    """A page that `cut` made. Raises `BadMessage`, `msgspec.DecodeError`."""
    if len(data) <= LARGEST_MESSAGE_BYTES:
        return decode(data, Page)
    return msgspec.msgpack.decode(data, type=Page)


def _in_pieces(pools: list[TreePools]) -> Iterator[TreePools]:
    for tree in pools:
        for first in range(0, len(tree.pools), _POOLS_OF_A_PAGE):
            yield TreePools(tree.tree, tree.pools[first : first + _POOLS_OF_A_PAGE])
