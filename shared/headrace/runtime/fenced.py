"""A key of a bucket, or a stream of records, that is written by one term at a time.

A new term claims the key before it relies on what stands there: it writes the same value again with its own term in it. From then on
every write of a former term finds another revision than it knows, reads the higher term, and ends. No clock is involved.
Records are claimed by an entry of the new term.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.bus import AppendRefused, BusError, Entry, KeyValue, Records, WrongRevision
from headrace.wire.version import Term


class KeyFenced(BusError):
    """A higher term writes there. Nothing of ours goes in any more."""


class FencedKey:
    """One key as one term may write it. `term_of` reads the term out of a value, 0 if it has none."""

    def __init__(self, bucket: KeyValue, key: str, term: Term, term_of: Callable[[bytes], Term]) -> None:
        self._bucket = bucket
        self._key = key
        self._term = term
        self._term_of = term_of
        #: Of the newest value; None if it is not known.
        self._revision: int | None = None

    async def claim(self, restated: Callable[[bytes | None], bytes]) -> bytes | None:
        """Takes the key for our term and returns its value. `restated` gives that our term. Raises `KeyFenced`, `BusError`."""
        while True:
            value = await self.read()
            try:
                await self._put(restated(value))
            except WrongRevision:
                continue
            return value

    async def read(self) -> bytes | None:
        """Returns the value. Raises `KeyFenced` if a higher term has the key, and `BusError`."""
        entry = await self._read()
        return None if entry is None else entry.value

    async def write(self, value: bytes) -> None:
        """Returns when the value is durable. Raises `KeyFenced`. After another `BusError` it may have been written."""
        while True:
            if self._revision is None:
                await self._read()
            try:
                await self._put(value)
            except WrongRevision:
                # A former write of ours that was not answered, or a higher term: reading tells.
                continue
            return

    async def _read(self) -> Entry | None:
        entry = await self._bucket.get(self._key)
        there = 0 if entry is None else self._term_of(entry.value)
        if there > self._term:
            raise KeyFenced(f"term {there} writes {self._key}, ours is {self._term}")
        self._revision = 0 if entry is None else entry.revision
        return entry

    async def _put(self, value: bytes) -> None:
        revision, self._revision = self._revision or 0, None
        self._revision = await self._bucket.update(self._key, value, revision)


class FencedRecords:
    """Records as one term may add to them. `term_of` reads the term out of an entry, 0 if it has none."""

    def __init__(self, records: Records, term: Term, term_of: Callable[[bytes], Term]) -> None:
        self._records = records
        self._term = term
        self._term_of = term_of
        #: The newest entry; None if it is not known.
        self._last: int | None = None

    async def add(self, data: bytes, *, timeout_s: float) -> None:
        """Adds an entry behind all others. Raises `KeyFenced` if a higher term added one. After another `BusError` it may be there."""
        while True:
            last, self._last = self._last, None
            if last is None:
                newest = await self._records.last()
                there, last = self._term_of(newest.data), newest.sequence
                if there > self._term:
                    raise KeyFenced(f"term {there} adds these records, ours is {self._term}")
            try:
                self._last = await self._records.add(data, timeout_s=timeout_s, expected_last=last)
            except AppendRefused:
                # A former entry of ours that was not answered, a stranger's, or a higher term's: reading tells.
                continue
            return
