"""Listening to many senders on one connection, so that nobody's messages wait behind another's flood.

The server keeps what it has sent us and we have not read in one queue of up to 64 MB, and a flood that fills it makes all others
wait for as long as we read. So it is asked for a number of messages at a time, by one subscription after another, and for more as they
are read. Whoever sends more than that hears that nobody serves the subject at the moment, and asks again.

Every subject that was heard once has such a number of its own, besides that of the pattern which brought it: where a flood takes
all that the pattern may bring, those who were here before are heard all the same. All subscriptions are members of one queue
group, by which the server gives each message to one of them that has room.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from nats.errors import ConnectionClosedError, ConnectionDrainingError, Error

from headrace.bus.nats.listener import Listener
from headrace.bus.protocol import Message

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

#: Subjects of their own. The one that was silent for longest goes first.
_MOST_LANES: Final = 16_384
_TRY_AGAIN_S: Final = 0.1


class _Lane:
    """The messages of one subject, or of the pattern. It stands where nats-py expects a future, as `Listener` does."""

    def __init__(self, subject: str, on_message: Callable[[Msg], None], ask_for_more: Callable[[_Lane], None]) -> None:
        self.subject = subject
        self.subscriptions: list[NatsSubscription] = []
        #: Messages that the server was asked for and has not sent.
        self.awaited = 0
        #: Fewer than these, and more are asked for.
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
        """Asks for more, up to `most` at a time. Raises what nats-py raises."""
        more = most - self.awaited
        # nats-py forgets a subscription when its last message came.
        self.subscriptions = [each for each in self.subscriptions if each._received < (each._max_msgs or math.inf)]
        subscription = await client.subscribe(self.subject, queue=queue, future=cast("Any", self))
        await subscription.unsubscribe(more)
        self.subscriptions.append(subscription)
        self.awaited += more
        self.enough = most // 2


class FairListener(Listener):
    """A listener of which the server sends no more than `most_unread` messages of one subject before they are read."""

    def __init__(
        self,
        subject: str,
        on_message: Callable[[Message], None],
        forget: Callable[[Listener], None],
        on_error: Callable[[Exception], None],
        *,
        tasks: TaskGroup,
        most_unread: int,
        needed: bool,
    ) -> None:
        super().__init__(subject, on_message, forget, on_error, queue=secrets.token_hex(8), needed=needed)
        self._tasks = tasks
        self._most_unread = most_unread
        self._client: Client | None = None
        self._pattern = _Lane(subject, self.set_result, self._ask_for_more)
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()

    async def open(self, client: Client) -> None:
        """Begins. Raises what nats-py raises."""
        self._client = client
        await self._pattern.ask(client, self.queue, self._most_unread)

    @property
    def sids(self) -> list[int]:
        """The numbers by which the server knows it."""
        return [each._id for lane in (self._pattern, *self._lanes.values()) for each in lane.subscriptions]

    def set_result(self, message: Msg) -> None:
        """Takes a message. Whoever sends it has room of its own from now on."""
        if message.subject in self._lanes:
            self._lanes.move_to_end(message.subject)
        elif self._client is not None:
            lane = self._lanes[message.subject] = _Lane(message.subject, self.set_result, self._ask_for_more)
            self._ask_for_more(lane)
            if len(self._lanes) > _MOST_LANES:
                self._tasks.start_soon(self._end, self._lanes.popitem(last=False)[1])
        super().set_result(message)

    async def unsubscribe(self, client: Client) -> None:
        """Has the server send no more."""
        # What is still read must not have more asked for.
        self._client = None
        await super().unsubscribe(client)

    async def close(self) -> None:
        """Ends it and discards what is still on its way. May be called twice."""
        self._client = None
        self._forget(self)
        for lane in (self._pattern, *self._lanes.values()):
            for subscription in lane.subscriptions:
                # It is gone with the connection, too.
                with contextlib.suppress(Exception):
                    await subscription.unsubscribe()
            lane.subscriptions.clear()
        self._lanes.clear()

    def _ask_for_more(self, lane: _Lane) -> None:
        self._tasks.start_soon(self._ask, lane)

    async def _ask(self, lane: _Lane) -> None:
        while self._client is not None:
            try:
                await lane.ask(self._client, self.queue, self._most_unread)
                return
            except (ConnectionClosedError, ConnectionDrainingError):
                return
            except Error as error:
                # Without it the lane would be deaf for good.
                self._on_error(error)
                await anyio.sleep(_TRY_AGAIN_S)

    async def _end(self, lane: _Lane) -> None:
        """Ends a lane, but takes what the server has sent already."""
        for subscription in lane.subscriptions:
            with contextlib.suppress(Exception):
                await subscription.drain()  # type: ignore[no-untyped-call]
