"""Nodes are reserved for a gang in its turn: for which gangs, how many, for how long, and what people are told."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from headrace.ids import AllocationId, OperationId
from headrace.pools.pool_config import PreemptionSwitch
from headrace.wire.operations import OperationState
from headrace_allocator.gangs.gang import GangPhase
from tests.support.allocating import cores
from tests.support.streams import LARGE, StreamFleet

pytestmark = pytest.mark.long

OTHER = OperationId("another-gang")


def a_stream(*, length_s: float = 6.0, starves_s: int = 2, nodes: int = 3, **options: Any) -> StreamFleet:
    """A stream of jobs of one core has all nodes."""
    usual = {"fair_share_starvation_timeout": starves_s * 1000, "preemption": PreemptionSwitch.OFF}
    fleet = StreamFleet(Random(5), (length_s / 2, length_s), nodes=nodes, **{**usual, **options})
    fleet.stream(200)
    for _ in range(10):
        fleet.second()
    return fleet


def with_gang(fleet: StreamFleet, jobs: int = 2, size: float = 2, pool: str = "whole") -> StreamFleet:
    fleet.work(LARGE, pool, jobs, cores(size), started_at_ms=2, is_gang=True)
    return fleet


def seconds_until_it_runs(fleet: StreamFleet, most: int, gang: OperationId = LARGE) -> int | None:
    for second in range(most):
        fleet.second()
        if phase_of(fleet, gang) is GangPhase.RUNNING:
            return second
    return None


def until_reserved(fleet: StreamFleet, nodes: int) -> StreamFleet:
    for _ in range(30):
        fleet.second()
        if len(fleet.reserved_nodes()) == nodes:
            return fleet
    raise AssertionError(f"{len(fleet.reserved_nodes())} nodes are reserved")


def phase_of(fleet: StreamFleet, gang: OperationId = LARGE) -> GangPhase:
    state = fleet.operation(gang).gang
    assert state is not None
    return state.phase


@pytest.mark.parametrize("starves_s", [2, 100])
@pytest.mark.parametrize(("jobs", "size"), [(2, 2), (2, 4), (4, 1)])
def test_a_gang_starts_beside_a_stream_of_smaller_jobs_whether_it_starves_or_not(
    starves_s: int, jobs: int, size: float
) -> None:
    fleet = with_gang(a_stream(starves_s=starves_s, nodes=4), jobs, size)

    assert seconds_until_it_runs(fleet, 25) is not None
    assert not fleet.reserved_nodes()


def test_without_reservations_it_does_not_start() -> None:
    assert seconds_until_it_runs(with_gang(a_stream(node_reservation_time=0, nodes=4), 2, 4), 60) is None


def test_several_of_its_jobs_may_get_one_node() -> None:
    fleet = with_gang(a_stream(nodes=1, starves_s=100), 2, 2)

    assert seconds_until_it_runs(fleet, 25) is not None


def test_each_job_without_resources_has_one_node_at_most() -> None:
    fleet = with_gang(a_stream(length_s=30.0))
    most = 0
    while phase_of(fleet) is not GangPhase.RUNNING:
        fleet.second()
        reserved = len(fleet.reserved_nodes())
        assert reserved <= fleet.operation(LARGE).slots.ready_count
        most = max(most, reserved)

    assert most == 2


def test_the_node_that_got_a_job_is_let_go_and_the_others_stay_reserved() -> None:
    fleet = until_reserved(with_gang(a_stream(length_s=30.0)), 2)
    nodes = {node.record.node for node in fleet.reserved_nodes()}
    gang = fleet.operation(LARGE).gang
    assert gang is not None
    while not gang.holds:
        fleet.second()
    (held,) = gang.holds

    assert {node.record.node for node in fleet.reserved_nodes()} == nodes - {held.node}


def test_a_job_that_gets_a_node_that_is_not_reserved_lets_a_reserved_node_go() -> None:
    fleet = until_reserved(with_gang(a_stream(length_s=2_000.0)), 2)
    (node,) = [node for node in fleet.facts.nodes.values() if node.reserved is None]

    fleet.engine.gangs.hold(AllocationId("held"), fleet.operation(LARGE), node, cores(2), fleet.now)
    fleet.engine.gangs.settle(fleet.now)

    assert len(fleet.reserved_nodes()) == 1


def test_no_node_is_reserved_once_another_gang_has_its_turn() -> None:
    for seconds in range(12):
        fleet = with_gang(a_stream(length_s=2_000.0))
        fleet.work(OTHER, "small", 2, cores(1), started_at_ms=3, is_gang=True)
        for _ in range(seconds):
            fleet.second()
        if fleet.reserved_nodes():
            return
        fleet.engine.gangs.gather(fleet.operation(OTHER), fleet.now)
        for _ in range(5):
            fleet.pass_time(1.0)
            for host in fleet.nodes:
                fleet.hear(host)
        assert fleet.facts.gangs.check() == []
        assert not fleet.reserved_nodes()
    raise AssertionError("no node was reserved in time")


def test_no_node_is_reserved_for_a_gang_that_is_owed_a_part_of_its_jobs() -> None:
    fleet = with_gang(a_stream(), jobs=6, size=2, pool="whole")
    for _ in range(60):
        fleet.second()
        assert not fleet.reserved_nodes()


def test_of_two_gangs_nodes_are_reserved_for_one_at_a_time() -> None:
    fleet = with_gang(a_stream(length_s=30.0))
    fleet.work(OTHER, "whole", 2, cores(1), started_at_ms=3, is_gang=True)
    ran = set()
    for _ in range(50):
        fleet.second()
        ran |= {name for name in (LARGE, OTHER) if phase_of(fleet, name) is GangPhase.RUNNING}
        now = {node.reserved.operation for node in fleet.reserved_nodes() if node.reserved is not None}
        assert len(now) <= 1

    assert ran == {LARGE, OTHER}


def test_a_gang_that_does_not_starve_lets_its_nodes_go_when_its_turn_is_over() -> None:
    fleet = until_reserved(with_gang(a_stream(length_s=2_000.0, starves_s=100)), 2)
    for _ in range(31):
        fleet.second()

    assert phase_of(fleet) is GangPhase.PAUSED
    assert not fleet.reserved_nodes()


def test_the_turn_of_a_starving_gang_lasts_as_long_as_its_reservations() -> None:
    fleet = until_reserved(with_gang(a_stream(length_s=2_000.0, node_reservation_time=60_000)), 2)
    for _ in range(50):
        fleet.second()

    assert phase_of(fleet) is GangPhase.GATHERING
    assert len(fleet.reserved_nodes()) == 2
    for _ in range(15):
        fleet.second()
    assert phase_of(fleet) is GangPhase.PAUSED
    assert not fleet.reserved_nodes()


def test_a_node_that_takes_no_jobs_any_more_is_replaced() -> None:
    fleet = until_reserved(with_gang(a_stream(length_s=2_000.0)), 2)
    lost = fleet.reserved_nodes()[0]

    record = msgspec.structs.replace(lost.record, drained=True)
    fleet.engine.on_nodes({record.node: record}, fleet.now)
    fleet.second()
    until_reserved(fleet, 2)

    assert lost.reserved is None
    assert fleet.facts.reservations.check() == []


def test_a_gang_that_ends_lets_its_nodes_go() -> None:
    fleet = until_reserved(with_gang(a_stream(length_s=2_000.0)), 2)

    fleet.live[LARGE] = msgspec.structs.replace(fleet.live[LARGE], state=OperationState.ABORTING)
    fleet.engine.on_operations(fleet.live.values(), fleet.now)
    fleet.second()

    assert not fleet.reserved_nodes()
    assert fleet.facts.gangs.check() == fleet.facts.reservations.check() == []


def test_people_see_which_nodes_are_reserved_and_no_reason_that_is_not_so() -> None:
    fleet = until_reserved(with_gang(a_stream(length_s=2_000.0)), 2)
    names = ", ".join(sorted(node.record.node for node in fleet.reserved_nodes()))

    told = fleet.reasons(LARGE)

    assert told[0].startswith(f"a gang of 2 jobs: 2 nodes ({names}) are reserved for it for 3")
    assert told[0].endswith(" s; they start when all have resources")
    assert not [words for words in told if "go first" in words or "no resources are held" in words]
