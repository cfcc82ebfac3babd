"""One connection to a nats-server, without the behaviours of nats-py that would break something here.

Nothing else imports nats. What it calls back only enqueues, and raises nothing: an exception in `error_cb`, or where a message is
handed over, ends nats-py's read loop while the connection still looks alive.
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
from headrace.bus.nats.fair_listener import FairListener
from headrace.bus.nats.listener import Listener
from headrace.bus.nats.outgoing import Outgoing, check_subject
from headrace.bus.nats.transports import abort, transport_of
from headrace.bus.nats.trouble import CredentialLost, PermissionViolation, understand
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
#: Between two looks at nats-py's own tasks, while it is connected and while it is not.
_INSPECT_EVERY_S = 5.0
_INSPECT_UNCONNECTED_S = 1.0
_CLOSE_TIMEOUT_S = 2.0
_RECONNECT_TIMEOUT_S = 10.0
#: Twice the nodes of the largest fleet.
_MOST_ANSWERS = 20_000


class Link:
    """The connection: sending, calling, listening. It lives inside the task group that it is given."""

    def __init__(self, client: Client, tasks: TaskGroup, *, inbox_prefix: str) -> None:
        self._nats = client
        self._tasks = tasks
        self._inbox_prefix = inbox_prefix
        self._prefix = f"{inbox_prefix}.{secrets.token_hex(8)}"
        self._is_person = inbox_prefix.startswith(inbox("user", ""))
        self._asks_from = asks_from(self._prefix) if self._is_person else self._prefix
        self._calls = Calls(self._asks_from)
        self._listeners: set[Listener] = set()
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
        #: Answers beyond what `collect` keeps.
        self.surplus_answers = 0
        self.errors = 0
        #: Called on the loop after each reconnect; must not wait or raise.
        self.on_reconnect: set[Callable[[], None]] = set()

    def note_error(self, error: Exception) -> None:
        """Takes an error from `error_cb`. Raising there would end nats-py's read loop."""
        self._errors.append(error)
        self._wake.set()

    def note_disconnected(self) -> None:
        """Drops what waits to be sent, from `disconnected_cb`. Sent later, 559 stale heartbeats came in one burst."""
        self._nats._pending.clear()
        self._nats._pending_data_size = 0
        # Their answers can never come: the server knows this connection's inbox no more.
        self._calls.fail(ConnectionLost())
        self._barriers.fail(NotConnected())
        self._wake.set()

    def note_reconnected(self) -> None:
        """Tells whoever waits for a reconnect, from `reconnected_cb`."""
        self.reconnects += 1
        for callback in tuple(self.on_reconnect):
            callback()

    def note_closed(self) -> None:
        """Takes note of the end for good, whoever wanted it, from `closed_cb`."""
        self.closed = True
        self._wake.set()

    @property
    def connected(self) -> bool:
        """True if messages can be sent. nats-py calls itself connected while it drains, too, which ours never does."""
        return self._nats.is_connected

    @property
    def new_connections(self) -> int:
        """Connections in place of lost ones. Each counts before anything is heard on it, and in `reconnects` once it is in use."""
        return self._nats.stats["reconnects"]

    async def wait_lost(self) -> None:
        """Returns when the connection was closed for good without our asking."""
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
        """Takes the connection into use. Raises `PermissionRefused` where even our own inbox is refused."""
        self._tasks.start_soon(self._tend)
        await self.listen(f"{self._asks_from}.*", self._calls.on_answer)
        if self._is_person:
            await self.listen(answers_at(f"{self._asks_from}.*"), self._calls.on_answer, queue=INBOX_QUEUE)

    async def close(self) -> None:
        """Closes, within seconds whatever the server does."""
        self._closing = True
        self._fail_all(BusClosed())
        # A server that went first leaves bytes of ours unsent: nats-py gives up on them, and on the rest of its own end.
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True), contextlib.suppress(OSError):
            try:
                await self._nats.close()
            except asyncio.CancelledError:
                # A task of nats-py that waited for the end of the same transport was cancelled, and not we.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
        abort(self._nats)
        self.closed = True

    async def reconnect(self) -> None:
        """Makes a new connection in place of this one, and returns when it is in use. Raises `RequestTimeout`."""
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
        """Takes no new messages, but keeps what the server has sent already.

        nats-py's own drain lost 19 requests in 20 restarts. When this returns, everything that was sent to us before has been
        handed to its `on_message`.
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
        """Sends once, header names as they are. Raises `NotConnected`, `BusClosed`, `TooLarge`, `BadInput`."""
        await self._outgoing.send(self._outgoing.framed(subject, data, reply, headers))

    async def call(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Message:
        """Sends and waits for the first answer."""
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
                raise NoResponders(f"{subject}: nobody serves it at the moment")
            return message
        if answer.done() and not answer.cancelled():
            answer.exception()
        raise RequestTimeout(f"{subject}: no answer within {timeout_s:g} s")

    async def collect(self, subject: str, data: bytes, *, wait_s: float) -> list[Message]:
        """Sends once and collects the answers of `wait_s`, up to a bound: whoever was asked may answer again and again.

        Ends at once where nobody listens. Nodes are asked too, and nobody who is asked may learn where this connection listens for
        long: one node that sent whatever it could there held up all that a service did. So the answers have an inbox of their own,
        which ends with the question. That of a person is the usual one, for which the rights of persons are made.
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
        """A subject of our own that tells nothing of the others."""
        return f"{self._inbox_prefix}.{secrets.token_hex(TOKEN_BYTES)}"

    def new_inbox(self) -> str:
        """A subject of our own, not one that answers to calls arrive on."""
        return f"{self._prefix}.{secrets.token_hex(TOKEN_BYTES)}.in"

    async def listen(
        self,
        subject: str,
        on_message: Callable[[Message], None],
        *,
        queue: str = "",
        most_unread: int | None = None,
        needed: bool = True,
    ) -> Listener:
        """Listens on a subject, in force at the server when it returns. Raises `PermissionRefused`, `NotConnected`, `RequestTimeout`.

        Where the server refuses it later, after a change of its permissions, a `needed` one ends the connection for good:
        nats-py would go on with a subscription that looks alive and hears nothing.

        With `most_unread` no more messages of one subject may be sent to us and unread. See `FairListener`.
        """
        self._check_connected()
        check_subject(subject)
        handed = (subject, on_message, self._listeners.discard, self.note_error)
        if most_unread is None:
            listener = Listener(*handed, queue=queue, needed=needed)
        else:
            listener = FairListener(*handed, tasks=self._tasks, most_unread=most_unread, needed=needed)
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
                raise PermissionRefused(f"the server refuses us to listen on {subject}")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await listener.close()
            raise
        listener.in_force = True
        return listener

    async def rest(self) -> None:
        """Notes that all was answered. Under load it then leaves what comes in the socket for a moment."""
        rest_s, transport = self._turns.rest_s(anyio.current_time()), transport_of(self._nats)
        # While nats-py leaves it there itself, that is for nats-py to end.
        if not rest_s or not isinstance(transport, asyncio.ReadTransport) or not transport.is_reading():
            return
        transport.pause_reading()
        try:
            await anyio.sleep(rest_s)
        finally:
            # One that was closed meanwhile takes no notice.
            transport.resume_reading()

    async def barrier(self) -> None:
        """Returns when the server has processed everything sent before. Raises `NotConnected`, `BusClosed`, `RequestTimeout`."""
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
        """Looks after nats-py's own tasks. It would notice a dead read loop after 15 s, and a dead reconnect task never."""
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
            # nats-py waits without an end until the old server has taken what was sent to it: 90 s and more for a frozen one.
            abort(client)

    def _give_up(self, reason: str) -> None:
        """Has the connection closed for good, by `_tend`."""
        self._reason = self._reason or reason
        self._wake.set()

    def _take_errors(self) -> None:
        while self._errors:
            error = self._errors.popleft()
            self.errors += 1
            try:
                self._take_error(error)
            except Exception:
                # A defect here must not cost the connection.
                self.errors += 1

    def _take_error(self, error: Exception) -> None:
        match understand(error):
            case PermissionViolation(publish=True, subject=subject):
                self.refused_publishes += 1
                self._calls.refuse(subject, PermissionRefused(f"the server refuses us to publish on {subject}"))
                if self._throttle.due(f"publish {subject.rpartition('.')[0]}"):
                    logger().error("publishing refused", subject=subject)
            case PermissionViolation(subject=subject):
                self._take_refusal(subject)
            case CredentialLost(text):
                # Trying for ever with a credential that was withdrawn helps nobody; a new process will say what is wrong.
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
                self._give_up(f"the server no longer lets us listen on {listener.subject}")
