"""A bucket whose values cannot be restored from elsewhere, with a copy of each value in a second bucket.

The bucket may be deleted, or may lack its newest writes after a fault of the server, while no running process has the lost values
in memory. So a starting process restores lost values from the copies before it makes decisions that depend on the bucket. A value
that cannot be read counts as lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio
import msgspec

from headrace.bus import Bus, BusError, Entry, KeyValue, Mirror, WrongRevision
from headrace.obs.logging import logger
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE

#: Seconds within which a live writer completes both writes of a value: to the bucket, then to its copies. A value that looks lost
#: for longer than this is lost.
_BETWEEN_WRITES_S: Final = 1.0
_RETRY_S: Final = 1.0


class _Copy(msgspec.Struct, frozen=True):
    """A value, and the revision at which it was written."""

    revision: int
    value: bytes


class CopiedBucket:
    """Implements `headrace.bus.KeyValue`. A written value is durable in both buckets, or an error is raised."""

    def __init__(
        self, bus: Bus, name: str, bucket: KeyValue, copies: KeyValue, history: int, kind: type[msgspec.Struct] | None
    ) -> None:
        self._bus = bus
        self._name = name
        self._bucket = bucket
        self._copies = copies
        self._history = history
        self._kind = kind

    @classmethod
    async def open(
        cls, bus: Bus, name: str, *, history: int = 1, kind: type[msgspec.Struct] | None = None
    ) -> CopiedBucket:
        """Open a bucket and the bucket of its copies. If `kind` is given, a value that is not JSON of that type counts as lost.
        Raises `BusError`.
        """
        bucket = await bus.key_value(name, history=history)
        return cls(bus, name, bucket, await bus.key_value(subjects.copies_of(name)), history, kind)

    async def get(self, key: str) -> Entry | None:
        return await self._bucket.get(key)

    async def entries(self) -> dict[str, Entry]:
        return await self._bucket.entries()

    def read(self, prefix: str, *, after: int = 0, batch_bytes: int | None = None) -> AsyncGenerator[Entry, None]:
        return self._bucket.read(prefix, after=after, batch_bytes=batch_bytes)

    async def put(self, key: str, value: bytes) -> int:
        return await self._copy(key, value, await self._bucket.put(key, value))

    async def update(self, key: str, value: bytes, revision: int) -> int:
        return await self._copy(key, value, await self._bucket.update(key, value, revision))

    async def delete(self, key: str) -> None:
        # The copy is deleted first, so that the deleted value does not count as lost.
        await self._write_copy(lambda: self._copies.delete(key))
        await self._bucket.delete(key)

    async def purge(self, prefix: str) -> None:
        await self._copies.purge(prefix)
        await self._bucket.purge(prefix)

    async def size_bytes(self) -> int:
        return await self._bucket.size_bytes()

    async def revision(self) -> int:
        return await self._bucket.revision()

    async def clear(self, up_to: int) -> None:
        await self._bucket.clear(up_to)

    async def history(self, key: str) -> list[Entry]:
        return await self._bucket.history(key)

    def mirror(
        self, on_change: Callable[[Mapping[str, Entry], frozenset[str]], None] | None = None
    ) -> AbstractAsyncContextManager[Mirror]:
        return self._bucket.mirror(on_change)

    async def write_lost_again(self) -> None:
        """Restore the values that the bucket has lost, and write missing copies. Raises `BusError`."""
        lost = await self._compare()
        if not lost:
            return
        # Wait, and compare again: a writer may just be between the two writes of a value, to the bucket and to its copies.
        await anyio.sleep(_BETWEEN_WRITES_S)
        still_lost = await self._compare()
        for key, (copy, revision) in still_lost.items():
            if lost.get(key) == (copy, revision):
                logger().error("bucket has lost a value", bucket=self._name, key=key, revision=copy.revision)
                with contextlib.suppress(WrongRevision):
                    await self.update(key, copy.value, revision)

    async def keep(self) -> None:
        """Whenever the bucket loses values, restore them. Runs until cancelled."""
        revisions: dict[str, int] = {}
        lost = anyio.Event()

        def on_change(entries: Mapping[str, Entry], changed: frozenset[str]) -> None:
            for key in changed & entries.keys():
                if entries[key].revision < revisions.get(key, 0) or not self._is_readable(entries[key]):
                    lost.set()
                revisions[key] = entries[key].revision

        async with self._bucket.mirror(on_change):
            while True:
                await lost.wait()
                lost = anyio.Event()
                try:
                    await self.write_lost_again()
                except BusError as error:
                    logger().warning(
                        "values that the bucket lost could not be restored; trying again",
                        bucket=self._name,
                        error=str(error),
                    )
                    lost.set()
                    await anyio.sleep(_RETRY_S)

    async def _compare(self) -> dict[str, tuple[_Copy, int]]:
        """Return the copies of lost values, and write missing or outdated copies.

        Each returned copy comes with the revision of the bucket's entry that it must overwrite, or 0 if the bucket has
        no such entry.
        """
        # Opening a bucket creates it again if the whole bucket is gone.
        await self._bus.key_value(self._name, history=self._history)
        await self._bus.key_value(subjects.copies_of(self._name))
        read = {key: _read(entry) for key, entry in (await self._copies.entries()).items()}
        copies = {key: copy for key, copy in read.items() if copy is not None}
        entries = await self._bucket.entries()
        unreadable = {key for key, entry in entries.items() if not self._is_readable(entry)}
        for key, entry in entries.items():
            copy = copies.get(key)
            if key in unreadable:
                continue
            if copy is None or (copy.revision != entry.revision and not _is_newer(copy, entry)):
                await self._copy(key, entry.value, entry.revision)
        return {
            key: (copy, entries[key].revision if key in entries else 0)
            for key, copy in copies.items()
            if key not in entries or key in unreadable or _is_newer(copy, entries[key])
        }

    def _is_readable(self, entry: Entry) -> bool:
        try:
            return self._kind is None or bool(msgspec.json.decode(entry.value, type=self._kind))
        except UNREADABLE as error:
            logger().error("value cannot be read", bucket=self._name, key=entry.key, error=str(error))
            return False

    async def _copy(self, key: str, value: bytes, revision: int) -> int:
        copy = msgspec.msgpack.encode(_Copy(revision, value))
        await self._write_copy(lambda: self._copies.put(key, copy))
        return revision

    async def _write_copy(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write to the bucket of copies. If this fails, make the bucket again if it is gone, and write all missing copies. Raises
        `BusError`.
        """
        try:
            await write()
        except BusError as error:
            logger().warning("copy not written", bucket=self._name, error=str(error))
            await self._bus.key_value(subjects.copies_of(self._name))
            await write()
            await self._compare()


def _is_newer(copy: _Copy, entry: Entry) -> bool:
    return copy.revision > entry.revision and copy.value != entry.value


def _read(entry: Entry) -> _Copy | None:
    """Decode a copy. Return None if it cannot be decoded; the copy is then written again."""
    try:
        return msgspec.msgpack.decode(entry.value, type=_Copy)
    except UNREADABLE as error:
        logger().error("copy cannot be read", key=entry.key, error=str(error))
        return None
