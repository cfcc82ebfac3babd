"""Protocols of the bus: the operations that services may use. Only `headrace.bus` knows what carries the messages.

Every implementation keeps these rules:

* `publish` and `request` deliver at most once. Nothing is buffered while disconnected: they raise `NotConnected`.
* A callback of the transport never runs a handler. Each handler runs in a task of its own, in a fresh context, so that
  neither a slow handler nor a context variable of one message affects another message.
* A handler that raises sends no answer, is counted and logged, and harms no other message.
* Payload and headers together stay under `MAX_MESSAGE_BYTES`. A larger message raises `TooLarge` before anything is sent.
* Every wait ends after a time that the caller names.
* A message that is sent within a span carries the span in a header. A handler continues that span; a reader of an inbox
  links to it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from headrace.access.key_credential import KeyCredential
from headrace.errors import HeadraceError

#: Upper bound of the bytes of payload and headers of one message. It is half of the server's default limit: the connection of a client that
#: exceeds the server's limit is closed for good.
MAX_MESSAGE_BYTES = 512 * 1024


#: Upper bound of the bytes that may wait for the handlers of one subject, or in one inbox.
MAX_PENDING_BYTES = 64 * 1024 * 1024


class BusError(HeadraceError):
    """The bus could not do what was asked."""


class NotConnected(BusError):
    """The bus is not connected, and nothing was sent."""


class BusClosed(BusError):
    """The connection was closed for good. The process must be restarted."""


class ForeignLoop(BusError):
    """The connection belongs to another event loop, and nothing was sent. Connect in this event loop, too."""


class NoResponders(BusError):
    """No process serves this subject at the moment. The request was not received."""


class RequestTimeout(BusError):
    """No answer came in time. Whether the request was received is unknown."""


class ConnectionLost(RequestTimeout):
    """The connection broke before an answer came. Whether the request was received is unknown."""


class PermissionRefused(BusError):
    """The server does not allow this process's credential to use this subject."""


class CredentialRefused(BusError):
    """The server does not know the credential. Trying again does not help."""


class ServerNotTrusted(BusError):
    """The server's certificate cannot be verified. Nothing was sent."""


class ServerTooOld(BusError):
    """The server is too old: it would accept newer requests without complaint, and ignore what is new in them."""

    def __init__(self, found: str, required: str) -> None:
        self.found = found
        self.required = required
        super().__init__(f"the nats-server is {found}; {required} or newer is needed")


class TooLarge(BusError):
    """A message with its headers is larger than the bus carries. Nothing was sent."""

    def __init__(self, subject: str, size_bytes: int, limit_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.subject = subject
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(f"{subject}: {size_bytes} bytes, but a message has at most {limit_bytes}; nothing was sent")


class WrongConfiguration(BusError):
    """A stream or bucket of this name exists, but its configuration would lose what is written."""


class MissingStore(BusError):
    """A bucket or stream is missing, and services do not create it."""

    def __init__(self, stream: str) -> None:
        kind, name = ("bucket", stream.removeprefix("KV_")) if stream.startswith("KV_") else ("stream", stream)
        super().__init__(f"{kind} {name} is missing: `headrace bus provision` creates it")


class WrongRevision(BusError):
    """Another writer changed the key since it was read."""


class DamagedValue(BusError):
    """The file that holds a value is damaged: the server can neither read nor replace the value."""

    def __init__(self, bucket: str, key: str) -> None:
        super().__init__(
            f"bucket {bucket}, key {key}: its file is damaged, and the nats-server neither reads nor replaces the value. "
            f"Stop the server, delete `streams/KV_{bucket}/msgs/index.db` in its store, and start it: "
            "the server then skips the damaged value, and the services write it again"
        )


class AppendRefused(BusError):
    """Another writer appended to the log. Nothing was added."""


class AppendUnknown(BusError):
    """The log did not answer. Whether the entry was added is unknown until the log is read."""


class Message(msgspec.Struct, frozen=True):
    """One received message."""

    subject: str
    data: bytes
    #: Headers by lower-case name.
    headers: Mapping[str, str]
    #: Subject for the answer; empty if no answer is expected.
    reply_to: str = ""


class RefusalReason(msgspec.Struct, frozen=True):
    """The reason why a waiting message was refused."""

    #: Number of waiting messages: messages of the same sender if the sender is over its quota, else messages of all senders.
    waiting: int
    is_sender_over_quota: bool
    #: Seconds that the refused message has waited.
    waited_s: float


class Senders(msgspec.Struct, frozen=True):
    """Rules for a subject that distinguishes senders: the name of a message's sender, the bounds of waiting messages,
    and the refusals.
    """

    name: Callable[[Message], str]
    refusal: Callable[[Message, RefusalReason], bytes | None]
    #: Largest number of messages of one sender that may wait; further messages are refused.
    most_messages: int = 10_000
    most_bytes: int = MAX_PENDING_BYTES
    #: Longest wait in seconds. If a message has waited longer when its turn comes, it is refused, because its sender would give up before
    #: the message is handled.
    longest_wait_s: float = math.inf


class Newest(msgspec.Struct, frozen=True):
    """Rules for a subject on which only the newest message of each sender counts."""

    name: Callable[[Message], str]
    within_s: float
    #: Called with each message that is dropped because it waited too long or too many messages waited. It must not wait or raise.
    on_late: Callable[[Message], None] | None = None


#: Receives one message. Returns the bytes of the answer, or None for no answer.
Handler = Callable[[Message], Awaitable[bytes | None]]


class Subscription(Protocol):
    """A subscription. It receives messages until it is closed. Closing it twice is no error."""

    async def close(self) -> None: ...

    def statistics(self) -> Mapping[str, int]:
        """Return counts: `received`, `dropped` (the mailbox was full), `failed` (the handler raised), `pending`, and counts
        of the implementation.
        """
        ...


class Inbox(Subscription, Protocol):
    """A mailbox with messages in order of arrival. With a key, only the newest message of each key waits; it takes the position of the
    older message that it replaces.

    A full inbox drops the oldest message, so the last message of a burst always arrives. A reader that counts sequence numbers therefore
    notices every gap. Iteration ends when the inbox is closed or the bus is drained, and raises `BusClosed` when the connection was closed
    for good.
    """

    def __aiter__(self) -> AsyncIterator[Message]: ...

    async def __anext__(self) -> Message: ...


class Entry(msgspec.Struct, frozen=True):
    """The value of one key, and the revision at which it was written. Revisions count the writes to the whole bucket."""

    key: str
    value: bytes
    revision: int


class Mirror(Protocol):
    """A local copy of a whole bucket. The copy follows the changes of the bucket. In addition the bucket is read periodically and after
    each reconnect, so the copy never stays outdated.

    `revision` never falls, unless the bucket lost writes. If the bucket lost a key that nobody deleted, `entries` keeps the
    last known value, with revision 0, until the key is written or deleted.
    """

    @property
    def entries(self) -> Mapping[str, Entry]: ...

    @property
    def revision(self) -> int: ...

    async def refresh(self) -> None:
        """Read the bucket now. Raises `BusError` if it cannot be read."""
        ...

    async def wait_for(self, revision: int, *, timeout_s: float) -> bool:
        """Wait until `revision` is reached. Return False if it was not reached in time."""
        ...

    async def catch_up(self, *, timeout_s: float) -> bool:
        """Wait until this copy has everything that the bucket has now. Return False if that took too long. Raises `BusError`."""
        ...


class HeardWrites(msgspec.Struct):
    """Attempts to write to a bucket, and reasons for which attempts may have been missed.

    Every attempt names the revision that the key must have. So once the key is known with a higher revision, the attempt either is part of
    what is known, or was refused.
    """

    #: By key, the highest revision that an attempt named.
    named: dict[str, int] = msgspec.field(default_factory=dict)
    #: Number of attempts that named no revision, and of new connections, before which attempts may have been missed.
    unclear: int = 0


class Writes(Subscription, Protocol):
    """A listener for the writes to a bucket. If another process learns of a write and then sends a request to this process, the write
    arrives here before the request.

    Exception: in a cluster of servers the write may arrive after the request. The delay is shorter than the time that the servers need to
    agree on the write.
    """

    def take(self) -> HeardWrites:
        """Return what was heard since the last call."""
        ...


class KeyValue(Protocol):
    """A bucket of small values with compare-and-set.

    If the server stored a foreign message (see `ForeignEntries`) under a key, the key's value is lost. Readers then find no such key.
    """

    async def get(self, key: str) -> Entry | None: ...

    async def entries(self) -> dict[str, Entry]: ...

    def read(self, prefix: str, *, after: int = 0, batch_bytes: int | None = None) -> AsyncGenerator[Entry, None]:
        """Yield the entries of all keys below `prefix`, in the order of their writes. Only a few entries are in memory at a time.

        Entries up to the revision `after` are left out. Use `after` only for buckets that keep one value of each key. Entries are fetched
        in batches of at most `batch_bytes` (a few megabytes by default). Raises `BusError` midway if the server goes away.
        """
        ...

    async def put(self, key: str, value: bytes) -> int:
        """Write a value to a key, whatever value the key has now. Return the new revision."""
        ...

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Write a key if its newest revision is `revision` (0: the key does not exist). Return the new revision.
        Raises `WrongRevision`.
        """
        ...

    async def delete(self, key: str) -> None: ...

    async def purge(self, prefix: str) -> None:
        """Remove all keys below `prefix` (`page.1` is below `page`), with their deletion markers. Mirrors do not notice the removal."""
        ...

    async def revision(self) -> int:
        """Return the revision of the newest write to any key, or 0 if there was no write."""
        ...

    async def size_bytes(self) -> int:
        """Return the number of bytes of all values, including the bytes that the server stores beside the values."""
        ...

    async def clear(self, up_to: int) -> None:
        """Remove everything that was written up to a revision, including damaged values. Mirrors do not notice the removal."""
        ...

    async def history(self, key: str) -> list[Entry]:
        """Return the values of a key that the bucket keeps, oldest first."""
        ...

    def mirror(
        self, on_change: Callable[[Mapping[str, Entry], frozenset[str]], None] | None = None
    ) -> AbstractAsyncContextManager[Mirror]:
        """Return a mirror as a context manager. The mirror is complete when the block begins. `on_change(entries, changed keys)` is called
        synchronously after each change.
        """
        ...


class LogEntry(msgspec.Struct, frozen=True):
    """One entry of a log. Sequence numbers rise by one. An entry that was not written for this log has no data."""

    sequence: int
    data: bytes


class Log(Protocol):
    """An append-only stream with one writer at a time. The expected last sequence number keeps a former writer from appending."""

    async def append(self, data: bytes, *, expected_last: int, timeout_s: float) -> int:
        """Add one entry directly after `expected_last`. Return its sequence number; the entry is durable by then.

        Raises `AppendRefused` if the log has another last entry, or `AppendUnknown` if there was no answer.
        """
        ...

    async def last(self) -> LogEntry | None: ...

    async def bounds(self) -> tuple[int, int]:
        """Return the sequence numbers of the first kept entry and of the last entry, or (last + 1, last) if no entry is kept."""
        ...

    async def size_bytes(self) -> int:
        """Return the number of bytes of all kept entries, including the bytes that the server stores beside the entries."""
        ...

    def read(self, after: int, *, batch_bytes: int | None = None) -> AsyncGenerator[LogEntry, None]:
        """Yield the entries after `after`, in order, up to the last entry at the time of the call.

        Entries are fetched in batches of at most `batch_bytes` (a few megabytes by default). So if a reader stops early, at most one batch
        was fetched but not used.
        """
        ...

    async def forget(self, up_to: int) -> None:
        """Remove the entries up to and including `up_to`."""
        ...


class Records(Protocol):
    """A stream of records with a bounded age and size. The oldest records are removed first."""

    async def add(self, data: bytes, *, timeout_s: float, expected_last: int | None = None) -> int:
        """Add one record, directly after `expected_last` if that is given. Return its sequence number.

        Raises `AppendRefused` if another record is the last one. Raises another `BusError` for other failures; after such an error the
        record may have been added nevertheless.
        """
        ...

    async def last(self) -> LogEntry:
        """Return the newest record. It has no data if it is no longer kept, and sequence 0 if no record was ever added."""
        ...

    async def oldest_ms(self) -> int | None:
        """Return the Unix time in milliseconds at which the oldest kept record was added, or None if no record is kept."""
        ...

    def read(self, *, after: int = 0, since_ms: int = 0) -> AsyncGenerator[LogEntry, None]:
        """Yield the records after `after` that were added at `since_ms` or later, in order, up to the last record now.

        `since_ms` is Unix time in milliseconds, by the server's clock.
        """
        ...


class Bus(Protocol):
    """The bus as one process sees it: the process's connection."""

    @property
    def connected(self) -> bool: ...

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send a request and return the first answer.

        Raises `NotConnected`, `NoResponders`, `RequestTimeout`, `ConnectionLost`, `TooLarge`, `PermissionRefused`.
        """
        ...

    async def gather(self, subject: str, data: bytes, *, wait_s: float) -> list[bytes]:
        """Send a request once and return all answers that arrive within `wait_s` seconds. The list is empty if there is no
        answer.
        """
        ...

    async def publish(self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None) -> None: ...

    async def serve(
        self,
        subject: str,
        handler: Handler,
        *,
        queue: str = "",
        concurrency: int = 64,
        running_bytes: int = MAX_PENDING_BYTES,
        pending: int = 10_000,
        senders: Senders | None = None,
        newest: Newest | None = None,
        statistics: Callable[[], Mapping[str, object]] | None = None,
    ) -> Subscription:
        """Answer requests on `subject`, with at most `concurrency` handlers and about `running_bytes` of requests at a time.

        Requests are dropped and counted if more than `pending` requests, or more than `MAX_PENDING_BYTES`, wait. With `senders`, the
        requests of each sender wait in a queue of their own, the queues take turns, and a dropped request is refused. With `newest`,
        requests are answered one after the other, and `concurrency` has no effect. Only the newest waiting request of each sender is
        answered, and a request that has waited too long is dropped. With `newest` and under load, the connection is read only every 4 ms,
        so that requests which arrive in between are answered together. `statistics` is shown in service discovery beside the counts of the
        subject. When this returns, the server has accepted the subscription.
        """
        ...

    async def subscribe(
        self, *subjects: str, key: Callable[[Message], Hashable] | None = None, pending: int = 10_000
    ) -> Inbox:
        """Return one inbox for all these subjects. Messages of all subjects wait in it in order of arrival."""
        ...

    async def key_value(self, bucket: str, *, history: int = 1) -> KeyValue:
        """Open a bucket. If it is missing, create it or raise `MissingStore`, depending on how the connection was configured."""
        ...

    async def writes(self, bucket: str) -> Writes:
        """Listen to the writes of all processes to a bucket. Raises `PermissionRefused`, `NotConnected`, `RequestTimeout`."""
        ...

    async def log(self, name: str, subject: str) -> Log:
        """Open a stream over one subject. If it is missing, create it or raise `MissingStore`, as `key_value` does."""
        ...

    async def records(self, name: str, subject: str, *, max_age_s: float, max_bytes: int) -> Records:
        """Open a stream over one subject with a bounded age and size.

        If the stream is missing, create it or raise `MissingStore`, as `key_value` does. If it has other bounds and
        this connection may create stores, change its bounds.
        """
        ...

    async def barrier(self) -> None:
        """Return when the server has processed everything that was sent before."""
        ...

    async def renew(self, credential: KeyCredential) -> None:
        """Replace the connection by a new connection with another credential, which must have the same rights. Requests under way on the
        old connection are lost.
        """
        ...

    async def stop_serving(self) -> None:
        """Accept no new messages, let the handlers end (10 s at most), and send their answers. Requests and writes are
        still possible.
        """
        ...

    async def wait_closed(self) -> None:
        """Return when the connection was closed for good although this process did not ask for it."""
        ...

    def statistics(self) -> Mapping[str, int]: ...
