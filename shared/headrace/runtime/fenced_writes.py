"""A key of a bucket, or a stream of records, to which only the process with the highest term can write.

A process with a new term claims the key before it relies on the value: it writes the same value again, with its own term in it.
This changes the revision, so the next write of a process with a former term is refused. That former process then reads the key,
finds the higher term, and ends. No clock is involved. A stream of records is claimed when the process with the new term adds its
first entry.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.bus import AppendRefused, BusError, Entry, KeyValue, Records, WrongRevision
from headrace.wire.version import Term


class KeyFenced(BusError):
    """A process with a higher term has claimed the key or the records. This process cannot write there any more."""


class FencedKey:
    """One key that only the process with the highest term can write. `term_of` returns the term in a value, or 0 if the value has none."""

    def __init__(self, bucket: KeyValue, key: str, term: Term, term_of: Callable[[bytes], Term]) -> None:
        self._bucket = bucket
        self._key = key
        self._term = term
        self._term_of = term_of
        #: Revision of the newest value; None if unknown.
        self._revision: int | None = None

    async def claim(self, restated: Callable[[bytes | None], bytes]) -> bytes | None:
        """Claim the key for this process's term, and return its value before the claim.

        `restated` is called with the value, or None if the key has none, and returns the value with this term in it. Raises
        `KeyFenced`, `BusError`.
        """
        while True:
            value = await self.read()
            try:
                await self._put(restated(value))
            except WrongRevision:
                continue
            return value

    async def read(self) -> bytes | None:
        """Return the value. Raises `KeyFenced` if a process with a higher term has claimed the key, and `BusError` if
        the bucket is not available.
        """
        entry = await self._read()
        return None if entry is None else entry.value

    async def write(self, value: bytes) -> None:
        """Write a value, and return when it is durable. Raises `KeyFenced`. If it raises another `BusError`, the value
        may have been written.
        """
        while True:
            if self._revision is None:
                await self._read()
            try:
                await self._put(value)
            except WrongRevision:
                # Another value was written meanwhile: by an earlier write of this process whose answer was lost, or by a process
                # with a higher term. Reading the value shows which, and raises in the second case.
                continue
            return

    async def _read(self) -> Entry | None:
        entry = await self._bucket.get(self._key)
        there = 0 if entry is None else self._term_of(entry.value)
        if there > self._term:
            raise KeyFenced(f"term {there} writes {self._key}, and this process has term {self._term}")
        self._revision = 0 if entry is None else entry.revision
        return entry

    async def _put(self, value: bytes) -> None:
        revision, self._revision = self._revision or 0, None
        self._revision = await self._bucket.update(self._key, value, revision)


class FencedRecords:
    """A stream of records to which only the process with the highest term can add. `term_of` returns the term in an
    entry, or 0 if the entry has none.
    """

    def __init__(self, records: Records, term: Term, term_of: Callable[[bytes], Term]) -> None:
        self._records = records
        self._term = term
        self._term_of = term_of
        #: Sequence number of the newest entry; None if unknown.
        self._last: int | None = None

    async def add(self, data: bytes, *, timeout_s: float) -> None:
        """Add an entry at the end. Raises `KeyFenced` if a process with a higher term has added an entry.

        If it raises another `BusError`, the entry may have been added.
        """
        while True:
            last, self._last = self._last, None
            if last is None:
                newest = await self._records.last()
                there, last = self._term_of(newest.data), newest.sequence
                if there > self._term:
                    raise KeyFenced(f"term {there} writes these records, and this process has term {self._term}")
            try:
                self._last = await self._records.add(data, timeout_s=timeout_s, expected_last=last)
            except AppendRefused:
                # Another entry was added meanwhile: by an earlier try of this process whose answer was lost, by a process with a
                # higher term, or by a party that may not write here. Reading the last entry shows which of these happened.
                continue
            return
