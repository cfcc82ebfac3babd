"""Settings of the allocator that say what one heartbeat may lead to."""

from __future__ import annotations

from headrace.runtime.settings import load
from headrace_allocator.facts.nodes import Timing
from headrace_allocator.settings import AllocatorSettings
from tests.support.allocating import Desk, an_operation, cores


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


def test_the_time_for_which_a_node_may_be_overcommitted_is_a_setting() -> None:
    assert timing().allowed_overcommit_s == 15
    assert timing(allowed_node_resources_overcommit_duration_ms="2m").allowed_overcommit_s == 120
