"""The longest lease that nodes of a tree may have been told, kept for whoever leads next.

A runner keeps the longest lease that it was told, so that jobs of a silent node may go out only after that one. Nobody but a node
that is silent could tell a longer one again, so the record has a copy.
"""

from __future__ import annotations

import msgspec

from headrace.bus import Bus, KeyValue
from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.fenced import FencedKey
from headrace.wire import subjects
from headrace.wire.nodes import LongestLeaseRecord
from headrace.wire.version import Term


class LongestLease:
    """The record of one tree, written by one term at a time."""

    def __init__(self, bus: Bus, tree: TreeName, term: Term) -> None:
        self._bus = bus
        self._tree = tree
        self._term = term

    async def raise_to(self, lease_ms: int) -> int:
        """Returns the longest lease that nodes may know or get, once that is durable. Raises `KeyFenced`, `BusError`."""
        bucket = await _bucket_with_copies(self._bus)
        await bucket.write_lost_again()
        before = await self._key(bucket).claim(lambda value: self._record(max(lease_ms, _lease_ms_of(value))))
        return max(lease_ms, _lease_ms_of(before))

    async def lower_to(self, lease_ms: int) -> None:
        """No node knows a longer one any more. Raises `KeyFenced`, `BusError`."""
        await self._key(await _bucket_with_copies(self._bus)).write(self._record(lease_ms))

    def _key(self, bucket: KeyValue) -> FencedKey:
        return FencedKey(bucket, self._tree, self._term, lambda value: _read(value).term)

    def _record(self, lease_ms: int) -> bytes:
        return msgspec.json.encode(LongestLeaseRecord(self._term, lease_ms))


async def term_of_longest_lease(bus: Bus, tree: TreeName) -> Term:
    """The highest term of an allocator that may have told a node anything, 0 for none. Raises `BusError`."""
    bucket = await _bucket_with_copies(bus)
    await bucket.write_lost_again()
    entry = await bucket.get(tree)
    return 0 if entry is None else _read(entry.value).term


async def _bucket_with_copies(bus: Bus) -> CopiedBucket:
    return await CopiedBucket.open(bus, subjects.NODE_LEASES_BUCKET, kind=LongestLeaseRecord)


def _read(value: bytes) -> LongestLeaseRecord:
    """The record in a value. One that cannot be read has no copy either, and is as good as lost."""
    try:
        return msgspec.json.decode(value, type=LongestLeaseRecord)
    except msgspec.DecodeError as error:
        logger().error("longest lease cannot be read", error=str(error))
        return LongestLeaseRecord()


def _lease_ms_of(value: bytes | None) -> int:
    return 0 if value is None else _read(value).lease_ms
