"""Two teams on 2,000 cores, one of which needs them all for half the day: a day in simulated time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.ids import PoolName
from headrace.pools import Pool
from headrace.resources import Resources
from headrace.wire.snapshots import ShareComplaint
from tests.support.effort import few_or_many
from tests.support.integral_day import (
    BUSY_FROM_S,
    BUSY_UNTIL_S,
    CLUSTER_CORES,
    END_S,
    HOUR_S,
    PRODUCTION,
    RESEARCH,
    TOTAL,
    Sample,
    integral_pools,
    strong_pools,
    two_days,
)
from tests.support.simulated_tree import SimulatedTree

#: Of updates; the fixture runs once in each worker.
PERIOD_S = few_or_many(1_800, 10)
#: Tolerance of figures.
PERCENT = 0.01
pytestmark = [pytest.mark.both, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def days() -> list[Sample]:
    return two_days(PERIOD_S)


def cores(samples: Iterable[Sample], pool: PoolName) -> list[float]:
    return [sample.pools[pool].fair_share for sample in samples]


def average(samples: Iterable[Sample], pool: PoolName) -> float:
    """What the pool had on average: a share holds until the next update."""
    figures = cores(samples, pool)
    return sum(figures) / len(figures)


def between(days: list[Sample], begin_s: int, end_s: int) -> list[Sample]:
    return [sample for sample in days if begin_s <= sample.at_s < end_s]


def test_production_gets_the_whole_cluster_with_the_update_at_which_it_asks(days: list[Sample]) -> None:
    before, at = (sample for sample in days if sample.at_s in (BUSY_FROM_S - PERIOD_S, BUSY_FROM_S))

    assert before.pools[PRODUCTION].fair_share == 0.0
    assert at.pools[PRODUCTION].fair_share == pytest.approx(CLUSTER_CORES, rel=PERCENT)
    assert at.pools[PRODUCTION].integral_part == at.pools[PRODUCTION].fair_share


def test_production_keeps_the_whole_cluster_for_its_twelve_hours(days: list[Sample]) -> None:
    busy = between(days, BUSY_FROM_S, BUSY_UNTIL_S)

    assert len(busy) == 12 * HOUR_S // PERIOD_S
    assert min(cores(busy, PRODUCTION)) >= CLUSTER_CORES * (1 - PERCENT)


def test_research_gets_a_thousand_cores_on_average_over_the_day(days: list[Sample]) -> None:
    day = between(days, END_S // 2, END_S)

    assert average(day, RESEARCH) == pytest.approx(1_000, rel=PERCENT)
    assert average(day, PRODUCTION) == pytest.approx(1_000, rel=PERCENT)


def test_a_day_of_saving_fills_productions_savings_and_a_working_day_takes_half_of_them(days: list[Sample]) -> None:
    """What flows in for 24 hours is what 2,000 cores take for 12, and half of that comes in meanwhile."""
    saved = {sample.at_s: sample.pools[PRODUCTION].volume for sample in days}

    assert saved[24 * HOUR_S] == pytest.approx(1_000 * 24 * HOUR_S, rel=PERCENT)
    assert saved[BUSY_UNTIL_S] == pytest.approx(1_000 * 12 * HOUR_S, rel=PERCENT)


def complaints(pools: list[Pool], total: Resources = TOTAL) -> list[ShareComplaint]:
    return SimulatedTree(total, pools).update(0).frame.complaints


def test_the_same_under_strong_guarantees_is_told_to_be_more_than_there_is() -> None:
    (complaint, *_) = told = complaints(strong_pools())

    assert complaint.kind.startswith("overcommit")
    assert {pool for each in told for pool in each.pools} == {PRODUCTION, RESEARCH}
    assert "3000 of cpu" in complaint.text
    assert "2000" in complaint.text


def test_as_integral_guarantees_it_just_fits() -> None:
    one_core_less = Resources(user_slots=CLUSTER_CORES, cpu=TOTAL.cpu - 100)

    assert complaints(integral_pools()) == []
    assert {each.kind.split("_")[0] for each in complaints(integral_pools(), one_core_less)} == {"overcommit"}
