"""Lines: messages that wait for a handler, one line for each sender, so that nobody waits behind another's flood."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container

import anyio
import msgspec

from headrace.bus.protocol import Message

#: What a message takes beside its data, so that a flood of empty ones counts as well.
_FRAME_BYTES = 256


class Waiting(msgspec.Struct, frozen=True):
    """A message in a line, and since when."""

    message: Message
    since_s: float
    #: Messages of its sender that waited when these alone were too many, 0 if they were not.
    over_quota: int = 0


class _Line:
    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.bytes = 0


class Lines:
    """Messages that wait, bounded in number and in bytes. The lines of the senders take turns.

    A line beyond its own bounds gives up its newest. Full, they give up the newest of the line that takes most room: a flood
    crowds out nothing but itself.
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
        #: By sender, in the order of their turns. None is empty.
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._messages

    def bears(self, message: Message) -> bool:
        """True if a line may hold it."""
        return len(message.data) + _FRAME_BYTES <= self._most_bytes_of_one

    def put(self, sender: str, message: Message) -> list[Waiting]:
        """Adds a message to its sender's line. Returns what is given up for it, which may be the message itself."""
        line = self._lines.setdefault(sender, _Line())
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
        """The oldest message of the sender whose turn it is, of those that are not `full`. Raises `StopIteration` if there is none."""
        sender = next(each for each in self._lines if each not in full)
        self._lines.move_to_end(sender)
        waiting = self._lines[sender].waiting.popleft()
        self._count(sender, waiting.message, -1)
        return waiting

    def clear(self) -> None:
        """Gives everything up."""
        self._lines.clear()
        self._messages = self._bytes = 0

    def _count(self, sender: str, message: Message, by: int) -> None:
        line, size = self._lines[sender], by * (len(message.data) + _FRAME_BYTES)
        self._messages += by
        self._bytes += size
        line.bytes += size
        if not line.waiting:
            del self._lines[sender]
