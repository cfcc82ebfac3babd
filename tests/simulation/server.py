"""The simulated nats-server: connections, interest, permissions, streams, and all the ways in which they fail.

Each connection is two queues of things to be done, one to the server and one from it, each in order; a seed says how long each takes
on its way. Messages of core NATS are at most once. What is told to a stream is done or not, and the answer to it comes or does not.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.bus import BusError, Message, NoResponders, PermissionRefused
from tests.simulation.forgery import forged
from tests.simulation.loop import VirtualLoop
from tests.simulation.store import Store

if TYPE_CHECKING:
    from tests.simulation.bus import SimulatedBus

__all__ = ["Faults", "Interest", "SimulatedServer", "matches"]

#: A server waits so long for a client that reads nothing.
WRITE_DEADLINE_S: Final = 10.0
#: A client and a server notice so late that the other one is gone.
PING_TIMEOUT_S: Final = 10.0
#: So often a stuck pipe looks whether it is still stuck.
_LOOK_AGAIN_S: Final = 0.05


class Faults(msgspec.Struct):
    """How unkind the network is. Rates are per message and direction; changed while the world runs."""

    #: Time on the way, shortest and longest.
    latency_s: tuple[float, float] = (0.0002, 0.002)
    #: A message that is never delivered.
    drop: float = 0.0
    #: A publication or request that is delivered twice.
    repeat: float = 0.0
    #: A message that takes up to `late_s`, and those behind it on the connection with it.
    late: float = 0.0
    late_s: float = 1.5
    #: A message that a stranger saw and sends again, damaged.
    forged: float = 0.0
    #: A change of a bucket that its watches do not hear of until they look.
    blind: float = 0.0


class Interest(msgspec.Struct, eq=False):
    """A subscription as the server has it."""

    client: SimulatedBus
    subject: str
    queue: str
    on_message: Callable[[Message], None]


class SimulatedServer:
    """One server and everything that it keeps."""

    def __init__(self, loop: VirtualLoop, faults: Faults | None = None) -> None:
        self.loop = loop
        self.random = loop.random
        self.faults = faults or Faults()
        self.store = Store()
        self.clients: list[SimulatedBus] = []
        self.is_up = True
        self._interests: list[Interest] = []
        #: By subject, who wants it; made anew when anybody's interest changes.
        self._wanted: dict[str, list[Interest]] = {}
        #: Streams and buckets answer nobody before this time.
        self._leaderless_until_s = 0.0
        #: By client: subjects that it may publish and subscribe; everything where there is no entry.
        self.permissions: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        #: Clients cut off in one direction: `to` the server or `from` it.
        self.cut: set[tuple[str, str]] = set()
        #: Processes that streams and buckets do not answer, though messages come and go.
        self.deaf: set[str] = set()
        self.delivered = 0
        self._numbers = 0

    def new_number(self) -> int:
        """A number that nobody has."""
        self._numbers += 1
        return self._numbers

    def now_ms(self) -> int:
        """Unix time of this world."""
        return int(self.loop.time() * 1000)

    # --- faults ---------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The server is gone: connections with it, what is stored stays."""
        self.is_up = False
        self._interests.clear()
        self._wanted.clear()
        for client in list(self.clients):
            client.lose_connection()

    def start(self) -> None:
        """It is there again; clients find it by themselves."""
        self.is_up = True

    def lose_leader(self, seconds: float) -> None:
        """Streams and buckets answer nobody for so long; core messages go on."""
        self._leaderless_until_s = self.loop.time() + seconds

    @property
    def has_leader(self) -> bool:
        """True if streams and buckets answer."""
        return self.is_up and self.loop.time() >= self._leaderless_until_s

    # --- interest -------------------------------------------------------------------------------------------------

    def add(self, interest: Interest) -> None:
        """Takes a subscription. Raises `PermissionRefused`."""
        allowed = self.permissions.get(interest.client.name)
        if allowed is not None and not any(matches(pattern, interest.subject) for pattern in allowed[1]):
            raise PermissionRefused(f"{interest.client.name} may not subscribe to {interest.subject}")
        # Asked for right before the connection was closed.
        if interest.client in self.clients:
            self._interests.append(interest)
            self._wanted.clear()

    def remove(self, interest: Interest) -> None:
        """Ends a subscription."""
        if interest in self._interests:
            self._interests.remove(interest)
            self._wanted.clear()

    def forget(self, client: SimulatedBus) -> None:
        """The client is gone: its interest goes with it."""
        self._interests = [each for each in self._interests if each.client is not client]
        self._wanted.clear()
        if client in self.clients:
            self.clients.remove(client)

    # --- messages -------------------------------------------------------------------------------------------------

    def route(self, sender: SimulatedBus, message: Message, on_nobody: Callable[[BusError], None] | None) -> None:
        """Gives a message to everybody who wants it, and to one of each queue group."""
        allowed = self.permissions.get(sender.name)
        if allowed is not None and not any(matches(pattern, message.subject) for pattern in allowed[0]):
            if on_nobody is not None:
                on_nobody(PermissionRefused(f"{sender.name} may not publish {message.subject}"))
            return
        wanted = self._wanted.get(message.subject)
        if wanted is None:
            wanted = [each for each in self._interests if matches(each.subject, message.subject)]
            self._wanted[message.subject] = wanted
        queues: dict[str, list[Interest]] = {}
        for interest in wanted:
            queues.setdefault(interest.queue, []).append(interest)
        chosen = queues.pop("", [])
        chosen += [self.random.choice(members) for members in queues.values()]
        if not chosen and on_nobody is not None:
            on_nobody(NoResponders(f"nobody serves {message.subject}"))
        for interest in chosen:
            for _ in range(2 if self.random.random() < self.faults.repeat else 1):
                self._deliver(interest, message)
            if self.faults.forged and self.random.random() < self.faults.forged:
                self._deliver(interest, forged(message, self.random))

    def _deliver(self, interest: Interest, message: Message) -> None:
        if self.random.random() < self.faults.drop:
            return
        self.delivered += 1
        interest.client.from_server.send(lambda: interest.on_message(message))

    def latency_s(self) -> float:
        """How long the next thing takes on its way."""
        shortest, longest = self.faults.latency_s
        chance = self.random.random
        delay = shortest + (longest - shortest) * chance()
        if chance() < self.faults.late:
            delay += self.faults.late_s * chance()
        return delay


class Pipe:
    """One direction of a connection: what is sent arrives in order, or, when the connection breaks, never."""

    def __init__(self, server: SimulatedServer, client: SimulatedBus, direction: str) -> None:
        self._server = server
        self._client = client
        self._direction = direction
        self._queue: deque[Callable[[], None]] = deque()
        self._free_at_s = 0.0
        #: How many of the queue would have arrived by now.
        self._due = 0
        self._stuck_since_s: float | None = None
        self._life = 0

    def send(self, arrive: Callable[[], None]) -> None:
        """`arrive` is called at the other end after a while, in the context of whoever is there."""
        loop = self._server.loop
        self._free_at_s = max(self._free_at_s, loop.time() + self._server.latency_s())
        self._queue.append(arrive)
        loop.call_at(self._free_at_s, self._come_due, self._life, context=loop.world_context)

    def break_off(self) -> None:
        """What is on the way never arrives."""
        self._queue.clear()
        self._due = 0
        self._life += 1
        self._stuck_since_s = None

    def _come_due(self, life: int) -> None:
        if life == self._life:
            self._due += 1
            if self._stuck_since_s is None:
                self._deliver(life)

    def _deliver(self, life: int) -> None:
        if life != self._life:
            return
        if self._is_stuck():
            loop = self._server.loop
            since = self._stuck_since_s = loop.time() if self._stuck_since_s is None else self._stuck_since_s
            patience_s = WRITE_DEADLINE_S if self._client.is_frozen() else PING_TIMEOUT_S
            if loop.time() - since >= patience_s:
                self._client.lose_connection()
                return
            loop.call_later(_LOOK_AGAIN_S, self._deliver, life)
            return
        self._stuck_since_s = None
        while self._due:
            self._due -= 1
            arrive = self._queue.popleft()
            if self._direction == "to":
                arrive()
            else:
                self._client.take(arrive)

    def _is_stuck(self) -> bool:
        if self._server.cut and (self._client.name, self._direction) in self._server.cut:
            return True
        return self._direction == "from" and self._client.is_frozen()


@functools.cache
def matches(pattern: str, subject: str) -> bool:
    """True if a subject is one of a pattern with `*` and `>`."""
    wanted, found = pattern.split("."), subject.split(".")
    for place, token in enumerate(wanted):
        if token == ">":
            return len(found) > place
        if place >= len(found) or token not in ("*", found[place]):
            return False
    return len(wanted) == len(found)
