"""Checkpoints: the state in the bucket, so that a start reads the log's end and not the whole log.

A checkpoint is cut while nothing is in flight, so it covers the log up to its sequence exactly. Its pages are written first, then
the head that names them, then the pages of the one before are removed: whatever is interrupted, some whole checkpoint stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.bus import KeyValue
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, decode
from headrace_admission.log.byte_budget import CHECKPOINT_PAGE_BYTES, POOLS_OF_A_CHECKPOINT_PAGE, size_bytes
from headrace_admission.state.ephemeral_pools import TreePools
from headrace_admission.state.operation import OperationRecord
from headrace_admission.state.state import State

__all__ = ["Checkpoint", "Page", "Restored", "cut", "load", "read_page", "save"]

_HEAD: Final = "head"


class _Head(msgspec.Struct, frozen=True):
    sequence: int
    term: int
    pages: int


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


async def save(bucket: KeyValue, checkpoint: Checkpoint, term: int) -> None:
    """Writes a checkpoint. Raises `BusError`, and then the one before stands."""
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
    """Reads the newest whole checkpoint, or an empty one of sequence 0.

    Raises `BadMessage` if a page is missing or damaged, since the log alone may not tell everything.
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
    """Reads a page that `cut` made. Raises `BadMessage` or `msgspec.DecodeError`."""
    if len(data) <= LARGEST_MESSAGE_BYTES:
        return decode(data, Page)
    return msgspec.msgpack.decode(data, type=Page)


def _in_pieces(pools: list[TreePools]) -> Iterator[TreePools]:
    for tree in pools:
        for first in range(0, len(tree.pools), POOLS_OF_A_CHECKPOINT_PAGE):
            yield TreePools(tree.tree, tree.pools[first : first + POOLS_OF_A_CHECKPOINT_PAGE])
