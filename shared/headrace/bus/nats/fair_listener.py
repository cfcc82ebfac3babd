"""Listening to many senders on one connection, so that no sender's messages wait behind another sender's flood.

The server keeps messages that this process has not read yet in one queue of up to 64 MB. If a flood fills the queue,
the messages of all other senders wait until it is read. So this process asks the server for a number of messages at a
time, by one subscription after another, and asks for more as it reads them. A sender of more messages than that gets
the answer that nobody serves the subject at the moment, and tries again.

There is one subscription for the whole pattern of subjects, and one more for each subject from which a message has come. Each
has a number of messages of its own. So if a flood uses up the number of the pattern, messages of known senders still arrive.
All subscriptions are members of one queue group: the server gives each message to one subscription whose number is not used up.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import anyio
from nats.errors import ConnectionClosedError, ConnectionDrainingError, Error

from headrace.bus.nats.listener import Listener
from headrace.bus.protocol import Message

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

_TRY_AGAIN_S: Final = 0.1


class Lanes(NamedTuple):
    """Bounds of a listener with lanes."""

    #: Upper bound of the messages of one subject that the server may send before they are read.
    most_unread: int
    #: Largest number of subjects with a lane of their own. Beyond it, the lane that was silent for longest ends.
    most: int


class _Lane:
    """The subscriptions for one subject, or for the pattern. nats-py treats a lane like a future, as it treats a `Listener`."""

    def __init__(self, subject: str, on_message: Callable[[Msg], None], ask_for_more: Callable[[_Lane], None]) -> None:
        self.subject = subject
        self.subscriptions: list[NatsSubscription] = []
        #: Number of messages that the server was asked for and has not sent.
        self.awaited = 0
        #: More messages are asked for when `awaited` falls below this number.
        self.enough = 0
        self._on_message = on_message
        self._ask_for_more = ask_for_more

    def cancelled(self) -> bool:
        return False

    def set_result(self, message: Msg) -> None:
        self.awaited -= 1
        if self.awaited < self.enough:
            self.enough = 0
            self._ask_for_more(self)
        self._on_message(message)

    async def ask(self, client: Client, queue: str, most: int) -> None:
        """Ask the server for more messages, so that it may send `most` in all. Raises the errors of nats-py."""
        more = most - self.awaited
        # Closed subscriptions are removed: nats-py drops a subscription when its last message has arrived.
        self.subscriptions = [each for each in self.subscriptions if each._received < (each._max_msgs or math.inf)]
        subscription = await client.subscribe(self.subject, queue=queue, future=cast("Any", self))
        await subscription.unsubscribe(more)
        self.subscriptions.append(subscription)
        self.awaited += more
        self.enough = most // 2


class FairListener(Listener):
    """A listener to which the server sends a bounded number of messages of one subject before they are read."""

    def __init__(
        self,
        subject: str,
        on_message: Callable[[Message], None],
        forget: Callable[[Listener], None],
        on_error: Callable[[Exception], None],
        *,
        tasks: TaskGroup,
        lanes: Lanes,
        needed: bool,
    ) -> None:
        super().__init__(subject, on_message, forget, on_error, queue=secrets.token_hex(8), needed=needed)
        self._tasks = tasks
        self._bounds = lanes
        self._client: Client | None = None
        self._pattern = _Lane(subject, self.set_result, self._ask_for_more)
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()

    async def open(self, client: Client) -> None:
        """Start listening. Raises the errors of nats-py."""
        self._client = client
        await self._pattern.ask(client, self.queue, self._bounds.most_unread)

    @property
    def sids(self) -> list[int]:
        """The server's numbers for the subscriptions."""
        return [each._id for lane in (self._pattern, *self._lanes.values()) for each in lane.subscriptions]

    def set_result(self, message: Msg) -> None:
        """Take a message. From now on its subject has a lane of its own."""
        if message.subject in self._lanes:
            self._lanes.move_to_end(message.subject)
        elif self._client is not None:
            lane = self._lanes[message.subject] = _Lane(message.subject, self.set_result, self._ask_for_more)
            self._ask_for_more(lane)
            if len(self._lanes) > self._bounds.most:
                self._tasks.start_soon(self._end, self._lanes.popitem(last=False)[1])
        super().set_result(message)

    async def unsubscribe(self, client: Client) -> None:
        """Stop the server from sending more messages."""
        # Without a client, reading a message does not ask the server for more, as it must not from now on.
        self._client = None
        await super().unsubscribe(client)

    async def close(self) -> None:
        """Stop listening, and discard messages on their way. May be called twice."""
        self._client = None
        self._forget(self)
        for lane in (self._pattern, *self._lanes.values()):
            for subscription in lane.subscriptions:
                # An error means that the connection is gone, and with it the subscription.
                with contextlib.suppress(Exception):
                    await subscription.unsubscribe()
            lane.subscriptions.clear()
        self._lanes.clear()

    def _ask_for_more(self, lane: _Lane) -> None:
        self._tasks.start_soon(self._ask, lane)

    async def _ask(self, lane: _Lane) -> None:
        while self._client is not None:
            try:
                await lane.ask(self._client, self.queue, self._bounds.most_unread)
                return
            except (ConnectionClosedError, ConnectionDrainingError):
                return
            except Error as error:
                # The error is reported, so that the lane is tried again. Otherwise it would receive nothing any more.
                self._on_error(error)
                await anyio.sleep(_TRY_AGAIN_S)

    async def _end(self, lane: _Lane) -> None:
        """End a lane, but take the messages that the server has already sent."""
        for subscription in lane.subscriptions:
            with contextlib.suppress(Exception):
                await subscription.drain()  # type: ignore[no-untyped-call]
