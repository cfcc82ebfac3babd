"""The record that a tree's allocator keeps for the next one: the longest lease, empty nodes, and jobs that were never given out.

A runner remembers the longest lease that it was ever sent, and may keep its jobs running for that long without a message. So jobs of a
silent node may be given out again only after that lease. The silent node, which knows this lease, cannot be asked, so the record has a
copy. Empty nodes are explained in `facts.empty_nodes`.

An allocator that is shut down, not killed, writes the jobs that it never gave out into the record. This is its last step: it gives out
nothing afterwards. The next allocator takes the jobs out of the record when it claims the record for its own term, before it gives anything
out. So only one successor reads these jobs, and an earlier allocator that was frozen can no longer write them.
"""

from __future__ import annotations

import anyio
import msgspec

from headrace.bus import Bus, KeyValue
from headrace.ids import NodeName, OperationId, TreeName
from headrace.obs.logging import logger
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.fenced_writes import FencedKey
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE
from headrace.wire.log import IndexRun
from headrace.wire.nodes import LongestLeaseRecord
from headrace.wire.version import Term


class LongestLease:
    """The record of one tree, written by one term at a time."""

    def __init__(self, bus: Bus, tree: TreeName, term: Term) -> None:
        self._bus = bus
        self._tree = tree
        self._term = term
        self._writing = anyio.Lock()
        self._record = LongestLeaseRecord(term)

    async def claim(self, lease_ms: int) -> LongestLeaseRecord:
        """Claim the record for this allocator's term. When the call returns, the record durably has a lease of at least `lease_ms`.

        Returns what the earlier allocator left, with the longest lease that nodes may know or get. Raises `KeyFenced` and `BusError`.
        """
        bucket = await _bucket_with_copies(self._bus)
        await bucket.write_lost_again()
        before = await self._key(bucket).claim(lambda value: msgspec.json.encode(self._of_ours(value, lease_ms)))
        self._record = self._of_ours(before, lease_ms)
        left = LongestLeaseRecord() if before is None else _read(before)
        return msgspec.structs.replace(left, lease_ms=self._record.lease_ms)

    async def lower_to(self, lease_ms: int) -> None:
        """Record `lease_ms` as the longest lease, since no node knows a longer lease any more. Raises `KeyFenced` and `BusError`."""
        await self._write(lease_ms=lease_ms)

    async def keep_empty(self, nodes: list[NodeName]) -> None:
        """Record which nodes run nothing. Raises `KeyFenced`; after any other `BusError` the record may have been written."""
        await self._write(empty_nodes=nodes)

    async def hand_over(self, not_given_out: dict[OperationId, list[IndexRun]]) -> None:
        """Record jobs that no node has and that this allocator will never give out. Raises `KeyFenced` and `BusError`."""
        await self._write(not_given_out=not_given_out)

    async def _write(self, **changes: object) -> None:
        async with self._writing:
            record = msgspec.structs.replace(self._record, **changes)
            await self._key(await _bucket_with_copies(self._bus)).write(msgspec.json.encode(record))
            self._record = record

    def _of_ours(self, before: bytes | None, lease_ms: int) -> LongestLeaseRecord:
        left = LongestLeaseRecord() if before is None else _read(before)
        return LongestLeaseRecord(self._term, max(lease_ms, left.lease_ms), left.empty_nodes)

    def _key(self, bucket: KeyValue) -> FencedKey:
        return FencedKey(bucket, self._tree, self._term, lambda value: _read(value).term)


async def term_of_longest_lease(bus: Bus, tree: TreeName) -> Term:
    """Return the highest term of an allocator that has claimed the record and so may have sent leases to nodes; 0 if there is none.
    Raises `BusError`.
    """
    bucket = await _bucket_with_copies(bus)
    await bucket.write_lost_again()
    entry = await bucket.get(tree)
    return 0 if entry is None else _read(entry.value).term


async def _bucket_with_copies(bus: Bus) -> CopiedBucket:
    return await CopiedBucket.open(bus, subjects.NODE_LEASES_BUCKET, kind=LongestLeaseRecord)


def _read(value: bytes) -> LongestLeaseRecord:
    """Decode a record. A record that cannot be decoded counts as lost, and an empty record is returned: the record has no second copy
    to read.
    """
    try:
        return msgspec.json.decode(value, type=LongestLeaseRecord)
    except UNREADABLE as error:
        logger().error("longest lease cannot be read", error=str(error))
        return LongestLeaseRecord()
