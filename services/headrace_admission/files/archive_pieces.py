"""Stores the archives in their buckets, for one term of admission.

A process of an earlier term cannot remove data that a later term keeps.

Records are fenced: a new term writes each record again before it relies on it, and after that an earlier term cannot change the
record. Pieces cannot be fenced. So each stored archive has a key prefix that is never used again. If a process of an earlier term
still removes pieces, they have an old prefix, which is not in use any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.bus import KeyValue
from headrace.obs.logging import logger
from headrace.runtime.fenced_writes import FencedKey
from headrace.wire.codec import UNREADABLE
from headrace.wire.files import Archive
from headrace.wire.version import Term
from headrace_admission.files.archive_book import ArchiveKey, ArchiveRecord

#: Bytes of the hash that comes before the data in each stored piece.
HASH_BYTES: Final = 32
_RECORD: Final = "record"
#: Numbers of dots that the key of a record can have. Its parts are the person, the hash, a number that is used once, and `record`. Keys of
#: former versions have no number.
_DOTS: Final = (2, 3)
_UNFINISHED: Final = ArchiveRecord(Archive("0" * 64, 1), 0)


class _Keys(msgspec.Struct, frozen=True):
    """The keys of one archive, from when it is first sent until it is removed."""

    prefix: str
    record: FencedKey


class KeptArchives:
    """Reads and writes all archives, for one term. All methods raise `BusError`; methods that write also raise `KeyFenced`."""

    def __init__(self, archives: KeyValue, pieces: KeyValue, term: Term) -> None:
        self._archives = archives
        self._pieces = pieces
        self._term = term
        self._made = 0
        self._keys: dict[ArchiveKey, _Keys] = {}
        #: Keys of archives that are to be removed.
        self._left: list[_Keys] = []

    async def claim(self) -> Mapping[ArchiveKey, ArchiveRecord]:
        """Claim all records for this term. Return the records of complete archives. Incomplete archives are marked for `remove_left`."""
        whole: dict[ArchiveKey, ArchiveRecord] = {}
        for name in await self._archives.entries():
            if name.count(".") not in _DOTS or not name.endswith(f".{_RECORD}"):
                logger().error("entry of the archives has a foreign key", key=name)
                continue
            user, sha256 = name.split(".")[:2]
            key, keys = ArchiveKey(user, sha256), self._keys_below(name.rpartition(".")[0])
            record = _record_in(await keys.record.claim(self._restated))
            if record.is_whole and key not in whole:
                whole[key], self._keys[key] = record, keys
            else:
                self._left.append(keys)
        return whole

    async def keep_record(self, key: ArchiveKey, record: ArchiveRecord) -> None:
        """Write the record of an archive."""
        await self._of(key).record.write(self._written(record))

    async def keep_piece(self, key: ArchiveKey, piece: int, data: bytes) -> None:
        """Write a piece of an archive."""
        await self._pieces.put(f"{self._of(key).prefix}.{piece}", _hash(data) + data)

    async def piece(self, key: ArchiveKey, piece: int) -> bytes | None:
        """Return the bytes of a piece, or None if it is lost or damaged."""
        keys = self._keys.get(key)
        entry = await self._pieces.get(f"{keys.prefix}.{piece}") if keys is not None else None
        value = entry.value if entry is not None else b""
        data = value[HASH_BYTES:]
        return data if data and value[:HASH_BYTES] == _hash(data) else None

    def leave(self, key: ArchiveKey) -> None:
        """Mark an archive for `remove_left`. An archive that is sent later under the same key gets new bucket keys."""
        keys = self._keys.pop(key, None)
        if keys is not None:
            self._left.append(keys)

    async def remove_left(self) -> None:
        """Remove the marked archives.

        The record of each archive is first overwritten as incomplete. If the removal is interrupted, the next term removes the archive.
        """
        for keys in list(self._left):
            await keys.record.write(self._written(_UNFINISHED))
            await self._pieces.purge(keys.prefix)
            await self._archives.purge(keys.prefix)
            self._left.remove(keys)
            logger().info("archive removed", archive=keys.prefix)

    def _of(self, key: ArchiveKey) -> _Keys:
        if key not in self._keys:
            self._made += 1
            self._keys[key] = self._keys_below(f"{key.text}.{self._term}-{self._made}")
        return self._keys[key]

    def _keys_below(self, prefix: str) -> _Keys:
        record = FencedKey(self._archives, f"{prefix}.{_RECORD}", self._term, lambda value: _record_in(value).writer)
        return _Keys(prefix, record)

    def _restated(self, value: bytes | None) -> bytes:
        return self._written(_record_in(value))

    def _written(self, record: ArchiveRecord) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(record, writer=self._term))


def _record_in(value: bytes | None) -> ArchiveRecord:
    """Return the record in a value. An unreadable value counts as the record of an incomplete archive, so that the archive is removed."""
    try:
        return _UNFINISHED if value is None else msgspec.json.decode(value, type=ArchiveRecord)
    except UNREADABLE as error:
        logger().error("record of an archive cannot be read", error=str(error))
        return _UNFINISHED


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
