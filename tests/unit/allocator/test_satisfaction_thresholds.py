"""The satisfaction up to which somebody is spared: what a record of a preemption says of it, and the older rules of victims."""

from __future__ import annotations

from headrace.wire.snapshots import DetailedShare
from tests.support.taken_back import on_a_full_node, taken_back

NORMAL, AGGRESSIVE = "preemption_satisfaction_threshold", "aggressive_preemption_satisfaction_threshold"


def test_a_record_names_the_threshold_of_the_group_that_was_taken_from() -> None:
    normal = taken_back({NORMAL: 0.75})[0].preemption
    host = on_a_full_node({AGGRESSIVE: 0.25}, owed=4, aggressive=True)
    aggressive = host.next_beat().take_back[0].preemption

    assert normal is not None
    assert aggressive is not None
    assert (normal.threshold, aggressive.threshold) == (0.75, 0.25)


def test_the_older_rules_spare_a_pool_up_to_the_threshold() -> None:
    """The pool has half of what it is owed."""
    owed = DetailedShare(total=(1.0, 2.0, 0.0, 0.0, 0.0))
    changes = {"fair_share": owed, "demand_share": (1.0, 3.0, 0.0, 0.0, 0.0)}
    hosts = [
        on_a_full_node({"victim_rules": "legacy", NORMAL: threshold}, other_pool=True, pool_changes=changes)
        for threshold in (0.75, 0.25)
    ]

    assert [bool(host.next_beat().take_back) for host in hosts] == [False, True]
