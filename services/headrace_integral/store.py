"""The saved volumes: one key per tree, written by one term at a time. With many pools, the volumes are in pieces under keys
of their own.

The pieces of a new record are written before the record, and never replace the pieces that the saved record names. So the former record
stays intact if saving is interrupted.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headrace.bus import KeyValue
from headrace.errors import HeadraceError
from headrace.ids import TreeName
from headrace.runtime.fenced_writes import FencedKey
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode, encode, runs_within
from headrace.wire.integral import PAGE_BYTES, PoolVolume
from headrace.wire.version import Term
from headrace_integral.engine import VolumesRecord

T = TypeVar("T")


class UnreadableVolumes(HeadraceError):
    """The saved volumes cannot be read. They are not replaced by empty volumes, which would take all savings from the pools."""


class _Stored(VolumesRecord, frozen=True):
    """The value of the key: a record whose pools are in the value itself or in pieces."""

    #: Prefix of the keys of the pieces.
    prefix: str = ""
    pieces: int = 0


class _Piece(msgspec.Struct, frozen=True):
    pools: list[PoolVolume]


class VolumeStore:
    """The saved record of one tree, as one term reads and writes it."""

    def __init__(self, bucket: KeyValue, tree: TreeName, term: Term) -> None:
        self._bucket = bucket
        self._tree = tree
        self._term = term
        self._key = FencedKey(bucket, tree, term, lambda value: self._decoded(value, _Stored).writer)
        self._saves = 0
        #: Prefixes of old pieces that are removed after the next record is saved.
        self._left: set[str] = set()

    async def claim(self) -> VolumesRecord | None:
        """Claim the key for this process's term and return the saved record. From then on no former term can save.

        Returns None if nothing is saved. Raises `KeyFenced`, `BusError`, and `UnreadableVolumes` if something else is stored.
        """
        value = await self._key.claim(self._restated)
        if value is None:
            return None
        stored, entries = self._decoded(value, _Stored), await self._bucket.entries()
        self._left = {key.rpartition(".")[0] for key in entries if key.startswith(f"{self._tree}.")}
        pools = list(stored.pools)
        for key in (f"{stored.prefix}.{number}" for number in range(stored.pieces)):
            if key not in entries:
                raise self._unreadable(f"{key} is missing")
            pools += self._decoded(entries[key].value, _Piece).pools
        return VolumesRecord(stored.tree, stored.version, pools, self._term, stored.at_ms, stored.downtime)

    async def save(self, record: VolumesRecord) -> None:
        """Save a record, and return when it is durable. Raises `KeyFenced`. After any other `BusError` the record may have been saved."""
        stored = _Stored(record.tree, record.version, record.pools, self._term, record.at_ms, record.downtime)
        left, runs = self._left, list(runs_within(record.pools, PAGE_BYTES))
        if len(runs) > 1:
            self._saves += 1
            prefix = f"{self._tree}.{self._term}.{self._saves}"
            self._left = left | {prefix}
            for number, pools in enumerate(runs):
                await self._bucket.put(f"{prefix}.{number}", encode(_Piece(pools)))
            stored = msgspec.structs.replace(stored, pools=[], prefix=prefix, pieces=len(runs))
        await self._key.write(encode(stored))
        self._left = self._left - left
        for prefix in left:
            await self._bucket.purge(prefix)

    def _restated(self, value: bytes | None) -> bytes:
        stored = _Stored(self._tree) if value is None else self._decoded(value, _Stored)
        return encode(msgspec.structs.replace(stored, writer=self._term))

    def _decoded(self, value: bytes, kind: type[T]) -> T:
        try:
            return decode(value, kind)
        except BadMessage as error:
            raise self._unreadable(str(error)) from None

    def _unreadable(self, why: str) -> UnreadableVolumes:
        return UnreadableVolumes(
            f"bucket {subjects.VOLUMES_BUCKET}, key {self._tree}: the saved volumes cannot be read ({why}). They are not replaced by "
            "empty volumes. Restore the bucket from a backup, or delete the key to begin without savings"
        )


async def term_of_volumes(bucket: KeyValue, tree: TreeName) -> Term:
    """Return the term that last wrote the saved volumes, or 0 if there are none or they cannot be read. Raises `BusError`."""
    entry = await bucket.get(tree)
    try:
        return 0 if entry is None else decode(entry.value, _Stored).writer
    except BadMessage:
        return 0
