"""The few requests of the JetStream API that buckets and logs need, over our own link.

nats-py's own classes are not used: their buckets confuse expiry markers with values, their ordered consumers stay silent for 20 s
after a server's restart. Answers are read as Structs. What the server refuses is `JetStreamRefused` with its code.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.bus.nats.link import Link
from headrace.bus.protocol import (
    MAX_MESSAGE_BYTES,
    BusError,
    ConnectionLost,
    Message,
    MissingStore,
    RequestTimeout,
    WrongConfiguration,
)
from headrace.obs.logging import logger

STREAM_NOT_FOUND: Final = 10059
MESSAGE_NOT_FOUND: Final = 10037
NAME_IN_USE: Final = 10058
#: Of the server, an account or a stream; the last is what a cluster says whose disk is full.
NO_ROOM: Final = frozenset({10023, 10047, 10077})
#: Of a stream or of a subject; the second is what a cluster says.
WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
#: The beginning of what the server itself says: an answer of its API, or the acknowledgement of a write.
_SERVER_ANSWER: Final = re.compile(rb'\{"(type":"io\.nats\.jetstream\.|stream":"|error":\{)')


class JetStreamRefused(BusError):
    """JetStream refused a request."""

    def __init__(self, what: str, code: int, err_code: int, description: str) -> None:
        self.code = code
        self.err_code = err_code
        super().__init__(f"{what}: {description} ({code}, {err_code})")


class _ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    error: _ApiError | None = None


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: _ApiError | None = None


class StreamConfig(msgspec.Struct):
    """The part of a stream's configuration that decides whether it keeps what is written."""

    name: str
    subjects: list[str] = []
    storage: str = "file"
    retention: str = "limits"
    discard: str = "old"
    max_msgs: int = -1
    max_bytes: int = -1
    #: Nanoseconds; 0 is for ever.
    max_age: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    num_replicas: int = 1
    allow_rollup_hdrs: bool = False
    deny_delete: bool = False
    allow_direct: bool = False


class _StreamState(msgspec.Struct):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    #: RFC 3339.
    first_ts: str = ""
    #: Messages of each subject that was asked for; null where there are none.
    subjects: dict[str, int] | None = None


class _Replica(msgspec.Struct):
    #: It has all that the leader has.
    current: bool = False
    offline: bool = False


class _Cluster(msgspec.Struct):
    leader: str = ""
    #: Besides the leader; null where there are none.
    replicas: list[_Replica] | None = None


class _NamesAnswer(msgspec.Struct):
    total: int = 0
    #: null where there are none.
    streams: list[str] | None = None


class StreamInfo(msgspec.Struct):
    """A stream as it is."""

    config: StreamConfig
    created: str
    state: _StreamState
    #: None on a server that is in no cluster.
    cluster: _Cluster | None = None

    @property
    def copies(self) -> int:
        """The number of servers that have the whole of it."""
        others = self.cluster.replicas if self.cluster is not None else None
        return 1 + sum(other.current and not other.offline for other in others or [])


class _StoredMessage(msgspec.Struct):
    subject: str
    seq: int
    data: str = ""
    hdrs: str = ""


class _MessageAnswer(msgspec.Struct):
    message: _StoredMessage


class Stored(msgspec.Struct, frozen=True):
    """One message of a stream."""

    subject: str
    sequence: int
    data: bytes
    #: Lower-case names.
    headers: Mapping[str, str]
    #: Counts the deliveries of the consumer that brought it from 1.
    delivery: int = 0
    #: How many more of the stream wait for this consumer.
    pending: int = 0


def seconds_ns(seconds: float) -> int:
    """Nanoseconds, in which the API writes lengths of time."""
    return int(seconds * 1_000_000_000)


def delivered(message: Message) -> Stored | None:
    """Reads what a consumer sent. Returns None for a status."""
    tokens = message.reply_to.split(".")
    # `$JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<delivery>.<time>.<pending>`; newer ones put domain and account before.
    if len(tokens) < 9 or tokens[:2] != ["$JS", "ACK"]:
        return None
    offset = 0 if len(tokens) == 9 else 2
    sequence, delivery, pending = (int(tokens[offset + place]) for place in (5, 6, 8))
    return Stored(
        subject=message.subject,
        sequence=sequence,
        data=message.data,
        headers=message.headers,
        delivery=delivery,
        pending=pending,
    )


class JetStream:
    """Requests to the API. All raise `JetStreamRefused` and what `Link.call` raises."""

    def __init__(self, link: Link, *, replicas: int, timeout_s: float, makes_stores: bool) -> None:
        self.link = link
        self.replicas = replicas
        self.makes_stores = makes_stores
        self.timeout_s = timeout_s
        #: Foreign messages that readers met, each counted once.
        self.foreign = 0
        self._foreign_up_to: dict[str, int] = {}

    def is_foreign(self, stream: str, stored: Stored, subject: str) -> bool:
        """True if a message was not written for `subject` (a prefix, where it ends in a dot). Counts and logs each once.

        A service chooses where the server sends what it delivers or answers, and the server checks no right of the service there.
        A delivered message keeps its own subject in the stream that stores it. An answer of the server itself has the
        subject of that stream, but it has neither data nor headers, or begins as all answers do.
        """
        is_own = stored.subject.startswith(subject) if subject.endswith(".") else stored.subject == subject
        if is_own and (stored.data or stored.headers) and not _SERVER_ANSWER.match(stored.data):
            return False
        if stored.sequence > self._foreign_up_to.get(stream, 0):
            self._foreign_up_to[stream] = stored.sequence
            self.foreign += 1
            logger().error("foreign entry in a stream", stream=stream, sequence=stored.sequence, subject=stored.subject)
        return True

    async def ask(self, what: str, body: Mapping[str, Any]) -> bytes:
        """Sends one request. Returns the answer's bytes, which carry no error."""
        data = msgspec.json.encode(body) if body else b""
        answer = await self.link.call(f"$JS.API.{what}", data, timeout_s=self.timeout_s)
        _raise_refusal(what, msgspec.json.decode(answer.data, type=_Answer).error)
        return answer.data

    async def stream(self, name: str) -> StreamInfo | None:
        """A stream as it is, or None."""
        try:
            return msgspec.json.decode(await self.ask(f"STREAM.INFO.{name}", {}), type=StreamInfo)
        except JetStreamRefused as refusal:
            if refusal.err_code == STREAM_NOT_FOUND:
                return None
            raise

    async def existing(self, name: str) -> StreamInfo:
        """A stream that must be there."""
        return msgspec.json.decode(await self.ask(f"STREAM.INFO.{name}", {}), type=StreamInfo)

    async def has_messages(self, stream: str, subject: str) -> bool:
        """True if the server counts messages of a subject, whether it can read them or not."""
        answer = await self.ask(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
        return bool(msgspec.json.decode(answer, type=StreamInfo).state.subjects)

    async def names(self) -> set[str]:
        """The names of all streams."""
        found: set[str] = set()
        while True:
            page = msgspec.json.decode(await self.ask("STREAM.NAMES", {"offset": len(found)}), type=_NamesAnswer)
            found.update(page.streams or [])
            if not page.streams or len(found) >= page.total:
                return found

    async def stream_or_new(self, config: StreamConfig, *fixed: str) -> StreamConfig:
        """The configuration of a stream, made by `config` where it is missing and we make stores.

        Raises `MissingStore`, and `WrongConfiguration` if a `fixed` field differs.
        """
        found = await self.stream(config.name)
        if found is None:
            if not self.makes_stores:
                raise MissingStore(config.name)
            try:
                await self.ask(f"STREAM.CREATE.{config.name}", msgspec.to_builtins(config))
            except JetStreamRefused as refusal:
                # Somebody else made it in the meantime, otherwise.
                if refusal.err_code != NAME_IN_USE:
                    raise
            # An older or otherwise configured server takes what it does not do without complaint, so what is there counts.
            found = await self.existing(config.name)
        for field in ("subjects", "storage", "discard", *fixed):
            there, wanted = getattr(found.config, field), getattr(config, field)
            if there != wanted:
                raise WrongConfiguration(f"stream {config.name}: {field} is {there!r}, must be {wanted!r}")
        return found.config

    async def change_stream(self, name: str, **fields: object) -> None:
        """Changes a few fields of a stream's configuration and leaves all others as they are."""
        found: dict[str, Any] = msgspec.json.decode(await self.ask(f"STREAM.INFO.{name}", {}))
        await self.ask(f"STREAM.UPDATE.{name}", {**found["config"], **fields})

    async def last_message(self, stream: str, subject: str) -> Stored | None:
        """The newest message of a subject, from the stream's leader."""
        try:
            answer = await self.ask(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        except JetStreamRefused as refusal:
            if refusal.err_code == MESSAGE_NOT_FOUND:
                return None
            raise
        message = msgspec.json.decode(answer, type=_MessageAnswer).message
        return Stored(
            subject=message.subject,
            sequence=message.seq,
            data=base64.b64decode(message.data),
            headers=_stored_headers(base64.b64decode(message.hdrs)),
        )

    async def append(self, subject: str, data: bytes, headers: Mapping[str, str], *, timeout_s: float) -> int:
        """Adds a message to whichever stream records the subject. Returns its sequence."""
        try:
            answer = await self.link.call(subject, data, timeout_s=timeout_s, headers=headers)
        except ConnectionLost:
            raise
        except RequestTimeout as error:
            # A server whose disk is full answers everything else, and writes not at all.
            raise RequestTimeout(f"{error}: the stream has no leader for the moment, or its disk is full") from None
        ack = msgspec.json.decode(answer.data, type=_PubAck)
        _raise_refusal(subject, ack.error)
        return ack.seq


def standard_stream(name: str, subject: str, *, replicas: int) -> StreamConfig:
    """The configuration that buckets and logs share: in files, for ever, every answer from the leader."""
    return StreamConfig(
        name=name,
        subjects=[subject],
        # Full, it must refuse new messages: losing the oldest would be losing what was acknowledged.
        discard="new",
        max_msg_size=MAX_MESSAGE_BYTES,
        num_replicas=replicas,
        deny_delete=True,
        # Direct reads are answered by followers as well, and may be stale.
        allow_direct=False,
    )


def _raise_refusal(what: str, error: _ApiError | None) -> None:
    if error is not None:
        full = ", its disk or the part of it that streams may take is full" if error.err_code in NO_ROOM else ""
        raise JetStreamRefused(what, error.code, error.err_code, error.description + full)


def _stored_headers(raw: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return headers
