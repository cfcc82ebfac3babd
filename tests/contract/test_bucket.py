"""Buckets: compare-and-set, and a mirror that cannot go blind."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial

import anyio
import msgspec
import nats
import pytest

from headrace.bus import Bus, BusError, Entry, Message, Mirror, TooLarge, WrongConfiguration, WrongRevision, connect
from headrace.bus.nats.streams import mirror as mirror_module
from headrace.bus.nats.streams.pulling import Pull
from headrace.errors import BadInput
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer, nats_server


async def test_a_value_is_changed_only_by_who_has_seen_the_newest(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word)
        first = await bucket.update("tree", b"1", 0)
        second = await bucket.update("tree", b"2", first)

        with pytest.raises(WrongRevision):
            await bucket.update("tree", b"3", first)
        with pytest.raises(WrongRevision):
            await bucket.update("tree", b"3", 0)
        with pytest.raises(WrongRevision):
            await bucket.update("other", b"3", first)
        assert await bucket.get("tree") == Entry("tree", b"2", second)
        assert await bucket.get("other") is None
        assert await bucket.put("tree", b"4") > second


async def test_of_many_who_change_one_value_at_once_one_wins(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word)
        revision = await bucket.update("lease", b"nobody", 0)
        won: list[int] = []

        async def take(number: int) -> None:
            try:
                await bucket.update("lease", str(number).encode(), revision)
            except WrongRevision:
                return
            won.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(take, number)
        entry = await bucket.get("lease")
        assert entry is not None
        assert [entry.value] == [str(number).encode() for number in won]


async def test_a_deleted_key_is_not_there_and_can_be_made_again(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word, history=5)
        await bucket.update("a.b", b"1", 0)
        await bucket.put("kept", b"")
        await bucket.delete("a.b")

        assert await bucket.get("a.b") is None
        assert set(await bucket.entries()) == {"kept"}
        again = await bucket.update("a.b", b"2", 0)
        assert [(entry.value, entry.revision) for entry in await bucket.history("a.b")] == [(b"1", 1), (b"2", again)]
        assert set(await bucket.entries()) == {"a.b", "kept"}


async def test_history_is_kept_as_long_as_asked_for(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word, history=1)
        for value in (b"1", b"2"):
            await bucket.put("k", value)
        assert [entry.value for entry in await bucket.history("k")] == [b"2"]

        longer = await bus.key_value(word, history=3)
        for value in (b"3", b"4", b"5"):
            await longer.put("k", value)
        assert [entry.value for entry in await longer.history("k")] == [b"3", b"4", b"5"]
        await bus.key_value(word, history=2)
        assert len(await longer.history("k")) == 3


async def test_thousands_of_keys_are_read_at_once(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test", api_timeout_s=60) as bus:
        bucket = await bus.key_value(word)
        async with anyio.create_task_group() as tasks:
            for number in range(2_000):
                tasks.start_soon(bucket.put, f"n.{number}", bytes(100))
        before = bus.statistics()["sent"]

        assert len(await bucket.entries()) == 2_000
        assert bus.statistics()["sent"] - before < 10


async def test_a_bucket_larger_than_the_server_keeps_for_a_reader_is_read_whole(word: str) -> None:
    """Pushed all at once, it was cut off in the middle, and what had come counted as everything."""
    with nats_server("max_pending: 12000000") as server:
        async with connect([server.url], name="test", api_timeout_s=60) as bus:
            bucket = await bus.key_value(word)
            for number in range(40):
                await bucket.put(f"page.{number}", bytes(400_000))

            assert len(await bucket.entries()) == 40
            assert bus.statistics()["reconnects"] == 0


async def test_a_bucket_that_cannot_be_read_whole_is_an_error(word: str) -> None:
    with nats_server("max_pending: 1500000") as server:
        async with connect([server.url], name="test", api_timeout_s=5) as bus:
            bucket = await bus.key_value(word)
            for number in range(20):
                await bucket.put(f"page.{number}", bytes(400_000))

            with pytest.raises(BusError):
                await bucket.entries()


async def test_a_value_that_is_lost_on_its_way_to_the_reader_is_an_error(
    server: NatsServer, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read without it would count as the whole, and what it tells of would be taken for gone."""
    take, arrived = Pull.on_message, itertools.count()

    def lose_the_third(pull: Pull, message: Message) -> None:
        if next(arrived) != 2:
            take(pull, message)

    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word)
        for number in range(10):
            await bucket.put(f"key.{number}", b"x")
        monkeypatch.setattr(Pull, "on_message", lose_the_third)

        with pytest.raises(BusError, match="messages were lost"):
            await bucket.entries()


async def test_a_key_or_bucket_that_cannot_be_is_said(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word)
        for key in ("", "a b", "a.*", ">", ".a", "a.", "a..b", "ä", "a\n"):
            with pytest.raises(BadInput, match="key of bucket"):
                await bucket.put(key, b"")
            with pytest.raises(BadInput, match="key of bucket"):
                await bucket.get(key)
        with pytest.raises(BadInput):
            await bus.key_value("a.b")
        with pytest.raises(BadInput):
            await bus.key_value(word, history=0)
        with pytest.raises(TooLarge):
            await bucket.put("k", bytes(512 * 1024 + 1))
        await bucket.put("k", bytes(511 * 1024))
        entry = await bucket.get("k")
        assert entry is not None
        assert len(entry.value) == 511 * 1024


async def test_a_bucket_that_would_lose_values_is_refused(server: NatsServer, word: str) -> None:
    client = await nats.connect(server.url)
    stream = {"name": f"KV_{word}", "subjects": [f"$KV.{word}.>"], "storage": "memory", "max_msgs_per_subject": 1}
    await client.request(f"$JS.API.STREAM.CREATE.KV_{word}", msgspec.json.encode(stream), timeout=10)
    await client.close()

    async with connect([server.url], name="test") as bus:
        with pytest.raises(WrongConfiguration, match="memory"):
            await bus.key_value(word)


async def test_a_bucket_is_the_one_that_others_know(server: NatsServer, word: str) -> None:
    """`nats kv` and nats-py read and write the same."""
    client = await nats.connect(server.url)
    theirs = await client.jetstream().create_key_value(bucket=word, history=3, direct=False)
    await theirs.put("k", b"theirs")
    async with connect([server.url], name="test") as bus:
        ours = await bus.key_value(word, history=3)
        entry = await ours.get("k")
        assert entry is not None
        assert entry.value == b"theirs"
        await ours.update("k", b"ours", entry.revision)
        assert (await theirs.get("k")).value == b"ours"
        await ours.delete("k")
        with pytest.raises(nats.js.errors.KeyNotFoundError):
            await theirs.get("k")
        await theirs.put("k", b"x")
        await theirs.purge("k")
        assert await ours.get("k") is None
        assert await ours.entries() == {}
    await client.close()


async def test_values_below_a_prefix_can_be_read_on_from_a_revision(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word)
        assert await bucket.size_bytes() == 0
        revisions = [await bucket.put(key, b"x" * 1000) for key in ("a.1", "b.1", "a.2", "a.3")]
        await bucket.put("a.1", b"anew")

        for after, keys in ((0, ["a.2", "a.3", "a.1"]), (revisions[2], ["a.3", "a.1"]), (revisions[3] + 1, [])):
            found = [entry async for entry in bucket.read("a", after=after, batch_bytes=10_000)]
            assert [entry.key for entry in found] == keys
        assert 3_000 < await bucket.size_bytes() < 6_000


async def test_a_mirror_is_complete_when_entered_and_hears_what_is_written(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word, history=3)
        for key in ("a", "b", "c"):
            await bucket.put(key, b"1")
        await bucket.delete("b")
        told: list[tuple[set[str], frozenset[str]]] = []

        def on_change(entries: Mapping[str, Entry], changed: frozenset[str]) -> None:
            told.append((set(entries), changed))

        async with bucket.mirror(on_change) as mirror:
            assert set(mirror.entries) == {"a", "c"}
            assert mirror.revision == 4
            assert told == [({"a", "c"}, frozenset({"a", "c"}))]

            revision = await bucket.put("d", b"2")
            assert await mirror.wait_for(revision, timeout_s=10)
            assert mirror.entries["d"] == Entry("d", b"2", revision)
            assert told[1:] == [({"a", "c", "d"}, frozenset({"d"}))]

            await bucket.delete("a")
            assert await mirror.wait_for(revision + 1, timeout_s=10)
            assert set(mirror.entries) == {"c", "d"}
            assert told[2:] == [({"c", "d"}, frozenset({"a"}))]
            assert not await mirror.wait_for(revision + 2, timeout_s=0.3)


async def test_a_mirror_of_only_deleted_keys_is_complete_and_empty(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word)
        for number in range(20):
            await bucket.put(f"k{number}", b"")
            await bucket.delete(f"k{number}")
        async with bucket.mirror() as mirror:
            assert dict(mirror.entries) == {}
            assert mirror.revision == 40


async def test_a_mirror_keeps_up_with_writes_during_its_reading(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word)
        last = 0
        for number in range(50):
            last = await bucket.put(f"k.{number}", b"0")
        seen: dict[str, int] = {}

        def on_change(entries: Mapping[str, Entry], changed: frozenset[str]) -> None:
            for key in changed:
                assert entries[key].revision > seen.get(key, 0)
                seen[key] = entries[key].revision

        async def write() -> None:
            nonlocal last
            for number in range(300):
                last = await bucket.put(f"k.{number % 50}", str(number).encode())

        async with bucket.mirror(on_change) as mirror, anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            for _ in range(15):
                await mirror.refresh()
            await eventually(lambda: last == 350)
            assert await mirror.wait_for(last, timeout_s=10)
            assert dict(mirror.entries) == await bucket.entries()


@pytest.mark.parametrize("read_all_s", [0.5, 3_600])
async def test_a_mirror_sees_what_is_written_after_the_server_was_killed(read_all_s: float, word: str) -> None:
    with nats_server() as server:
        async with (
            connect([server.url], name="reads", read_all_s=read_all_s) as reads,
            connect([server.url], name="writes") as writes,
        ):
            bucket = await writes.key_value(word)
            await bucket.put("k", b"before")
            async with (await reads.key_value(word)).mirror() as mirror:
                server.kill()
                await eventually(lambda: not reads.connected and not writes.connected)
                server.start()
                await eventually(lambda: reads.connected and writes.connected)
                await eventually_put(bucket, b"after")

                await eventually(lambda: mirror.entries["k"].value == b"after", within_s=10)


async def eventually_put(bucket: object, value: bytes) -> None:
    """JetStream may take a moment longer than the connection."""
    with anyio.fail_after(20):
        while True:
            try:
                await bucket.put("k", value)  # type: ignore[attr-defined]
            except BusError:
                await anyio.sleep(0.02)
            else:
                return


@pytest.mark.parametrize("how", ["period", "wait_for"])
async def test_a_mirror_whose_watch_went_blind_reads_the_whole(how: str, server: NatsServer, word: str) -> None:
    """The consumer is gone and nobody says so, as after the loss of the server that held it."""
    async with connect([server.url], name="test", read_all_s=0.5 if how == "period" else 3_600) as bus:
        bucket = await bus.key_value(word)
        await bucket.put("k", b"1")
        async with bucket.mirror() as mirror:
            await delete_consumers(bus, f"KV_{word}")
            revision = await bucket.put("k", b"2")

            if how == "wait_for":
                assert await mirror.wait_for(revision, timeout_s=10)
            await eventually(lambda: mirror.entries["k"].value == b"2", within_s=5)

            # The new watch is a good one.
            revision = await bucket.put("k", b"3")
            assert await mirror.wait_for(revision, timeout_s=10)


async def delete_consumers(bus: Bus, stream: str) -> None:
    names = msgspec.json.decode(await bus.request(f"$JS.API.CONSUMER.NAMES.{stream}", b"", timeout_s=10))
    assert names["consumers"]
    for name in names["consumers"]:
        await bus.request(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"", timeout_s=10)


@pytest.mark.parametrize("written_anew", [0, 1, 5, 8])
async def test_a_bucket_that_lost_writes_is_noticed(written_anew: int, word: str) -> None:
    with nats_server() as server:
        async with connect([server.url], name="test", read_all_s=0.3) as bus:
            bucket = await bus.key_value(word)
            for number in range(5):
                await bucket.put("k", str(number).encode())
            async with bucket.mirror() as mirror:
                server.kill()
                server.forget_store()
                await eventually(lambda: not bus.connected)
                server.start()
                await eventually(lambda: bus.connected)
                if written_anew:
                    again = await eventually_bucket(bus, word)
                    for number in range(written_anew):
                        await again.put("k", f"new {number}".encode())  # type: ignore[attr-defined]

                # An entry that is known from a bucket that is gone has no revision.
                await eventually(lambda: mirror.entries["k"].revision == written_anew, within_s=10)


async def test_the_larger_a_bucket_the_less_often_it_is_read_anew_without_a_reason(
    server: NatsServer, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "_WHOLE_EVERY", 2)
    monkeypatch.setattr(mirror_module, "_ENTRIES_AT_ONCE", 3)
    looks: list[bool] = []
    look = mirror_module.BucketMirror._look

    async def noted(self: mirror_module.BucketMirror, *, whole: bool) -> bool:
        looks.append(whole)
        return await look(self, whole=whole)

    monkeypatch.setattr(mirror_module.BucketMirror, "_look", noted)
    async with connect([server.url], name="test", read_all_s=0.01) as bus:
        bucket = await bus.key_value(word)
        for number in range(7):
            await bucket.put(f"k{number}", b"1")
        async with bucket.mirror():
            await eventually(lambda: looks.count(True) == 3)

    assert looks[:18] == [False, False, False, False, False, True] * 3


async def test_a_bucket_that_was_deleted_and_made_anew_is_noticed(server: NatsServer, word: str) -> None:
    """Though its sequences are higher by the time somebody looks."""
    async with connect([server.url], name="test", read_all_s=3_600) as bus:
        bucket = await bus.key_value(word)
        await bucket.put("k", b"old")
        async with bucket.mirror() as mirror:
            await bus.request(f"$JS.API.STREAM.DELETE.KV_{word}", b"", timeout_s=10)
            again = await bus.key_value(word)
            for number in range(3):
                await again.put("k", str(number).encode())

            assert await mirror.wait_for(3, timeout_s=10)
            assert mirror.entries["k"].value == b"2"


async def test_a_bucket_that_is_deleted_again_is_noticed_again(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test", read_all_s=0.1) as bus:
        bucket = await bus.key_value(word)
        async with bucket.mirror() as mirror:
            for value in (b"first", b"second"):
                await (await bus.key_value(word)).put("k", value)
                await eventually(partial(is_known, mirror, Entry("k", value, revision=1)))
                await bus.request(f"$JS.API.STREAM.DELETE.KV_{word}", b"", timeout_s=10)
                await eventually(partial(is_known, mirror, Entry("k", value, revision=0)))


def is_known(mirror: Mirror, entry: Entry) -> bool:
    return mirror.entries.get(entry.key) == entry


async def test_what_a_bucket_loses_is_known_until_somebody_writes_or_deletes_it(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test", read_all_s=0.1) as bus:
        bucket = await bus.key_value(word)
        for key in ("a", "b", "c"):
            await bucket.put(key, b"old")
        async with bucket.mirror() as mirror:
            await bus.request(f"$JS.API.STREAM.DELETE.KV_{word}", b"", timeout_s=10)
            await eventually(lambda: mirror.entries["a"].revision == 0)
            gone = dict(mirror.entries)
            again = await bus.key_value(word)
            await again.put("a", b"new")
            await again.delete("b")
            await eventually(lambda: set(mirror.entries) == {"a", "c"})

            assert [gone[key] for key in ("a", "b", "c")] == [Entry(key, b"old", 0) for key in ("a", "b", "c")]
            assert mirror.entries["a"].value == b"new"
            assert mirror.entries["c"] == Entry("c", b"old", 0)


async def eventually_bucket(bus: Bus, word: str) -> object:
    with anyio.fail_after(20):
        while True:
            try:
                return await bus.key_value(word)
            except BusError:
                await anyio.sleep(0.02)


async def test_mirrors_leave_no_consumers_behind(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value(word)
        await bucket.put("k", b"1")
        before = bus.statistics()["listeners"]
        async with bucket.mirror() as mirror:
            for _ in range(5):
                await mirror.refresh()
            await bucket.entries()
        names = msgspec.json.decode(await bus.request(f"$JS.API.CONSUMER.NAMES.KV_{word}", b"", timeout_s=10))
        assert names["consumers"] is None or names["consumers"] == []
        assert bus.statistics()["listeners"] == before


async def test_a_defect_in_who_is_told_ends_the_mirror_loudly(server: NatsServer, word: str) -> None:
    def on_change(_entries: object, changed: frozenset[str]) -> None:
        if "bad" in changed:
            raise ZeroDivisionError

    async def use() -> None:
        async with connect([server.url], name="test") as bus:
            bucket = await bus.key_value(word)
            async with bucket.mirror(on_change):
                await bucket.put("bad", b"")
                await anyio.sleep_forever()

    with anyio.fail_after(20), pytest.raises(ExceptionGroup) as raised:
        await use()
    assert raised.value.subgroup(ZeroDivisionError) is not None
