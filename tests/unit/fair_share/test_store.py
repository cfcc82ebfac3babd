"""Changes of pools and saved clocks over a bucket that does not always do what it should."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.lowlevel
import msgspec
import pytest

from headrace.bus import BusError, Entry, KeyValue, NotConnected, RequestTimeout
from headrace.ids import NodeName, TreeName
from headrace.pools import Person, PoolTree, Tree, TreeOptions
from headrace.resources import ZERO
from headrace.runtime.fenced_writes import KeyFenced
from headrace.wire.nodes import NodeRecord
from headrace.wire.pool_changes import ChangePools, PoolChange, PoolPlan, SetOptions
from headrace.wire.refusals import BadRequest, Busy, Exists, NotFound, NotReady, NotRecorded, Refusal, WrongState
from headrace.wire.snapshots import StarvationStatus
from headrace.wire.trees import CreateTree, RemoveTree
from headrace_fair_share.configuration import store
from headrace_fair_share.configuration.change_decisions import Change, StoredTree, TreeConfiguration
from headrace_fair_share.configuration.node_filters import NodeFilters
from headrace_fair_share.configuration.other_trees import OtherTrees
from headrace_fair_share.configuration.rules import TreeBounds
from headrace_fair_share.configuration.store import PoolStore
from headrace_fair_share.starvation.clocks import Age
from headrace_fair_share.starvation.saved_clocks import ClockStore
from tests.support.clocks import HandClock
from tests.support.fair_share import create_pool
from tests.support.moody_bucket import MoodyBucket

TREE = TreeName("default")
WAITED = "changes of pools are decided one after the other"
ANYBODY = Person("anybody", administrator=True)


class Office:
    """A configuration and its store, beside all others."""

    def __init__(self) -> None:
        self.bucket = MoodyBucket()
        self.nodes = MoodyBucket()
        self.clock = HandClock()
        #: Seconds that each decision takes.
        self.deciding_s = 0.0
        self.configuration = TreeConfiguration(TREE)
        judge = NodeFilters(self.bucket, self._nodes).refusal
        configuration = self.configuration
        self.store = PoolStore(self.bucket, TREE, self.clock, configuration.on_stored, configuration.on_written, judge)
        self.others = OtherTrees(self.bucket, TreeName("own"), TreeBounds(), HandClock(), judge)

    async def _nodes(self) -> KeyValue:
        return self.nodes

    async def create(self, name: str) -> PoolPlan | Refusal:
        return await self.change(create_pool(name))

    async def set_filter(self, node_filter: str | None, *, dry_run: bool = False) -> PoolPlan | Refusal:
        changes: list[PoolChange] = [SetOptions(msgspec.json.encode({"node_filter": node_filter}))]
        return await self.change(ChangePools(changes, dry_run=dry_run))

    async def change(self, request: ChangePools) -> PoolPlan | Refusal:
        def decide(base: PoolTree | None) -> Change | PoolPlan | Refusal:
            self.clock.now_s += self.deciding_s
            return self.configuration.decide(request, {}, ANYBODY, ZERO, base=base)

        return await self.store.change(decide, is_first=bool(request.expected_revision))

    async def all_at_once(self, *requests: ChangePools) -> list[PoolPlan | Refusal]:
        """The answers to requests that come while another change is made, in the order of the requests."""
        answers: dict[int, PoolPlan | Refusal] = {}

        async def ask(number: int, request: ChangePools) -> None:
            answers[number] = await self.change(request)

        async with anyio.create_task_group() as tasks, self.store._turn:
            for number, request in enumerate(requests):
                tasks.start_soon(ask, number, request)
            await anyio.wait_all_tasks_blocked()
        return [answers[number] for number in range(len(requests))]

    @property
    def known(self) -> list[str]:
        return list(self.configuration.pools.pools)

    @property
    def written(self) -> list[str]:
        tree = msgspec.json.decode(self.bucket.kept[TREE].value, type=Tree)
        return [pool.name for pool in tree.pools]


def created(plan: PoolPlan) -> list[str]:
    return [pool.name for pool in plan.created]


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


async def test_changes_that_wait_are_written_together_and_each_is_answered(office: Office) -> None:
    writes = office.bucket.sequence
    second, again, below, dry = await office.all_at_once(
        create_pool("second"),
        create_pool("second"),
        create_pool("below", "second"),
        msgspec.structs.replace(create_pool("dry"), dry_run=True),
    )

    assert office.bucket.sequence == writes + 1 == office.configuration.revision
    assert isinstance(second, PoolPlan)
    assert isinstance(below, PoolPlan)
    assert isinstance(dry, PoolPlan)
    assert [(plan.revision, created(plan)) for plan in (second, below, dry)] == [
        (writes + 1, ["second"]),
        (writes + 1, ["below"]),
        (0, ["dry"]),
    ]
    assert isinstance(again, Exists)
    assert office.known == office.written == ["first", "second", "below"]


async def test_changes_that_need_no_write_are_answered_without_one(office: Office) -> None:
    writes = office.bucket.sequence
    answers = await office.all_at_once(create_pool("first"), msgspec.structs.replace(create_pool("x"), dry_run=True))

    assert [type(answer) for answer in answers] == [Exists, PoolPlan]
    assert office.bucket.sequence == writes


async def test_a_change_of_an_expected_revision_waits_for_the_write_before_it(office: Office) -> None:
    revision = office.configuration.revision
    answers = await office.all_at_once(
        create_pool("second"),
        msgspec.structs.replace(create_pool("third"), expected_revision=revision),
        msgspec.structs.replace(create_pool("fourth"), expected_revision=revision + 1),
        create_pool("fifth"),
    )

    assert [answer.revision if isinstance(answer, PoolPlan) else type(answer) for answer in answers] == [
        revision + 1,
        WrongState,
        revision + 2,
        revision + 2,
    ]
    assert office.known == office.written == ["first", "second", "fourth", "fifth"]


async def test_deciding_ends_when_it_has_taken_long_and_the_rest_goes_into_the_next_write(office: Office) -> None:
    office.deciding_s = 0.03
    writes = office.bucket.sequence
    answers = await office.all_at_once(create_pool("second"), create_pool("third"), create_pool("fourth"))

    assert [answer.revision for answer in answers if isinstance(answer, PoolPlan)] == [
        writes + 1,
        writes + 1,
        writes + 2,
    ]


async def test_changes_that_another_process_overtook_are_all_decided_again(office: Office) -> None:
    theirs = office.configuration.decide(create_pool("theirs"), {}, ANYBODY, ZERO)
    assert isinstance(theirs, Change)

    def meddle() -> None:
        office.bucket.meddle = lambda: None
        office.bucket.write(TREE, msgspec.json.encode(theirs.tree))

    office.bucket.meddle = meddle
    answers = await office.all_at_once(create_pool("second"), create_pool("theirs"), create_pool("third"))

    assert [type(answer) for answer in answers] == [PoolPlan, Exists, PoolPlan]
    assert office.known == office.written == ["first", "theirs", "second", "third"]


@pytest.mark.parametrize(("mood", "answer"), [(NotConnected(), NotReady), (RequestTimeout(), NotRecorded)])
async def test_changes_that_were_not_written_all_learn_it_and_what_depends_on_them_is_decided_again(
    office: Office, mood: BusError, answer: type[Refusal]
) -> None:
    def fail_once() -> None:
        office.bucket.mood, office.bucket.meddle = mood, lambda: setattr(office.bucket, "mood", None)

    office.bucket.meddle = fail_once
    answers = await office.all_at_once(create_pool("second"), create_pool("second"), create_pool("third"))

    assert [type(each) for each in answers] == [answer, PoolPlan, answer]
    assert office.known == office.written == ["first", "second"]


async def test_a_request_that_is_cancelled_while_it_waits_changes_nothing(office: Office) -> None:
    async with anyio.create_task_group() as tasks, office.store._turn:
        with anyio.CancelScope() as gone:
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(office.create, "second")
                tasks.start_soon(office.create, "third")
                await anyio.wait_all_tasks_blocked()
                gone.cancel()

    assert office.known == office.written == ["first", "third"]


async def test_a_request_that_is_cancelled_during_the_write_takes_no_other_with_it(office: Office) -> None:
    update, answers = office.bucket.update, list[PoolPlan | Refusal]()
    gone = anyio.CancelScope()

    async def slowly(key: str, value: bytes, revision: int) -> int:
        gone.cancel()
        await anyio.lowlevel.checkpoint()
        return await update(key, value, revision)

    async def leave() -> None:
        with gone:
            await office.create("second")
            await anyio.lowlevel.checkpoint()
            pytest.fail("not cancelled")

    async def stay() -> None:
        answers.append(await office.create("third"))

    office.bucket.update = slowly  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave)
        tasks.start_soon(stay)

    assert [type(answer) for answer in answers] == [PoolPlan]
    assert office.known == office.written == ["first", "second", "third"]


async def test_a_decision_that_fails_fails_for_its_own_request_only(office: Office) -> None:
    failed = []

    def fail(_base: PoolTree | None) -> PoolPlan:
        raise ZeroDivisionError

    async def broken() -> None:
        with pytest.raises(ZeroDivisionError):
            await office.store.change(fail)
        failed.append(office.known)

    async with anyio.create_task_group() as tasks:
        for work in (partial(office.create, "second"), broken, partial(office.create, "third")):
            tasks.start_soon(work)

    assert failed == [["first", "second"]]
    assert office.known == office.written == ["first", "second", "third"]


async def test_only_the_change_that_makes_the_tree_too_large_is_refused(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LARGEST_TREE_BYTES", len(office.bucket.kept[TREE].value) + 100)
    answers = await office.all_at_once(create_pool("second"), create_pool("l" * 60), create_pool("third"))

    assert [type(answer) for answer in answers] == [PoolPlan, BadRequest, PoolPlan]
    assert office.known == office.written == ["first", "second", "third"]


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

    revision = office.bucket.sequence + 2
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(change_and_hear)
        tasks.start_soon(office.change, msgspec.structs.replace(create_pool("third"), expected_revision=revision))

    assert office.known == office.written == ["first", "third"]


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

    answers = await office.all_at_once(create_pool("third"), create_pool("fourth"))
    assert [type(answer) for answer in answers] == [PoolPlan, PoolPlan]
    assert office.known == office.written == ["first", "second", "third", "fourth"]


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
