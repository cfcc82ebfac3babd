"""The largest messages of fair_share and integral: 20,000 pools with long names, options of hundreds of kilobytes, days of history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import (
    IntegralGuarantees,
    IntegralType,
    PartialResources,
    Person,
    Pool,
    PoolConfig,
    Tree,
    TreeOptions,
    write_tree,
)
from headrace.resources import Resources
from headrace.runtime.engine import Moment
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, decode
from headrace.wire.history import MOST_POINTS, GetHistory, HistorySample, PoolHistory
from headrace.wire.integral import Advance, Advanced, GetVolumes, PoolFlow, PoolVolume, Volume, parts_of
from headrace.wire.pool_changes import ChangePools, Create, PoolPlan, SetOptions
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.refusals import BadRequest
from headrace.wire.snapshot_parts import SnapshotPublisher
from headrace.wire.snapshots import (
    DetailedShare,
    ElementKind,
    MovedShare,
    ShareFrame,
    ShareItem,
    SharePart,
    StarvationStatus,
    UsageFrame,
    WholeRequest,
)
from headrace.wire.trees import TreeList
from headrace.wire.version import NEVER, Version
from headrace.wire.what_if import SupposedNodes, WhatIf
from headrace_fair_share.configuration.change_decisions import Change, StoredTree
from headrace_fair_share.configuration.differences import fitting
from headrace_fair_share.configuration.other_trees import OtherTrees
from headrace_fair_share.configuration.rules import TreeBounds
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.history.downsampling import Downsampler
from headrace_fair_share.history.sampling import HistoryOptions, SampleInput, Sampler
from headrace_fair_share.starvation.clocks import Age, Ages
from headrace_fair_share.starvation.saved_clocks import ClockStore
from headrace_fair_share.update.results import PoolResults
from headrace_fair_share.update.updater import FailedUpdate, Updater
from headrace_fair_share.view import pool_list
from headrace_fair_share.what_if.comparison import compared
from headrace_fair_share.what_if.supposing import Supposed
from headrace_integral.engine import IntegralEngine
from headrace_integral.store import VolumeStore
from tests.support.clocks import HandClock
from tests.support.fair_share import updated
from tests.support.largest.names import TREE, a_pool, an_operation
from tests.support.moody_bucket import MoodyBucket
from tests.support.tree_services import live

__all__ = ["advances", "clocks", "configurations", "histories", "pools", "shares", "what_ifs"]

POOLS = 20_000
ANYBODY = Person("anna", administrator=True)
NOW = Moment(2**60, 2**50)
TOTAL = Resources(*[2**60] * 5)
THIRD = (1 / 3,) * 5


def a_name(number: int) -> PoolName:
    """As long as the rules of configurations allow."""
    return PoolName(f"pool-{number:05}-".ljust(100, "p"))


def shares() -> Iterator[msgspec.Struct]:
    """Parts of shares of 20,000 pools and 60,000 operations that come and go, with as many complaints as an update tells of."""
    guaranteed = PoolConfig(strong_guarantee_resources=PartialResources(cpu=10))
    unused: dict[str, str] = {f"user-{number:04}": a_name(number) for number in range(1_000)}
    options = TreeOptions(user_to_default_pool=unused)
    engine = an_engine(Tree(TREE, [Pool(a_name(number), ROOT_POOL, guaranteed) for number in range(900)], options))
    engine.on_update_due(NOW)
    (compute,) = engine.on_advance_answer(None, NOW).effects
    frame = Updater().update(compute.cut, afresh=True).frame  # type: ignore[union-attr]
    assert frame.complaints
    assert len(frame.errors) >= 20
    widest = ShareItem(
        ElementKind.POOL,
        "",
        a_name(0),
        DetailedShare(THIRD, THIRD, THIRD, THIRD),
        *(THIRD, THIRD, THIRD, THIRD, THIRD, THIRD),
        starvation_status=StarvationStatus.AGGRESSIVELY_STARVING,
        below_fair_share_since_ms=2**50,
        starving_since_ms=2**50,
        fifo_index=2**30,
        effective_fifo_index=2**30,
    )
    items = [msgspec.structs.replace(widest, name=a_name(number)) for number in range(POOLS)]
    publisher: SnapshotPublisher[ShareItem, ShareFrame] = SnapshotPublisher(
        SharePart, TREE, 2**40, ShareFrame(), key=lambda item: item.key, moved=MovedShare.between
    )
    parts = publisher.advance(frame, items)
    others = DetailedShare(THIRD, THIRD, (*THIRD[:4], 1 / 7), (*THIRD[1:], 1 / 7))
    changed = {"fair_share": others, "satisfaction_ratio": 1 / 3, "local_satisfaction_ratio": 1 / 7}
    parts += publisher.advance(frame, [msgspec.structs.replace(item, **changed) for item in items])
    parts.append(publisher.page(WholeRequest()))
    parts += publisher.advance(frame, [], [item.key for item in items])
    failed = engine.on_update_failed(FailedUpdate(ValueError("x" * 10**6), None, 2**50), NOW)
    parts += publisher.advance(failed.effects[-1].frame, [])  # type: ignore[union-attr]
    yield from (decode(part, SharePart) for part in parts)


def an_engine(tree: Tree) -> FairShareEngine:
    engine = FairShareEngine(tree.tree, 2**40, EngineOptions())
    engine.on_stored_tree(StoredTree(1, tree), NOW)
    return engine


def pools() -> Iterator[msgspec.Struct]:
    """All pages of 20,000 pools, thirty levels deep, one with settings as large as they may be, and of 60,000 operations in it."""
    engine = an_engine(Tree(TREE))
    words = {"metering_tags": {"x" * 30_000: "y" * 30_000}, "abc": {"id": 1}}
    larger = words | {"metering_tags": {"x": "y" * 70_000}}
    refused = change(engine, Create(a_name(0), ROOT_POOL, msgspec.json.encode(larger)))
    assert isinstance(refused, BadRequest), refused
    yield refused
    plan = change(engine, Create(a_name(0), ROOT_POOL, msgspec.json.encode(words)))
    assert isinstance(plan, Change), plan
    settings = plan.tree.pools[0].settings
    made = [Pool(a_name(0), ROOT_POOL, settings)]
    made += [Pool(a_name(n), a_name(n - 1) if n % 30 else ROOT_POOL, PoolConfig()) for n in range(1, POOLS)]
    engine = an_engine(Tree(TREE, made))
    item = ShareItem(ElementKind.OPERATION, "", a_name(0), DetailedShare(THIRD, THIRD, THIRD, THIRD), THIRD, THIRD)
    for number in range(60_000):
        one = msgspec.structs.replace(item, name=an_operation(number))
        engine.items[one.key] = one
    for first in (0, 1, 2, 51, POOLS - 200):
        page = pool_list(engine, GetPools(operations=True, first=first), NEVER)
        assert isinstance(page, PoolList)
        assert page.pools
        yield page


def change(engine: FairShareEngine, *changes: Any) -> Any:
    """The refusal, plan or change that a request of an administrator comes to."""
    return engine.configuration.decide(ChangePools(list(changes), TREE), {}, ANYBODY, TOTAL)


def what_ifs() -> Iterator[msgspec.Struct]:
    """What half the nodes would come to for 2,500 pools with an operation in each, with a plan of 1,500 more pools."""
    engine, updater = an_engine(Tree(TREE, [Pool(a_name(number), ROOT_POOL) for number in range(2_500)])), Updater()
    engine.on_operations([live(an_operation(number), a_name(number), 10**6) for number in range(2_500)], NOW)
    total = Resources(user_slots=10_000, cpu=10**6, memory=2**50)
    engine.on_usage(UsageChange(Version(1, 1), UsageFrame(total, complete=True), [], whole=True), NOW)
    updated(engine, updater, NOW)
    new = [Create(a_name(5_000 + number), ROOT_POOL, b'{"weight": 2}') for number in range(1_500)]
    asked = WhatIf(TREE, list(new), [], [SupposedNodes(-1, Resources(user_slots=5_000, cpu=10**6 // 2, memory=2**49))])
    supposed = engine.on_what_if(asked, ANYBODY, NOW).answer
    assert isinstance(supposed, Supposed), supposed
    answer = compared(supposed)
    assert answer.left_out
    yield answer


def configurations() -> Iterator[msgspec.Struct]:
    """Plans of thousands of pools and of all options, thousands of broken rules, and a list of trees with many options."""
    engine = an_engine(Tree(TREE))
    deep = [Create(a_name(n), a_name(n - 1) if n % 30 else ROOT_POOL, b'{"weight": 2}') for n in range(1_500)]
    wrong = [Create(a_name(n), ROOT_POOL, b'{"weight": -1, "max_operation_count": -1}') for n in range(1_500)]
    large = {"user_to_default_pool": {f"user-{n:04}": a_name(n) for n in range(1_500)}}
    options = SetOptions(msgspec.json.encode(large))
    made = change(engine, *deep, options)
    assert isinstance(made, Change), made
    yield fitting(made.plan, LARGEST_MESSAGE_BYTES)
    yield change(engine, *wrong)
    dry = engine.configuration.decide(ChangePools([*wrong, *deep], TREE, dry_run=True), {}, ANYBODY, TOTAL)
    assert isinstance(dry, PoolPlan)
    yield fitting(dry, LARGEST_MESSAGE_BYTES)
    before = an_engine(made.tree)
    other = {"user_to_default_pool": {f"other-{n:04}": a_name(n) for n in range(1_500)}}
    changed = change(before, SetOptions(msgspec.json.encode(other)))
    assert isinstance(changed, Change), changed
    yield fitting(changed.plan, LARGEST_MESSAGE_BYTES)
    yield change(engine, SetOptions(msgspec.json.encode({"metering_tags": {"x": "y" * 300_000}})))
    bucket = MoodyBucket()
    for number in range(8):
        name = TreeName(f"tree-{number:03}".ljust(63, "t"))
        bucket.write(name, write_tree(msgspec.structs.replace(made.tree, tree=name)))
    yield from anyio.run(trees_of, OtherTrees(bucket, TREE, TreeBounds(), HandClock(), not_judged))


async def not_judged(change: Change) -> None:
    """Nothing is changed here."""


async def trees_of(others: OtherTrees) -> list[msgspec.Struct]:
    pages: list[msgspec.Struct] = []
    after, more = "", True
    while more:
        page = await others.list(after=after)
        assert isinstance(page, TreeList)
        pages.append(page)
        after, more = page.trees[-1].tree, page.more
    return pages


def histories() -> Iterator[msgspec.Struct]:
    """A sample of 20,000 integral pools, and an answer with as many points as may be asked for."""
    integral = PoolConfig(integral_guarantees=IntegralGuarantees(IntegralType.BURST))
    tree = Tree(TREE, [Pool(a_name(number), ROOT_POOL, integral) for number in range(POOLS)])
    engine = an_engine(tree)
    results = {pool.name: PoolResults(TOTAL, TOTAL) for pool in tree.pools}
    volumes = {
        pool.name: PoolVolume(pool.name, Volume(1 / 3, 2**60, 1 / 3, 1 / 3, 1 / 3), 1 / 3) for pool in tree.pools
    }
    share = DetailedShare(THIRD, THIRD, THIRD, THIRD)
    items = {
        item.key: item
        for item in (
            ShareItem(ElementKind.POOL, name, ROOT_POOL, share, strong_guarantee_share=THIRD) for name in results
        )
    }
    frame = ShareFrame(usage_version=Version(1, 1), total=TOTAL, at_ms=2**45)
    given = SampleInput(engine.configuration.pools, frame, items, results, volumes, 86_400.0)
    pages = Sampler(TREE, HistoryOptions()).sample(given).pages
    samples = [decode(page, HistorySample) for page in pages]
    yield from samples
    request = GetHistory(a_name(0), 0, 2**46, "memory", MOST_POINTS, TREE)
    gathered = Downsampler(request)
    (first,) = [sample for sample in samples if a_name(0) in sample.pools]
    for number in range(2_000):
        gathered.add(msgspec.structs.replace(first, at_ms=number * 2**35))
    yield PoolHistory(
        a_name(0), TREE, "memory", 0, 2**46, gathered.points, 2**60, 2**60, 2**60, known=False, near=[a_name(0)] * 3
    )


def advances() -> Iterator[msgspec.Struct]:
    """Flows of 20,000 integral pools, their volumes in an answer, in pages and in a bucket."""
    flows = [PoolFlow(a_pool(f"{number:05}"), 1 / 3, 1 / 3, 0.0, "burst", parent=-1) for number in range(POOLS)]
    engine = IntegralEngine(TREE, 2**40)
    advance = Advance(TREE, Version(1, 1), NEVER, 0, TOTAL, flows)
    for part in parts_of(advance):
        yield part
        outcome = engine.on_advance(part, NOW)
        if outcome.answer is not None:
            yield outcome.answer
    (save,) = outcome.effects
    yield engine.on_saved(save.record, NOW).answer
    bucket = MoodyBucket()
    anyio.run(VolumeStore(bucket, TREE, 1).save, engine.record)
    yield from (msgspec.msgpack.decode(entry.value, type=StoredVolumes) for entry in bucket.kept.values())
    first, more = 0, True
    while more:
        page = engine.on_get(GetVolumes(TREE, first), NOW).answer
        assert isinstance(page, Advanced)
        yield page
        first, more = first + len(page.pools), page.more
    assert first == POOLS


class StoredVolumes(msgspec.Struct, frozen=True):
    """What a value of volumes has in common with a piece of them."""

    pools: list[PoolVolume]


def clocks() -> Iterator[msgspec.Struct]:
    """Ages of 20,000 pools and 60,000 operations."""
    bucket = MoodyBucket()
    names: Sequence[str] = [f"/{a_pool(f'{number:05}')}" for number in range(POOLS)]
    names = [*names, *(an_operation(number) for number in range(60_000))]
    ages = [Age(name, 2**50, StarvationStatus.AGGRESSIVELY_STARVING, 2**50) for name in names]
    anyio.run(ClockStore(bucket, TREE, 2**40).save, ages)
    yield from (decode(entry.value, Ages) for entry in bucket.kept.values())
