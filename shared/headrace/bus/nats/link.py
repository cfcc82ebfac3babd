"""One connection to a nats-server, without the behaviours of nats-py that would break something here.

Only `headrace.bus.nats` imports nats. The callbacks given to nats-py only enqueue and never raise: an exception in
`error_cb`, or while a message is delivered, ends nats-py's read loop although the connection still looks alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import anyio
from nats.errors import BadSubjectError, ConnectionClosedError

from headrace.bus.nats.barriers import Barriers
from headrace.bus.nats.calls import TOKEN_BYTES, Calls
from headrace.bus.nats.error_classes import CredentialLost, PermissionViolation, understand
from headrace.bus.nats.fair_listener import FairListener, Lanes, LargeLanes
from headrace.bus.nats.listener import Listener
from headrace.bus.nats.outgoing import Outgoing, check_subject
from headrace.bus.nats.transports import abort, transport_of
from headrace.bus.protocol import (
    BusClosed,
    BusError,
    ConnectionLost,
    Message,
    NoResponders,
    NotConnected,
    PermissionRefused,
    RequestTimeout,
)
from headrace.bus.turns import Turns
from headrace.errors import BadInput
from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger
from headrace.wire.subjects import INBOX_QUEUE, answers_at, asks_from, inbox

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from nats.aio.client import Client

_BARRIER_TIMEOUT_S = 10.0
#: Seconds between two checks of nats-py's own tasks while it is connected.
_INSPECT_EVERY_S = 5.0
#: Seconds between two checks of nats-py's own tasks while it is not connected.
_INSPECT_UNCONNECTED_S = 1.0
_CLOSE_TIMEOUT_S = 2.0
_RECONNECT_TIMEOUT_S = 10.0
#: Number of answers that `collect` keeps: twice the nodes of the largest fleet.
_MOST_ANSWERS = 20_000


class Link:
    """A connection that sends, calls and listens. Its tasks run in the task group that it is given."""

    def __init__(self, client: Client, tasks: TaskGroup, *, inbox_prefix: str) -> None:
        self._nats = client
        self._tasks = tasks
        self._inbox_prefix = inbox_prefix
        self._prefix = f"{inbox_prefix}.{secrets.token_hex(8)}"
        self._is_person = inbox_prefix.startswith(inbox("user", ""))
        self._asks_from = asks_from(self._prefix) if self._is_person else self._prefix
        self._calls = Calls(self._asks_from)
        self._listeners: set[Listener] = set()
        self._large_lanes = LargeLanes()
        self._outgoing = Outgoing(client, self._check_connected)
        self._barriers = Barriers(client, tasks, self._outgoing.write, self._check_connected)
        self._turns = Turns()
        self._errors: deque[Exception] = deque(maxlen=1_000)
        self._wake = anyio.Event()
        self._lost = anyio.Event()
        self._throttle = LogThrottle()
        self._closing = False
        self._reason = ""
        self.closed = False
        self.reconnects = 0
        self.refused_publishes = 0
        #: Number of answers that `collect` dropped because it keeps no more.
        self.surplus_answers = 0
        self.errors = 0
        #: Callbacks for each reconnect, called on the loop. They must not wait or raise.
        self.on_reconnect: set[Callable[[], None]] = set()

    def note_error(self, error: Exception) -> None:
        """Take an error from `error_cb`. Raising there would end nats-py's read loop."""
        self._errors.append(error)
        self._wake.set()

    def note_disconnected(self) -> None:
        """Handle `disconnected_cb`: drop unsent bytes. In a version that kept these bytes, they were sent after the reconnect: 559 stale
        heartbeats arrived in one burst.
        """
        self._nats._pending.clear()
        self._nats._pending_data_size = 0
        # The answers to these calls can never arrive: the server no longer knows this connection's inbox.
        self._calls.fail(ConnectionLost())
        self._barriers.fail(NotConnected())
        self._wake.set()

    def note_reconnected(self) -> None:
        """Handle `reconnected_cb`: call the callbacks that wait for a reconnect."""
        self.reconnects += 1
        for callback in tuple(self.on_reconnect):
            callback()

    def note_closed(self) -> None:
        """Handle `closed_cb`: record that the connection was closed for good, by this process or by the server."""
        self.closed = True
        self._wake.set()

    @property
    def connected(self) -> bool:
        """True if messages can be sent. nats-py also says that it is connected while it drains, but the link never drains it."""
        return self._nats.is_connected

    @property
    def new_connections(self) -> int:
        """Number of connections that replaced lost ones.

        A new connection is counted here before any message arrives on it; `reconnects` counts it once it is in use.
        """
        return self._nats.stats["reconnects"]

    async def wait_lost(self) -> None:
        """Return when the connection was closed for good although this process did not ask for it."""
        await self._lost.wait()

    def statistics(self) -> dict[str, int]:
        stats = self._nats.stats
        return {
            "received": stats["in_msgs"],
            "received_bytes": stats["in_bytes"],
            "sent": stats["out_msgs"],
            "sent_bytes": stats["out_bytes"],
            "reconnects": self.reconnects,
            "calls": len(self._calls),
            "listeners": len(self._listeners),
            "errors": self.errors,
            "refused_publishes": self.refused_publishes,
            "surplus_answers": self.surplus_answers,
            "unsent_bytes": self._outgoing.unsent_bytes(),
        }

    async def start(self) -> None:
        """Start using the connection. Raises `PermissionRefused` if the server refuses even this connection's own inbox."""
        self._tasks.start_soon(self._tend)
        await self.listen(f"{self._asks_from}.*", self._calls.on_answer)
        if self._is_person:
            await self.listen(answers_at(f"{self._asks_from}.*"), self._calls.on_answer, queue=INBOX_QUEUE)

    async def close(self) -> None:
        """Close the connection, within seconds whatever the server does."""
        self._closing = True
        self._fail_all(BusClosed())
        # If the server closed the connection first, nats-py cannot send its last bytes. It then raises `OSError` and leaves its own closing
        # unfinished, so the error is suppressed and the client is aborted below.
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True), contextlib.suppress(OSError):
            try:
                await self._nats.close()
            except asyncio.CancelledError:
                # The cancellation may come from a nats-py task that waited for the end of the same transport. Re-raise only
                # if this task itself is cancelled.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
        abort(self._nats)
        self.closed = True

    async def reconnect(self) -> None:
        """Replace this connection by a new connection, and return when the new connection is in use. Raises `RequestTimeout`."""
        again = anyio.Event()
        self.on_reconnect.add(again.set)
        try:
            await self._nats.force_reconnect()
            with anyio.move_on_after(_RECONNECT_TIMEOUT_S):
                await again.wait()
        finally:
            self.on_reconnect.discard(again.set)
        if not again.is_set():
            raise RequestTimeout(f"no new connection within {_RECONNECT_TIMEOUT_S:g} s")

    async def unsubscribe_all(self) -> None:
        """Accept no new messages, but keep the messages that the server has already sent.

        When this returns, every message that the server has sent to this connection has been passed to the `on_message` of its
        subscription. nats-py's own drain lost 19 requests in 20 restarts.
        """
        kept = [listener for listener in self._listeners if not listener.subject.startswith(self._prefix)]
        for listener in kept:
            await listener.unsubscribe(self._nats)
        with contextlib.suppress(NotConnected, RequestTimeout):
            await self.barrier()
        for listener in kept:
            await listener.close()

    async def send(
        self, subject: str, data: bytes, *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a message once, with header names as given. Raises `NotConnected`, `BusClosed`, `TooLarge`, `BadInput`."""
        await self._outgoing.send(self._outgoing.framed(subject, data, reply, headers))

    async def call(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Message:
        """Send a request and return the first answer."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def on_answer(message: Message) -> None:
            if not answer.done():
                answer.set_result(message)

        def on_error(error: BusError) -> None:
            if not answer.done():
                answer.set_exception(error)

        with anyio.move_on_after(timeout_s), self._calls.expecting(subject, on_answer, on_error) as inbox:
            await self.send(subject, data, reply=inbox, headers=headers)
            message = await answer
            if message.headers.get("status") == "503" and not message.data:
                raise NoResponders(f"{subject}: no service answers it at present")
            return message
        if answer.done() and not answer.cancelled():
            answer.exception()
        raise RequestTimeout(f"{subject}: no answer within {timeout_s:g} s")

    async def collect(self, subject: str, data: bytes, *, wait_s: float) -> list[Message]:
        """Send a request once and return the answers that arrive within `wait_s`. Their number is bounded, since a
        party may answer again and again.

        Returns at once if nobody listens. The answers have an inbox of their own, which is closed when the request ends. With the usual
        inbox, every receiver of the request would learn a subject on which this connection always listens. Nodes receive such requests too,
        and a node that flooded this subject held up everything that a service did. A person's connection uses its usual inbox, because a
        person's permissions are made for that inbox.
        """
        answers: list[Message] = []
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_answer(message: Message) -> None:
            if message.headers.get("status") != "503":
                if len(answers) < _MOST_ANSWERS:
                    answers.append(message)
                else:
                    self.surplus_answers += 1
            elif not ended.done():
                ended.set_result(None)

        def on_error(error: BusError) -> None:
            if not ended.done():
                ended.set_exception(error)

        own = None if self._is_person else await self.listen(self._passing_inbox(), on_answer)
        try:
            with anyio.move_on_after(wait_s), self._calls.expecting(subject, on_answer, on_error) as usual:
                await self.send(subject, data, reply=usual if own is None else own.subject)
                await ended
        finally:
            if own is not None:
                with anyio.CancelScope(shield=True):
                    await own.close()
        return answers

    def _passing_inbox(self) -> str:
        """Return a new inbox subject that reveals none of this connection's other subjects."""
        return f"{self._inbox_prefix}.{secrets.token_hex(TOKEN_BYTES)}"

    def new_inbox(self) -> str:
        """Return a new inbox subject. It is not among the subjects on which answers to calls arrive."""
        return f"{self._prefix}.{secrets.token_hex(TOKEN_BYTES)}.in"

    async def listen(
        self,
        subject: str,
        on_message: Callable[[Message], None],
        *,
        queue: str = "",
        lanes: Lanes | None = None,
        needed: bool = True,
    ) -> Listener:
        """Listen on a subject. The server has accepted the subscription when this returns. Raises `PermissionRefused`,
        `NotConnected`, `RequestTimeout`.

        If the server refuses a `needed` subject later, after a change of this connection's permissions, the connection
        is closed for good: nats-py would keep a subscription that looks alive and receives nothing. With `lanes` the
        server sends a bounded number of messages of one subject before they are read. See `FairListener`.
        """
        self._check_connected()
        check_subject(subject)
        handed = (subject, on_message, self._listeners.discard, self.note_error)
        if lanes is None:
            listener = Listener(*handed, queue=queue, needed=needed)
        else:
            listener = FairListener(
                *handed,
                tasks=self._tasks,
                lanes=lanes,
                large=self._large_lanes,
                barrier=self.barrier,
                needed=needed,
            )
        try:
            await listener.open(self._nats)
        except BadSubjectError:
            raise BadInput("subject", subject, "tokens without blanks, joined by dots") from None
        except ConnectionClosedError:
            raise BusClosed from None
        self._listeners.add(listener)
        try:
            await self.barrier()
            self._take_errors()
            if listener.refused:
                raise PermissionRefused(f"the server does not allow this process to listen on {subject}")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await listener.close()
            raise
        listener.in_force = True
        return listener

    async def rest(self) -> None:
        """Record that all messages were answered. Under load, leave new messages in the socket for a moment."""
        rest_s, transport = self._turns.rest_s(anyio.current_time()), transport_of(self._nats)
        # If nats-py has paused the reading itself, only nats-py may resume it, so the reading is not paused here.
        if not rest_s or not isinstance(transport, asyncio.ReadTransport) or not transport.is_reading():
            return
        transport.pause_reading()
        try:
            await anyio.sleep(rest_s)
        finally:
            # A transport that was closed meanwhile ignores this.
            transport.resume_reading()

    async def barrier(self) -> None:
        """Return when the server has processed everything sent before. Raises `NotConnected`, `BusClosed`, `RequestTimeout`."""
        await self._barriers.wait(_BARRIER_TIMEOUT_S)

    def _check_connected(self) -> None:
        if self.closed or self._closing:
            raise BusClosed
        if not self._nats.is_connected:
            raise NotConnected

    def _fail_all(self, error: BusError) -> None:
        self._calls.fail(error)
        self._barriers.fail(error)

    async def _tend(self) -> None:
        while not (self.closed or self._closing):
            with anyio.move_on_after(_INSPECT_EVERY_S if self._nats.is_connected else _INSPECT_UNCONNECTED_S):
                await self._wake.wait()
            self._wake = anyio.Event()
            self._take_errors()
            await self._inspect()
        if not self._closing:
            logger().error("bus closed for good", reason=self._reason or str(self._nats.last_error))
            self._fail_all(BusClosed())
            self._lost.set()

    async def _inspect(self) -> None:
        """Check nats-py's own tasks. nats-py would notice a dead read loop after 15 s, and a dead reconnect task never."""
        client = self._nats
        if self._reason:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S):
                await client.close()
            self.closed = True
        elif client.is_closed:
            self.closed = True
        elif client.is_connected and client._reading_task is not None and client._reading_task.done():
            await client.force_reconnect()
        elif client.is_reconnecting and client._reconnection_task is not None and client._reconnection_task.done():
            self._give_up("the client has stopped reconnecting")
        elif client.is_reconnecting and (transport := transport_of(client)) is not None and transport.is_closing():
            # The connection is aborted, since nats-py waits without a limit until the old server has taken all bytes
            # sent to it: 90 s and more for a frozen server.
            abort(client)

    def _give_up(self, reason: str) -> None:
        """Let `_tend` close the connection for good."""
        self._reason = self._reason or reason
        self._wake.set()

    def _take_errors(self) -> None:
        while self._errors:
            error = self._errors.popleft()
            self.errors += 1
            try:
                self._take_error(error)
            except Exception:
                # A defect in this code must not end the connection, so the exception is only counted.
                self.errors += 1

    def _take_error(self, error: Exception) -> None:
        match understand(error):
            case PermissionViolation(publish=True, subject=subject):
                self.refused_publishes += 1
                self._calls.refuse(
                    subject, PermissionRefused(f"the server does not allow this process to publish on {subject}")
                )
                if self._throttle.due(f"publish {subject.rpartition('.')[0]}"):
                    logger().error("the server refused to publish a message", subject=subject)
            case PermissionViolation(subject=subject):
                self._take_refusal(subject)
            case CredentialLost(text):
                # The connection is given up, since retrying for ever with a revoked credential does not help. When the process is started
                # again, its first connection fails with an error that names the cause.
                self._give_up(text)
            case trouble:
                if self._throttle.due(trouble.text):
                    logger().info("bus trouble", error=trouble.text)

    def _take_refusal(self, subject: str) -> None:
        for listener in tuple(self._listeners):
            if listener.subject.lower() != subject:
                continue
            listener.refused = True
            if listener.in_force and listener.needed:
                self._give_up(f"the server no longer allows this process to listen on {listener.subject}")
