"""A node is reserved for an operation that starves and fits on none: on which node, for how long, and what others may start there."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from headrace.ids import NodeName, OperationId
from headrace.pools.pool_config import FifoPoolSchedulingOrder, PoolMode, PreemptionSwitch
from headrace.pools.tree_options import PreemptionPolicy, ShareModel, YarnOptions
from headrace.wire.nodes import ListNodes
from headrace.wire.operations import OperationState
from headrace_allocator.decision.nudging import nodes_to_nudge
from headrace_allocator.explain.answers import list_nodes
from headrace_allocator.reserving.expected import expected_wait_s
from headrace_allocator.reserving.node_reservations import MOST_MOVES
from tests.support.allocating import cores
from tests.support.streams import LARGE, STREAM, StreamFleet

pytestmark = pytest.mark.long

#: Seconds until a node is reserved: the time-out, an update, a tick and a round of heartbeats.
_RESERVED_S = 12
SHORT = OperationId("short-jobs")


def a_fleet(size: float = 4, jobs: int = 1, **options: Any) -> StreamFleet:
    """A stream of jobs of half a minute has all nodes when the large job comes."""
    usual = {"fair_share_starvation_timeout": 2_000, "preemption": PreemptionSwitch.OFF}
    fleet = StreamFleet(Random(5), (20.0, 40.0), **{**usual, **options})
    fleet.stream(120)
    fleet.second()
    fleet.second()
    fleet.work(LARGE, "whole", jobs, cores(size), started_at_ms=2)
    return fleet


def reserving(size: float = 4, **options: Any) -> StreamFleet:
    """The same, once a node is reserved."""
    fleet = a_fleet(size, **options)
    for _ in range(_RESERVED_S):
        fleet.second()
        if fleet.reservation is not None:
            return fleet
    raise AssertionError("no node was reserved")


def figures(fleet: StreamFleet) -> dict[str, float]:
    return {figure.name: float(str(figure.value)) for figure in fleet.facts.reservations.figures()}


def test_people_see_which_node_is_reserved_for_what_and_why_the_job_waits() -> None:
    fleet = reserving()
    (node,) = fleet.reserved_nodes()
    name = node.record.node

    views = {view.node: view.reserved for view in list_nodes(fleet.facts, ListNodes(), fleet.now).nodes}
    assert views.pop(name).startswith("for whole-node, whose job is expected to fit in ")
    assert set(views.values()) == {""}
    words = f"node {name} is reserved for it: its job is expected to fit there in "
    assert [told[: len(words)] for told in fleet.reasons(LARGE) if "reserved" in told] == [words]
    assert figures(fleet)["reserved_nodes"] == 1


def test_others_are_told_that_free_resources_are_reserved() -> None:
    fleet = reserving()
    for _ in range(60):
        fleet.second()
        (node,) = fleet.reserved_nodes() or (None,)
        if node is not None and node.free.cpu >= 100:
            break
    said = "1 node has free resources for a job of it, and is reserved for whole-node, whose job does not fit there yet"
    assert f"{said}; a job whose time limit ends before they fit may start (run --time-limit)" in fleet.reasons(STREAM)
    assert node not in nodes_to_nudge(fleet.operation(STREAM), fleet.facts)


@pytest.mark.parametrize(
    ("limits", "is_lent"),
    [
        ({"time_limit_ms": 4_000, "interruption_timeout_ms": 1_000}, True),
        ({"time_limit_ms": 4_000, "interruption_timeout_ms": 1_001}, False),
        ({"time_limit_ms": 1, "interruption_timeout_ms": 1, "is_gang": True}, False),
        ({"interruption_timeout_ms": 0}, False),
    ],
)
def test_a_reserved_node_is_lent_to_jobs_that_end_in_time(limits: dict[str, Any], is_lent: bool) -> None:
    fleet = reserving()
    while not (node := fleet.reserved_nodes()[0]).free.cpu >= 100:
        fleet.second()
    reservation = node.reserved
    assert reservation is not None
    reservation.lent_until_s = node.heard_s + 6.0  # One second is left for the start and the report of the end.
    fleet.work(SHORT, "small", 2, cores(1), **limits)

    assert node.nudged is is_lent
    assert node.is_reserved_for_another(fleet.operation(SHORT), cores(1)) is not is_lent


def test_a_node_whose_jobs_have_no_known_length_is_lent_only_as_long_again_as_they_have_run() -> None:
    fleet = reserving()
    fleet.second()
    reservation = fleet.reservation
    assert reservation is not None

    # The jobs of the stream have run for some seconds, and none has ended yet.
    assert 0 < reservation.lent_until_s - fleet.now_s < 40
    assert reservation.expected_s - fleet.now_s > 3_000


def test_what_fits_beside_the_reserved_job_starts() -> None:
    """A node of four cores is reserved for a job of three: one small job at a time goes on there."""
    fleet = reserving(3)
    (node,) = fleet.reserved_nodes()
    began = {one.id for one in node.allocations.values()}
    most = 0
    while not fleet.operation(LARGE).allocations:
        fleet.second()
        if node.reserved is not None:
            most = max(most, sum(one.id not in began for one in node.allocations.values()))
    assert most <= 1


@pytest.mark.parametrize(
    ("options", "are_reserved"),
    [
        ({}, True),
        ({"node_reservation_time": 0}, False),
        ({"preemption_policy": PreemptionPolicy.YARN, "yarn": YarnOptions(share=ShareModel.NATIVE)}, False),
    ],
)
def test_no_node_is_reserved_in_trees_that_follow_others_to_the_letter(
    options: dict[str, Any], are_reserved: bool
) -> None:
    fleet = StreamFleet(
        Random(5), (20.0, 40.0), mode=PoolMode.FIFO, fifo_pool_scheduling_order=FifoPoolSchedulingOrder.FIFO, **options
    )
    fleet.stream(60, started_at_ms=9)
    fleet.second()
    fleet.work(LARGE, "small", 1, cores(4), started_at_ms=2)
    found = 0
    for _ in range(_RESERVED_S):
        fleet.second()
        found += len(fleet.reserved_nodes())
    assert (found > 0) is are_reserved


def test_no_node_is_reserved_for_a_job_that_its_operation_is_not_owed() -> None:
    """Two pools share one node in halves: a job that needs all of it starts when the node happens to be empty."""
    fleet = StreamFleet(Random(5), (20.0, 40.0), nodes=1, fair_share_starvation_timeout=2_000)
    fleet.stream(60)
    fleet.second()
    fleet.work(LARGE, "small", 1, cores(4), started_at_ms=2)
    for _ in range(_RESERVED_S):
        fleet.second()
        assert not fleet.reserved_nodes()


def test_a_pool_is_owed_a_node_though_each_of_its_operations_is_owed_a_part_of_one() -> None:
    """Ten operations share what their pool is owed: 4 cores of guarantee and half of the other 8, two nodes. They have no third one."""
    fleet = StreamFleet(Random(5), (20.0, 40.0), fair_share_starvation_timeout=2_000, preemption=PreemptionSwitch.OFF)
    fleet.stream(200)
    fleet.second()
    names = [OperationId(f"large-{number}") for number in range(10)]
    for name in names:
        fleet.work(name, "whole", 1, cores(4), started_at_ms=2)
    began: set[OperationId] = set()
    for _ in range(150):
        fleet.second()
        running = {name for name in names if name in fleet.facts.operations and fleet.operation(name).allocations}
        began |= running
        assert len(fleet.reserved_nodes()) + len(running) <= 2
    assert len(began) >= 3


def test_a_node_that_takes_no_jobs_any_more_loses_its_reservation_to_another() -> None:
    fleet = reserving()
    (node,) = fleet.reserved_nodes()
    record = msgspec.structs.replace(node.record, drained=True)
    fleet.engine.on_nodes({record.node: record}, fleet.now)

    fleet.second()
    assert node.reserved is None
    for _ in range(5):
        fleet.second()
    (other,) = fleet.reserved_nodes()
    assert other is not node
    assert figures(fleet)["reservations_ended_released"] == 1


def test_a_node_that_is_removed_loses_its_reservation() -> None:
    fleet = reserving()
    (node,) = fleet.reserved_nodes()
    fleet.facts.remove_node(node)

    assert fleet.reservation is None
    assert fleet.facts.reservations.check() == []


def test_an_operation_that_ends_lets_its_node_go() -> None:
    fleet = reserving()
    fleet.live[LARGE] = msgspec.structs.replace(fleet.live[LARGE], state=OperationState.ABORTING)
    fleet.engine.on_operations(fleet.live.values(), fleet.now)

    fleet.second()
    assert not fleet.reserved_nodes()


def test_after_the_longest_time_nothing_is_reserved_for_a_while() -> None:
    fleet = reserving(node_reservation_time=8_000)
    fleet.lengths_s = (200.0, 200.0)
    lasted = 0
    while fleet.reserved_nodes():
        fleet.second()
        lasted += 1
    assert 7 <= lasted <= 9
    assert figures(fleet)["reservations_ended_timed_out"] == 1
    fleet.second()
    assert not fleet.reserved_nodes()


def test_a_node_that_was_sought_is_not_reserved_once_starts_are_paused() -> None:
    for seconds in range(2, _RESERVED_S):
        fleet = a_fleet()
        for _ in range(seconds):
            fleet.second()
        if fleet.reserved_nodes():
            return
        fleet.facts.starts_paused = True
        # No tick comes before the jobs on the nodes have ended.
        for _ in range(60):
            fleet.pass_time(1.0)
            for host in fleet.nodes:
                fleet.hear(host)
        assert not fleet.reserved_nodes()
    raise AssertionError("no node was reserved in time")


def test_one_operation_has_one_node_at_a_time() -> None:
    fleet = a_fleet(jobs=3)
    for _ in range(60):
        fleet.second()
        assert len(fleet.reserved_nodes()) <= 1
    assert figures(fleet)["reservations_ended_started"] >= 1


def test_a_reservation_moves_to_a_node_that_is_clearly_better_and_only_a_few_times() -> None:
    fleet = reserving()
    (node,) = fleet.reserved_nodes()
    other = next(one for one in fleet.facts.nodes.values() if one is not node)
    reservation = fleet.reservation
    assert reservation is not None
    for allocation in other.allocations.values():
        assert allocation.job is not None
        allocation.job = msgspec.structs.replace(allocation.job, started_boottime_ms=fleet.boottime_ms - 30_000)
    fleet.operation(STREAM).mean_job_ms = 30_000.0
    reservation.expected_s = fleet.now_s + 100.0

    reservation.moves = MOST_MOVES
    fleet.engine.reservations.hear(other, 1_000, fleet.now)
    assert reservation.node is node

    reservation.moves = 0
    other.boottime_ms = fleet.boottime_ms
    fleet.engine.reservations.hear(other, 1_000, fleet.now)
    assert (reservation.node, reservation.moves) == (other, 1)
    assert node.reserved is None


@pytest.mark.parametrize(
    ("mean_s", "limit_s", "ran_s", "expected_s"),
    [
        (30.0, None, 10.0, 20.0),
        (30.0, None, 30.0, 0.0),
        (30.0, None, 50.0, 20.0),
        (float("inf"), None, 10.0, 3_600.0),
        # A second passes from the time limit to the kill.
        (float("inf"), 40, 10.0, 31.0),
        (30.0, 55, 50.0, 6.0),
        (30.0, 55, 60.0, 0.0),
        (30.0, 100, 10.0, 20.0),
    ],
)
def test_a_job_is_expected_to_end_by_the_mean_of_its_operation_and_a_late_one_by_how_late_it_is_up_to_its_time_limit(
    mean_s: float, limit_s: int | None, ran_s: float, expected_s: float
) -> None:
    fleet = a_fleet()
    node = fleet.node("n0")
    stream = fleet.operation(STREAM)
    stream.mean_job_ms = mean_s * 1000
    limit_ms = None if limit_s is None else limit_s * 1000
    stream.spec = msgspec.structs.replace(stream.spec, time_limit_ms=limit_ms, interruption_timeout_ms=1_000)
    began_ms = node.boottime_ms - int(ran_s * 1000)
    for allocation in node.allocations.values():
        assert allocation.job is not None
        allocation.job = msgspec.structs.replace(allocation.job, started_boottime_ms=began_ms)

    assert expected_wait_s(fleet.facts, node, fleet.operation(LARGE), 3_600.0) == expected_s


def test_no_job_is_expected_on_a_node_that_is_too_small_for_it() -> None:
    fleet = a_fleet()
    fleet.work(STREAM, "small", 1, cores(5), started_at_ms=2)

    assert expected_wait_s(fleet.facts, fleet.facts.nodes[NodeName("n0")], fleet.operation(STREAM), 60.0) is None
