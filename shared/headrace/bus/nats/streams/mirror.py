"""A local copy of a bucket that never stays outdated.

A watch alone can miss changes: after a server's restart a watch was silent for 20 s. After the loss of the server that held the watch's
consumer, the watch was silent for as long as the test ran, while writes were acknowledged. So besides watching, the mirror checks the
bucket's last sequence number periodically. It reads the whole bucket again if the sequence number is not the expected one, after a
reconnect or a gap, and if the watch is silent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Set
from types import MappingProxyType

import anyio

from headrace.bus.nats.streams.api import STREAM_NOT_FOUND, JetStream, JetStreamRefused, Stored, StreamInfo
from headrace.bus.nats.streams.watch import Watch
from headrace.bus.protocol import BusClosed, BusError, Entry
from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger

#: Seconds that a caller waits for a revision before it has the bucket checked for the first time.
_ASK_AFTER_S = 0.1
#: Seconds between the further checks while a caller waits for a revision.
_ASK_EVERY_S = 0.25
#: Seconds, jittered, until a failed check is repeated. Without the jitter, every mirror of every service would retry
#: at the same time.
_RETRY_S = 1.0
#: Number of periodic checks after which the whole bucket is read even if the sequence numbers agree: the bucket may have lost some writes
#: and received the same number of new writes.
_WHOLE_EVERY = 12
#: For each multiple of this number of entries, the time between two reads of the whole bucket grows by `_WHOLE_EVERY`
#: checks. Large buckets are read less often, because reading 10,000 entries at once blocks the loop for 0.1 s.
_ENTRIES_AT_ONCE = 1_000


class BucketMirror:
    """Implements `headrace.bus.protocol.Mirror`. `run` keeps it up to date."""

    def __init__(
        self,
        jetstream: JetStream,
        stream: str,
        entry_of: Callable[[Stored], Entry | None],
        key_of: Callable[[str], str],
        is_foreign: Callable[[Stored], bool],
        on_change: Callable[[Mapping[str, Entry], frozenset[str]], None] | None,
    ) -> None:
        self._jetstream = jetstream
        self._stream = stream
        self._entry_of = entry_of
        self._key_of = key_of
        self._is_foreign = is_foreign
        self._on_change = on_change
        self._entries: dict[str, Entry] = {}
        self._view = MappingProxyType(self._entries)
        self._revision = 0
        self._created = ""
        self._is_gone = False
        #: Entries of keys that the bucket lost although no writer deleted them.
        self._lost: dict[str, Entry] = {}
        self._watch: Watch | None = None
        self._reading = anyio.Lock()
        self._wake = anyio.Event()
        self._changed = anyio.Event()
        self._reconnected = False
        self._asked = False
        self._throttle = LogThrottle()

    @property
    def entries(self) -> Mapping[str, Entry]:
        return self._view

    @property
    def revision(self) -> int:
        return self._revision

    async def refresh(self) -> None:
        """Read the bucket now, with a new watch that replaces the old one."""
        async with self._reading:
            try:
                await self._read_whole()
            except JetStreamRefused as refusal:
                if refusal.err_code == STREAM_NOT_FOUND and self._created and not self._is_gone:
                    self._is_gone = True
                    logger().error("bucket is gone", stream=self._stream, known=self._revision)
                    self._lost = self._without_revisions(self._entries.keys())
                    self._entries.update(self._lost)
                    self._tell(set(self._lost))
                raise
            finally:
                self._rouse()

    async def wait_for(self, revision: int, *, timeout_s: float) -> bool:
        """Wait until `revision` is reached. Let `run` check the bucket again and again meanwhile.

        Return False if it was not reached in time.
        """
        delay_s = _ASK_AFTER_S
        with anyio.move_on_after(timeout_s):
            while self._revision < revision:
                changed = self._changed
                with anyio.move_on_after(delay_s) as scope:
                    await changed.wait()
                if scope.cancelled_caught:
                    delay_s = _ASK_EVERY_S
                    self._asked = True
                    self._rouse()
        return self._revision >= revision

    async def catch_up(self, *, timeout_s: float) -> bool:
        """Wait until this copy has everything that the bucket has now. Return False if that took too long. Raises `BusError`."""
        info = await self._jetstream.existing(self._stream)
        return await self.wait_for(info.state.last_seq, timeout_s=timeout_s)

    async def run(self, read_all_s: float) -> None:
        """Keep the copy up to date until cancelled or the bus is closed. `read_all_s` is the time between two checks of the
        bucket.
        """
        self._jetstream.link.on_reconnect.add(self._note_reconnect)
        looks = 0
        next_look_s = anyio.current_time() + read_all_s
        try:
            while True:
                wake = self._wake
                self._take_updates()
                with anyio.move_on_at(next_look_s):
                    await wake.wait()
                now = anyio.current_time()
                is_due = now >= next_look_s
                if not (self._reconnected or self._asked or is_due):
                    continue
                looks += is_due
                whole = self._reconnected or (is_due and looks >= self._looks_at_whole())
                looks = 0 if whole else looks
                self._reconnected = self._asked = False
                next_look_s = now + read_all_s
                if not await self._look(whole=whole):
                    # A failed check is repeated soon, because JetStream may become available only a while after the
                    # connection. If the failed check should have read the whole bucket, the repeated check reads the
                    # whole bucket.
                    self._reconnected = self._reconnected or whole
                    next_look_s = now + min(read_all_s, random.uniform(_RETRY_S / 2, _RETRY_S))
        except BusClosed:
            return
        finally:
            self._jetstream.link.on_reconnect.discard(self._note_reconnect)

    async def close(self) -> None:
        """End the watch."""
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.close()

    async def _read_whole(self) -> None:
        info = await self._jetstream.existing(self._stream)
        watch = Watch(self._jetstream, self._stream)
        try:
            await watch.open(f"$KV.{self._stream.removeprefix('KV_')}.>")
            first = await watch.first()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await watch.close()
            raise
        old, self._watch = self._watch, watch
        watch.on_arrival = self._rouse
        self._take_whole(info, first)
        if old is not None:
            with anyio.CancelScope(shield=True):
                await old.close()

    def _looks_at_whole(self) -> int:
        return _WHOLE_EVERY * (1 + len(self._entries) // _ENTRIES_AT_ONCE)

    async def _look(self, *, whole: bool) -> bool:
        try:
            info = await self._jetstream.stream(self._stream)
            self._take_updates()
            behind = info is None or info.state.last_seq != self._revision or info.created != self._created
            if whole or behind or self._watch is None or self._watch.broken:
                await self.refresh()
            return True
        except BusClosed:
            raise
        except BusError as error:
            if self._throttle.due("failed"):
                logger().info("bucket cannot be read", stream=self._stream, error=str(error))
            return False

    def _take_updates(self) -> None:
        # While the whole bucket is read, changes from the old watch are not applied: the read could then replace them by older values. The
        # new watch delivers the same changes again.
        if self._watch is None or self._reading.locked():
            return
        changed: set[str] = set()
        for item in self._watch.take():
            # After a gap, the remaining messages do not show how far this copy is, so the whole bucket is read next.
            if self._watch.broken:
                self._asked = True
                self._rouse()
                break
            if item.sequence > self._revision:
                changed |= self._take_one(item)
                self._revision = item.sequence
        self._tell(changed)

    def _take_one(self, item: Stored) -> set[str]:
        entry = self._entry_of(item)
        key = self._key_of(item.subject)
        if self._is_foreign(item):
            lost = self._without_revisions({key})
            self._lost |= lost
            self._entries |= lost
            return set(lost)
        self._lost.pop(key, None)
        if entry is not None:
            self._entries[key] = entry
            return {key}
        return {key} if self._entries.pop(key, None) is not None else set()

    def _take_whole(self, info: StreamInfo, items: list[Stored]) -> None:
        entries: dict[str, Entry] = {}
        revision = info.state.last_seq
        for item in sorted(items, key=lambda item: item.sequence):
            revision = max(revision, item.sequence)
            entry = self._entry_of(item)
            if entry is None:
                entries.pop(self._key_of(item.subject), None)
            else:
                entries[entry.key] = entry
        if self._lost_writes(info, revision, entries):
            logger().error("bucket lost writes", stream=self._stream, known=self._revision, found=revision)
            self._lost = self._without_revisions(self._entries.keys())
        for item in items:
            self._lost.pop(self._key_of(item.subject), None)
        self._lost |= self._without_revisions({self._key_of(item.subject) for item in items if self._is_foreign(item)})
        entries |= self._lost
        changed = {key for key, entry in entries.items() if self._entries.get(key) != entry}
        changed |= self._entries.keys() - entries.keys()
        self._entries.clear()
        self._entries.update(entries)
        self._revision = revision
        self._created, self._is_gone = info.created, False
        self._tell(changed)

    def _without_revisions(self, keys: Set[str]) -> dict[str, Entry]:
        """Return the known values of these keys, each with revision 0. Revision 0 marks a value that the bucket lost
        although no writer deleted it.
        """
        return {key: Entry(key, self._entries[key].value, revision=0) for key in self._entries.keys() & keys}

    def _lost_writes(self, info: StreamInfo, revision: int, entries: dict[str, Entry]) -> bool:
        if not self._created:
            return False
        if revision < self._revision or info.created != self._created:
            return True
        for key, new in entries.items():
            old = self._entries.get(key)
            if old is not None and (old.revision > new.revision or (old.revision == new.revision and old != new)):
                return True
        return False

    def _tell(self, changed: set[str]) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        if changed and self._on_change is not None:
            self._on_change(self._view, frozenset(changed))

    def _note_reconnect(self) -> None:
        self._reconnected = True
        self._rouse()

    def _rouse(self) -> None:
        self._wake.set()
        self._wake = anyio.Event()
