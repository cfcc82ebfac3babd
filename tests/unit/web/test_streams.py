"""How streams of events are sent: events that come together are sent together, and a slow reader holds the source back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, MutableMapping
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel

from headrace.client import NotRunning
from headrace_web.api.endpoint import Event
from headrace_web.api.streams import EventStream


class Reader:
    """A connection whose reader takes a write when a test says so."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.may_write = anyio.Event()
        self.may_write.set()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await self.may_write.wait()
        if message["type"] == "http.response.body":
            self.writes.append(message["body"])

    async def receive(self) -> MutableMapping[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    async def read(self, events: AsyncGenerator[Event, None]) -> None:
        state = SimpleNamespace(stopping=anyio.Event())
        scope = {"type": "http", "app": SimpleNamespace(state=state), "state": {}}
        with anyio.fail_after(10):
            await EventStream(events)(scope, self.receive, self.send)


def numbers(writes: list[bytes]) -> list[int]:
    return [
        int(line[6:]) for line in b"".join(writes).splitlines() if line.startswith(b"data: ") and line != b"data: {}"
    ]


async def test_events_that_come_together_are_one_write_and_all_arrive_in_order() -> None:
    async def source() -> AsyncGenerator[Event, None]:
        for number in range(300):
            if number in (100, 200):
                for _ in range(10):  # other tasks run meanwhile
                    await anyio.lowlevel.checkpoint()
            yield Event("line", number)

    reader = Reader()
    await reader.read(source())
    assert numbers(reader.writes) == list(range(300))
    assert b"".join(reader.writes).endswith(b"event: end\ndata: {}\n\n")
    assert len([each for each in reader.writes if each.startswith(b"event: line")]) == 3


async def test_a_reader_that_takes_nothing_holds_the_source_back() -> None:
    made = 0

    async def source() -> AsyncGenerator[Event, None]:
        nonlocal made
        while made < 1_000:
            made += 1
            yield Event("line", "x" * 1_000)

    reader = Reader()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.read, source())
        await anyio.lowlevel.checkpoint()
        reader.may_write = anyio.Event()
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert 1 <= made < 200
        reader.may_write.set()
    assert made == 1_000
    assert b"".join(reader.writes).count(b"event: line") == 1_000


async def test_an_error_after_events_is_the_last_event() -> None:
    async def source() -> AsyncGenerator[Event, None]:
        yield Event("line", 1)
        raise NotRunning("here", "it is gone")

    reader = Reader()
    await reader.read(source())
    text = b"".join(reader.writes).decode()
    assert text.index("event: line") < text.index("event: problem")
    assert "urn:headrace:not_running" in text


def test_an_event_is_written_once_for_all_its_readers() -> None:
    event = Event("operation", {"reason": "a\nb"}, "5-1")
    assert event.written == b'id: 5-1\nevent: operation\ndata: {"reason":"a\\nb"}\n\n'
    assert event.written is event.written
