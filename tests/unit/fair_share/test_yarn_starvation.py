"""Starvation under YARN's policies, in the engine of fair share: when it is told, what it survives, and when nobody is due anything."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import OperationId
from headrace.pools.tree_options import MinShareSpread
from headrace.resources import Resources
from headrace.wire.snapshots import PreemptionPriority, ShareItem, StarvationReason, StarvationStatus, UsageFrame
from headrace.wire.version import Version
from headrace.yarn_comparison import ComparedChild, QueuePolicy, serving_key
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.starvation.clocks import Ages
from headrace_fair_share.yarn.shortage import Applicant, Due, LeafQueue, Rules, ShareTimes, examine, part_of
from tests.support.clocks import at
from tests.support.small_trees import TOTAL, TREE, SmallTree, Work


def memory(mebibytes: int) -> Resources:
    return Resources(memory=mebibytes * 2**20)


def amount(mebibytes: int, cores: int) -> Resources:
    return Resources(cpu=cores * 100, memory=mebibytes * 2**20)


YARN: dict[str, Any] = {
    "preemption_policy": "yarn",
    "yarn/enabled": True,
    "fair_share_starvation_timeout": "5s",
    "fair_share_starvation_tolerance": 0.5,
}
#: Only what lacks its minimum starves.
NEVER = {
    "fair_share_starvation_timeout": "10000d",
    "fair_share_aggressive_starvation_timeout": "10000d",
    "min_share_preemption_timeout": "1s",
    "main_resource": "user_slots",
}
WORK = [Work("hungry", "a", 100, running=10), Work("rich", "b", 200, running=90)]
POOLS: dict[str, Any] = {"a": {}, "b": {}}


def item(tree: SmallTree, key: str) -> ShareItem:
    return tree.engine.items[key]


def test_an_operation_claims_what_it_lacks_of_its_part_once_the_timeout_is_over() -> None:
    tree = SmallTree(POOLS, WORK, YARN)
    tree.update()
    tree.update(4.9)
    assert item(tree, "hungry").due_to_fair_share is None
    assert item(tree, "hungry").starvation_status is StarvationStatus.NON_STARVING

    tree.update(0.1)

    hungry = item(tree, "hungry")
    assert (hungry.due_to_fair_share, hungry.claims) == (Resources(user_slots=90, cpu=1500), True)
    assert hungry.starvation_reason is StarvationReason.FAIR_SHARE
    assert item(tree, "/a").due_to_fair_share == hungry.due_to_fair_share
    assert (item(tree, "/a").claims, item(tree, "/<Root>").due_to_fair_share) == (False, None)
    assert hungry.preemption_priority is PreemptionPriority.NONE, "no stage of the tree's own rules takes for it"


@pytest.mark.parametrize(
    "closed",
    [{"yarn/enabled": False}, {"yarn/cluster_utilization_threshold": 1}, {"fair_share_starvation_timeout": "10000d"}],
    ids=lambda options: next(iter(options)),
)
def test_nobody_is_due_anything_while_nothing_is_taken_back(closed: dict[str, Any]) -> None:
    aggressive = {"fair_share_aggressive_starvation_timeout": "10000d"}
    tree = SmallTree(POOLS, WORK, YARN | aggressive | closed)
    for _ in range(5):
        tree.update(10.0)

    assert not any(each.claims or each.due_to_fair_share for each in tree.engine.items.values())


def test_the_older_engine_claims_for_pools_up_to_the_whole_share() -> None:
    tree = SmallTree(POOLS, WORK, YARN | {"preemption_policy": "yarn_legacy"})
    for _ in range(3):
        tree.update(3.0)

    pool = item(tree, "/a")
    assert pool.due_to_fair_share is not None
    assert (pool.due_to_fair_share.cpu, pool.claims) == (4000, True)
    assert not item(tree, "hungry").claims


def test_how_long_somebody_was_short_survives_a_restart() -> None:
    tree = SmallTree(POOLS, WORK, YARN)
    tree.update()
    tree.update(4.0)
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(Ages(tree.engine.ages())), type=Ages)

    again = SmallTree(POOLS, WORK, YARN)
    again.engine.on_leading(2, [saved], at(0))
    again.update()
    again.update(0.9)
    assert not item(again, "hungry").claims
    again.update(0.1)
    assert item(again, "hungry").claims


def test_who_has_what_it_is_owed_begins_anew() -> None:
    tree = SmallTree(POOLS, WORK, YARN)
    tree.update()
    for running, hungry in ((10, False), (60, False), (10, False)):
        tree.work[0] = msgspec.structs.replace(WORK[0], running=running)
        tree.update(4.0)
        assert item(tree, "hungry").claims is hungry
    tree.update(5.0)
    assert item(tree, "hungry").claims


def test_an_operation_that_preemption_has_seen_to_claims_nothing_until_the_pause_is_over() -> None:
    tree = SmallTree(POOLS, WORK, YARN)
    for _ in range(3):
        tree.update(3.0)
    before = item(tree, "hungry").due_to_fair_share
    usage = [msgspec.structs.replace(each, times_seen_to=int(each.operation == "hungry")) for each in tree._usage()]

    tree._usage = lambda: usage  # type: ignore[method-assign]
    for after_s, claims in ((0.5, False), (28.4, False), (0.1, True)):
        tree.update(after_s)
        assert (item(tree, "hungry").due_to_fair_share, item(tree, "hungry").claims) == (before, claims)


def test_times_of_another_term_of_the_allocator_count_anew() -> None:
    engine = FairShareEngine(TREE, 1, EngineOptions())
    (usage, _) = SmallTree(POOLS, WORK, YARN)._usage()
    for term, times, noted in ((1, 0, False), (1, 1, True), (2, 1, True)):
        engine._seen_to._at_ms.clear()
        told = [msgspec.structs.replace(usage, times_seen_to=times)]
        engine.on_usage(UsageChange(Version(term, 1), UsageFrame(TOTAL, True), told), at(0))
        assert (OperationId("hungry") in engine._seen_to.at_ms) is noted


# --- what no vector tells ---------------------------------------------------------------------------------------------


def applicant(name: str, usage: int, demand: int, *, share: int = 0, began: int = 0) -> Applicant:
    return Applicant(name, ComparedChild(name, memory(usage), memory(demand), memory(0), 1.0, began), memory(share))


def test_the_clock_of_whoever_is_content_begins_anew() -> None:
    clocks, dues = ShareTimes({"x": 0}, {"/q": 0}), dict[str, Due]()
    for now_ms, usage, claims in ((0, 5, False), (6_000, 10, False), (9_000, 5, False), (11_000, 5, True)):
        queue = LeafQueue("/q", QueuePolicy.FAIR, memory(usage), memory(20), memory(10), memory(0), 1.0, 5_000.0)
        queue = queue._replace(applicants=[applicant("x", usage, 20, share=10)])
        examine(queue, clocks, dues, now_ms, Rules(memory(100)))
        assert dues["x"].claims is claims


def test_what_is_due_to_the_fair_share_is_no_part_of_the_demand_that_a_minimum_is_spread_over() -> None:
    clocks, dues = ShareTimes({}, {}), dict[str, Due]()
    queue = LeafQueue("/q", QueuePolicy.FAIR, memory(0), memory(9), memory(4), memory(9), 1.0, 0.0, 0.0)
    queue = queue._replace(applicants=[applicant("x", 0, 5, share=3), applicant("y", 0, 4, began=1)])

    examine(queue, clocks, dues, 0, Rules(memory(100)))

    assert (dues["x"], dues["y"]) == (Due(memory(3), memory(2), True), Due(memory(0), memory(4), True))


@pytest.mark.parametrize("policy", QueuePolicy)
@pytest.mark.parametrize(
    ("spread", "due"), [(MinShareSpread.YARN, amount(5_000, 2)), (MinShareSpread.INTENDED, amount(0, 3))]
)
def test_a_queue_that_lacks_cores_alone_of_its_minimum_spreads_them(
    policy: QueuePolicy, spread: MinShareSpread, due: Resources
) -> None:
    dues: dict[str, Due] = {}
    app = Applicant("x", ComparedChild("x", amount(1_000, 1), amount(6_000, 6), memory(0), 1.0), amount(1_000, 0))
    queue = LeafQueue("/q", policy, amount(1_000, 1), amount(6_000, 6), amount(1_000, 0), amount(1_000, 4))
    queue = queue._replace(min_timeout_ms=0.0, applicants=[app])

    examine(queue, ShareTimes({}, {}), dues, 5_000, Rules(amount(10_000, 10), spread))

    assert dues["x"] == Due(memory(0), due, claims=True)


def test_slots_of_a_guarantee_are_no_minimum_under_yarn() -> None:
    tree = SmallTree({"a": {"strong_guarantee_resources": {"user_slots": 50}}, "b": {}}, WORK, YARN | NEVER)
    for _ in range(3):
        tree.update(3.0)

    assert (item(tree, "hungry").due_to_min_share, item(tree, "hungry").claims) == (None, False)


@pytest.mark.parametrize(
    ("threshold", "cores", "mebibytes"),
    # Of 10 cores and 10,240 MiB, by Java's `(long) (10 * 0.7f)`.
    [
        (0.7, 6, 7_167),
        (0.9, 8, 9_215),
        (0.35, 3, 3_583),
        (0.5, 5, 5_120),
        (0.3, 3, 3_072),
        (0.8, 8, 8_192),
        (1, 10, 10_240),
    ],
)
def test_a_part_of_a_share_is_taken_in_32_bits(threshold: float, cores: int, mebibytes: int) -> None:
    assert part_of(amount(10_240, 10), threshold) == amount(mebibytes, cores)


def test_siblings_are_ordered_by_weights_of_32_bits() -> None:
    light = ComparedChild("light", memory(10), memory(20), memory(0), 0.1)
    heavy = ComparedChild("heavy", memory(100), memory(200), memory(0), 1.0)

    for policy in (QueuePolicy.FAIR, QueuePolicy.DRF):
        assert sorted([heavy, light], key=serving_key(policy, memory(1_000))) == [light, heavy]


def test_whoever_is_below_its_minimum_is_served_before_whoever_has_less() -> None:
    needy = ComparedChild("needy", memory(30), memory(100), memory(40), 0.01)
    other = ComparedChild("other", memory(1), memory(100), memory(0), 1.0)

    assert sorted([other, needy], key=serving_key(QueuePolicy.FAIR, memory(1000))) == [needy, other]
