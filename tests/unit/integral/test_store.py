"""The saved volumes over a bucket that does not always do what it should."""

from __future__ import annotations

import pytest

from headrace.bus import BusError
from headrace.ids import PoolName, TreeName
from headrace.runtime.fenced_writes import KeyFenced
from headrace.wire.codec import LARGEST_MESSAGE_BYTES
from headrace.wire.integral import PoolVolume, Volume
from headrace.wire.version import Version
from headrace_integral.engine import VolumesRecord
from headrace_integral.store import UnreadableVolumes, VolumeStore
from tests.support.moody_bucket import MoodyBucket

TREE = TreeName("default")


def a_record(epoch: int, pools: int = 1) -> VolumesRecord:
    volume = Volume(1.5, 10**9 + epoch, 2.5, 1e15, 3.5)
    listed = [PoolVolume(PoolName(f"pool-{number}-" + "x" * 80), volume, 0.5) for number in range(pools)]
    return VolumesRecord(TREE, Version(1, epoch), listed, writer=1)


async def read(bucket: MoodyBucket, term: int) -> VolumesRecord | None:
    return await VolumeStore(bucket, TREE, term).claim()


async def test_a_record_that_may_have_been_saved_is_saved_by_the_next_try() -> None:
    bucket = MoodyBucket()
    store = VolumeStore(bucket, TREE, 1)
    assert await store.claim() is None
    for took_effect in (False, True):
        bucket.mood, bucket.took_effect = BusError("cut off"), took_effect
        with pytest.raises(BusError):
            await store.save(a_record(1))
        bucket.mood = None
    await store.save(a_record(2))

    kept = await read(bucket, 2)
    assert kept is not None
    assert (kept.version, kept.pools, kept.writer) == (Version(1, 2), a_record(2).pools, 2)


async def test_who_was_succeeded_saves_nothing_any_more() -> None:
    bucket = MoodyBucket()
    store = VolumeStore(bucket, TREE, 1)
    await store.claim()
    await store.save(a_record(1))
    kept = await read(bucket, 2)

    with pytest.raises(KeyFenced):
        await store.save(a_record(2))
    assert await read(bucket, 2) == kept


async def test_of_many_pools_a_record_stands_in_pieces_that_fit_and_old_ones_go() -> None:
    bucket = MoodyBucket()
    store = VolumeStore(bucket, TREE, 1)
    await store.claim()
    for epoch in (1, 2, 3):
        await store.save(a_record(epoch, 20_000))
        assert max(len(entry.value) for entry in bucket.kept.values()) <= LARGEST_MESSAGE_BYTES
    pieces = len(bucket.kept) - 1
    kept = await read(bucket, 2)
    after = VolumeStore(bucket, TREE, 3)
    await after.claim()
    await after.save(a_record(4))

    assert pieces > 3
    assert kept is not None
    assert kept.pools == a_record(3, 20_000).pools
    assert list(bucket.kept) == [TREE]


async def test_an_end_in_the_middle_of_pieces_leaves_what_was_saved_before() -> None:
    bucket = MoodyBucket()
    store = VolumeStore(bucket, TREE, 1)
    await store.claim()
    await store.save(a_record(1, 20_000))
    bucket.fails_after = 2
    with pytest.raises(BusError):
        await store.save(a_record(2, 20_000))
    bucket.fails_after = None

    kept = await read(bucket, 2)
    assert kept is not None
    assert (kept.version, kept.pools) == (Version(1, 1), a_record(1, 20_000).pools)


async def test_a_piece_that_is_missing_is_told_and_not_left_out() -> None:
    bucket = MoodyBucket()
    store = VolumeStore(bucket, TREE, 1)
    await store.claim()
    await store.save(a_record(1, 20_000))
    await bucket.delete(next(key for key in bucket.kept if key != TREE))

    with pytest.raises(UnreadableVolumes, match="is missing"):
        await read(bucket, 2)
