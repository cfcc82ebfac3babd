"""One subscription of the connection, as nats-py calls it and as we see it."""

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
    """Hands each message to `on_message`, which is called on the loop, should not raise and cannot wait.

    It stands where nats-py expects the future of a single answer: so each message comes at once, while it is read. A callback of
    nats-py would cost a task a subscription, a queue, and a turn of the loop for each message that comes alone.
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
        #: Whether losing it makes the connection useless.
        self.needed = needed
        #: The server was heard to refuse it.
        self.refused = False
        #: The server has taken it.
        self.in_force = False
        self._on_message = on_message
        self._forget = forget
        self._on_error = on_error
        self._nats: NatsSubscription | None = None

    async def open(self, client: Client) -> None:
        """Begins. Raises what nats-py raises."""
        self._nats = await client.subscribe(self.subject, queue=self.queue, future=cast("Any", self))

    @property
    def sids(self) -> list[int]:
        """The numbers by which the server knows it."""
        return [] if self._nats is None else [self._nats._id]

    async def unsubscribe(self, client: Client) -> None:
        """Has the server send no more. What it has sent is still taken."""
        for sid in self.sids:
            await client._send_unsubscribe(sid)

    def cancelled(self) -> bool:
        """Always False, for nats-py: it listens until it is closed."""
        return False

    def set_result(self, message: Msg) -> None:
        """Takes a message from nats-py. Header names are lower-case from here on.

        nats-py keeps one value a name, by exact spelling.
        """
        headers = {name.lower(): value for name, value in message.headers.items()} if message.headers else {}
        try:
            self._on_message(
                Message(subject=message.subject, data=message.data, headers=headers, reply_to=answers_at(message.reply))
            )
        except Exception as error:
            # In nats-py it would end the reading, and the connection would look alive.
            self._on_error(error)

    async def close(self) -> None:
        """Ends it and discards what is still on its way. May be called twice."""
        subscription, self._nats = self._nats, None
        self._forget(self)
        if subscription is not None:
            # It is gone with the connection, too.
            with contextlib.suppress(Exception):
                await subscription.unsubscribe()
