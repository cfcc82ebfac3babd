"""The events that all readers of the web service share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from headrace.client import Client, NotRunning
from headrace.client.following import HappeningFilter
from headrace.ids import OperationId, PoolName, TreeName, UserName
from headrace.wire.happenings import Happening, OperationStep
from headrace.wire.operations import OperationState
from headrace_web.api import event_hub
from headrace_web.api.endpoint import Event
from headrace_web.api.event_hub import MOST_HUBS, EventHub
from headrace_web.api.problems import Failed
from tests.contract.waiting import eventually
from tests.support.clocks import HandClock


class Source:
    """Stands for a connection: events that a test tells, and how often they were followed."""

    def __init__(self) -> None:
        self.happenings = self
        self.place = SimpleNamespace(tree=TreeName("default"))
        self.followed = 0
        self.follows = False
        self.on_happening: Callable[[Happening], None] = lambda _: None
        self.lost = anyio.Event()

    async def follow(
        self,
        wanted: HappeningFilter,
        on_happening: Callable[[Happening], None],
        on_following: Callable[[], None],
    ) -> None:
        self.on_happening, self.follows = on_happening, True
        on_following()
        self.followed += 1
        try:
            await self.lost.wait()
        finally:
            self.follows = False
        raise NotRunning("here", "the server is gone")

    def tell(self, *numbers: int, pool: str = "research") -> None:
        for number in numbers:
            step = OperationStep(
                number,
                OperationId(f"op-{number}"),
                OperationState.RUNNING,
                "started",
                pool=PoolName(pool),
                user=UserName("anna"),
            )
            self.on_happening(step)


async def test_the_tokens_of_a_person_receive_events_a_bounded_number_of_times() -> None:
    """Each hub reads all events: the tokens of one person could use a whole core."""
    hubs: set[EventHub] = set()
    async with anyio.create_task_group() as tasks:
        own = [EventHub(cast("Client", Source()), HandClock(5_000), hubs) for _ in range(MOST_HUBS + 1)]
        scopes = [anyio.CancelScope() for _ in own]

        async def run(hub: EventHub, scope: anyio.CancelScope) -> None:
            with scope:
                await hub.run()

        for hub, scope in zip(own, scopes, strict=True):
            tasks.start_soon(run, hub, scope)
        streams = [hub.read(HappeningFilter(), "") for hub in (*own[:MOST_HUBS], own[0])]
        for stream in streams:
            assert (await anext(stream)).event == "following"
        with pytest.raises(Failed, match="8 of your tokens"):
            await anext(own[-1].read(HappeningFilter(), ""))
        scopes[0].cancel()
        await eventually(lambda: own[0] not in hubs)
        last = own[-1].read(HappeningFilter(), "")
        assert (await anext(last)).event == "following"
        for stream in (*streams, last):
            await stream.aclose()
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def a_hub() -> AsyncGenerator[tuple[EventHub, Source], None]:
    source = Source()
    async with anyio.create_task_group() as tasks:
        hub = EventHub(cast("Client", source), HandClock(5_000))
        tasks.start_soon(hub.run)
        yield hub, source
        tasks.cancel_scope.cancel()


class Reader:
    """Reads as a browser does, in a task of its own."""

    def __init__(self, hub: EventHub, last_id: str = "", wanted: HappeningFilter | None = None) -> None:
        self.got: list[Event] = []
        self._events = hub.read(wanted or HappeningFilter(), last_id)

    async def run(self) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                self.got.append(event)

    @property
    def told(self) -> list[object]:
        fields = [cast("dict[str, Any]", event.data) for event in self.got if event.event != "following"]
        return [each["count"] if each["happened"] == "missed" else each["at_ms"] for each in fields]


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not holds():
            await anyio.lowlevel.checkpoint()


async def test_all_readers_share_one_subscription_and_each_gets_what_it_wants() -> None:
    async with a_hub() as (hub, source), anyio.create_task_group() as tasks:
        every, some = Reader(hub), Reader(hub, wanted=HappeningFilter(pool="research"))
        tasks.start_soon(every.run)
        tasks.start_soon(some.run)
        await until(lambda: source.follows)
        source.tell(1)
        source.tell(2, pool="other")
        await until(lambda: every.told == [1, 2])
        assert (some.told, source.followed) == ([1], 1)
        assert every.got[1] is some.got[1], "an event is made and written once for all readers"
        assert [event.event for event in every.got] == ["following", "operation", "operation"]
        tasks.cancel_scope.cancel()


async def test_a_reader_that_comes_back_gets_what_it_missed() -> None:
    async with a_hub() as (hub, source), anyio.create_task_group() as tasks:
        first = Reader(hub)
        tasks.start_soon(first.run)
        await until(lambda: source.follows)
        source.tell(1, 2, 3)
        await until(lambda: first.told == [1, 2, 3])
        back = [Reader(hub, first.got[1].id), Reader(hub, first.got[3].id), Reader(hub, "7-1"), Reader(hub, "rubbish")]
        back.append(Reader(hub, first.got[1].id.partition("-")[0] + "-" + "9" * 5_000))
        for reader in back:
            tasks.start_soon(reader.run)
        await until(lambda: len(hub._readers) == 6)
        source.tell(4)
        await until(lambda: all(reader.told[-1:] == [4] for reader in back))
        # Of an earlier process nothing is known, so the number of missed events is not known either.
        assert [reader.told for reader in back] == [[2, 3, 4], [4], *[[None, 1, 2, 3, 4]] * 3]
        tasks.cancel_scope.cancel()


async def test_a_slow_reader_loses_the_oldest_events_and_is_told(monkeypatch: Any) -> None:
    monkeypatch.setattr(event_hub, "_MOST_WAITING", 3)
    async with a_hub() as (hub, source), anyio.create_task_group() as tasks:
        slow = Reader(hub)
        tasks.start_soon(slow.run)
        await until(lambda: [event.event for event in slow.got] == ["following"])
        source.tell(*range(1, 11))  # in one turn of the loop, so that the reader takes none in between
        await until(lambda: slow.told[-1:] == [10])
        assert slow.told == [7, 8, 9, 10]
        tasks.cancel_scope.cancel()


async def test_events_of_a_pause_arrive_together(monkeypatch: Any) -> None:
    over = anyio.Event()

    async def sleep(_: float) -> None:
        await over.wait()

    monkeypatch.setattr(anyio, "sleep", sleep)
    async with a_hub() as (hub, source), anyio.create_task_group() as tasks:
        reader = Reader(hub)
        tasks.start_soon(reader.run)
        await until(lambda: source.follows and len(reader.got) == 1)
        for number in range(1, 6):
            source.tell(number)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
        # Until the pause is over the reader is not woken, and then it gets all at once.
        assert reader.told == []
        over.set()
        await until(lambda: bool(reader.told))
        assert reader.told == [1, 2, 3, 4, 5]
        tasks.cancel_scope.cancel()


async def test_a_lost_connection_is_told_and_followed_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(event_hub, "_AGAIN_S", 0.0)
    async with a_hub() as (hub, source), anyio.create_task_group() as tasks:
        reader = Reader(hub)
        tasks.start_soon(reader.run)
        await until(lambda: source.follows)
        source.tell(1)
        lost, source.lost = source.lost, anyio.Event()
        lost.set()
        await until(lambda: source.followed == 2)
        source.tell(2)
        await until(lambda: reader.told[-1:] == [2])
        assert reader.told == [1, None, 2]
        tasks.cancel_scope.cancel()


async def test_nothing_is_received_after_the_last_reader_has_left(monkeypatch: Any) -> None:
    monkeypatch.setattr(event_hub, "_LINGER_S", 0.0)
    async with a_hub() as (hub, source):
        async with anyio.create_task_group() as tasks:
            reader = Reader(hub)
            tasks.start_soon(reader.run)
            await until(lambda: source.follows)
            source.tell(1)
            await until(lambda: reader.told == [1])
            tasks.cancel_scope.cancel()
        await until(lambda: not source.follows)
        async with anyio.create_task_group() as tasks:
            back = Reader(hub, reader.got[1].id)
            tasks.start_soon(back.run)
            await until(lambda: source.follows)
            source.tell(2)
            await until(lambda: back.told[-1:] == [2])
            # Events of the pause are missing, however many there were.
            assert back.told == [None, 2]
            tasks.cancel_scope.cancel()
