"""Settings of the allocator that say what one heartbeat may lead to."""

from __future__ import annotations

import msgspec
import pytest

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.amounts import PartialResources
from headrace.runtime.settings import load
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_allocator.facts.nodes import Timing
from headrace_allocator.settings import AllocatorSettings
from tests.support.allocating import Desk, an_operation, cores
from tests.unit.allocator.test_preemption import FOUR, a_share, report


def timing(**variables: str) -> Timing:
    """The lengths of time under these variables of the environment."""
    named = {f"HEADRACE_ALLOCATOR_{name.upper()}": value for name, value in variables.items()}
    return load(AllocatorSettings, "allocator", None, named).timing(longest_lease_ms=0)


def test_no_more_allocations_start_on_a_heartbeat_than_is_set() -> None:
    assert timing().most_starts is None
    desk = Desk({"n1": cores(8, slots=8)}, most_starts=timing(max_started_allocations_per_heartbeat="3").most_starts)
    desk.start(an_operation("a", 10))
    desk.share(a=1.0)

    assert len(desk.beat("n1")[0].start) == 3


def test_violated_limits_are_repaired_on_a_heartbeat_on_which_no_more_may_start() -> None:
    desk = Desk({"n": cores(8, slots=8)}, most_starts=4)
    desk.start(an_operation("rich", 4))
    desk.tell([a_share("rich", 4)], total=FOUR)
    running = [report(start, number) for number, start in enumerate(desk.beat("n")[0].start)]
    other = an_operation("other")
    other = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, pool=PoolName("q")))
    desk.start(an_operation("rich", 4), other)
    limited = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(cpu=200))
    desk.tell([limited, a_share("rich", 2), a_share("other", 6, demand=10, starves=True)], total=FOUR)
    desk.now_s += 6
    orders = desk.beat("n", allocations=running)[0]

    assert [start.operation for start in orders.start] == ["other"] * 4
    assert [one.allocation for one in orders.take_back] == [running[3].id, running[2].id]
    assert {one.preemption and one.preemption.reason for one in orders.take_back} == {
        PreemptionReason.RESOURCE_LIMITS_VIOLATED
    }


def test_the_time_for_which_a_node_may_be_overcommitted_is_a_setting() -> None:
    assert timing().allowed_overcommit_s == 15
    assert timing(allowed_node_resources_overcommit_duration_ms="2m").allowed_overcommit_s == 120


def test_the_heartbeats_per_second_are_a_setting_and_at_least_one() -> None:
    assert timing().heartbeats_per_s == 2_000
    assert timing(heartbeats_per_s="8000").heartbeats_per_s == 8_000


@pytest.mark.parametrize("name", ["heartbeats_per_s", "shortest_pace_ms", "node_heartbeat_timeout_ms"])
def test_a_rate_or_a_time_of_heartbeats_that_is_zero_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=rf"Expected `int` >= 1 - at `\$.{name}`"):
        timing(**{name: "0"})
