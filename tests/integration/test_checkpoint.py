"""Checkpoints of admission are written by one term at a time, and whatever is interrupted, a whole one stands."""

from __future__ import annotations

import pytest

from headrace.ids import OperationId, PoolName
from headrace.resources import Resources
from headrace.runtime.fenced import KeyFenced
from headrace.wire import operations as wire
from headrace_admission.log.checkpoint import Checkpoint, CheckpointStore, cut, writer_of_checkpoint
from tests.contract.both_worlds import World, on_both_worlds
from tests.support.clocks import NOW
from tests.unit.admission.desk import Desk


def a_checkpoint(operations: int, sequence: int) -> Checkpoint:
    """The state after so many starts, as of a sequence of the log."""
    desk = Desk({"research": {"max_operation_count": 1_000}}, max_operation_count=1_000)
    for number in range(operations):
        spec = wire.OperationSpec(PoolName("research"), ["true", "x" * 9_000], 1, Resources(user_slots=1, cpu=100))
        answer = desk.engine.on_start(wire.StartOperation(OperationId(f"operation-{number:03}"), spec), "anna", NOW)
        assert isinstance(answer.answer, wire.StartAnswer)
    return Checkpoint(sequence, cut(desk.state).pages)


@on_both_worlds
async def test_whoever_was_succeeded_writes_and_removes_nothing_more(world: World) -> None:
    """An admission that was frozen once wrote its old head and deleted the pages of its successor: nothing ever started again."""
    async with world.connect("test") as bus:
        bucket = await bus.key_value("checkpoints")
        frozen = CheckpointStore(bucket, 1)
        assert (await frozen.claim()).sequence == 0
        await frozen.save(a_checkpoint(40, 40))

        successor = CheckpointStore(bucket, 2)
        assert len((await successor.claim()).operations) == 40
        with pytest.raises(KeyFenced, match="term 2 writes head, ours is 1"):
            await frozen.save(a_checkpoint(30, 30))
        await successor.save(a_checkpoint(50, 50))
        with pytest.raises(KeyFenced):
            await frozen.save(a_checkpoint(30, 31))

        restored = await CheckpointStore(bucket, 3).claim()
        assert (len(restored.operations), restored.sequence) == (50, 50)
        assert await writer_of_checkpoint(bucket) == 3
        with pytest.raises(KeyFenced):
            await successor.claim()


@on_both_worlds
async def test_pages_that_no_head_names_are_removed_and_those_of_the_head_stay(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await bus.key_value("checkpoints")
        store = CheckpointStore(bucket, 1)
        await store.claim()
        await store.save(a_checkpoint(80, 80))
        await bucket.put("page.1.99.0.0", b"of a checkpoint that was never finished")
        for sequence in (81, 82, 83):
            await store.save(a_checkpoint(80, sequence))
        pages = {key.rsplit(".", 2)[0] for key in await bucket.entries() if key != "head"}
        assert pages == {"page.1.83", "page.1.99"}

        restored = await CheckpointStore(bucket, 2).claim()
        assert len(restored.operations) == 80
        assert {key.rsplit(".", 2)[0] for key in await bucket.entries() if key != "head"} == {"page.1.83"}
