"""Checkpoints of admission are written by one term at a time, and whatever is interrupted, a whole one stands."""

from __future__ import annotations

import pytest

from headrace.bus import KeyValue
from headrace.ids import OperationId, PoolName
from headrace.resources import Resources
from headrace.runtime.fenced_writes import KeyFenced
from headrace.wire import operations as wire
from headrace.wire.codec import BadMessage
from headrace.wire.ledger import Attach
from headrace.wire.log import OperationSuspended
from headrace_admission.log.checkpoint import Checkpoint, CheckpointStore, read_page, writer_of_checkpoint
from headrace_admission.state.operation import Operation, OperationRecord
from tests.contract.both_worlds import World, on_both_worlds
from tests.support.clocks import NOW
from tests.unit.admission.desk import TREE, Desk


def a_checkpoint(operations: int, sequence: int, allocator_term: int = 0) -> Checkpoint:
    """The state after so many starts, as of a sequence of the log."""
    desk = Desk({"research": {"max_operation_count": 1_000}}, max_operation_count=1_000)
    for number in range(operations):
        spec = wire.OperationSpec(PoolName("research"), ["true", "x" * 9_000], 1, Resources(user_slots=1, cpu=100))
        answer = desk.engine.on_start(wire.StartOperation(OperationId(f"operation-{number:03}"), spec), "anna", NOW)
        assert isinstance(answer.answer, wire.StartAnswer)
    if allocator_term:
        desk.engine.on_attach(Attach(TREE, allocator_term), NOW)
    desk.state.sequence = sequence
    return Checkpoint(desk.state)


async def claimed(bucket: KeyValue, term: int) -> CheckpointStore:
    """The checkpoint in a bucket, as of a term that has claimed it."""
    store = CheckpointStore(bucket, term)
    await store.claim()
    return store


async def operations_in(store: CheckpointStore) -> list[OperationRecord]:
    """The operations of the checkpoint that stands."""
    operations: list[OperationRecord] = []
    await store.read(lambda page: operations.extend(page.operations))
    return operations


@on_both_worlds
async def test_whoever_was_succeeded_writes_and_removes_nothing_more(world: World) -> None:
    """An admission that was frozen once wrote its old head and deleted the pages of its successor: nothing ever started again."""
    async with world.connect("test") as bus:
        bucket = await bus.key_value("checkpoints")
        frozen = await claimed(bucket, 1)
        assert (await frozen.read(lambda page: None)).sequence == 0
        await frozen.save(a_checkpoint(40, 40))

        successor = await claimed(bucket, 2)
        assert len(await operations_in(successor)) == 40
        with pytest.raises(KeyFenced, match="term 2 writes head, and this process has term 1"):
            await frozen.save(a_checkpoint(30, 30))
        await successor.save(a_checkpoint(50, 50))
        with pytest.raises(KeyFenced):
            await frozen.save(a_checkpoint(30, 31))

        third = await claimed(bucket, 3)
        assert len(await operations_in(third)) == 50
        assert (await third.read(lambda page: None)).sequence == 50
        assert await writer_of_checkpoint(bucket) == 3
        with pytest.raises(KeyFenced):
            await successor.claim()


@on_both_worlds
async def test_pages_that_no_head_names_are_removed_and_those_of_the_head_stay(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await bus.key_value("checkpoints")
        store = await claimed(bucket, 1)
        await store.save(a_checkpoint(80, 80))
        await bucket.put("page.1.99.0.0", b"of a checkpoint that was never finished")
        for sequence in (81, 82, 83):
            await store.save(a_checkpoint(80, sequence))
        pages = {key.rsplit(".", 2)[0] for key in await bucket.entries() if key != "head"}
        assert pages == {"page.1.83", "page.1.99"}

        successor = await claimed(bucket, 2)
        await successor.sweep()
        assert len(await operations_in(successor)) == 80
        assert {key.rsplit(".", 2)[0] for key in await bucket.entries() if key != "head"} == {"page.1.83"}


@on_both_worlds
async def test_the_terms_of_allocators_outlive_their_checkpoint_and_those_behind_it(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await bus.key_value("checkpoints")
        store = await claimed(bucket, 1)
        await store.save(a_checkpoint(1, 1, allocator_term=6))

        for term in (2, 3):
            store = await claimed(bucket, term)
            assert (await store.read(lambda page: None)).allocator_terms == {TREE: 6}


@on_both_worlds
async def test_whoever_was_succeeded_sweeps_no_page_of_its_successor(world: World) -> None:
    """Frozen between its claim and its sweep, an admission would have removed the checkpoint that the log now relies on."""
    async with world.connect("test") as bus:
        bucket = await bus.key_value("checkpoints")
        frozen, successor = await claimed(bucket, 1), await claimed(bucket, 2)
        await successor.save(a_checkpoint(40, 40))

        await frozen.sweep()

        assert len(await operations_in(CheckpointStore(bucket, 3))) == 40


def test_a_checkpoint_is_encoded_page_by_page_and_what_changes_meanwhile_before_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it at once once kept the loop for a quarter of a second at 10,000 operations."""
    checkpoint = a_checkpoint(100, 100)
    encoded: list[str] = []
    to_record = Operation.to_record

    def counted(operation: Operation) -> OperationRecord:
        encoded.append(operation.id)
        return to_record(operation)

    monkeypatch.setattr(Operation, "to_record", counted)
    pages = checkpoint.pages()
    next(pages)
    of_the_first_page = len(encoded)
    checkpoint.state.apply(OperationSuspended(OperationId("operation-099"), suspended=True, at_ms=1))

    assert 0 < of_the_first_page < 50
    assert encoded[of_the_first_page:] == ["operation-099"]
    last = list(pages)[-1]
    assert not read_page(last).operations[-1].suspended
    assert sorted(encoded) == sorted(set(encoded))


@on_both_worlds
async def test_of_a_head_that_cannot_be_read_it_is_said_where_it_stands_and_nothing_is_written(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await bus.key_value("checkpoints")
        await bucket.put("head", b"rubbish")
        with pytest.raises(BadMessage, match="bucket headrace_checkpoint, key head: "):
            await CheckpointStore(bucket, 1).claim()
        assert await writer_of_checkpoint(bucket) == 0
        kept = await bucket.get("head")
        assert kept is not None
        assert kept.value == b"rubbish"


@on_both_worlds
async def test_others_have_their_turn_after_each_page_but_the_last(world: World) -> None:
    async with world.connect("test") as bus:
        bucket = await bus.key_value("checkpoints")
        store = await claimed(bucket, 1)
        written: list[int] = []

        async def note() -> None:
            written.append(len(await bucket.entries()))

        await store.save(a_checkpoint(80, 80), note)

        # Beside them there is the head, which names none of them yet.
        assert written == list(range(2, len(await bucket.entries())))
        assert len(written) > 3
