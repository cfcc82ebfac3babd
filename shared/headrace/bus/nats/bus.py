"""The bus over NATS: requests, publications, serving, subscriptions, and an orderly end."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from headrace.access.key_credential import KeyCredential
from headrace.bus.discovery import Discovery, ServiceInfo
from headrace.bus.inbox import Mailbox
from headrace.bus.nats.connecting import Credential, Hooks, LookAgain, ServerAccess, open_client
from headrace.bus.nats.fair_listener import Lanes
from headrace.bus.nats.link import Link
from headrace.bus.nats.streams.api import JetStream
from headrace.bus.nats.streams.key_value import NatsKeyValue
from headrace.bus.nats.streams.log import NatsLog
from headrace.bus.nats.streams.records import NatsRecords
from headrace.bus.nats.streams.writes import NatsWrites
from headrace.bus.protocol import (
    MAX_PENDING_BYTES,
    BusClosed,
    BusError,
    ForeignLoop,
    Handler,
    KeyValue,
    Log,
    Message,
    Newest,
    Records,
    Senders,
)
from headrace.bus.serving import Serving
from headrace.obs.logging import logger
from headrace.obs.tracing import with_trace

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

#: Seconds that the running handlers may take to end after `stop_serving` was called.
_DRAIN_TIMEOUT_S = 10.0
_DISCOVERY_PENDING = 100
#: For a served subject with many senders: the largest number of messages of one sender that the server may send before they are read. When
#: one sender floods the subject, this many of its messages may be in front of the messages of all other senders. In a cluster of servers a
#: request beyond the limit gets no answer; a single server reports at once that nobody listens. So the limit is higher than the number of
#: requests that arrive during a short pause of the service.
_MOST_UNREAD_OF_MANY: Final = 1_024
#: Lanes of a subject for requests: one for each sender, up to a bound. There is a bound because a lane takes up to two
#: subscriptions, and the credential of a service bounds the number of subscriptions.
LANES_OF_SENDERS: Final = Lanes(_MOST_UNREAD_OF_MANY, most=1_024)
#: Lanes of the subject for heartbeats: one for each node of a large fleet.
LANES_OF_NEWEST: Final = Lanes(_MOST_UNREAD_OF_MANY, most=16_384)


@asynccontextmanager
async def connect(
    urls: Sequence[str],
    *,
    name: str,
    credential: Credential | KeyCredential | None = None,
    inbox_prefix: str = "_INBOX",
    connect_timeout_s: float = 10.0,
    service: ServiceInfo | None = None,
    replicas: int = 1,
    makes_stores: bool = True,
    api_timeout_s: float = 5.0,
    read_all_s: float = 5.0,
    ping_interval_s: float = 5.0,
    longest_reconnect_delay_s: float = 2.0,
    ca_file: str = "",
    look_again: LookAgain | None = None,
) -> AsyncIterator[NatsBus]:
    """Connect to a server. The connection is closed at the end of the block; handlers run inside the block.

    Missing buckets and streams are created with `replicas` copies. If `makes_stores` is False, `MissingStore` is raised instead.
    `api_timeout_s` limits each call of a bucket or log that names no timeout of its own. `read_all_s` is the period of mirrors. A
    connection whose server is silent for three `ping_interval_s` is given up. Tries to reconnect are at most `longest_reconnect_delay_s`
    apart. The certificate of a server at `tls://` is checked against the authorities in `ca_file`, or else the system's. `look_again` is
    called before each try to reconnect, and returns the addresses and the credential to use.

    Raises `NotConnected` if no server answers within `connect_timeout_s`, `CredentialRefused`, `ServerTooOld`,
    `PermissionRefused` if the server refuses the inbox prefix, and `BadInput` if `urls` and `ca_file` cannot be used.
    """
    client, hooks = await open_client(
        ServerAccess(urls=urls, credential=credential, ca_file=ca_file),
        name=name,
        inbox_prefix=inbox_prefix,
        connect_timeout_s=connect_timeout_s,
        ping_interval_s=ping_interval_s,
        longest_reconnect_delay_s=longest_reconnect_delay_s,
        look_again=look_again,
    )
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        link = Link(client, tasks, inbox_prefix=inbox_prefix)
        hooks.link = link
        jetstream = JetStream(link, replicas=replicas, timeout_s=api_timeout_s, makes_stores=makes_stores)
        bus = NatsBus(link, tasks, jetstream, hooks, read_all_s=read_all_s)
        try:
            await bus.start()
            if service is not None:
                await bus.announce(service)
            yield bus
        except Exception as error:
            # The error is raised outside of the task group, because the task group would wrap it in an exception group.
            failure = error
        finally:
            with anyio.CancelScope(shield=True):
                await bus.close()
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


class NatsBus:
    """Implements `headrace.bus.protocol.Bus`. Created by `connect`."""

    def __init__(self, link: Link, tasks: TaskGroup, jetstream: JetStream, hooks: Hooks, *, read_all_s: float) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._hooks = hooks
        self._tasks = tasks
        self.jetstream = jetstream
        self._read_all_s = read_all_s
        self._servings: list[Serving] = []
        self._inboxes: list[Mailbox] = []
        self._closing = False

    @property
    def connected(self) -> bool:
        return self._link.connected

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        self._check_loop()
        answer = await self._link.call(subject, data, timeout_s=timeout_s, headers=with_trace(_lower(headers)))
        return answer.data

    async def gather(self, subject: str, data: bytes, *, wait_s: float) -> list[bytes]:
        self._check_loop()
        return [answer.data for answer in await self._link.collect(subject, data, wait_s=wait_s)]

    async def publish(self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None) -> None:
        self._check_loop()
        await self._link.send(subject, data, headers=with_trace(_lower(headers)))

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
    ) -> Serving:
        serving = self._new_serving(
            subject,
            handler,
            queue=queue,
            concurrency=concurrency,
            running_bytes=running_bytes,
            pending=pending,
            senders=senders,
            newest=newest,
            statistics=statistics,
        )
        self._servings.append(serving)
        serving.closing.callback(self._servings.remove, serving)
        try:
            lanes = LANES_OF_NEWEST if newest is not None else LANES_OF_SENDERS if senders is not None else None
            listener = await self._link.listen(subject, serving.on_message, queue=queue, lanes=lanes)
        except BaseException:
            await serving.close()
            raise
        serving.closing.push_async_callback(listener.close)
        return serving

    async def subscribe(
        self, *subjects: str, key: Callable[[Message], Hashable] | None = None, pending: int = 10_000
    ) -> Mailbox:
        self._check_open()
        inbox = Mailbox(key=key, pending=pending)
        async with AsyncExitStack() as undo:
            for subject in subjects:
                listener = await self._link.listen(subject, partial(_put_if_said_there, inbox, subject))
                undo.push_async_callback(listener.close)
            self._inboxes.append(inbox)
            inbox.closing.callback(self._inboxes.remove, inbox)
            inbox.closing.push_async_callback(undo.pop_all().aclose)
        return inbox

    async def key_value(self, bucket: str, *, history: int = 1) -> KeyValue:
        return await NatsKeyValue.open(self.jetstream, bucket, history=history, read_all_s=self._read_all_s)

    async def writes(self, bucket: str) -> NatsWrites:
        writes = NatsWrites(self._link)
        await writes.open(bucket)
        return writes

    async def log(self, name: str, subject: str) -> Log:
        return await NatsLog.open(self.jetstream, name, subject)

    async def records(self, name: str, subject: str, *, max_age_s: float, max_bytes: int) -> Records:
        return await NatsRecords.open(self.jetstream, name, subject, max_age_s=max_age_s, max_bytes=max_bytes)

    async def barrier(self) -> None:
        await self._link.barrier()

    async def renew(self, credential: KeyCredential) -> None:
        self._hooks.credential = credential
        await self._link.reconnect()

    async def stop_serving(self) -> None:
        if self._link.closed:
            return
        await self._link.unsubscribe_all()
        for inbox in tuple(self._inboxes):
            inbox.end()
        with anyio.move_on_after(_DRAIN_TIMEOUT_S) as scope:
            for serving in tuple(self._servings):
                await serving.wait_idle()
        if scope.cancelled_caught:
            logger().warning("request handlers did not end in time; the process stops without them")
        try:
            await self._link.barrier()
        except BusError as error:
            logger().info("answers may be lost", error=str(error))

    async def close(self) -> None:
        """Close at once and drop all waiting messages. For an orderly end call `stop_serving` first."""
        self._closing = True
        for serving in tuple(self._servings):
            await serving.close()
        for inbox in tuple(self._inboxes):
            inbox.end()
        await self._link.close()

    async def wait_closed(self) -> None:
        await self._link.wait_lost()

    def statistics(self) -> dict[str, int]:
        totals = {**self._link.statistics(), "foreign": self.jetstream.foreign.count}
        for count in ("dropped", "failed", "unanswered", "running", "pending"):
            parts: list[Serving | Mailbox] = [*self._servings, *self._inboxes]
            totals[count] = sum(part.statistics().get(count, 0) for part in parts)
        return totals

    async def start(self) -> None:
        """Start using the connection."""
        await self._link.start()
        self._tasks.start_soon(self._end_inboxes_when_lost)

    async def announce(self, service: ServiceInfo) -> None:
        """Answer service discovery from now on, on the subjects that the server allows."""
        discovery = Discovery(service, secrets.token_hex(11), datetime.now(UTC), lambda: self._servings)
        for subject, compose in discovery.subjects().items():
            serving = self._new_serving(subject, _answering(compose), concurrency=1, pending=_DISCOVERY_PENDING)
            try:
                await self._link.listen(subject, serving.on_message, needed=False)
            except BusError as error:
                logger().info("service discovery is not available", error=str(error))
                return

    def _new_serving(self, subject: str, handler: Handler, **options: Any) -> Serving:
        self._check_open()
        serving = Serving(subject, handler, self._tasks, self._link.send, **options)
        serving.rest = self._link.rest
        return serving

    async def _end_inboxes_when_lost(self) -> None:
        await self._link.wait_lost()
        for inbox in tuple(self._inboxes):
            inbox.end(BusClosed())

    def _check_loop(self) -> None:
        """Raise `ForeignLoop` in another event loop, where a call would never return and could not be cancelled."""
        if asyncio.get_running_loop() is not self._loop:
            raise ForeignLoop

    def _check_open(self) -> None:
        self._check_loop()
        if self._closing or self._link.closed:
            raise BusClosed


def _answering(compose: Callable[[], bytes]) -> Handler:
    async def answer(_message: Message) -> bytes:
        return compose()

    return answer


def _put_if_said_there(inbox: Mailbox, subject: str, message: Message) -> None:
    """Put a message into an inbox if the message was published on a subject of the subscription.

    A message keeps the subject on which it was published, and the server lets a process publish only on subjects that the credential of the
    process allows. So if a message has another subject, a stream delivered it to the inbox, and the message is dropped.
    """
    if message.subject == subject or _matches(subject.split("."), message.subject.split(".")):
        inbox.put(message)
    else:
        inbox.dropped += 1


def _matches(pattern: list[str], subject: list[str]) -> bool:
    if pattern[-1] == ">" and len(subject) >= len(pattern):
        pattern, subject = pattern[:-1], subject[: len(pattern) - 1]
    return len(pattern) == len(subject) and all(one in ("*", two) for one, two in zip(pattern, subject, strict=True))


def _lower(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    # Header names are case-sensitive in NATS. All names are converted to lower case, so that the same header cannot arrive twice in
    # different spellings.
    return {name.lower(): value for name, value in headers.items()} if headers else None
