"""The few requests of the JetStream API that buckets and logs need.

nats-py's own classes are not used: their buckets confuse expiry markers with values, and their ordered consumers stay
silent for 20 s after a server's restart. Answers are decoded into Structs. A refusal by the server is raised as
`JetStreamRefused` with its code.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.bus.nats.link import Link
from headrace.bus.nats.streams.foreign_entries import ForeignEntries
from headrace.bus.protocol import (
    MAX_MESSAGE_BYTES,
    BusError,
    ConnectionLost,
    Message,
    MissingStore,
    RequestTimeout,
    WrongConfiguration,
)

STREAM_NOT_FOUND: Final = 10059
MESSAGE_NOT_FOUND: Final = 10037
NAME_IN_USE: Final = 10058
#: Error codes for a full server, account or stream. A cluster reports 10077 if its disk is full.
NO_ROOM: Final = frozenset({10023, 10047, 10077})
#: Header of a write that names the sequence number which the newest message of the same subject must have.
EXPECTED_REVISION: Final = "Nats-Expected-Last-Subject-Sequence"
#: Error codes for a wrong expected last sequence of a stream or of a subject. A cluster reports 10164.
WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})


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
    """The part of a stream's configuration that decides whether the stream keeps what is written."""

    name: str
    subjects: list[str] = []
    storage: str = "file"
    retention: str = "limits"
    discard: str = "old"
    max_msgs: int = -1
    max_bytes: int = -1
    #: Largest age of messages in nanoseconds; 0 means for ever.
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
    #: Time of the first message, in RFC 3339.
    first_ts: str = ""
    #: Number of messages of each requested subject; null if there are none.
    subjects: dict[str, int] | None = None


class _Replica(msgspec.Struct):
    #: True if the replica has everything that the leader has.
    current: bool = False
    offline: bool = False


class _Cluster(msgspec.Struct):
    leader: str = ""
    #: Replicas other than the leader; null if there are none.
    replicas: list[_Replica] | None = None


class _NamesAnswer(msgspec.Struct):
    total: int = 0
    #: Names of streams; null if there are none.
    streams: list[str] | None = None


class StreamInfo(msgspec.Struct):
    """The configuration and state of a stream."""

    config: StreamConfig
    created: str
    state: _StreamState
    #: State of the cluster; None if the server is in no cluster.
    cluster: _Cluster | None = None

    @property
    def copies(self) -> int:
        """The number of servers that have a complete copy."""
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
    #: Headers by lower-case name.
    headers: Mapping[str, str]
    #: Number of this delivery, counted from 1 by the consumer; 0 if no consumer delivered the message.
    delivery: int = 0
    #: Number of messages of the stream that still wait for this consumer.
    pending: int = 0


def seconds_ns(seconds: float) -> int:
    """Convert seconds to nanoseconds, the API's unit for durations."""
    return int(seconds * 1_000_000_000)


def delivered(message: Message) -> Stored | None:
    """Decode a message from a consumer. Return None for a status message."""
    tokens = message.reply_to.split(".")
    # `$JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<delivery>.<time>.<pending>`; newer servers put domain and account
    # before `<stream>`.
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
    """Requests to the JetStream API. All raise `JetStreamRefused` and the errors of `Link.call`."""

    def __init__(self, link: Link, *, replicas: int, timeout_s: float, makes_stores: bool) -> None:
        self.link = link
        self.replicas = replicas
        self.makes_stores = makes_stores
        self.timeout_s = timeout_s
        self.foreign = ForeignEntries()

    async def ask(self, what: str, body: Mapping[str, Any]) -> bytes:
        """Send one request. Return the bytes of the answer, which carries no error."""
        data = msgspec.json.encode(body) if body else b""
        answer = await self.link.call(f"$JS.API.{what}", data, timeout_s=self.timeout_s)
        _raise_refusal(what, msgspec.json.decode(answer.data, type=_Answer).error)
        return answer.data

    async def stream(self, name: str) -> StreamInfo | None:
        """Return the configuration and state of a stream, or None if there is no such stream."""
        try:
            return msgspec.json.decode(await self.ask(f"STREAM.INFO.{name}", {}), type=StreamInfo)
        except JetStreamRefused as refusal:
            if refusal.err_code == STREAM_NOT_FOUND:
                return None
            raise

    async def existing(self, name: str) -> StreamInfo:
        """Return the configuration and state of a stream that must exist."""
        return msgspec.json.decode(await self.ask(f"STREAM.INFO.{name}", {}), type=StreamInfo)

    async def has_messages(self, stream: str, subject: str) -> bool:
        """True if the server counts messages of a subject. It also counts messages that it cannot read."""
        answer = await self.ask(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
        return bool(msgspec.json.decode(answer, type=StreamInfo).state.subjects)

    async def names(self) -> set[str]:
        """Return the names of all streams."""
        found: set[str] = set()
        while True:
            page = msgspec.json.decode(await self.ask("STREAM.NAMES", {"offset": len(found)}), type=_NamesAnswer)
            found.update(page.streams or [])
            if not page.streams or len(found) >= page.total:
                return found

    async def stream_or_new(self, config: StreamConfig, *fixed: str) -> StreamConfig:
        """Return the configuration of a stream. If it is missing and this connection may create stores, create it from `config`.

        Raises `MissingStore`, and `WrongConfiguration` if the existing stream differs in one of the `fixed` fields.
        """
        found = await self.stream(config.name)
        if found is None:
            if not self.makes_stores:
                raise MissingStore(config.name)
            try:
                await self.ask(f"STREAM.CREATE.{config.name}", msgspec.to_builtins(config))
            except JetStreamRefused as refusal:
                # Any other refusal is an error. If the name is in use, another process has created the stream in the
                # meantime.
                if refusal.err_code != NAME_IN_USE:
                    raise
            # The configuration is read back, because an older or differently configured server accepts settings that
            # it does not support.
            found = await self.existing(config.name)
        for field in ("subjects", "storage", "discard", *fixed):
            there, wanted = getattr(found.config, field), getattr(config, field)
            if there != wanted:
                raise WrongConfiguration(f"stream {config.name}: {field} is {there!r}, must be {wanted!r}")
        return found.config

    async def change_stream(self, name: str, **fields: object) -> None:
        """Change some fields of a stream's configuration and leave the others as they are."""
        found: dict[str, Any] = msgspec.json.decode(await self.ask(f"STREAM.INFO.{name}", {}))
        await self.ask(f"STREAM.UPDATE.{name}", {**found["config"], **fields})

    async def last_message(self, stream: str, subject: str) -> Stored | None:
        """Return the newest message of a subject, from the stream's leader, or None."""
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
        """Add a message to the stream that records the subject. Return its sequence number."""
        try:
            answer = await self.link.call(subject, data, timeout_s=timeout_s, headers=headers)
        except ConnectionLost:
            raise
        except RequestTimeout as error:
            # A request without an answer means that the stream has no leader. A server whose disk is full also looks
            # like this: it answers everything except writes.
            raise RequestTimeout(f"{error}: the stream has no leader at present, or its disk is full") from None
        ack = msgspec.json.decode(answer.data, type=_PubAck)
        _raise_refusal(subject, ack.error)
        return ack.seq


def standard_stream(name: str, subject: str, *, replicas: int) -> StreamConfig:
    """Return the configuration that buckets and logs share: stored in files, kept for ever, every answer from the leader."""
    return StreamConfig(
        name=name,
        subjects=[subject],
        # A full stream must refuse new messages: if it removed the oldest messages instead, acknowledged writes would be lost.
        discard="new",
        max_msg_size=MAX_MESSAGE_BYTES,
        num_replicas=replicas,
        deny_delete=True,
        # Direct reads are off, because followers of the stream's leader answer direct reads too, and the answer of a follower may be stale.
        allow_direct=False,
    )


def _raise_refusal(what: str, error: _ApiError | None) -> None:
    if error is not None:
        full = ", its disk or the disk space for streams is full" if error.err_code in NO_ROOM else ""
        raise JetStreamRefused(what, error.code, error.err_code, error.description + full)


def _stored_headers(raw: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return headers
