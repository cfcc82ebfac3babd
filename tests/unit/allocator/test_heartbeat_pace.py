"""The pace of heartbeats: by the number of nodes, and under load."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from random import Random

import msgspec
import pytest

from headrace.ids import NodeName, OperationId
from headrace.wire.heartbeat import HeartbeatReason, Start
from headrace.wire.ledger import LiveOperation
from headrace_allocator.facts.nodes import LastHeard, NodeCondition, Timing
from headrace_allocator.heartbeat_pace import Pace
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.support.clocks import at
from tests.unit.allocator.test_learning import running

TIMING = Timing()
N = NodeName("n")


def test_without_load_ten_thousand_nodes_come_each_five_seconds() -> None:
    assert [Pace(LastHeard()).ms(nodes, TIMING) for nodes in (1, 2_000, 10_000)] == [1_000, 1_000, 5_000]


def test_while_heartbeats_wait_for_long_nodes_come_later_and_then_sooner_again() -> None:
    pace = Pace(LastHeard())
    for second in range(5):
        pace.on_load(500.0, at(second))
    assert 2_000 < pace.ms(100, TIMING) < 3_000

    for second in range(30):
        pace.on_load(1.0, at(second))
    assert pace.ms(100, TIMING) == 1_000


def test_a_wait_that_is_neither_long_nor_short_changes_nothing() -> None:
    pace = Pace(LastHeard())
    pace.on_load(500.0, at(0))
    before_ms = pace.ms(100, TIMING)
    pace.on_load(100.0, at(1))
    assert before_ms == pace.ms(100, TIMING)


def test_however_long_the_waits_no_node_counts_as_offline_for_a_few_lost_heartbeats() -> None:
    pace = Pace(LastHeard())
    for second in range(100):
        pace.on_load(1_000.0, at(second))
    assert pace.ms(10_000, TIMING) == 15_000


def test_nodes_that_came_at_once_come_evenly_over_the_pace_and_keep_to_their_moments() -> None:
    desk = Desk({f"n{number}": cores(1) for number in range(200)})
    for name in desk.nodes:
        desk.beat(name)

    next_s = {name: desk.now_s + desk.beat(name)[0].next_heartbeat_ms / 1000 for name in desk.nodes}
    soonest_s = desk.now_s + 0.5
    tenths = Counter(int(10 * (due_s - soonest_s)) for due_s in next_s.values())
    assert sorted(tenths) == list(range(10))
    assert max(tenths.values()) < 40

    for name, due_s in sorted(next_s.items(), key=itemgetter(1))[::20]:
        desk.now_s = due_s + 0.030
        assert desk.beat(name)[0].next_heartbeat_ms == pytest.approx(1_000 - 30, abs=1.01)


@pytest.mark.parametrize(("heartbeats_per_s", "ends_per_pace", "most"), [(2_000, 0.4, 1.28), (20, 0.4, 1.09)])
def test_heartbeats_of_ends_come_in_place_of_others_where_the_pace_is_long(
    heartbeats_per_s: int, ends_per_pace: float, most: float
) -> None:
    """Each node tells of an end at once, at any moment: so many heartbeats it has in a pace, and without ends one."""
    desk = Desk({f"n{number}": cores(1) for number in range(50)}, heartbeats_per_s=heartbeats_per_s)
    random, pace_s = Random(1), max(1.0, 50 / heartbeats_per_s)
    due_s = {name: desk.now_s + pace_s * random.random() for name in desk.nodes}
    end_s = {name: desk.now_s + random.expovariate(ends_per_pace / pace_s) for name in desk.nodes}
    until_s, heartbeats = desk.now_s + 40 * pace_s, 0
    while (name := min(due_s, key=lambda one: min(due_s[one], end_s[one]))) and desk.now_s < until_s:
        desk.now_s = min(due_s[name], end_s[name])
        why = HeartbeatReason.PERIOD
        if end_s[name] <= due_s[name]:
            why = HeartbeatReason.JOB_ENDED
            end_s[name] += random.expovariate(ends_per_pace / pace_s)
        due_s[name] = desk.now_s + desk.beat(name, reason=why)[0].next_heartbeat_ms / 1000
        heartbeats += 1

    assert 1.0 <= heartbeats / (40 * len(desk.nodes)) <= most


def test_a_node_whose_heartbeats_come_too_late_to_be_answered_does_not_count_as_offline() -> None:
    desk = Desk({"n": cores(1)})
    desk.beat("n")
    desk.engine.pace.on_late(N, at(150.0))
    desk.engine.pace.on_late(NodeName("unknown"), at(150.0))
    desk.tick(161.0)
    assert desk.node("n").condition is NodeCondition.ONLINE

    desk.tick(211.0)
    assert desk.node("n").condition is NodeCondition.OFFLINE


@pytest.mark.parametrize(("heartbeats_per_s", "is_soon"), [(2_000, True), (1, False)])
def test_a_start_is_shown_soon_only_while_nodes_may_come_each_second(heartbeats_per_s: int, is_soon: bool) -> None:
    desk = Desk({f"n{number}": cores(1) for number in range(2)}, heartbeats_per_s=heartbeats_per_s)
    desk.start(an_operation("operation-1"))
    desk.share(operation_1=1.0)

    orders, _ = desk.beat("n0")

    assert len(orders.start) == 1
    assert (orders.next_heartbeat_ms == 100) is is_soon
    assert is_soon or orders.next_heartbeat_ms >= 1_000


LARGE = an_operation("operation-1")
LARGE = msgspec.structs.replace(LARGE, spec=msgspec.structs.replace(LARGE.spec, argv=["x" * 100_000]))


@pytest.mark.parametrize(
    ("operations", "most_starts"),
    [
        ([an_operation("operation-1")], 2),
        (
            [msgspec.structs.replace(LARGE, operation=OperationId(f"operation-{number}")) for number in range(1, 10)],
            None,
        ),
    ],
    ids=["number", "bytes"],
)
def test_a_node_comes_again_soon_if_more_could_start_than_one_answer_may_hold(
    operations: list[LiveOperation], most_starts: int | None
) -> None:
    """Though starts need not be shown soon: else its room would stand idle for a whole pace after each answer."""
    desk = Desk({f"n{number}": cores(9, slots=9) for number in range(10)}, heartbeats_per_s=1, most_starts=most_starts)
    desk.start(*operations)
    desk.tell([a_share(each.operation, 1 / len(operations)) for each in operations])

    started: list[Start] = []
    soon = []
    while len(started) < 9:
        orders, _ = desk.beat("n0", allocations=[running(start) for start in started])
        started += orders.start
        soon.append(orders.next_heartbeat_ms == 1_000)

    assert len(soon) > 1
    assert soon == [True] * (len(soon) - 1) + [False]


def test_a_node_that_may_start_no_more_and_has_no_job_for_what_is_left_comes_at_its_pace() -> None:
    desk = Desk({f"n{number}": cores(9, slots=9) for number in range(10)}, heartbeats_per_s=1, most_starts=2)
    desk.start(an_operation("operation-1", jobs=2), an_operation("operation-2", size=cores(8)))
    desk.tell([a_share("operation-1", 0.5), a_share("operation-2", 0.5)])

    orders, _ = desk.beat("n0")

    assert len(orders.start) == 2
    assert orders.next_heartbeat_ms >= 5_000
