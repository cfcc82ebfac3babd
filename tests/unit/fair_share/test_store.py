"""Changes of pools and saved clocks over a bucket that does not always do what it should."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from headrace.bus import BusError, Entry, KeyValue, NotConnected, RequestTimeout
from headrace.ids import NodeName, TreeName
from headrace.pools import Person, Tree, TreeOptions
from headrace.resources import ZERO
from headrace.runtime.fenced import KeyFenced
from headrace.wire.nodes import NodeRecord
from headrace.wire.pool_changes import ChangePools, PoolChange, PoolPlan, SetOptions
from headrace.wire.refusals import BadRequest, Busy, NotFound, NotReady, NotRecorded, Refusal, WrongState
from headrace.wire.snapshots import StarvationStatus
from headrace.wire.trees import CreateTree, RemoveTree
from headrace_fair_share.configuration.node_filters import NodeFilters
from headrace_fair_share.configuration.other_trees import OtherTrees
from headrace_fair_share.configuration.rules import TreeBounds
from headrace_fair_share.configuration.store import PoolStore
from headrace_fair_share.configuration.tree_configuration import StoredTree, TreeConfiguration
from headrace_fair_share.starvation.clocks import Age
from headrace_fair_share.starvation.saved_clocks import ClockStore
from tests.support.clocks import HandClock
from tests.support.fair_share import create_pool
from tests.support.moody_bucket import MoodyBucket

TREE = TreeName("default")
WAITED = "changes of pools are made one after the other"
ANYBODY = Person("anybody", administrator=True)


class Office:
    """A configuration and its store, beside all others."""

    def __init__(self) -> None:
        self.bucket = MoodyBucket()
        self.nodes = MoodyBucket()
        self.clock = HandClock()
        self.configuration = TreeConfiguration(TREE)
        judge = NodeFilters(self.bucket, self._nodes).refusal
        self.store = PoolStore(self.bucket, TREE, self.clock, self.configuration.on_stored, judge)
        self.others = OtherTrees(self.bucket, TreeName("own"), TreeBounds(), HandClock(), judge)

    async def _nodes(self) -> KeyValue:
        return self.nodes

    async def create(self, name: str) -> PoolPlan | Refusal:
        return await self.change(create_pool(name))

    async def set_filter(self, node_filter: str | None, *, dry_run: bool = False) -> PoolPlan | Refusal:
        changes: list[PoolChange] = [SetOptions(msgspec.json.encode({"node_filter": node_filter}))]
        return await self.change(ChangePools(changes, dry_run=dry_run))

    async def change(self, request: ChangePools) -> PoolPlan | Refusal:
        return await self.store.change(
            lambda: self.configuration.decide(request, {}, ANYBODY, ZERO),
            lambda change, revision: self.configuration.on_written(change, revision),
        )

    @property
    def known(self) -> list[str]:
        return list(self.configuration.pools.pools)

    @property
    def written(self) -> list[str]:
        tree = msgspec.json.decode(self.bucket.kept[TREE].value, type=Tree)
        return [pool.name for pool in tree.pools]


@pytest.fixture
async def office() -> Office:
    office = Office()
    await office.store.ensure(TreeOptions())
    assert isinstance(await office.create("first"), PoolPlan)
    return office


async def test_a_change_is_known_when_it_is_written(office: Office) -> None:
    answer = await office.create("second")

    assert isinstance(answer, PoolPlan)
    assert answer.revision == office.bucket.sequence == office.configuration.revision
    assert office.known == office.written == ["first", "second"]


async def test_a_change_that_waited_too_long_for_others_is_refused_before_anything_is_done(office: Office) -> None:
    """Of 5,000 pools that were made 100 at once 840 were made though their clients were told that it was not known."""
    answers: list[PoolPlan | Refusal] = []

    async def create(name: str) -> None:
        answers.append(await office.create(name))

    async with anyio.create_task_group() as tasks, office.store._turn:
        tasks.start_soon(create, "second")
        tasks.start_soon(create, "third")
        await anyio.wait_all_tasks_blocked()
        office.clock.now_s += 2.0

    assert answers == [Busy(2, 2_000, WAITED), Busy(1, 2_000, WAITED)]
    assert isinstance(answers[0], Busy)
    assert "nothing was done, try again" in answers[0].text()
    assert office.written == ["first"]
    assert isinstance(await office.create("second"), PoolPlan)


async def test_out_of_reach_a_change_is_refused_and_nothing_changes(office: Office) -> None:
    office.bucket.mood = NotConnected()
    answer = await office.create("second")

    assert isinstance(answer, NotReady)
    assert office.known == office.written == ["first"]


@pytest.mark.parametrize("took_effect", [False, True])
async def test_without_an_answer_nobody_says_that_it_was_done_and_later_the_truth_is_found(
    office: Office, took_effect: bool
) -> None:
    office.bucket.mood, office.bucket.took_effect = RequestTimeout(), took_effect
    answer = await office.create("second")
    known = office.known
    office.bucket.mood = None
    await office.create("third")

    assert isinstance(answer, NotRecorded)
    assert known == ["first"]
    assert office.known == office.written == (["first", "second", "third"] if took_effect else ["first", "third"])


@pytest.mark.parametrize("mood", [None, RequestTimeout()])
async def test_what_the_mirror_tells_while_a_change_is_written_is_taken_behind_it_if_it_is_news(
    office: Office, mood: BusError | None
) -> None:
    read: list[StoredTree] = []
    write, take = office.bucket.write, office.configuration.on_stored

    def told(key: str, value: bytes) -> int:
        revision = write(key, value)
        office.store.on_change(office.bucket.kept, frozenset({key}))
        assert (office.known, read) == (["first"], [])
        return revision

    def on_stored(stored: StoredTree) -> None:
        read.append(stored)
        take(stored)

    office.bucket.write, office.store._on_stored = told, on_stored  # type: ignore[method-assign]
    office.bucket.mood, office.bucket.took_effect = mood, True
    await office.create("second")

    assert office.known == office.written == ["first", "second"]
    assert [stored.revision for stored in read] == ([office.bucket.sequence] if mood else [])


async def test_what_the_mirror_tells_between_two_changes_is_taken_as_well(office: Office) -> None:
    async def change_and_hear() -> None:
        await office.create("second")
        # The other change has its turn from here on, and has not begun.
        tree = msgspec.json.decode(office.bucket.kept[TREE].value, type=Tree)
        office.bucket.write(TREE, msgspec.json.encode(msgspec.structs.replace(tree, pools=tree.pools[:1])))
        office.store.on_change(office.bucket.kept, frozenset({TREE}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(change_and_hear)
        tasks.start_soon(office.set_filter, "((")  # refused, so that it writes nothing

    assert office.known == office.written == ["first"]


async def test_a_change_of_somebody_else_in_between_is_kept(office: Office) -> None:
    theirs = create_pool("theirs")

    def meddle() -> None:
        office.bucket.meddle = lambda: None
        change = office.configuration.decide(theirs, {}, ANYBODY, ZERO)
        assert not isinstance(change, Refusal)
        office.bucket.write(TREE, msgspec.json.encode(change.tree))

    office.bucket.meddle = meddle
    answer = await office.create("ours")

    assert isinstance(answer, PoolPlan)
    assert office.known == office.written == ["first", "theirs", "ours"]


async def test_a_bucket_that_never_stands_still_is_given_up_on(office: Office) -> None:
    def meddle() -> None:
        office.bucket.write(TREE, office.bucket.kept[TREE].value)

    office.bucket.meddle = meddle
    answer = await office.create("ours")

    assert isinstance(answer, WrongState)
    assert "another process" in answer.text()
    assert office.known == ["first"]


async def test_a_key_that_was_deleted_comes_back_with_the_next_change(office: Office) -> None:
    await office.bucket.delete(TREE)

    assert isinstance(await office.create("second"), PoolPlan)
    assert office.written == ["first", "second"]


async def test_writes_that_the_bucket_lost_come_back_with_the_next_change(office: Office) -> None:
    before = office.bucket.kept[TREE], office.bucket.sequence
    await office.create("second")
    office.bucket.kept[TREE], office.bucket.sequence = before

    assert isinstance(await office.create("third"), PoolPlan)
    assert office.known == office.written == ["first", "second", "third"]


async def test_the_mirror_tells_of_all_trees_and_of_newer_values_only(office: Office) -> None:
    stale = Entry(TREE, msgspec.json.encode(Tree(tree=TREE)), 1)
    office.store.on_change({TREE: stale, "gpu": stale}, frozenset({TREE}))

    assert office.store.trees == {"default", "gpu"}
    assert office.known == ["first"]


@pytest.mark.parametrize("took_effect", [False, True])
async def test_of_another_tree_too_nobody_says_that_nothing_was_done_when_that_is_not_known(
    office: Office, took_effect: bool
) -> None:
    others = office.others
    office.bucket.mood, office.bucket.took_effect = BusError("cut off"), took_effect

    assert isinstance(await others.change(create_pool("second"), ANYBODY), NotRecorded)
    assert isinstance(await others.create(CreateTree(TreeName("new")), ANYBODY), NotRecorded)
    assert isinstance(await others.remove(RemoveTree(TREE, recursive=True), ANYBODY), NotRecorded)


async def test_a_tree_that_somebody_removes_meanwhile_is_not_made_again_by_a_change(office: Office) -> None:
    others = office.others
    office.bucket.meddle = lambda: office.bucket.kept.clear()

    assert isinstance(await others.change(create_pool("second"), ANYBODY), NotFound)
    assert office.bucket.kept == {}


async def test_a_filter_that_takes_a_node_of_another_tree_is_refused_and_the_other_way_round(office: Office) -> None:
    office.nodes.write("n1", msgspec.json.encode(NodeRecord(NodeName("n1"), tags=["gpu"])))
    new = CreateTree(TreeName("gpu"), b'{"node_filter": "gpu"}')

    early = await office.others.create(new, ANYBODY)
    assert isinstance(early, BadRequest)
    assert await office.others.create(msgspec.structs.replace(new, dry_run=True), ANYBODY) == early
    assert "n1 (default and gpu)" in early.text()
    assert list(office.bucket.kept) == [TREE]
    assert isinstance(await office.set_filter("!gpu"), PoolPlan)
    assert isinstance(await office.others.create(new, ANYBODY), PoolPlan)
    assert isinstance(await office.set_filter("!cpu"), BadRequest)
    assert isinstance(await office.set_filter("!cpu", dry_run=True), BadRequest)
    assert office.configuration.pools.options.node_filter == "!gpu"
    assert isinstance(await office.others.remove(RemoveTree(TreeName("gpu")), ANYBODY), PoolPlan)
    assert isinstance(await office.set_filter(None), PoolPlan)


async def test_clocks_are_saved_in_pieces_that_fit_a_message_and_what_is_over_is_taken_away() -> None:
    bucket = MoodyBucket()
    store = ClockStore(bucket, TREE, 1)
    pool = "/" + "\U0001f600" * 95
    ages = [Age(f"{pool}{number}", number, StarvationStatus.NON_STARVING) for number in range(1_500)]
    await store.save(ages)
    pieces = sorted(bucket.kept)
    loaded = [age for piece in await ClockStore(bucket, TREE, 1).load() for age in piece.ages]
    await ClockStore(bucket, TREE, 1).save(ages[:1])
    fewer = ClockStore(bucket, TREE, 1)
    await fewer.load()
    await fewer.save(ages[:1])
    left = [age for piece in await ClockStore(bucket, TREE, 1).load() for age in piece.ages]

    assert pieces == ["default.0", "default.1", "default.2"]
    assert loaded == ages
    assert left == ages[:1]


async def test_a_piece_that_cannot_be_read_is_left_out_and_other_trees_are_not_touched() -> None:
    bucket = MoodyBucket()
    await ClockStore(bucket, TREE, 1).save([Age("operation-1", 5, StarvationStatus.STARVING, 2)])
    bucket.write("default.1", b"rubbish")
    other = bucket.write("gpu.0", bucket.kept["default.0"].value)
    store = ClockStore(bucket, TREE, 1)
    loaded = await store.load()
    await store.save([])

    assert [len(piece.ages) for piece in loaded] == [1]
    assert bucket.kept["gpu.0"].revision == other


async def test_who_was_succeeded_saves_no_clocks_any_more() -> None:
    bucket = MoodyBucket()
    ages = [Age("operation-1", 5, StarvationStatus.STARVING, 2)]
    frozen = ClockStore(bucket, TREE, 1)
    await frozen.save(ages)

    successor = ClockStore(bucket, TREE, 2)
    assert [piece.ages for piece in await successor.load()] == [ages]
    with pytest.raises(KeyFenced, match=r"term 2 writes default\.0, and this process has term 1"):
        await frozen.save([])
    await successor.save([])
    with pytest.raises(KeyFenced):
        await ClockStore(bucket, TREE, 1).load()
