"""The events of the tree for all readers at once: one subscription, however many browsers and programs follow it.

A reader that takes events more slowly than they arrive loses the oldest of the waiting events. A reader that comes back with the id of its
last event gets the events that came since, as far as this process still keeps them. In both cases a `missed` event stands where events are
missing. An event `following` says that the service receives all events from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final

import anyio

from headrace.client import Client
from headrace.client.following import HappeningFilter
from headrace.client.happenings import plain_happening
from headrace.errors import HeadraceError
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.wire.happenings import Happening, Missed
from headrace_web.api.endpoint import Event
from headrace_web.api.problems import Failed, problem

#: Upper bound of the past events that are kept for readers that come back.
_MOST_PAST: Final = 10_000
#: Upper bound of the events that wait for one reader.
_MOST_WAITING: Final = 1_000
#: Seconds between two deliveries of events to one reader. Events that arrive in this time are delivered together. Without the pause, waking
#: 200 readers for each of 1,000 events a second takes several cores.
_PAUSE_S: Final = 0.1
#: Seconds for which events are received after the last reader has left.
_LINGER_S: Final = 30.0
#: Seconds between a failure to receive events and the next attempt.
_AGAIN_S: Final = 2.0
#: Upper bound of the digits in an id. Python refuses to read a number of thousands of them.
_MOST_DIGITS: Final = 20
#: Service that a `missed` event names as its cause if this process dropped the events, or no longer has them.
_SERVICE: Final = "web"
#: Upper bound of the hubs of one person that receive events. Each hub reads all events of its tree, and keeps the last of them.
MOST_HUBS: Final = 8
_FOLLOWING: Final = Event("following", {})


class _Reader:
    """One reader, and the events that wait for it."""

    def __init__(self, wanted: HappeningFilter) -> None:
        self.wanted = wanted
        self.waiting: deque[Event] = deque()
        #: Number of events that were dropped since the reader took the last event.
        self.dropped = 0
        self.wake = anyio.Event()

    def put(self, event: Event) -> None:
        """Add an event. Drop the oldest event if too many wait."""
        if len(self.waiting) >= _MOST_WAITING:
            self.waiting.popleft()
            self.dropped += 1
        self.waiting.append(event)
        self.wake.set()


class EventHub:
    """Receives the events of the client's tree while there are readers."""

    def __init__(self, client: Client, clock: Clock, hubs: set[EventHub] | None = None) -> None:
        """`hubs` are the hubs of the same person that receive events."""
        self._hubs = set() if hubs is None else hubs
        self._client = client
        self._clock = clock
        #: Part of every id, so that ids of this process differ from ids of an earlier process.
        self._run = clock.wall_ms()
        self._readers: set[_Reader] = set()
        #: Events that were received since there last were no readers, each with its number.
        self._past: deque[tuple[int, Happening]] = deque(maxlen=_MOST_PAST)
        self._number = 0
        self._changed = anyio.Event()
        self._is_following = False
        #: True when `run` has ended.
        self._is_over = False

    async def run(self) -> None:
        """Receive events while there are readers, and for `_LINGER_S` seconds after the last reader has left. Runs until cancelled."""
        try:
            while True:
                await self._until(lambda: bool(self._readers))
                await self._receive()
                self._hubs.discard(self)
                # One number is skipped. It stands for all events that are missed while there are no readers, so that a reader that comes
                # back notices the gap.
                self._number += 1
                self._past.clear()
        finally:
            self._is_over = True
            self._hubs.discard(self)

    async def _receive(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            while self._readers:
                await self._until(lambda: not self._readers)
                with anyio.move_on_after(_LINGER_S):
                    await self._until(lambda: bool(self._readers))
            tasks.cancel_scope.cancel()

    async def read(self, wanted: HappeningFilter, last_id: str) -> AsyncGenerator[Event, None]:
        """Yield events from now on, or all events after the event `last_id` if it is given.

        Raises `Failed` if too many hubs of the person receive events.
        """
        if self not in self._hubs and len(self._hubs) >= MOST_HUBS:
            many = f"events are followed with {MOST_HUBS} of your tokens, and no more can follow at a time"
            raise Failed(problem(503, "busy", "The service is busy", f"{many}; use one token for several streams"))
        if not self._is_over:
            self._hubs.add(self)
        reader = _Reader(wanted)
        for name, happening in self._since(last_id):
            if wanted.wants(happening):
                reader.put(_event(name, happening))
        if self._is_following:
            reader.put(_FOLLOWING)
        self._readers.add(reader)
        self._note_change()
        try:
            while True:
                await reader.wake.wait()
                reader.wake = anyio.Event()
                while reader.waiting:
                    if reader.dropped:
                        dropped, reader.dropped = reader.dropped, 0
                        yield _event("", self._missed(dropped))
                    yield reader.waiting.popleft()
                await anyio.sleep(_PAUSE_S)
        finally:
            self._readers.discard(reader)
            self._note_change()

    def _since(self, last_id: str) -> list[tuple[str, Happening]]:
        """Return the kept events after the event `last_id`; no events if `last_id` is empty.

        If some events after `last_id` are not kept, a `missed` event comes first.
        """
        if not last_id:
            return []
        run, _, number = last_id.partition("-")
        is_ours = run == str(self._run) and number.isascii() and number.isdigit() and len(number) < _MOST_DIGITS
        known = int(number) if is_ours else 0
        kept = [(each, happening) for each, happening in self._past if each > known]
        is_whole = 0 < known <= self._number and (known == self._number or (bool(kept) and kept[0][0] == known + 1))
        missed = [] if is_whole else [("", self._missed(None))]
        return [*missed, *((self._id(each), happening) for each, happening in kept)]

    async def _follow(self) -> None:
        while True:
            try:
                await self._client.happenings.follow(HappeningFilter(), self._take, self._note_following)
            except* HeadraceError as errors:
                logger().warning("no events are received", error=str(errors.exceptions[0]))
            finally:
                self._is_following = False
            await anyio.sleep(_AGAIN_S)
            self._take(self._missed(None))

    def _note_following(self) -> None:
        self._is_following = True
        for reader in self._readers:
            reader.put(_FOLLOWING)

    def _take(self, happening: Happening) -> None:
        self._number += 1
        self._past.append((self._number, happening))
        event: Event | None = None
        for reader in self._readers:
            if reader.wanted.wants(happening):
                # All readers get the same object, because encoding the event costs more than everything else here.
                event = event or _event(self._id(self._number), happening)
                reader.put(event)

    def _missed(self, count: int | None) -> Missed:
        return Missed(self._clock.wall_ms(), _SERVICE, self._client.place.tree, count)

    def _id(self, number: int) -> str:
        return f"{self._run}-{number}"

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def _event(name: str, happening: Happening) -> Event:
    fields = plain_happening(happening)
    return Event(str(fields["happened"]), fields, name)
