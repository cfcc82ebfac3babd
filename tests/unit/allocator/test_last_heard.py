"""Who looks for silent nodes looks at no other, and settles a few of them at a time."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ids import NodeName
from headrace.wire.heartbeat import AllocationReport, AllocationState, RunningJob, Start
from headrace.wire.nodes import NodeRecord
from headrace_allocator.effects import Effect, Report
from headrace_allocator.facts.nodes import LastHeard, Node, Timing
from tests.support.allocating import Desk, an_operation, cores
from tests.support.clocks import at
from tests.support.work import lines_run


def running(start: Start) -> AllocationReport:
    job = RunningJob(start.slots[0].index, start.slots[0].attempt, 1, 10)
    return AllocationReport(start.allocation, start.operation, AllocationState.RUNNING, start.resources, job)


def lost_jobs(effects: Sequence[Effect]) -> int:
    return sum(len(effect.ends) for effect in effects if isinstance(effect, Report))


def heard_in_turn(count: int) -> tuple[LastHeard, list[Node]]:
    heard = LastHeard()
    nodes = [Node(NodeRecord(NodeName(f"n{number}")), 0.0) for number in range(count)]
    for second, node in enumerate(nodes):
        heard.note(node, at(second))
    return heard, nodes


def test_the_silent_are_told_and_the_longest_silence_first() -> None:
    heard, nodes = heard_in_turn(5)
    heard.note(nodes[0], at(5))

    assert heard.silent(Timing(node_heartbeat_timeout_s=3.0), 60.0, at(6)) == [nodes[1], nodes[2]]
    assert heard.silent(Timing(node_heartbeat_timeout_s=60.0), 6.0, at(6)) == []
    assert heard.check() == []


def test_a_late_word_counts_and_one_of_a_stranger_does_not() -> None:
    heard, nodes = heard_in_turn(2)
    heard.note_late(NodeName("n0"), at(9))
    heard.note_late(NodeName("foreign"), at(9))
    heard.forget(nodes[1])

    assert heard.silent(Timing(node_heartbeat_timeout_s=0.5), 60.0, at(20)) == [nodes[0]]


def test_a_broken_order_is_told() -> None:
    heard, nodes = heard_in_turn(2)
    nodes[0].heard_s = nodes[1].heard_s + 1

    assert heard.check() == ["nodes are not in the order of their last heartbeats"]


def test_the_order_of_very_many_is_checked_some_at_a_time() -> None:
    heard, nodes = heard_in_turn(5_000)
    assert max(map(lines_run, heard.checks())) < 5_000
    for late in (nodes[1], nodes[2_000], nodes[4_999]):
        before, late.heard_s = late.heard_s, -1.0
        assert any(check() for check in heard.checks())
        late.heard_s = before
    assert not any(check() for check in heard.checks())


def test_many_nodes_that_are_cut_off_at_once_are_settled_a_few_at_a_time() -> None:
    desk = Desk({f"n{number}": cores(1) for number in range(40)})
    desk.start(an_operation("a", 40))
    desk.share(a=1.0)
    for name in desk.nodes:
        (start,) = desk.beat(name)[0].start
        desk.beat(name, allocations=[running(start)])

    desk.now_s += 61
    desk.tick(desk.now_s)
    assert 0 < desk.facts.online_nodes < 40
    desk.refresh()
    assert desk.facts.online_nodes == 0

    desk.now_s += 600
    told = lost_jobs(desk.tick(desk.now_s))
    assert 0 < told < 40
    assert told + lost_jobs(desk.refresh()) == 40
    assert desk.operation("a").running_jobs == 0
