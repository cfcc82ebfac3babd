"""The pace of heartbeats: by the number of nodes, and under load."""

from __future__ import annotations

import heapq
from collections import Counter
from operator import itemgetter
from random import Random

import msgspec
import pytest

from headrace.ids import NodeName, OperationId
from headrace.wire.heartbeat import HeartbeatReason, Start
from headrace.wire.ledger import LiveOperation
from headrace_agent.heartbeat_timing import Pulse
from headrace_allocator.facts.nodes import LastHeard, NodeCondition, Timing
from headrace_allocator.heartbeat_pace import Pace
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.support.clocks import at
from tests.unit.allocator.test_learning import running

TIMING = Timing()
N = NodeName("n")
NS_PER_S = 1_000_000_000


def test_without_load_ten_thousand_nodes_come_each_five_seconds() -> None:
    assert [Pace(LastHeard()).ms(nodes, TIMING) for nodes in (1, 2_000, 10_000)] == [1_000, 1_000, 5_000]


@pytest.mark.parametrize(
    ("nodes", "pace_ms"), [(29_999, 15_000), (30_000, 15_000), (30_001, 15_000), (100_000, 15_000), (300_000, 15_000)]
)
def test_however_many_nodes_there_are_the_pace_is_at_most_a_quarter_of_the_timeout(nodes: int, pace_ms: int) -> None:
    pace = Pace(LastHeard())
    assert pace.ms(nodes, TIMING) == pace_ms
    for second in range(100):
        pace.on_load(1_000.0, at(second))
    assert pace.ms(nodes, TIMING) == pace_ms
    assert pace.ms(nodes, Timing(node_heartbeat_timeout_s=300.0)) <= 75_000
    assert pace.ms(nodes, Timing(shortest_pace_ms=40_000)) == 15_000
    assert pace.ms(nodes, Timing(node_heartbeat_timeout_s=0.001)) == 1


@pytest.mark.parametrize("nodes", [15, 50, 150])
def test_a_node_that_loses_two_heartbeats_in_a_row_stays_online_in_a_fleet_of_any_size(nodes: int) -> None:
    """With one heartbeat a second for these nodes, the pace is that of 30,000, 100,000 and 300,000 nodes and 2,000 heartbeats a second.

    Of each three heartbeats of a node two are lost, at the worst of all moments and with the longest pauses of its agent.
    """
    desk = Desk({f"n{number}": cores(1) for number in range(nodes)}, heartbeats_per_s=1)
    pulses = {name: Pulse() for name in desk.nodes}
    for name, pulse in pulses.items():
        pulse.open()
        desk.beat(name)
    due = [(desk.now_s, name, 0) for name in desk.nodes]
    tick_s, until_s, offline = desk.now_s, desk.now_s + 600.0, 0
    heapq.heapify(due)
    while due[0][0] < until_s:
        desk.now_s, name, lost = heapq.heappop(due)
        while tick_s < desk.now_s:
            desk.tick(tick_s)
            offline += sum(node.condition is not NodeCondition.ONLINE for node in desk.facts.nodes.values())
            tick_s += 1.0
        pulse, now_ns = pulses[name], desk.now.steady_ns
        reason = pulse.begin_heartbeat(now_ns)
        assert reason is not None
        if lost < 2:
            pulse.lost(0.999, now_ns + 2 * NS_PER_S, stopping=False)
        else:
            # A heartbeat that an event causes may come as late as two paces after the answer before.
            orders = desk.beat(name, reason=HeartbeatReason.JOB_ENDED)[0]
            pulse.answered(orders.next_heartbeat_ms, now_ns + 2 * NS_PER_S)
        next_ns = pulse.next_ns()
        assert next_ns is not None
        heapq.heappush(due, (next_ns / NS_PER_S, name, (lost + 1) % 3))

    assert offline == 0


def test_more_heartbeats_than_the_rate_raise_an_alarm_once_and_are_a_trouble_until_the_pace_may_be_long_enough() -> (
    None
):
    pace, timing = Pace(LastHeard()), Timing(heartbeats_per_s=2_000)
    assert pace.on_tick(30_000, timing) == []
    assert pace.on_tick(30_001, timing) != []
    assert pace.on_tick(100_000, timing) == []
    assert {figure.name: figure.value for figure in pace.figures()}["heartbeats_above_rate"] == 4_667
    assert pace.trouble == (
        "100,000 nodes send 6,667 heartbeats per second, more than heartbeats_per_s = 2,000, because node_heartbeat_timeout_ms = 60000"
        " allows 15,000 ms between two heartbeats of a node: set heartbeats_per_s to 6667 if this allocator has time for them, or"
        " node_heartbeat_timeout_ms to 200000"
    )

    # Each of the two settings that the text names ends the trouble.
    for settled in (Timing(heartbeats_per_s=6_667), Timing(node_heartbeat_timeout_s=200.0)):
        assert pace.on_tick(100_000, settled) == []
        assert pace.trouble == ""
        assert len(pace.on_tick(100_000, timing)) == 1


@pytest.mark.parametrize("nodes", [0, 1, 1_999, 2_000, 2_001, 9_999, 29_999])
def test_no_rate_is_exceeded_as_long_as_the_pace_may_grow(nodes: int) -> None:
    pace = Pace(LastHeard())
    assert pace.on_tick(nodes, TIMING) == []
    assert nodes * 1_000 <= 2_000 * pace.ms(nodes, TIMING)


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
