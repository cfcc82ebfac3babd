"""Guarantees are had where jobs are nearly as large as they are, without operations that take the same place in turn."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import Pool, PoolConfig, TreeOptions
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.new_tree import NEW_TREE_OPTIONS
from headrace.resources import Resources
from tests.support.allocating import an_operation
from tests.support.preempting import Fleet

pytestmark = pytest.mark.long

_NEW = {
    "min_share_preemption_timeout": 30_000,
    "preempt_at_bound_for_owed_jobs": NEW_TREE_OPTIONS["preempt_at_bound_for_owed_jobs"],
    "node_reservation_time": 3_600_000,
}


def amount(resource: str, units: float) -> Resources:
    return Resources(**{"user_slots": 1, resource: int(units * 100)})


class Course:
    """Pools with as many jobs as they like, which end only when they are told to."""

    def __init__(
        self, resource: str, job: float, guarantees: Mapping[str, float], *, nodes: int, seconds: int, **options: Any
    ) -> None:
        strong = {
            name: PartialResources(**{resource: int(units * 100)}) if units else NOTHING
            for name, units in guarantees.items()
        }
        pools = [
            Pool(PoolName(name), ROOT_POOL, PoolConfig(strong_guarantee_resources=of)) for name, of in strong.items()
        ]
        hosts = {f"n{number}": msgspec.structs.replace(amount(resource, 4), user_slots=16) for number in range(nodes)}
        spare = PartialResources(user_slots=1)
        rules = TreeOptions(
            min_spare_allocation_resources_on_node=spare, use_pool_satisfaction_for_scheduling=True,
            main_resource=resource, **options,
        )  # fmt: skip
        fleet = Fleet(Random(1), hosts, pools, rules)
        fleet.saves_s = 0.0
        for name in guarantees:
            live = an_operation(f"of-{name}", 4, amount(resource, job))
            spec = msgspec.structs.replace(live.spec, pool=PoolName(name))
            fleet.begin(msgspec.structs.replace(live, spec=spec), 6_000.0)
            fleet.update_shares()
        for _ in range(seconds):
            fleet.pass_time(1.0)
            fleet.engine.on_tick(fleet.now)
            for host in hosts:
                fleet.hear(host)
        operations = fleet.facts.operations
        self.jobs = {name: len(operations[OperationId(f"of-{name}")].allocations) for name in guarantees}
        #: Indexes of the jobs of the first pool that were never taken.
        first = f"of-{next(iter(guarantees))}"
        self.of_the_oldest = [index for index in range(4) if (first, index) not in fleet.preempted]
        self.preempted = sum(fleet.preempted.values())
        self.figures = {one.name: one.value for one in fleet.engine.unmet_guarantees.figures()}


THREE = {"a": 4, "b": 4, "c": 4}


@pytest.mark.parametrize("resource", ["cpu", "memory", "gpu"])
def test_three_pools_with_equal_guarantees_have_a_job_each_where_each_job_is_three_quarters_of_one(
    resource: str,
) -> None:
    """Within the time-out, and with no more lost than that takes."""
    course = Course(resource, 3, THREE, nodes=3, seconds=45, **_NEW)

    assert course.jobs == {"a": 1, "b": 1, "c": 1}
    assert course.preempted == 2


def test_what_ends_exactly_at_a_share_stays() -> None:
    """Jobs of two cores: each pool is owed exactly two of them, and only those beyond go."""
    course = Course("cpu", 2, THREE, nodes=3, seconds=60, **_NEW)

    assert course.jobs == {"a": 2, "b": 2, "c": 2}
    assert course.of_the_oldest == [0, 1]


def test_by_the_published_rules_one_of_them_has_nothing_for_ever() -> None:
    assert Course("cpu", 3, THREE, nodes=3, seconds=45).jobs == {"a": 2, "b": 1, "c": 0}


def test_a_guarantee_that_stays_unmet_is_an_alarm() -> None:
    course = Course("cpu", 3, THREE, nodes=3, seconds=200, min_share_preemption_timeout=30_000)

    assert course.figures == {"unmet_guarantees": 1, "unmet_guarantees_found": 1}


def test_a_guarantee_of_which_less_than_a_job_is_missing_is_no_alarm() -> None:
    course = Course("cpu", 3, THREE, nodes=3, seconds=200, **_NEW)

    assert course.figures == {"unmet_guarantees": 0, "unmet_guarantees_found": 0}


def test_a_pool_has_all_of_its_guarantee_where_it_lacks_less_than_the_tolerance() -> None:
    """By the published rules nobody starves who has eight tenths of it."""
    both = {"rich": 0, "poor": 5}
    options = dict(_NEW, fair_share_starvation_tolerance=0.1)
    assert Course("cpu", 1, both, nodes=2, seconds=45, **options).jobs["poor"] == 4


@pytest.mark.parametrize("pools", [2, 3])
def test_jobs_larger_than_any_share_do_not_take_the_same_place_in_turn(pools: int) -> None:
    """Each is owed less than a job: whoever has one keeps it to its end."""
    course = Course("cpu", 3, {f"p{number}": 0 for number in range(pools)}, nodes=pools - 1, seconds=200, **_NEW)

    assert sum(course.jobs.values()) == pools - 1
    assert course.preempted <= pools - 2
