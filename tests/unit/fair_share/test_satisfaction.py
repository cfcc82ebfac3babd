"""Ratios and statuses, case by case."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.resources import Share
from headrace.satisfaction import INFINITE_SATISFACTION as INFINITE
from headrace.satisfaction import local_satisfaction
from headrace_fair_share.hdrf.arrays import Floats
from headrace_fair_share.starvation.rules import (
    below_fair_share,
    local_satisfaction_ratios,
    owed_everything,
    satisfaction_ratios,
)

BELOW, NORMAL = True, False
SHARES = st.tuples(*[st.sampled_from([0.0, 1e-12, 0.1, 0.25, 0.3, 0.30005, 1.0, 1.5])] * 5)


def column(*shares: Share) -> Floats:
    """Shares of elements side by side."""
    return np.array(shares).T


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
    (ratio,) = local_satisfaction_ratios(column(usage), column(fair), column(demand))

    assert ratio == pytest.approx(expected)


@given(st.lists(st.tuples(SHARES, SHARES, SHARES), min_size=1, max_size=5))
def test_many_at_once_are_as_satisfied_as_each_by_itself(elements: list[tuple[Share, Share, Share]]) -> None:
    ratios = local_satisfaction_ratios(*(column(*shares) for shares in zip(*elements, strict=True)))

    assert ratios.tolist() == [local_satisfaction(*each) for each in elements]


def test_a_pool_is_as_satisfied_as_the_least_satisfied_operation_below_it() -> None:
    # The root, a with b in it, an empty c; operations in b, b, a.
    parent = np.array([-1, 0, 1, 0, 2, 2, 1])
    local = np.array([9.0, 8.0, 7.0, 6.0, 0.5, 0.25, 0.75])

    assert satisfaction_ratios(local, parent, 4).tolist() == [0.25, 0.25, 0.25, INFINITE, 0.5, 0.25, 0.75]


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
    usage: Share, fair: Share, demand: Share, operation: bool, expected: bool
) -> None:
    (below,) = below_fair_share(column(usage), column(fair), column(demand), 0.8, np.array([operation]))

    assert below == expected


def test_the_last_bit_of_a_fair_share_leaves_nobody_below_it() -> None:
    one_bit_more = float(np.nextafter(0.5, 1))

    (below,) = below_fair_share(column(cpu(0.5)), column(cpu(one_bit_more)), column(cpu(0.8)), 1.0, np.array([False]))

    assert not below


def test_nearly_the_whole_demand_is_the_whole_demand() -> None:
    owed = owed_everything(column(cpu(0.4), cpu(0.4)), column(cpu(0.40009), cpu(0.4002)))

    assert owed.tolist() == [True, False]
