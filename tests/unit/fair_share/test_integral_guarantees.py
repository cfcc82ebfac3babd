"""Formulas of the fields, with figures worked out by hand; more of them stand in the conformance cases."""

from __future__ import annotations

import pytest

from headrace.resources import ZERO, Resources
from headrace.wire.integral import Volume
from headrace_fair_share.integral_guarantees import (
    accumulated_resource_volume,
    distribution,
    estimated_burst_usage_duration_seconds,
    integral_pool_capacity,
    resources_of_ratio,
    specified_ratio,
)

#: 1000 cores, 4000 bytes.
TOTAL = Resources(cpu=100_000, memory=4_000)


def test_people_read_cores() -> None:
    assert accumulated_resource_volume(Volume(1.5, 250, 0.0, 7.0, 0.0)) == {
        "user_slots": 1.5,
        "cpu": 2.5,
        "gpu": 0.0,
        "memory": 7.0,
        "network": 0.0,
    }
    assert integral_pool_capacity(TOTAL, 0.1, 60.0)["cpu"] == 6_000.0
    assert resources_of_ratio(TOTAL, 0.5) == {"user_slots": 0, "cpu": 500.0, "gpu": 0, "memory": 2_000.0, "network": 0}


def test_a_guarantee_counts_by_its_largest_ratio() -> None:
    assert specified_ratio(Resources(cpu=10_000, memory=800), TOTAL) == 0.2


def test_a_cluster_of_nothing_has_ratios_of_nothing() -> None:
    assert specified_ratio(TOTAL, ZERO) == 0.0


@pytest.mark.parametrize("burst", [0.05, 0.1, 0.1 + 1e-12])
def test_savings_last_for_ever_where_the_burst_is_not_above_the_flow(burst: float) -> None:
    assert estimated_burst_usage_duration_seconds(60.0, burst, 0.1) is None


def test_more_promised_than_there_is_leaves_less_than_nothing() -> None:
    told = distribution(TOTAL, [Resources(cpu=60_000), Resources(cpu=30_000)], 0.2, 0.1)

    assert told.distributed_strong_guarantee_resources["cpu"] == 900.0
    assert told.distributed_resources["cpu"] == 1_100.0
    assert told.undistributed_resources["cpu"] == pytest.approx(-100.0)
    assert (told.undistributed_resource_flow["cpu"], told.undistributed_burst_guarantee_resources["cpu"]) == (0, 100.0)
