"""Records: bounded by age and size, read by time or by place."""

from __future__ import annotations

import anyio
import pytest

from headrace.bus import AppendRefused, BusError, LogEntry, Records, WrongConfiguration, connect
from tests.support.nats_server import NatsServer, nats_server

DAY_S = 86_400.0


async def read_all(records: Records, after: int = 0, since_ms: int = 0) -> list[LogEntry]:
    return [entry async for entry in records.read(after=after, since_ms=since_ms)]


async def test_entries_are_added_and_read_from_a_place_and_from_a_time(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        records = await bus.records(word, f"{word}.records", max_age_s=DAY_S, max_bytes=2**20)
        assert (await records.oldest_ms(), await read_all(records)) == (None, [])
        await records.add(b"early", timeout_s=10)
        first_ms = await records.oldest_ms()
        assert first_ms is not None
        await anyio.sleep(0.05)
        for number in range(3):
            assert await records.add(str(number).encode(), timeout_s=10) == number + 2

        assert [entry.data for entry in await read_all(records)] == [b"early", b"0", b"1", b"2"]
        assert [entry.data for entry in await read_all(records, since_ms=first_ms + 25)] == [b"0", b"1", b"2"]
        assert await read_all(records, after=3) == [LogEntry(4, b"2")]
        assert await read_all(records, after=4) == []
        assert await read_all(records, since_ms=first_ms + 3_600_000) == []


async def test_more_than_the_size_takes_the_place_of_the_oldest(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        records = await bus.records(word, f"{word}.records", max_age_s=DAY_S, max_bytes=10_000)
        for number in range(40):
            await records.add(str(number).ljust(1_000).encode(), timeout_s=10)

        kept = [int(entry.data) for entry in await read_all(records)]

    assert kept
    assert kept == list(range(40 - len(kept), 40))
    assert len(kept) <= 10


async def test_what_is_too_old_goes_by_itself(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        records = await bus.records(word, f"{word}.records", max_age_s=0.5, max_bytes=2**20)
        await records.add(b"early", timeout_s=10)
        with anyio.fail_after(20):
            while await records.oldest_ms() is not None:  # noqa: ASYNC110 - the server tells nobody
                await anyio.sleep(0.05)

        assert await read_all(records) == []
        assert await records.add(b"late", timeout_s=10) == 2


async def test_other_bounds_are_given_to_a_stream_that_is_there(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        wide = await bus.records(word, f"{word}.records", max_age_s=DAY_S, max_bytes=2**20)
        for number in range(40):
            await wide.add(str(number).ljust(1_000).encode(), timeout_s=10)
        narrow = await bus.records(word, f"{word}.records", max_age_s=DAY_S, max_bytes=10_000)

        assert 0 < len(await read_all(narrow)) <= 10


async def test_a_stream_of_something_else_is_left_alone(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        await bus.log(word, f"{word}.log")
        with pytest.raises(WrongConfiguration):
            await bus.records(word, f"{word}.records", max_age_s=DAY_S, max_bytes=2**20)


async def test_a_server_without_so_much_room_says_so(word: str) -> None:
    with nats_server(store_bytes=2**20) as small:
        async with connect([small.url], name="test") as bus:
            with pytest.raises(BusError, match="storage"):
                await bus.records(word, f"{word}.records", max_age_s=DAY_S, max_bytes=2**30)


async def test_an_entry_that_names_the_one_before_is_added_right_after_it_or_not_at_all(
    server: NatsServer, word: str
) -> None:
    async with connect([server.url], name="test") as bus:
        records = await bus.records(word, f"{word}.records", max_age_s=DAY_S, max_bytes=2**20)
        assert await records.last() == LogEntry(0, b"")
        assert await records.add(b"first", timeout_s=10, expected_last=0) == 1
        with pytest.raises(AppendRefused):
            await records.add(b"late", timeout_s=10, expected_last=0)

        assert await records.add(b"second", timeout_s=10, expected_last=1) == 2
        assert await records.last() == LogEntry(2, b"second")
