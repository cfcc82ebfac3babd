"""Listening to many senders on one connection, so that no sender's messages wait behind another sender's flood.

The server keeps messages that this process has not read yet in one queue of up to 64 MB. If a flood fills the queue,
the messages of all other senders wait until it is read. So this process asks the server for a number of messages at a
time, by a subscription that ends after this number, and makes the next such subscription as it reads the messages. If a
sender sends more messages than this process has asked for, the server answers that nobody serves the subject at the
moment, and the sender tries again.

There is one subscription for the whole pattern of subjects, and one more for each subject from which a message has come. The server sends
each subscription only as many messages as were asked for on it. So if a flood uses up the number that was asked for on the subscription of
the pattern, messages of known senders still arrive on the subscriptions of their own subjects. All subscriptions are members of one queue
group: the server gives each message to one subscription that has messages left.

The larger the messages of a subject are, the fewer messages this process asks for at a time. So the number of bytes on their way is bounded
for each subject. With a fixed number of 1,024, messages of 500 KB filled the server's queue: the server cut the connection off twice a
second, and the requests of all senders were lost.

When a large message comes after small messages, this process lowers the limits of its subscriptions. It does not replace them. If the old
subscriptions end while the server delivers a message, the server finds nobody for this message, although the new subscriptions exist.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import anyio
from nats.errors import ConnectionClosedError, ConnectionDrainingError, Error

from headrace.bus.nats.listener import Listener
from headrace.bus.protocol import BusError, Message

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

_TRY_AGAIN_S: Final = 0.1
#: Number of messages that are accepted beyond the size of a grant (the number of messages that the server may send). In a flood the server
#: sends further messages before it has read the limit.
_MORE_THAN_ASKED: Final = 10_000
#: Bytes that a message takes beside its data.
_FRAME_BYTES: Final = 256
#: A message that is larger than expected raises the expected size by the difference divided by this number.
_PART_UP: Final = 4
#: A message that is smaller than expected lowers the expected size by the difference divided by this number.
_PART_DOWN: Final = 8
#: Upper bound of the bytes that the server may send on all lanes with large messages before the bytes are read. It may be exceeded,
#: since each of these lanes may always get one message.
_UNREAD_BYTES_OF_ALL: Final = 16 * 1024 * 1024
#: Seconds for which a lane counts as a lane with large messages after it received a large message.
_LATE_S: Final = 2.0
#: If a lane may have at most this number of messages on their way, it asks for another message after each message that it reads. A lane
#: that may have more messages on their way asks for more once half of them were read.
_ASKED_ONE_BY_ONE: Final = 8


class Lanes(NamedTuple):
    """Bounds of a listener that reads each subject through a lane of its own, so that a busy subject does not delay the others."""

    #: Upper bound of the messages of one subject that the server may send before they are read.
    most_unread: int
    #: Largest number of subjects with a lane of their own. If a further subject needs a lane, the lane that was silent for longest ends.
    most: int
    #: Upper bound of the bytes of one subject that the server may send before they are read. A subject whose messages
    #: were small so far may exceed this bound once: when this process reads the first large message, further large
    #: messages may be on their way.
    most_unread_bytes: int = 4 * 1024 * 1024


class LargeLanes:
    """The lanes of one connection in which large messages came recently. These lanes share a bound of unread bytes.

    Otherwise one person could fill the server's queue by large messages on each of the subjects that a service serves.
    """

    def __init__(self) -> None:
        self._came_s: OrderedDict[_Lane, float] = OrderedDict()

    def part_bytes(self, lane: _Lane) -> int:
        """Record that a large message came in a lane just now. Return the number of bytes that the lane may have unread."""
        now_s = anyio.current_time()
        self._came_s[lane] = now_s
        self._came_s.move_to_end(lane)
        while now_s - next(iter(self._came_s.values())) > _LATE_S:
            self._came_s.popitem(last=False)
        return _UNREAD_BYTES_OF_ALL // len(self._came_s)


class _Grant:
    """A number of messages that the server may send. nats-py treats a grant like a future, as it treats a `Listener`."""

    def __init__(self, left: int, on_message: Callable[[Msg], None]) -> None:
        #: Number of messages of this grant that the server has not sent yet.
        self.left = left
        #: Number of messages of this grant that were read.
        self.taken = 0
        self.subscription: NatsSubscription | None = None
        self._on_message = on_message

    def cancelled(self) -> bool:
        return False

    def set_result(self, message: Msg) -> None:
        self.left -= 1
        self.taken += 1
        self._on_message(message)

    async def lower(self, client: Client, left: int) -> None:
        """Let the server send at most `left` more messages after those that were read. Raises the errors of nats-py."""
        if self.subscription is not None and left < self.left:
            self.left = left
            # The server ends the subscription if it has already sent this number of messages.
            await client._send_unsubscribe(self.subscription._id, limit=self.taken + left)


class _Lane:
    """One subject, or the whole pattern of subjects, with the messages that the server may send for it."""

    def __init__(
        self,
        subject: str,
        bounds: Lanes,
        large: LargeLanes,
        on_message: Callable[[Msg], None],
        ask: Callable[[_Lane], None],
    ) -> None:
        self.subject = subject
        self.grants: list[_Grant] = []
        #: Expected size of the next message.
        self._expected_bytes = _FRAME_BYTES
        #: Number of messages of the expected size that the server may send before they are read.
        self.most_awaited = bounds.most_unread
        self._bounds = bounds
        self._large = large
        self._on_message = on_message
        self._ask = ask
        self._is_asking = False

    @property
    def subscriptions(self) -> list[NatsSubscription]:
        return [each.subscription for each in self.grants if each.subscription is not None]

    @property
    def awaited(self) -> int:
        """Number of messages that the server was asked for and has not sent yet."""
        return sum(max(0, each.left) for each in self.grants)

    def expect(self, message: Msg) -> None:
        """Expect that the next message is about as large as the last messages."""
        more_bytes = len(message.data) + _FRAME_BYTES - self._expected_bytes
        self._expected_bytes += more_bytes // (_PART_UP if more_bytes > 0 else _PART_DOWN)
        self.most_awaited, most_bytes = self._bounds.most_unread, self._bounds.most_unread_bytes
        if self._expected_bytes * self.most_awaited > most_bytes:
            most_bytes = min(most_bytes, self._large.part_bytes(self))
            self.most_awaited = min(self.most_awaited, max(1, most_bytes // self._expected_bytes))

    def take(self, message: Msg) -> None:
        """Take a message. If the server may now send too few or too many messages, ask it for another number."""
        self.expect(message)
        if not self._is_asking and self._is_due():
            self._is_asking = True
            self._ask(self)
        self._on_message(message)

    async def ask(self, client: Client, queue: str, end: Callable[[list[_Grant]], None]) -> None:
        """Ask the server for as many messages as this lane may have on their way. Raises the errors of nats-py."""
        self._is_asking = True
        while self._is_due():
            ended = [each for each in self.grants if each.left <= 0]
            self.grants = [each for each in self.grants if each not in ended]
            end(ended)
            if self.awaited > self.most_awaited:
                await self._ask_for_less(client)
            else:
                await self._ask_for_more(client, queue, self.most_awaited - self.awaited)
        self._is_asking = False

    async def _ask_for_less(self, client: Client) -> None:
        left = self.most_awaited
        for grant in self.grants:
            await grant.lower(client, left)
            left -= min(left, max(0, grant.left))

    async def _ask_for_more(self, client: Client, queue: str, most: int) -> None:
        grant = _Grant(most, self.take)
        self.grants.append(grant)
        try:
            grant.subscription = await client.subscribe(self.subject, queue=queue, future=cast("Any", grant))
            # In a flood the server sends more than `most` messages before it has read the limit that is sent below.
            # So nats-py gets a higher limit: with `most`, it would drop the surplus messages.
            grant.subscription._max_msgs = most + _MORE_THAN_ASKED
            await client._send_unsubscribe(grant.subscription._id, limit=most)
        except BaseException:
            self.grants.remove(grant)
            raise

    def _is_due(self) -> bool:
        enough = self.most_awaited if self.most_awaited <= _ASKED_ONE_BY_ONE else self.most_awaited // 2
        return not enough <= self.awaited <= 2 * self.most_awaited


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
        large: LargeLanes,
        barrier: Callable[[], Awaitable[None]],
        needed: bool,
    ) -> None:
        super().__init__(subject, on_message, forget, on_error, queue=secrets.token_hex(8), needed=needed)
        self._tasks = tasks
        self._bounds = lanes
        self._large = large
        self._barrier = barrier
        self._client: Client | None = None
        self._pattern = self._lane_of(subject)
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()

    async def open(self, client: Client) -> None:
        """Start listening. Raises the errors of nats-py."""
        self._client = client
        await self._pattern.ask(client, self.queue, self._end)

    @property
    def sids(self) -> list[int]:
        """The server's numbers for the subscriptions."""
        return [each._id for lane in (self._pattern, *self._lanes.values()) for each in lane.subscriptions]

    def set_result(self, message: Msg) -> None:
        """Take a message. If its subject has no lane yet, give the subject a lane of its own."""
        if message.subject in self._lanes:
            self._lanes.move_to_end(message.subject)
        elif self._client is not None:
            lane = self._lanes[message.subject] = self._lane_of(message.subject)
            lane.expect(message)
            self._ask_for_more(lane)
            if len(self._lanes) > self._bounds.most:
                self._end(self._lanes.popitem(last=False)[1].grants)
        super().set_result(message)

    async def unsubscribe(self, client: Client) -> None:
        """Stop the server from sending more messages."""
        # The client is dropped, so that reading a message no longer asks the server for more messages.
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
            lane.grants.clear()
        self._lanes.clear()

    def _lane_of(self, subject: str) -> _Lane:
        return _Lane(subject, self._bounds, self._large, self.set_result, self._ask_for_more)

    def _ask_for_more(self, lane: _Lane) -> None:
        self._tasks.start_soon(self._ask, lane)

    async def _ask(self, lane: _Lane) -> None:
        while self._client is not None:
            try:
                await lane.ask(self._client, self.queue, self._end)
                return
            except (ConnectionClosedError, ConnectionDrainingError):
                return
            except Error as error:
                # The error is reported, so that the lane is tried again. Otherwise it would receive nothing any more.
                self._on_error(error)
                await anyio.sleep(_TRY_AGAIN_S)

    def _end(self, grants: list[_Grant]) -> None:
        """Let the server send no more messages for these grants, but take the messages that it has already sent."""
        if ended := [each.subscription for each in grants if each.subscription is not None]:
            self._tasks.start_soon(self._end_all, ended)

    async def _end_all(self, subscriptions: list[NatsSubscription]) -> None:
        client = self._client
        if client is None:
            return
        # nats-py's own drain may remove a subscription before the server has ended it, and drop messages.
        with contextlib.suppress(Error, BusError):
            for subscription in subscriptions:
                await client._send_unsubscribe(subscription._id)
            await self._barrier()
        # The subscriptions are removed from nats-py's table, since otherwise nats-py would subscribe again when it reconnects.
        for subscription in subscriptions:
            client._remove_sub(subscription._id)
