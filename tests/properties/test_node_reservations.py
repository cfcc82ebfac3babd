"""A job that needs a whole node starts beside a stream of small ones, after a time that the jobs on the node bound.

Without a reservation the free resources of each node go to the stream before enough gather on one.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.pools import PoolMode
from headrace.pools.pool_config import FifoPoolSchedulingOrder, PreemptionSwitch
from headrace_allocator.gangs.gang import GangPhase
from headrace_allocator.reserving.node_reservations import MOST_MOVES
from tests.support.allocating import cores
from tests.support.effort import seeds
from tests.support.streams import LARGE, StreamFleet

pytestmark = pytest.mark.long

#: From the update that finds it starving: a tick, a round of heartbeats, and a heartbeat of the node on which the last job ended.
_BESIDE_S = 6


def a_stream(random: Random, lengths_s: tuple[float, float], most_s: float, **options: Any) -> StreamFleet:
    """The stream has had all nodes for a while, and goes on for so long."""
    fleet = StreamFleet(random, lengths_s, **options)
    fleet.stream(20 + most_s)
    for _ in range(20):
        fleet.second()
    return fleet


@pytest.mark.parametrize("pool", ["whole", "small"])
@pytest.mark.parametrize(("lengths_s", "timeout_s"), [((3.0, 9.0), 6), ((1.0, 3.0), 2)])
def test_a_job_that_needs_a_whole_node_starts_within_its_timeout_and_one_length_of_the_small_ones(
    pool: str, lengths_s: tuple[float, float], timeout_s: int
) -> None:
    bound_s = int(timeout_s + lengths_s[1] + _BESIDE_S)
    options = {"fair_share_starvation_timeout": timeout_s * 1000}
    waited_s = {}
    for reservation_time in (0, 3_600_000):
        fleet = a_stream(Random(3), lengths_s, 1.2 * bound_s, node_reservation_time=reservation_time, **options)
        fleet.work(LARGE, pool, 1, cores(4), started_at_ms=2)
        waited_s[reservation_time] = fleet.seconds_until_it_starts(bound_s)

    assert waited_s[0] is None
    assert waited_s[3_600_000] is not None


def test_the_first_of_a_fifo_pool_does_not_wait_until_it_starves() -> None:
    """Later operations of its pool do not pass it for longer than what runs on one node takes."""
    fleet = StreamFleet(
        Random(3), (5.0, 15.0), mode=PoolMode.FIFO, fifo_pool_scheduling_order=FifoPoolSchedulingOrder.FIFO
    )
    fleet.stream(45, started_at_ms=9)
    for _ in range(20):
        fleet.second()
    fleet.work(LARGE, "small", 1, cores(4), started_at_ms=2)

    assert fleet.seconds_until_it_starts(15 + _BESIDE_S) is not None


@pytest.mark.parametrize("seed", seeds(8, 100))
def test_a_gang_of_large_jobs_starts_after_at_most_one_more_turn_and_one_length_of_the_small_ones(seed: int) -> None:
    random = Random(seed)
    shortest_s = random.choice([1.0, 2.0, 4.0])
    lengths_s = (shortest_s, shortest_s * random.choice([1.5, 3.0, 5.0]))
    timeout_s, jobs, nodes = random.choice([2, 10]), random.randint(2, 4), random.randint(4, 5)
    # Before it starves, one turn may be over too soon.
    most_s = int(timeout_s + 30 + 5 + lengths_s[1] + 3 * _BESIDE_S)
    preemption = random.choice([PreemptionSwitch.ON, PreemptionSwitch.OFF])
    options: dict[str, Any] = {"fair_share_starvation_timeout": timeout_s * 1000, "preemption": preemption}
    if preemption is PreemptionSwitch.ON:
        options["preempt_gangs_whole"] = True
    fleet = a_stream(random, lengths_s, most_s, nodes=nodes, **options)
    size = random.choice([size for size in (2, 3, 4) if 2 * size * jobs <= 4 * nodes])
    fleet.work(LARGE, "whole", jobs, cores(size), started_at_ms=2, is_gang=True)
    gang = fleet.operation(LARGE).gang
    assert gang is not None

    for _ in range(most_s):
        fleet.second()
        if gang.phase is GangPhase.RUNNING:
            break

    assert gang.phase is GangPhase.RUNNING
    assert not fleet.reserved_nodes()
    assert fleet.facts.reservations.check() == fleet.facts.gangs.check() == []


@pytest.mark.parametrize("seed", seeds(8, 300))
def test_always_starts_by_the_end_of_the_jobs_that_ran_on_the_node_when_it_was_chosen(seed: int) -> None:
    """From the moment at which a node is chosen for good the longest job there bounds the wait, and nodes are chosen few times."""
    random = Random(seed)
    shortest_s = random.choice([1.0, 2.0, 4.0])
    lengths_s = (shortest_s, shortest_s * random.choice([1.5, 3.0, 8.0]))
    timeout_s = random.choice([2, 5])
    most_s = int(timeout_s + 2 * lengths_s[1] * (1 + MOST_MOVES) + 20)
    fleet = a_stream(
        random,
        lengths_s,
        most_s,
        nodes=random.randint(2, 4),
        fair_share_starvation_timeout=timeout_s * 1000,
        preemption=random.choice([PreemptionSwitch.ON, PreemptionSwitch.OFF]),
    )
    asked_s = fleet.now_s
    fleet.work(LARGE, random.choice(["whole", "small"]), 1, cores(random.choice([3, 4])), started_at_ms=2)

    waited_s = fleet.seconds_until_it_starts(most_s)

    assert waited_s is not None
    if fleet.chosen:
        _, chosen_s, last_s = fleet.chosen[-1]
        assert fleet.now_s <= max(last_s, chosen_s) + 2.0
        assert fleet.chosen[0][1] <= asked_s + timeout_s + lengths_s[1] + _BESIDE_S
        assert len(fleet.chosen) <= 1 + MOST_MOVES
    assert not fleet.reserved_nodes()
