"""What savings are worth."""

import numpy as np
import pytest

from headrace.resources import ZERO, Resources
from headrace_fair_share.hdrf.arrays import column
from headrace_fair_share.hdrf.integral_shares import ratio_by_volume

TOTAL = Resources(100, 10_000, 0, 1000, 0)


def test_a_minute_of_a_tenth_lasts_for_a_smooth_period_at_a_tenth() -> None:
    volume = column(TOTAL).astype(np.float64) * 6.0

    assert pytest.approx([0.1]) == ratio_by_volume(volume, column(TOTAL), 60.0)


def test_the_resource_with_least_counts() -> None:
    volume = np.array([[600.0], [60_000.0], [0.0], [3_000.0], [0.0]])

    assert ratio_by_volume(volume, column(TOTAL), 60.0).tolist() == [3.0 / 60.0]


def test_in_a_cluster_of_nothing_savings_are_worth_nothing() -> None:
    assert ratio_by_volume(column(TOTAL).astype(np.float64), column(ZERO), 60.0).tolist() == [0.0]
