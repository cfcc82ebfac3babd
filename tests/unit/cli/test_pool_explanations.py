"""The pages of `pool explain`: sentences of every step, who has what is lacking, and two pools side by side."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.client.share_words import bound_words, more_words
from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName, UserName
from headrace.pools.amounts import PartialResources
from headrace.resources import ZERO, Resources
from headrace.wire.plan import BoundKind
from headrace.wire.pool_explanations import Division, Holder, Holders, IntegralGuarantee, PoolExplained, ShareStep
from headrace.wire.version import NEVER
from headrace_cli.commands.pools.explain_page import differences, explanation, side_by_side
from tests.unit.cli.test_render import shown

TWO_CORES = Resources(user_slots=2, cpu=200, memory=2**30)
TEN = Resources(user_slots=100, cpu=1_000, memory=2**34)


def a_step(pool: str = "lab", **changes: Any) -> ShareStep:
    fields: dict[str, Any] = {
        "bound_by": BoundKind.FULL,
        "resource": "cpu",
        "limited_above": PoolName(""),
        "division": Division.WEIGHT,
        "dominant_resource": "cpu",
        "weight": 1.0,
        "usage": ZERO,
        "demand": TEN,
        "fair_resources": TWO_CORES,
        "by_strong_guarantee": ZERO,
        "by_integral_guarantee": ZERO,
        "by_weight": TWO_CORES,
        "guarantee": ZERO,
        "weights": 4.0,
        "sharing": 2,
    }
    return ShareStep(PoolName(pool), **{**fields, **changes})


ROOT = a_step(ROOT_POOL, division=Division.NONE, fair_resources=TEN)


def told(*steps: ShareStep, against: tuple[ShareStep, ...] = (), **holders: Any) -> PoolExplained:
    found = Holders("cpu", **{"wanted": TEN, **holders})
    other = [ROOT, *against] if against else []
    return PoolExplained(TreeName("default"), 60_000, NEVER, TEN, [ROOT, *steps], other, found)


def page(answer: PoolExplained) -> str:
    return "\n".join(line for part in explanation(answer) for line in shown(part, 200))


@pytest.mark.parametrize(
    ("changes", "words", "cure"),
    [
        ({"bound_by": BoundKind.IDLE}, "nothing in it wants to run", ""),
        ({"bound_by": BoundKind.MET}, "its demand is met", ""),
        (
            {"bound_by": BoundKind.LIMIT, "limits": PartialResources(cpu=200)},
            "its limit is cpu 2",
            "`headrace pool set lab resource_limits/cpu=…` with more",
        ),
        (
            {"bound_by": BoundKind.LIMIT, "limits": PartialResources(cpu=200), "limited_by_nodes": True},
            "nodes that match its tag filters have cpu 2",
            "more nodes that match, or another scheduling_tag_filter",
        ),
        (
            {"bound_by": BoundKind.LIMIT, "limited_above": PoolName("team")},
            "by weight, 1 of 4 among 2 elements that want more, and team is at its limit of cpu",
            "weight=…` with more than 1",
        ),
        (
            {"bound_by": BoundKind.LIMIT, "limited_above": PoolName("team"), "division": Division.ALONE},
            "it gets all cpu that the pool above it gets, and team is at its limit of cpu",
            "`headrace pool set team resource_limits/cpu=…` with more",
        ),
        ({"bound_by": BoundKind.BELOW}, "limits of its pools and operations allow no more", "pool tree --operations"),
        ({}, "by weight, 1 of 4 among 2 elements that want more", "`headrace pool set lab weight=…` with more than 1"),
        (
            {"division": Division.GUARANTEES},
            "all cpu of the pool above it goes to guarantees and savings",
            "more weight changes nothing",
        ),
        ({"division": Division.REST}, "it gets all cpu that its siblings leave", "siblings that want less"),
        (
            {"division": Division.ALONE},
            "it gets all cpu that the pool above it gets",
            "fair share of the pool above it",
        ),
        ({"division": Division.NONE}, "all cpu of the cluster is shared out", ""),
        ({"bound_by": BoundKind.SHAPE, "division": Division.NONE}, "fits into what is left", ""),
    ],
)
def test_every_step_has_its_words_and_what_would_give_more(changes: dict[str, Any], words: str, cure: str) -> None:
    step = a_step(**changes)

    assert words in bound_words(step)
    assert cure in more_words(step)
    assert bool(cure) == bool(more_words(step))


def test_a_guarantee_that_is_scaled_and_savings_that_are_used_up_are_told() -> None:
    savings = IntegralGuarantee(flow_ratio=0.1, burst_ratio=0.4, accumulated_ratio_volume=6.0, granted_ratio=0.1)
    step = a_step(configured_guarantee=PartialResources(cpu=500), guarantee=Resources(cpu=300), savings=savings)

    text = page(told(step))

    assert "cpu 5 as configured, 3 in force" in text
    assert "gave 10% of the cluster, at most 40% at full burst; 6 cluster-seconds are saved" in text
    assert "lab is owed cpu 2 (20%) of 10 that it wants: by weight, 1 of 4" in text


def test_whoever_has_what_is_lacking_is_listed_by_pool_operation_and_person() -> None:
    ann = Holder(OperationId("op-of-ann-1"), PoolName("big"), UserName("ann"), TEN, TWO_CORES, started_at_ms=0)
    pool, person = (
        msgspec.structs.replace(ann, operation=OperationId(""), started_at_ms=None, **changes)
        for changes in ({"user": UserName("")}, {"pool": PoolName("")})
    )
    groups: dict[str, Any] = {"pools": [pool], "operations": [ann], "people": [person]}

    text = page(told(a_step(), owed=TWO_CORES, free=Resources(cpu=100), **groups, operation_count=7))

    assert "it lacks cpu 2 that it is owed and does not have; cpu 1 of the cluster is unused" in text
    (row,) = [line for line in text.splitlines() if line.startswith("operations (7)")]
    words = "operations (7) op-of-ann-1 big ann cpu 10, memory 16 GiB cpu 2, memory 1 GiB 1m"
    assert row.split() == words.split()
    assert "preemption_exempt_time" not in text
    groups["pools"] = [msgspec.structs.replace(pool, exempt_time_ms=300_000)]
    assert "once they have run for preemption_exempt_time: big 5m" in page(told(a_step(), owed=TWO_CORES, **groups))


def test_what_is_free_is_told_not_to_be_taken_by_anybody() -> None:
    assert "why jobs do not start there" in page(told(a_step(), owed=TWO_CORES, free=TEN))
    assert "it lacks nothing" in page(told(a_step(), wanted=ZERO))


def test_two_pools_differ_by_guarantee_and_weight_and_by_what_binds_each() -> None:
    one = a_step("poor", weight=0.5)
    other = a_step("rich", by_strong_guarantee=TEN, fair_resources=TEN, bound_by=BoundKind.MET, division=Division.NONE)

    found = differences(told(one, against=(other,)))

    assert found == [
        "poor is owed cpu 2, rich 10",
        "by its guarantee rich has cpu 10, poor 0",
        "the weight of poor is 0.5, the weight of rich is 1",
        "rich: its demand is met",
    ]
    lines = "\n".join(line for part in side_by_side(told(one, against=(other,))) for line in shown(part, 200))
    assert "poor beside rich, in the tree" in lines
    assert "by guarantee" in lines


def test_a_pool_below_the_other_is_told_to_get_a_part_of_it() -> None:
    inner = a_step("inner", division=Division.ALONE)

    found = differences(told(a_step("outer"), inner, against=(a_step("outer"),)))

    assert found == [
        "inner is in outer, and gets a part of that pool's fair share",
        "inner is owed cpu 2 of the 2 of outer: it gets all cpu that the pool above it gets",
    ]
    assert differences(told(a_step())) == []
