"""The questions that services may ask of the bus. Nothing outside `headrace.bus` knows what carries it.

Semantics that every implementation keeps:

* `publish` and `request` are at most once. Nothing is buffered while disconnected: they raise `NotConnected`.
* A callback of the transport never runs our code: handlers run in tasks of their own, each in a fresh context, so that neither a
  slow handler nor a context variable of one message reaches another.
* A handler that raises answers nothing, is counted and logged, and harms no other message.
* Payload and headers together stay under `MAX_MESSAGE_BYTES`. A larger one raises `TooLarge` before anything is sent.
* Every wait has a limit that the caller names.
* What is sent in a span carries it as a header, in which a handler continues and to which a reader of an inbox links.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from headrace.access.key_credential import KeyCredential
from headrace.errors import HeadraceError

#: Payload and headers of one message together. Half of the server's default limit, which closes the client for good when passed.
MAX_MESSAGE_BYTES = 512 * 1024


#: Bytes that wait for the handlers of one subject, or in one inbox.
MAX_PENDING_BYTES = 64 * 1024 * 1024


class BusError(HeadraceError):
    """The bus could not do what was asked."""


class NotConnected(BusError):
    """The bus is not connected, and nothing was sent."""


class BusClosed(BusError):
    """The connection was closed for good, and the process must be started anew."""


class NoResponders(BusError):
    """Nobody serves this subject at the moment, and nobody received the request."""


class RequestTimeout(BusError):
    """No answer came in time. Whether the request was received is unknown."""


class ConnectionLost(RequestTimeout):
    """The connection broke before an answer came. Whether the request was received is unknown."""


class PermissionRefused(BusError):
    """The server refuses this subject to our credential."""


class CredentialRefused(BusError):
    """The server knows no such credential, and trying again is no use."""


class ServerNotTrusted(BusError):
    """The certificate of the server cannot be verified, and nothing was sent."""


class ServerTooOld(BusError):
    """The server would take newer requests without complaint and not do them."""

    def __init__(self, found: str, required: str) -> None:
        self.found = found
        self.required = required
        super().__init__(f"the nats-server is {found}; {required} or newer is needed")


class TooLarge(BusError):
    """A message with its headers is larger than the bus carries, and nothing was sent."""

    def __init__(self, subject: str, size_bytes: int, limit_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.subject = subject
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(f"{subject}: {size_bytes} bytes, at most {limit_bytes} are carried; nothing was sent")


class WrongConfiguration(BusError):
    """A stream or bucket of this name exists, but it would not keep what is written."""


class MissingStore(BusError):
    """A bucket or stream is not there, and services make none."""

    def __init__(self, stream: str) -> None:
        kind, name = ("bucket", stream.removeprefix("KV_")) if stream.startswith("KV_") else ("stream", stream)
        super().__init__(f"{kind} {name} is missing: `headrace bus provision` makes it")


class WrongRevision(BusError):
    """The key was changed by somebody else since it was read."""


class DamagedValue(BusError):
    """The file of a value is damaged, and the server neither reads the value nor lets it be replaced."""

    def __init__(self, bucket: str, key: str) -> None:
        super().__init__(
            f"bucket {bucket}, key {key}: its file is damaged, and the nats-server neither reads nor replaces the value. "
            f"Stop the server, delete `streams/KV_{bucket}/msgs/index.db` in its store, and start it: "
            "it leaves out what is damaged, and the services write it again"
        )


class AppendRefused(BusError):
    """Somebody else appended to the log, and nothing of ours was added."""


class AppendUnknown(BusError):
    """The log did not answer. Whether the entry was added is unknown until the log is read."""


class Message(msgspec.Struct, frozen=True):
    """One message as received."""

    subject: str
    data: bytes
    #: Lower-case names.
    headers: Mapping[str, str]
    #: Where an answer goes; empty where none is expected.
    reply_to: str = ""


class Refused(msgspec.Struct, frozen=True):
    """The reason why there is no room for a message."""

    #: All messages, or those of its sender where these alone are too many.
    waiting: int
    is_sender_over_quota: bool
    #: So long it has waited itself.
    waited_s: float


class Senders(msgspec.Struct, frozen=True):
    """Tells messages apart by sender, and refuses those that there is no room for."""

    name: Callable[[Message], str]
    refusal: Callable[[Message, Refused], bytes | None]
    #: More of one sender than this do not wait.
    most_messages: int = 10_000
    most_bytes: int = MAX_PENDING_BYTES
    #: A message that waited longer is refused when its turn comes: its sender would give up while it is handled.
    longest_wait_s: float = math.inf


class Newest(msgspec.Struct, frozen=True):
    """Tells messages apart by sender, of which only the newest counts, and says how long one may wait."""

    name: Callable[[Message], str]
    within_s: float
    #: Told of each that waited longer and is dropped. It must not wait or raise.
    on_late: Callable[[Message], None] | None = None


#: Gets one message, returns the answer's bytes or None for no answer.
Handler = Callable[[Message], Awaitable[bytes | None]]


class Subscription(Protocol):
    """A standing interest. Closing it twice is allowed."""

    async def close(self) -> None: ...

    def statistics(self) -> Mapping[str, int]:
        """`received`, `dropped` (the mailbox was full), `failed` (the handler raised), `pending`, and what else it counts."""
        ...


class Inbox(Subscription, Protocol):
    """Messages in order of arrival. With a key, at most the newest of each key waits, in the older one's place.

    Full, it drops the oldest: so the last message always arrives, and who counts sequences always sees the gap. Iteration ends
    when the inbox is closed or the bus drained, and raises `BusClosed` when the connection was closed for good.
    """

    def __aiter__(self) -> AsyncIterator[Message]: ...

    async def __anext__(self) -> Message: ...


class Entry(msgspec.Struct, frozen=True):
    """One key's value and the bucket-wide revision that wrote it."""

    key: str
    value: bytes
    revision: int


class Mirror(Protocol):
    """A local copy of a whole bucket. It cannot go blind: besides the watch it reads everything at a period and after each reconnect.

    `revision` never falls, unless the bucket lost writes. A key that was lost and not
    deleted stays in `entries` as it was known, with revision 0, until somebody writes or deletes it.
    """

    @property
    def entries(self) -> Mapping[str, Entry]: ...

    @property
    def revision(self) -> int: ...

    async def refresh(self) -> None:
        """Reads the bucket now. Raises `BusError` when it cannot."""
        ...

    async def wait_for(self, revision: int, *, timeout_s: float) -> bool:
        """Waits until `revision` is reached. Returns False if it was not in time."""
        ...

    async def catch_up(self, *, timeout_s: float) -> bool:
        """Waits for everything that the bucket has now. Returns False if it was not in time. Raises `BusError`."""
        ...


class Writes(Subscription, Protocol):
    """Writes to a bucket, heard on our connection before any request of whoever knows of them.

    In a cluster one may be late, by less than servers take to agree on it.
    """

    @property
    def heard(self) -> int:
        """Rises with each try to write, and with each new connection: some may have been missed before."""
        ...


class KeyValue(Protocol):
    """A bucket of small values with compare-and-set.

    A value is lost if the server stored a foreign message in its place. Readers then find no such key.
    """

    async def get(self, key: str) -> Entry | None: ...

    async def entries(self) -> dict[str, Entry]: ...

    def read(self, prefix: str) -> AsyncGenerator[Entry, None]:
        """The entries of all keys below `prefix`, in the order of their writes. Few of them are in memory at a time.

        Raises `BusError` midway when the server goes away.
        """
        ...

    async def put(self, key: str, value: bytes) -> int:
        """Writes whatever was there. Returns the revision."""
        ...

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Writes a key whose newest revision is `revision`, 0 for one that is not there. Raises `WrongRevision`."""
        ...

    async def delete(self, key: str) -> None: ...

    async def purge(self, prefix: str) -> None:
        """Removes all keys below `prefix`, as `page.1` is below `page`, with their markers. No mirror hears of it."""
        ...

    async def revision(self) -> int:
        """The revision of the newest write to any key, 0 for none."""
        ...

    async def clear(self, up_to: int) -> None:
        """Removes everything that was written up to a revision, damaged values too. No mirror hears of it."""
        ...

    async def history(self, key: str) -> list[Entry]:
        """The kept values of a key, oldest first."""
        ...

    def mirror(
        self, on_change: Callable[[Mapping[str, Entry], frozenset[str]], None] | None = None
    ) -> AbstractAsyncContextManager[Mirror]:
        """A mirror that is complete when entered. `on_change(entries, changed keys)` is called synchronously after each change."""
        ...


class LogEntry(msgspec.Struct, frozen=True):
    """One entry of a log. Sequences rise by one. An entry that was not written for this log has no data."""

    sequence: int
    data: bytes


class Log(Protocol):
    """An append-only stream with a single writer at a time. The expected last sequence is the fence."""

    async def append(self, data: bytes, *, expected_last: int, timeout_s: float) -> int:
        """Adds one entry right after `expected_last` and returns its sequence, durable when it returns.

        Raises `AppendRefused` (the log has moved on) or `AppendUnknown` (no answer).
        """
        ...

    async def last(self) -> LogEntry | None: ...

    async def bounds(self) -> tuple[int, int]:
        """First kept and last sequence, or (last + 1, last) when nothing is kept."""
        ...

    async def size_bytes(self) -> int:
        """The size of all kept entries, with what the server stores beside them."""
        ...

    def read(self, after: int, *, batch_bytes: int | None = None) -> AsyncGenerator[LogEntry, None]:
        """The entries after `after` up to the last one there is now, in order.

        They are fetched in batches of at most `batch_bytes`, of some megabytes where that is not given: a reader that stops early has
        had no more of them sent than that.
        """
        ...

    async def forget(self, up_to: int) -> None:
        """Removes entries up to and including `up_to`."""
        ...


class Records(Protocol):
    """A stream of what happened, kept for a bounded time and up to a bounded size: the oldest goes first."""

    async def add(self, data: bytes, *, timeout_s: float, expected_last: int | None = None) -> int:
        """Adds one entry, right after `expected_last` where that is given, and returns its sequence.

        Raises `AppendRefused` if another one is the last, or another `BusError`, and then it may have been added all the same.
        """
        ...

    async def last(self) -> LogEntry:
        """The newest entry: without data if it is not kept any more, of sequence 0 if there was none."""
        ...

    async def oldest_ms(self) -> int | None:
        """Unix time at which the oldest entry that is kept was added, or None where there is none."""
        ...

    def read(self, *, after: int = 0, since_ms: int = 0) -> AsyncGenerator[LogEntry, None]:
        """The entries after `after` that were added at `since_ms` or later, up to the last one now, in order.

        `since_ms` is Unix time of the server.
        """
        ...


class Bus(Protocol):
    """The connection of one process."""

    @property
    def connected(self) -> bool: ...

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Sends and waits for the first answer.

        Raises `NotConnected`, `NoResponders`, `RequestTimeout`, `ConnectionLost`, `TooLarge`, `PermissionRefused`.
        """
        ...

    async def gather(self, subject: str, data: bytes, *, wait_s: float) -> list[bytes]:
        """Sends once and collects every answer that comes within `wait_s`. The list is empty where nobody answers."""
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
        """Answers requests, up to `concurrency` and some `running_bytes` at a time.

        Requests beyond `pending` waiting ones, or `MAX_PENDING_BYTES`, are dropped and counted. With `senders` each sender's wait in
        a line of their own. The lines take turns, and what is dropped is refused. With `newest` requests are answered one after the
        other whatever `concurrency` says: of each sender only the newest that waits, and none that has waited too long.
        Under load the connection is then read each 4 ms, so that what comes meanwhile is answered together.
        `statistics` are told beside the subject's own in service discovery.
        The subscription is in force at the server when this returns.
        """
        ...

    async def subscribe(
        self, *subjects: str, key: Callable[[Message], Hashable] | None = None, pending: int = 10_000
    ) -> Inbox:
        """One inbox for all these subjects: their messages wait in the order in which they came."""
        ...

    async def key_value(self, bucket: str, *, history: int = 1) -> KeyValue:
        """Opens a bucket. Makes it where it is missing, or raises `MissingStore`, as the connection was told."""
        ...

    async def writes(self, bucket: str) -> Writes:
        """Listens to the writes of everybody. Raises `PermissionRefused`, `NotConnected`, `RequestTimeout`."""
        ...

    async def log(self, name: str, subject: str) -> Log:
        """Opens a stream over one subject. Makes it where it is missing, or raises `MissingStore`, as for a bucket."""
        ...

    async def records(self, name: str, subject: str, *, max_age_s: float, max_bytes: int) -> Records:
        """Opens a bounded stream over one subject.

        Makes it where it is missing, or raises `MissingStore`. Gives it these bounds where it has others, if we make stores.
        """
        ...

    async def barrier(self) -> None:
        """Returns when the server has processed everything that was sent before."""
        ...

    async def renew(self, credential: KeyCredential) -> None:
        """Goes on with another credential of the same rights, over a new connection. What is under way on the old one is lost."""
        ...

    async def stop_serving(self) -> None:
        """Takes no new messages, lets handlers end (10 s at most), sends what they answered. We may still ask and write."""
        ...

    async def wait_closed(self) -> None:
        """Returns when the connection was closed for good without our asking."""
        ...

    def statistics(self) -> Mapping[str, int]: ...
