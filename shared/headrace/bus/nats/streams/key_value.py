"""Buckets: streams with one subject per key, whose newest message is the key's value. Compatible with `nats kv`."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager

import anyio

from headrace.bus.nats.streams.api import (
    EXPECTED_REVISION,
    WRONG_LAST_SEQUENCE,
    JetStream,
    JetStreamRefused,
    Stored,
    standard_stream,
)
from headrace.bus.nats.streams.mirror import BucketMirror
from headrace.bus.nats.streams.pulling import pulled
from headrace.bus.protocol import DamagedValue, Entry, Mirror, WrongRevision
from headrace.errors import BadInput

_BUCKET = re.compile(r"[A-Za-z0-9_-]+\Z")
_KEY = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*\Z")
_MOST_HISTORY = 64
_OPERATION = "KV-Operation"


class NatsKeyValue:
    """Implements `headrace.bus.protocol.KeyValue`. Each call ends within the bus's API timeout, with `BusError` at worst."""

    def __init__(self, jetstream: JetStream, bucket: str, read_all_s: float) -> None:
        self._jetstream = jetstream
        self._bucket = bucket
        self._stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."
        self._read_all_s = read_all_s

    @classmethod
    async def open(cls, jetstream: JetStream, bucket: str, *, history: int, read_all_s: float) -> NatsKeyValue:
        """Open a bucket. Create it if it is missing. If it keeps fewer than `history` values of each key, make it keep `history` values.

        Raises `WrongConfiguration` if the existing stream would lose values.
        """
        if not _BUCKET.match(bucket):
            raise BadInput("bucket", bucket, "letters, digits, - and _")
        if not 1 <= history <= _MOST_HISTORY:
            raise BadInput(f"history of bucket {bucket}", history, f"a number from 1 to {_MOST_HISTORY}")
        wanted = standard_stream(f"KV_{bucket}", f"$KV.{bucket}.>", replicas=jetstream.replicas)
        wanted.max_msgs_per_subject = history
        found = await jetstream.stream_or_new(wanted, "retention", "max_age", "max_msgs", "allow_direct")
        if found.max_msgs_per_subject < history:
            await jetstream.change_stream(wanted.name, max_msgs_per_subject=history)
        return cls(jetstream, bucket, read_all_s)

    async def get(self, key: str) -> Entry | None:
        stored = await self._jetstream.last_message(self._stream, self._subject(key))
        return None if stored is None else self._entry_or_none(stored)

    async def entries(self) -> dict[str, Entry]:
        return {entry.key: entry async for entry in self._read(f"{self._prefix}>", "last_per_subject")}

    def read(self, prefix: str, *, after: int = 0, batch_bytes: int | None = None) -> AsyncGenerator[Entry, None]:
        return self._read(f"{self._subject(prefix)}.>", "last_per_subject", after, batch_bytes)

    async def put(self, key: str, value: bytes) -> int:
        return await self._overwrite(key, value, {})

    async def update(self, key: str, value: bytes, revision: int) -> int:
        if not revision and await self._jetstream.has_messages(self._stream, self._subject(key)):
            before = await self._stored(key)
            if before is not None and self._entry_or_none(before) is None:
                # The server compares the expected revision with the last message of the key, even if this message is the marker of a
                # deleted key or a foreign message.
                revision = before.sequence
        return await self._write(key, value, {EXPECTED_REVISION: str(revision)})

    async def delete(self, key: str) -> None:
        await self._overwrite(key, b"", {_OPERATION: "DEL"})

    async def purge(self, prefix: str) -> None:
        # Purging leaves no trace. Deleting would leave a marker for each key for ever: 15,640 markers after 401
        # checkpoints.
        await self._jetstream.ask(f"STREAM.PURGE.{self._stream}", {"filter": f"{self._subject(prefix)}.>"})

    async def revision(self) -> int:
        return (await self._jetstream.existing(self._stream)).state.last_seq

    async def size_bytes(self) -> int:
        return (await self._jetstream.existing(self._stream)).state.bytes

    async def clear(self, up_to: int) -> None:
        # Without a subject filter the server removes whole files, and reads no message in them.
        await self._jetstream.ask(f"STREAM.PURGE.{self._stream}", {"seq": up_to + 1})

    async def history(self, key: str) -> list[Entry]:
        return [entry async for entry in self._read(self._subject(key), "all")]

    @asynccontextmanager
    async def mirror(
        self, on_change: Callable[[Mapping[str, Entry], frozenset[str]], None] | None = None
    ) -> AsyncIterator[Mirror]:
        """Return a mirror as a context manager. The mirror is complete when the block begins. `on_change` is also called for the initial
        content.
        """
        mirror = BucketMirror(
            self._jetstream, self._stream, self._entry_or_none, self._key_of, self._is_foreign, on_change
        )
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            try:
                await mirror.refresh()
                tasks.start_soon(mirror.run, self._read_all_s)
                yield mirror
            except Exception as error:
                failure = error
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await mirror.close()
        if failure is not None:
            raise failure

    async def _read(
        self, subject: str, policy: str, after: int = 0, batch_bytes: int | None = None
    ) -> AsyncGenerator[Entry, None]:
        """Yield entries, which are requested in batches. When the server pushed all entries without requests, it cut the reader off after
        64 MB.
        """
        info = await self._jetstream.existing(self._stream)
        if not info.state.messages or after >= info.state.last_seq:
            return
        start: dict[str, object] = {"deliver_policy": policy, "filter_subject": subject}
        if after:
            start |= {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
        async with aclosing(pulled(self._jetstream, self._stream, start, info.state.last_seq, batch_bytes)) as messages:
            async for message in messages:
                entry = self._entry_or_none(message)
                if entry is not None:
                    yield entry

    async def _overwrite(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        """Write a value to a key, whatever value the key has now.

        The stored message names the sequence number of the message that it replaced. A reader could later have the stored message delivered
        to the same key again. The server then refuses to store this copy, because the number that the copy names is no longer the key's
        newest sequence number.
        """
        while True:
            before = await self._stored(key)
            try:
                return await self._write(
                    key, value, {**headers, EXPECTED_REVISION: str(before.sequence if before else 0)}
                )
            except WrongRevision:
                continue

    async def _stored(self, key: str) -> Stored | None:
        """Return the newest message of a key before it is overwritten. Raises `DamagedValue`, and other kinds of `BusError`.

        If a damaged message is found, the key must not be overwritten: the server cannot read the damaged message. The server would store
        the new message, and then accept no more writes to the bucket.
        """
        subject = self._subject(key)
        stored = await self._jetstream.last_message(self._stream, subject)
        if stored is None and await self._jetstream.has_messages(self._stream, subject):
            # The message is read again, since the key may have been written since the first read.
            stored = await self._jetstream.last_message(self._stream, subject)
            if stored is None:
                raise DamagedValue(self._bucket, key)
        return stored

    async def _write(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        try:
            return await self._jetstream.append(self._subject(key), value, headers, timeout_s=self._jetstream.timeout_s)
        except JetStreamRefused as refusal:
            if refusal.err_code in WRONG_LAST_SEQUENCE:
                raise WrongRevision(f"{self._bucket}: {key} was changed by another writer") from None
            raise

    def _subject(self, key: str) -> str:
        if not _KEY.match(key):
            raise BadInput(f"key of bucket {self._bucket}", key, "letters, digits, -, _, =, / and single dots inside")
        return self._prefix + key

    def _key_of(self, subject: str) -> str:
        return subject.removeprefix(self._prefix)

    def _entry_or_none(self, stored: Stored) -> Entry | None:
        if _is_deleted(stored.headers) or self._is_foreign(stored):
            return None
        return Entry(key=self._key_of(stored.subject), value=stored.data, revision=stored.sequence)

    def _is_foreign(self, stored: Stored) -> bool:
        return not _is_deleted(stored.headers) and self._jetstream.foreign.is_foreign(
            self._stream, stored, self._prefix
        )


def _is_deleted(headers: Mapping[str, str]) -> bool:
    # An expiry marker has a reason in place of an operation. If it counted as an empty value, no process could create the key.
    return headers.get(_OPERATION.lower()) in ("DEL", "PURGE") or "nats-marker-reason" in headers
