"""The satisfaction up to which somebody is spared: what a record of a preemption says of it, and the older rules of victims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.wire.snapshots import DetailedShare
from tests.support.allocating import cores
from tests.support.taken_back import on_a_full_node, taken_back
from tests.unit.allocator.test_preemption import Host

NORMAL, AGGRESSIVE = "preemption_satisfaction_threshold", "aggressive_preemption_satisfaction_threshold"


def test_a_record_names_the_threshold_of_the_group_that_was_taken_from() -> None:
    normal = taken_back({NORMAL: 0.75})[0].preemption
    host = on_a_full_node({AGGRESSIVE: 0.25}, owed=4, aggressive=True)
    aggressive = host.next_beat().take_back[0].preemption

    assert normal is not None
    assert aggressive is not None
    assert (normal.threshold, aggressive.threshold) == (0.75, 0.25)


#: The pool has half of what it is owed.
HALF: dict[str, Any] = {
    "fair_share": DetailedShare(total=(1.0, 2.0, 0.0, 0.0, 0.0)),
    "demand_share": (1.0, 3.0, 0.0, 0.0, 0.0),
}


def below_a_pool_with_half(options: Mapping[str, Any], **given: Any) -> Host:
    """Before the heartbeat on which somebody in another pool starves, under the older rules."""
    return on_a_full_node({"victim_rules": "legacy"} | dict(options), other_pool=True, pool_changes=HALF, **given)


@pytest.mark.parametrize("aggressive", [False, True])
def test_the_older_rules_spare_a_pool_up_to_the_threshold_of_the_stage(aggressive: bool) -> None:
    stage, other = (AGGRESSIVE, NORMAL) if aggressive else (NORMAL, AGGRESSIVE)
    hosts = [
        below_a_pool_with_half({stage: threshold, other: 0.5}, aggressive=aggressive) for threshold in (0.75, 0.25)
    ]

    assert [bool(host.next_beat().take_back) for host in hosts] == [False, True]


def test_the_older_rules_spare_a_pool_that_forbids_aggressive_preemption_up_to_the_normal_threshold() -> None:
    thresholds = {NORMAL: 0.75, AGGRESSIVE: 0.25}
    hosts = [
        below_a_pool_with_half(thresholds, aggressive=True, pool={"allow_aggressive_preemption": allowed})
        for allowed in (True, False)
    ]

    assert [bool(host.next_beat().take_back) for host in hosts] == [True, False]


def test_the_older_rules_judge_a_pool_by_the_cluster_that_its_share_is_part_of() -> None:
    """The node shrank since the snapshot: what the pool has is no larger part of what it was owed for that."""
    host = below_a_pool_with_half({NORMAL: 0.75})
    host.nodes["n"] = cores(2, slots=4)

    assert host.next_beat().take_back == []
