"""Ratios and statuses, case by case."""

from __future__ import annotations

import pytest

from headrace.resources import Share
from headrace.wire.snapshots import SchedulingStatus
from headrace_fair_share.satisfaction import INFINITE, local_satisfaction, owed_everything, status_of

BELOW, NORMAL = SchedulingStatus.BELOW_FAIR_SHARE, SchedulingStatus.NORMAL


def cpu(part: float, memory: float = 0.0) -> Share:
    return (0.0, part, 0.0, memory, 0.0)


@pytest.mark.parametrize(
    ("usage", "fair", "demand", "expected"),
    [
        (cpu(0.0), cpu(0.0), cpu(0.5), INFINITE),
        (cpu(0.3), cpu(0.0), cpu(0.5), INFINITE),
        (cpu(0.2), cpu(0.4), cpu(0.5), 0.5),
        (cpu(0.6), cpu(0.4), cpu(0.7), 1.5),
        (cpu(0.2, 0.1), cpu(0.4, 0.0), cpu(0.5, 0.2), INFINITE),
        # More of cpu would not help, so memory counts.
        (cpu(0.1, 0.1), cpu(0.4, 0.4), cpu(0.4, 0.8), 0.25),
        # All that is wanted is owed: the resource with least counts.
        (cpu(0.1, 0.2), cpu(0.4, 0.4), cpu(0.4, 0.4), 0.25),
        (cpu(0.4, 0.0), cpu(0.4, 0.0), cpu(0.4, 0.0), 1.0),
    ],
)
def test_satisfaction_is_usage_over_fair_share_by_what_counts(
    usage: Share, fair: Share, demand: Share, expected: float
) -> None:
    assert local_satisfaction(usage, fair, demand) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("usage", "fair", "demand", "operation", "expected"),
    [
        (cpu(0.39), cpu(0.5), cpu(0.9), True, BELOW),
        (cpu(0.4), cpu(0.5), cpu(0.9), True, NORMAL),
        # An operation that is owed its whole demand has no tolerance, a pool keeps its.
        (cpu(0.39), cpu(0.4), cpu(0.4), True, BELOW),
        (cpu(0.39), cpu(0.4), cpu(0.4), False, NORMAL),
        (cpu(0.4), cpu(0.4), cpu(0.4), True, NORMAL),
        # With two resources that would help it must be short of both.
        (cpu(0.1, 0.39), cpu(0.4, 0.4), cpu(0.9, 0.9), True, NORMAL),
        (cpu(0.1, 0.1), cpu(0.4, 0.4), cpu(0.9, 0.9), True, BELOW),
        (cpu(0.0), cpu(0.0), cpu(0.0), True, NORMAL),
    ],
)
def test_below_its_fair_share_is_who_is_short_of_all_that_would_help(
    usage: Share, fair: Share, demand: Share, operation: bool, expected: SchedulingStatus
) -> None:
    assert status_of(usage, fair, demand, 0.8, operation=operation) is expected


def test_nearly_the_whole_demand_is_the_whole_demand() -> None:
    assert owed_everything(cpu(0.4), cpu(0.40009))
    assert not owed_everything(cpu(0.4), cpu(0.4002))
