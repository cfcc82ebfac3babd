"""Logs: one writer at a time, fenced by the sequence, read fast and in order."""

from __future__ import annotations

import time

import anyio
import anyio.lowlevel
import msgspec
import nats
import pytest

from headrace.bus import (
    AppenderFenced,
    AppendRefused,
    AppendUnknown,
    BusError,
    GroupAppender,
    Log,
    LogEntry,
    TooLarge,
    WrongConfiguration,
    connect,
)
from tests.contract.both_worlds import World, on_both_worlds
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer, nats_server


async def read_all(log: Log, after: int = 0) -> list[LogEntry]:
    return [entry async for entry in log.read(after)]


async def test_entries_are_appended_read_and_forgotten(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        log = await bus.log(word, f"{word}.log")
        assert (await log.bounds(), await log.last(), await read_all(log)) == ((1, 0), None, [])

        for number in range(10):
            assert await log.append(str(number).encode(), expected_last=number, timeout_s=10) == number + 1

        assert await log.bounds() == (1, 10)
        of_ten = await log.size_bytes()
        assert await log.last() == LogEntry(10, b"9")
        assert await read_all(log, after=8) == [LogEntry(9, b"8"), LogEntry(10, b"9")]
        assert await read_all(log, after=10) == []

        await log.forget(4)
        assert await log.bounds() == (5, 10)
        assert 0 < await log.size_bytes() < of_ten
        assert [entry.sequence for entry in await read_all(log)] == [5, 6, 7, 8, 9, 10]

        await log.forget(10)
        assert (await log.bounds(), await log.last(), await read_all(log)) == ((11, 10), None, [])
        assert await log.append(b"on", expected_last=10, timeout_s=10) == 11


async def test_of_two_writers_the_one_that_has_not_seen_the_end_is_refused(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="old") as old, connect([server.url], name="new") as new:
        theirs, ours = await old.log(word, f"{word}.log"), await new.log(word, f"{word}.log")
        await theirs.append(b"term 1", expected_last=0, timeout_s=10)
        await ours.append(b"term 2", expected_last=1, timeout_s=10)

        for guess in (0, 1, 3):
            with pytest.raises(AppendRefused):
                await theirs.append(b"term 1 again", expected_last=guess, timeout_s=10)
        assert [entry.data for entry in await read_all(ours)] == [b"term 1", b"term 2"]


async def test_ten_thousand_entries_are_read_in_order_by_a_few_messages(server: NatsServer, word: str) -> None:
    client = await nats.connect(server.url)
    async with connect([server.url], name="test") as bus:
        log = await bus.log(word, f"{word}.log")
        for number in range(10_000):
            await client.publish(f"{word}.log", str(number).encode())
        await client.flush()
        with anyio.fail_after(60):
            while (await log.bounds())[1] < 10_000:  # noqa: ASYNC110 - the server tells nobody
                await anyio.sleep(0.02)
        before = bus.statistics()["sent"]

        assert [int(entry.data) for entry in await read_all(log)] == list(range(10_000))
        assert bus.statistics()["sent"] - before < 30
        assert bus.statistics()["listeners"] == 1
    await client.close()


async def test_reading_ends_at_what_was_there_and_may_be_left_early(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        log = await bus.log(word, f"{word}.log")
        last = 0
        for _ in range(5):
            last = await log.append(b"old", expected_last=last, timeout_s=10)
        got: list[bytes] = []
        async for entry in log.read(0):
            last = await log.append(b"new", expected_last=last, timeout_s=10)
            got.append(entry.data)
        assert got == [b"old"] * 5

        async for entry in log.read(0):
            assert entry.sequence == 1
            break


async def test_large_entries_are_read_whole(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        log = await bus.log(word, f"{word}.log")
        for number in range(40):
            await log.append(bytes([number]) * 300_000, expected_last=number, timeout_s=10)

        assert [(entry.data[0], len(entry.data)) for entry in await read_all(log)] == [(n, 300_000) for n in range(40)]


async def test_an_entry_over_the_cap_with_its_headers_is_refused_before_it_is_sent(
    server: NatsServer, word: str
) -> None:
    async with connect([server.url], name="test") as bus:
        log = await bus.log(word, f"{word}.log")
        with pytest.raises(TooLarge):
            await log.append(bytes(512 * 1024), expected_last=0, timeout_s=10)
        assert await log.bounds() == (1, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"storage": "memory"},
        {"retention": "workqueue"},
        {"discard": "old"},
        {"max_age": 3_600_000_000_000},
        {"max_msgs": 1_000},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_stream_that_could_lose_entries_is_refused(
    wrong: dict[str, object], server: NatsServer, word: str
) -> None:
    client = await nats.connect(server.url)
    stream = {"name": word, "subjects": [f"{word}.log"], "discard": "new", **wrong}
    await client.request(f"$JS.API.STREAM.CREATE.{word}", msgspec.json.encode(stream), timeout=10)
    await client.close()

    async with connect([server.url], name="test") as bus:
        with pytest.raises(WrongConfiguration, match=next(iter(wrong))):
            await bus.log(word, f"{word}.log")


async def test_a_stream_over_other_subjects_is_refused(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        await bus.log(word, f"{word}.log")
        with pytest.raises(WrongConfiguration, match="subjects"):
            await bus.log(word, f"{word}.other")


async def test_what_was_acknowledged_survives_the_kill_of_the_server(word: str) -> None:
    with nats_server() as server:
        async with connect([server.url], name="test", api_timeout_s=2) as bus:
            log = await bus.log(word, f"{word}.log")
            for number in range(20):
                await log.append(str(number).encode(), expected_last=number, timeout_s=10)
            server.kill()
            with pytest.raises(AppendUnknown):
                await log.append(b"x", expected_last=20, timeout_s=0.5)
            with pytest.raises(BusError):
                await read_all(log)
            server.start()
            await eventually(lambda: bus.connected)
            with anyio.fail_after(20):
                while (entries := await readable(log)) is None:  # noqa: ASYNC110 - as above
                    await anyio.sleep(0.02)
            assert [int(entry.data) for entry in entries] == list(range(20))


async def readable(log: Log) -> list[LogEntry] | None:
    try:
        return await read_all(log)
    except BusError:
        return None


async def test_group_commit_goes_on_after_the_kill_of_the_server_and_loses_or_doubles_nothing(word: str) -> None:
    with nats_server() as server:
        async with connect([server.url], name="test", api_timeout_s=1) as bus:
            log = await bus.log(word, f"{word}.log")
            appender = an_appender(log, term=1, last=0, append_timeout_s=0.5)
            sequences: dict[int, int] = {}

            async def append(number: int) -> None:
                sequences[number] = await appender.append([str(number).encode()])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(appender.run)
                async with anyio.create_task_group() as calls:
                    for number in range(2_000):
                        calls.start_soon(append, number)
                        if number % 100 == 0:
                            await anyio.lowlevel.checkpoint()
                        if number in (500, 1_500):
                            server.kill()
                        if number in (700, 1_700):
                            await anyio.to_thread.run_sync(server.start)
                    assert appender.waiting > 0
                await appender.flush()
                assert appender.waiting == 0
                tasks.cancel_scope.cancel()

            entries = {entry.sequence: decode(entry.data) for entry in await read_all(log)}
            assert [int(event) for _, events in entries.values() for event in events] == list(range(2_000))
            assert all(str(number).encode() in entries[sequence][1] for number, sequence in sequences.items())


async def test_a_writer_that_flushes_hears_that_a_higher_term_has_written(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="old") as old, connect([server.url], name="new") as new:
        first = an_appender(await old.log(word, f"{word}.log"), term=1, last=0)

        async def run_first() -> None:
            with pytest.raises(AppenderFenced):
                await first.run()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_first)
            await first.flush()
            assert await first.append([b"a"]) == 1
            await first.flush()
            second = an_appender(await new.log(word, f"{word}.log"), term=2, last=1)
            tasks.start_soon(second.run)
            assert await second.append([b"b"]) == 2
            await second.flush()

            with pytest.raises(AppenderFenced, match="term 2, and this process has term 1"):
                await first.flush()
            tasks.cancel_scope.cancel()


async def test_a_writer_steps_down_when_a_higher_term_has_written(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="old") as old, connect([server.url], name="new") as new:
        first = an_appender(await old.log(word, f"{word}.log"), term=1, last=0)
        failed: list[str] = []

        async def run_first() -> None:
            try:
                await first.run()
            except AppenderFenced as deposed:
                failed.append(str(deposed))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_first)
            assert await first.append([b"a"]) == 1
            second = an_appender(await new.log(word, f"{word}.log"), term=2, last=1)
            tasks.start_soon(second.run)
            assert await second.append([b"b"]) == 2

            with pytest.raises(AppenderFenced, match="term 2, and this process has term 1"):
                await first.append([b"c"])
            with pytest.raises(AppenderFenced):
                await first.append([b"d"])
            assert len(failed) == 1
            assert await second.append([b"e"]) == 3
            tasks.cancel_scope.cancel()
        assert [decode(entry.data) for entry in await read_all(await new.log(word, f"{word}.log"))] == [
            (1, [b"a"]),
            (2, [b"b"]),
            (2, [b"e"]),
        ]


def an_appender(log: Log, *, term: int, last: int, append_timeout_s: float = 10) -> GroupAppender:
    return GroupAppender(
        log,
        encode=lambda events: msgspec.msgpack.encode((term, events)),
        term=term,
        term_of=lambda data: decode(data)[0],
        last=last,
        clock=time.monotonic,
        append_timeout_s=append_timeout_s,
    )


def decode(data: bytes) -> tuple[int, list[bytes]]:
    return msgspec.msgpack.decode(data, type=tuple[int, list[bytes]])


async def test_an_entry_that_no_appender_wrote_is_passed_over(server: NatsServer, word: str) -> None:
    """One foreign message on the log's subject once ended admission at every start."""
    async with connect([server.url], name="test") as bus:
        log = await bus.log(word, f"{word}.log")

        def term_of(data: bytes) -> int | None:
            return None if data == b"foreign" else 1

        appender = GroupAppender(
            log, encode=lambda events: b"+".join(events), term_of=term_of, last=0, clock=time.monotonic
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(appender.run)
            assert await appender.append([b"a"]) == 1
            await bus.publish(f"{word}.log", b"foreign")
            await bus.publish(f"{word}.log", b"foreign")
            await eventually_at(log, 3)
            assert await appender.append([b"b"]) == 4
            tasks.cancel_scope.cancel()

        assert appender.statistics()["foreign"] == 2
        assert [entry.data async for entry in log.read(0)] == [b"a", b"foreign", b"foreign", b"b"]


async def eventually_at(log: Log, sequence: int) -> None:
    with anyio.fail_after(20):
        while (await log.bounds())[1] < sequence:  # noqa: ASYNC110 - the server tells nobody
            await anyio.sleep(0.01)


async def test_a_log_that_takes_nothing_says_that_its_disk_may_be_full_and_one_without_room_that_it_is(
    word: str,
) -> None:
    with nats_server(store_bytes=2**16) as small:
        async with connect([small.url], name="test") as bus:
            log = await bus.log(word, f"{word}.log")
            await log.append(bytes(2**15), expected_last=0, timeout_s=10)
            await log.append(bytes(2**15), expected_last=1, timeout_s=10)
            with pytest.raises(AppendUnknown, match="its disk or the disk space for streams is full"):
                await log.append(bytes(2**15), expected_last=2, timeout_s=10)
    with nats_server() as server:
        async with connect([server.url], name="test") as bus:
            log, bucket = await bus.log(word, f"{word}.log"), await bus.key_value(word)
            server.fill_disk()
            with pytest.raises(AppendUnknown, match="its disk is full"):
                await log.append(b"x", expected_last=0, timeout_s=0.5)
            with pytest.raises(BusError, match="its disk is full"):
                await bucket.put("key", b"x")
            assert await log.bounds() == (1, 0)


@on_both_worlds
async def test_a_log_that_forgets_more_than_it_has_goes_on_behind_that(world: World) -> None:
    """A checkpoint may cover more than a log that was lost and made anew."""
    async with world.connect("test") as bus:
        log = await bus.log(world.word, f"{world.word}.log")
        await log.append(b"a", expected_last=0, timeout_s=5)

        await log.forget(7)

        assert await log.bounds() == (8, 7)
        assert await log.append(b"b", expected_last=7, timeout_s=5) == 8
    await world.crash()
    await world.start()
    async with world.connect("test") as bus:
        log = await bus.log(world.word, f"{world.word}.log")
        assert await log.bounds() == (8, 8)
