"""A bucket with copies: what it lost is written again, what was deleted or changed stays so."""

from __future__ import annotations

import msgspec
import pytest

from headrace.bus import Bus
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.wire import subjects
from headrace.wire.nodes import LongestLeaseRecord
from tests.contract.both_worlds import World, on_both_worlds

pytestmark = pytest.mark.long


async def values(bus: Bus, name: str) -> dict[str, bytes]:
    return {key: entry.value for key, entry in (await (await bus.key_value(name)).entries()).items()}


@on_both_worlds
async def test_what_a_bucket_lost_is_written_again_and_what_was_deleted_is_not(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await CopiedBucket.open(bus, world.word)
        for key in ("lost", "deleted", "kept"):
            await bucket.update(key, key.encode(), 0)
        await bucket.delete("deleted")
        # As if the server had never stored it.
        await (await bus.key_value(world.word)).delete("lost")

        await (await CopiedBucket.open(bus, world.word)).write_lost_again()

        assert await values(bus, world.word) == {"lost": b"lost", "kept": b"kept"}


@on_both_worlds
async def test_what_somebody_wrote_without_a_copy_is_copied_and_not_undone(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await CopiedBucket.open(bus, world.word)
        await bucket.put("a", b"1")
        plain = await bus.key_value(world.word)
        await plain.put("a", b"2")
        await plain.put("b", b"3")

        await bucket.write_lost_again()
        await plain.delete("b")
        await bucket.write_lost_again()

        assert await values(bus, world.word) == {"a": b"2", "b": b"3"}


@on_both_worlds
async def test_an_older_value_that_came_back_gives_way_to_the_copy(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await CopiedBucket.open(bus, world.word)
        await bucket.put("a", b"1")
        revision = (await bucket.put("a", b"2")) + 10
        # Of a bucket that had more writes once.
        copies = await bus.key_value(subjects.copies_of(world.word))
        copy = await copies.get("a")
        assert copy is not None
        await copies.put("a", copy.value.replace(bytes([revision - 10]), bytes([revision])).replace(b"2", b"9"))

        await bucket.write_lost_again()
        again = await bucket.put("a", b"10")
        await bucket.write_lost_again()

        assert again < revision
        assert await values(bus, world.word) == {"a": b"10"}


@on_both_worlds
async def test_a_value_that_cannot_be_read_gives_way_to_the_copy_and_never_becomes_one(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await CopiedBucket.open(bus, world.word, kind=LongestLeaseRecord)
        record = msgspec.json.encode(LongestLeaseRecord(term=3, lease_ms=600_000))
        await bucket.put("a", record)
        plain = await bus.key_value(world.word)
        for damaged in (b"rubbish", b'{"term": "three"}'):
            await plain.put("a", damaged)
            await plain.put("without-a-copy", damaged)

            await bucket.write_lost_again()

            assert await values(bus, world.word) == {"a": record, "without-a-copy": damaged}
        assert set(await values(bus, subjects.copies_of(world.word))) == {"a"}
