"""Queues of messages that wait for a handler, one queue for each sender, so that one sender's flood delays no other sender."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container

import anyio
import msgspec

from headrace.bus.protocol import Message

#: Bytes that a message takes beside its data, so that a flood of empty messages counts, too.
_FRAME_BYTES = 256


class Waiting(msgspec.Struct, frozen=True):
    """A waiting message, and the time at which its wait began."""

    message: Message
    since_s: float
    #: If the message was dropped because its sender is over the quota of one sender: the number of messages of this sender that wait.
    #: Otherwise 0.
    over_quota: int = 0


class _SenderQueue:
    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.bytes = 0


class SenderQueues:
    """Waiting messages, bounded in number and in bytes. The queues of the senders take turns.

    If the queue of one sender exceeds the bounds of one queue, the newest message of that queue is dropped. If all queues together exceed
    their bounds, the newest message of the queue with the most bytes is dropped. So a flood displaces only its own messages.
    """

    def __init__(
        self,
        most_messages: int,
        most_bytes: int,
        *,
        most_of_one: int | None = None,
        most_bytes_of_one: int | None = None,
    ) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._most_of_one = most_messages if most_of_one is None else most_of_one
        self._most_bytes_of_one = most_bytes if most_bytes_of_one is None else most_bytes_of_one
        #: Queues by sender, in the order of their turns. No queue is empty.
        self._lines: OrderedDict[str, _SenderQueue] = OrderedDict()
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._messages

    def bears(self, message: Message) -> bool:
        """True if the message is small enough for the queue of one sender."""
        return len(message.data) + _FRAME_BYTES <= self._most_bytes_of_one

    def put(self, sender: str, message: Message) -> list[Waiting]:
        """Add a message to its sender's queue. Return the messages that were dropped to make this possible; the new message itself may be
        among them.
        """
        line = self._lines.setdefault(sender, _SenderQueue())
        line.waiting.append(Waiting(message, anyio.current_time()))
        self._count(sender, message, 1)
        if len(line.waiting) > self._most_of_one or line.bytes > self._most_bytes_of_one:
            newest = msgspec.structs.replace(line.waiting.pop(), over_quota=len(line.waiting))
            self._count(sender, message, -1)
            return [newest]
        given_up = []
        while self._messages > self._most_messages or self._bytes > self._most_bytes:
            largest = max(self._lines, key=lambda each: self._lines[each].bytes)
            given_up.append(self._lines[largest].waiting.pop())
            self._count(largest, given_up[-1].message, -1)
        return given_up

    def take(self, full: Container[str] = ()) -> Waiting:
        """Return the oldest message of the next sender that is not in `full`. Raises `StopIteration` if there is no such sender."""
        sender = next(each for each in self._lines if each not in full)
        self._lines.move_to_end(sender)
        waiting = self._lines[sender].waiting.popleft()
        self._count(sender, waiting.message, -1)
        return waiting

    def clear(self) -> None:
        """Drop all messages."""
        self._lines.clear()
        self._messages = self._bytes = 0

    def _count(self, sender: str, message: Message, by: int) -> None:
        line, size = self._lines[sender], by * (len(message.data) + _FRAME_BYTES)
        self._messages += by
        self._bytes += size
        line.bytes += size
        if not line.waiting:
            del self._lines[sender]
