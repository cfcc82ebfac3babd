"""What services rely on from the bus holds on a real server and on the simulated one."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest

from headrace.bus import (
    AppendRefused,
    BusError,
    ConnectionLost,
    Entry,
    HeardWrites,
    KeyValue,
    LogEntry,
    Message,
    NoResponders,
    NotConnected,
    RequestTimeout,
    TooLarge,
    WrongRevision,
)
from tests.contract.both_worlds import World, on_both_worlds
from tests.contract.waiting import eventually


async def echo(message: Message) -> bytes:
    return message.data


@on_both_worlds
async def test_a_request_gets_its_answer_and_nobody_there_is_said_at_once(world: World) -> None:
    async with world.connect("asks") as asks, world.connect("serves") as serves:
        with pytest.raises(NoResponders):
            await asks.request(world.word, b"", timeout_s=30)
        assert await asks.gather(world.word, b"", wait_s=0.5) == []
        serving = await serves.serve(world.word, echo)

        assert await asks.request(world.word, b"hello", timeout_s=10) == b"hello"
        await serving.close()
        await serves.barrier()
        with pytest.raises(NoResponders):
            await asks.request(world.word, b"", timeout_s=30)


@on_both_worlds
async def test_everybody_who_listens_is_gathered_and_one_of_a_group(world: World) -> None:
    async with world.connect("asks") as asks, world.connect("a") as a, world.connect("b") as b:
        for bus, name in ((a, b"a"), (b, b"b")):

            async def say(_message: Message, name: bytes = name) -> bytes:
                return name

            await bus.serve(f"{world.word}.all", say)
            await bus.serve(f"{world.word}.one", say, queue="group")

        assert sorted(await asks.gather(f"{world.word}.all", b"", wait_s=0.5)) == [b"a", b"b"]
        assert len(await asks.gather(f"{world.word}.one", b"", wait_s=0.5)) == 1


@on_both_worlds
async def test_messages_of_one_sender_come_in_order_and_patterns_match(world: World) -> None:
    async with world.connect("sends") as sends, world.connect("hears") as hears:
        inbox = await hears.subscribe(f"{world.word}.*.x")
        rest = await hears.subscribe(f"{world.word}.>")
        for number in range(200):
            await sends.publish(f"{world.word}.{number % 3}.x", str(number).encode())
        await sends.publish(f"{world.word}.0.y", b"other")

        with anyio.fail_after(20):
            assert [int((await anext(inbox)).data) for _ in range(200)] == list(range(200))
            assert [(await anext(rest)).data for _ in range(201)][-1] == b"other"


@on_both_worlds
async def test_a_handler_that_raises_answers_nothing_and_harms_no_other(world: World) -> None:
    async def fussy(message: Message) -> bytes:
        if message.data == b"bad":
            raise ValueError
        return b"fine"

    async with world.connect("asks") as asks, world.connect("serves") as serves:
        serving = await serves.serve(world.word, fussy)
        with pytest.raises(RequestTimeout):
            await asks.request(world.word, b"bad", timeout_s=0.3)
        assert await asks.request(world.word, b"good", timeout_s=10) == b"fine"
        assert serving.statistics()["failed"] == 1


@on_both_worlds
async def test_a_message_over_the_cap_is_refused_before_it_is_sent(world: World) -> None:
    async with world.connect("sends") as bus:
        with pytest.raises(TooLarge):
            await bus.publish(world.word, bytes(512 * 1024 + 1))
        log = await bus.log(world.word, f"{world.word}.log")
        with pytest.raises(TooLarge):
            await log.append(bytes(512 * 1024 + 1), expected_last=0, timeout_s=5)
        assert await log.bounds() == (1, 0)


@on_both_worlds
async def test_a_key_is_changed_only_by_who_has_seen_the_newest(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await bus.key_value(world.word, history=2)
        first = await bucket.update("k", b"1", 0)
        second = await bucket.update("k", b"2", first)
        for stale in (first, second + 5):
            with pytest.raises(WrongRevision):
                await bucket.update("k", b"3", stale)
        with pytest.raises(WrongRevision):
            await bucket.update("k", b"3", 0)

        await bucket.delete("k")
        assert await bucket.get("k") is None
        assert await bucket.entries() == {}
        again = await bucket.update("k", b"4", 0)
        assert again > second
        assert await bucket.entries() == {"k": Entry("k", b"4", again)}
        assert [each.value for each in await bucket.history("k")][-1] == b"4"


@on_both_worlds
async def test_keys_are_purged_with_all_that_is_below_them(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await bus.key_value(world.word)
        for key in ("page.1.1", "page.1.2", "page.10.1", "page", "other"):
            await bucket.put(key, b"1")
        await bucket.delete("page.1.2")
        await bucket.purge("page.1")

        assert set(await bucket.entries()) == {"page.10.1", "page", "other"}
        assert await bucket.update("page.1.1", b"2", 0)


@on_both_worlds
async def test_a_mirror_is_complete_when_entered_and_hears_of_changes(world: World) -> None:
    async with world.connect("writes") as writes, world.connect("reads") as reads:
        bucket = await writes.key_value(world.word)
        await bucket.put("a", b"1")
        told: list[set[str]] = []

        def on_change(_entries: Mapping[str, Entry], changed: frozenset[str]) -> None:
            told.append(set(changed))

        async with (await reads.key_value(world.word)).mirror(on_change) as mirror:
            assert {key: entry.value for key, entry in mirror.entries.items()} == {"a": b"1"}
            revision = await bucket.put("b", b"2")
            assert await mirror.wait_for(revision, timeout_s=10)
            await bucket.delete("a")
            assert await mirror.wait_for(revision + 1, timeout_s=10)
            assert set(mirror.entries) == {"b"}
            assert not await mirror.wait_for(revision + 9, timeout_s=0.3)
            assert told == [{"a"}, {"b"}, {"a"}]
            newest = await bucket.put("c", b"3")
            assert await mirror.catch_up(timeout_s=10)
            assert mirror.revision == newest


@on_both_worlds
async def test_whoever_listens_hears_of_a_write_whatever_becomes_of_it(world: World) -> None:
    async with world.connect("writes") as writes, world.connect("hears") as hears:
        bucket = await writes.key_value(world.word)
        heard = await hears.writes(world.word)
        assert heard.take() == HeardWrites()
        first = await bucket.put("a", b"1")
        await hears.barrier()
        assert heard.take() == HeardWrites({"a": 0})
        with pytest.raises(WrongRevision):
            await bucket.update("a", b"2", 9)
        await bucket.update("a", b"2", first)
        await hears.barrier()
        assert heard.take() == HeardWrites({"a": 9})
        await bucket.delete("a")
        marker = await bucket.update("a", b"3", 0) - 1
        await bucket.update("b", b"4", 0)
        await hears.barrier()
        assert heard.take() == HeardWrites({"a": marker, "b": 0})
        assert heard.take() == HeardWrites()


@on_both_worlds
async def test_a_log_has_one_writer_at_a_time(world: World) -> None:
    async with world.connect("old") as old, world.connect("new") as new:
        theirs = await old.log(world.word, f"{world.word}.log")
        ours = await new.log(world.word, f"{world.word}.log")
        assert await theirs.append(b"1", expected_last=0, timeout_s=5) == 1
        assert await ours.append(b"2", expected_last=1, timeout_s=5) == 2
        for guess in (0, 1, 3):
            with pytest.raises(AppendRefused):
                await theirs.append(b"x", expected_last=guess, timeout_s=5)

        assert await theirs.last() == LogEntry(2, b"2")
        assert [each async for each in theirs.read(1)] == [LogEntry(2, b"2")]
        await ours.forget(2)
        assert await theirs.bounds() == (3, 2)
        assert await theirs.last() is None
        assert await ours.append(b"3", expected_last=2, timeout_s=5) == 3


@on_both_worlds
async def test_records_are_read_from_where_one_is(world: World) -> None:
    async with world.connect("test") as bus:
        records = await bus.records(world.word, f"{world.word}.records", max_age_s=3_600, max_bytes=1_000_000)
        assert await records.oldest_ms() is None
        for number in range(5):
            await records.add(str(number).encode(), timeout_s=5)
        assert [each.data async for each in records.read(after=3)] == [b"3", b"4"]
        assert len([each async for each in records.read()]) == 5
        assert await records.oldest_ms() is not None


@on_both_worlds
async def test_who_waits_for_an_answer_hears_at_once_that_the_connection_broke(world: World) -> None:
    async def never(_message: Message) -> bytes:
        await anyio.sleep_forever()
        return b""

    async with world.connect("asks") as asks, world.connect("serves") as serves:
        await serves.serve(world.word, never)
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with anyio.fail_after(20), pytest.raises(ConnectionLost):
                    await asks.request(world.word, b"", timeout_s=600)

            tasks.start_soon(ask)
            await anyio.sleep(0.2)
            await world.crash()


@on_both_worlds
async def test_after_a_crash_of_the_server_interest_and_mirrors_come_back_and_nothing_stored_is_lost(
    world: World,
) -> None:
    async with world.connect("one") as one, world.connect("two") as two:
        await two.serve(f"{world.word}.echo", echo)
        bucket = await one.key_value(world.word)
        await bucket.put("k", b"before")
        log = await one.log(f"{world.word}log", f"{world.word}.log")
        await log.append(b"kept", expected_last=0, timeout_s=5)
        async with (await two.key_value(world.word)).mirror() as mirror:
            await world.crash()
            await eventually(lambda: not one.connected and not two.connected)
            with pytest.raises(NotConnected):
                await one.publish(world.word, b"lost")
            await world.start()
            await eventually(lambda: one.connected and two.connected)

            await put(bucket, "k", b"after")
            await eventually(lambda: mirror.entries["k"].value == b"after")
            assert await one.request(f"{world.word}.echo", b"again", timeout_s=5) == b"again"
            assert await log.last() == LogEntry(1, b"kept")


async def put(bucket: KeyValue, key: str, value: bytes) -> None:
    """JetStream may take a moment longer than the connection."""
    with anyio.fail_after(20):
        while True:
            try:
                await bucket.put(key, value)
            except BusError:
                await anyio.sleep(0.02)
            else:
                return
