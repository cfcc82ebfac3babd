"""One subscription of the connection, as nats-py calls it and as we see it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.bus.protocol import Message

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

__all__ = ["Listener"]


class Listener:
    """Hands each message to `on_message`, which is called on the loop, must not raise and cannot wait.

    nats-py runs the callbacks of one subscription strictly in turn, so that one that waits holds up all behind it.
    """

    def __init__(
        self, subject: str, on_message: Callable[[Message], None], forget: Callable[[Listener], None], *, needed: bool
    ) -> None:
        self.subject = subject
        #: Whether losing it makes the connection useless.
        self.needed = needed
        #: The server was heard to refuse it.
        self.refused = False
        #: The server has taken it.
        self.in_force = False
        #: Dropped by nats-py, because one turn of the loop brought more than it queues.
        self.dropped = 0
        self._on_message = on_message
        self._forget = forget
        self._nats: NatsSubscription | None = None

    def attach(self, subscription: NatsSubscription) -> None:
        """Remembers the subscription that nats-py made."""
        self._nats = subscription

    @property
    def sid(self) -> int:
        return -1 if self._nats is None else self._nats._id

    @property
    def queued(self) -> int:
        """Messages that nats-py has read and not yet handed over."""
        return 0 if self._nats is None else self._nats.pending_msgs

    async def deliver(self, message: Msg) -> None:
        """Takes a message from nats-py. Header names are lower-case from here on.

        nats-py keeps one value a name, by exact spelling.
        """
        headers = {name.lower(): value for name, value in message.headers.items()} if message.headers else {}
        self._on_message(Message(subject=message.subject, data=message.data, headers=headers, reply_to=message.reply))

    async def close(self) -> None:
        """Ends it and discards what is still on its way. May be called twice."""
        subscription, self._nats = self._nats, None
        self._forget(self)
        if subscription is not None:
            # It is gone with the connection, too.
            with contextlib.suppress(Exception):
                await subscription.unsubscribe()
