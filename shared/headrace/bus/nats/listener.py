"""One subscription of the connection, in the form that nats-py calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from headrace.bus.protocol import Message
from headrace.wire.subjects import answers_at

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription


class Listener:
    """Passes each message to `on_message`, which is called on the loop, should not raise and cannot wait.

    nats-py treats this object as the future of a single answer, and calls `set_result` as soon as it has read a message. With nats-py's own
    callbacks for messages, each subscription would cost a task and a queue, and each message that arrives alone a turn of the loop.
    """

    def __init__(
        self,
        subject: str,
        on_message: Callable[[Message], None],
        forget: Callable[[Listener], None],
        on_error: Callable[[Exception], None],
        *,
        queue: str,
        needed: bool,
    ) -> None:
        self.subject = subject
        self.queue = queue
        #: True if the connection is useless without this subscription.
        self.needed = needed
        #: True if the server has refused the subscription.
        self.refused = False
        #: True once the server has accepted the subscription.
        self.in_force = False
        self._on_message = on_message
        self._forget = forget
        self._on_error = on_error
        self._nats: NatsSubscription | None = None

    async def open(self, client: Client) -> None:
        """Start listening. Raises the errors of nats-py."""
        self._nats = await client.subscribe(self.subject, queue=self.queue, future=cast("Any", self))

    @property
    def sids(self) -> list[int]:
        """The server's numbers for the subscription."""
        return [] if self._nats is None else [self._nats._id]

    async def unsubscribe(self, client: Client) -> None:
        """Stop the server from sending more messages. Messages that it has already sent are still taken."""
        for sid in self.sids:
            await client._send_unsubscribe(sid)

    def cancelled(self) -> bool:
        """Return False. nats-py asks, as it asks a future, whether this object was cancelled; but the listener listens until it
        is closed.
        """
        return False

    def set_result(self, message: Msg) -> None:
        """Take a message from nats-py, and make its header names lower-case.

        nats-py treats different spellings of a header name as different headers.
        """
        headers = {name.lower(): value for name, value in message.headers.items()} if message.headers else {}
        try:
            self._on_message(
                Message(subject=message.subject, data=message.data, headers=headers, reply_to=answers_at(message.reply))
            )
        except Exception as error:
            # The error is not raised, because an exception would end nats-py's read loop, although the connection would still look alive.
            self._on_error(error)

    async def close(self) -> None:
        """Stop listening, and discard messages on their way. May be called twice."""
        subscription, self._nats = self._nats, None
        self._forget(self)
        if subscription is not None:
            # An error means that the connection is gone, and with it the subscription.
            with contextlib.suppress(Exception):
                await subscription.unsubscribe()
