"""Nodes that an administrator drains or removes."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.resources import ZERO
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    JobEnd,
    JobResult,
    JobSlot,
    RunningJob,
    TakeBack,
    TakeBackReason,
)
from headrace.wire.ledger import ReportedEnd
from headrace.wire.log import OperationStateChanged, StateCause
from headrace.wire.nodes import GivenUpNode, GiveUpNode, ListNodes, NodeList, NodeRecord
from headrace.wire.operations import OnLostNode, OperationState
from headrace.wire.refusals import WrongState
from headrace_allocator.effects import NudgeNode, Report
from tests.support.allocating import Desk, an_operation, cores
from tests.support.clocks import at


def shown(state: AllocationState, *unstarted: int) -> AllocationReport:
    """The first allocation of the first operation: its job 0 runs."""
    slots = [JobSlot(index) for index in unstarted]
    return AllocationReport(AllocationId("5-1"), OperationId("op"), state, cores(1), RunningJob(0, 1, 1, 1), slots)


def a_desk_with_a_job_on_a_node(**spec: Any) -> Desk:
    desk = Desk({"n": cores(1, slots=9)}, node_heartbeat_timeout_s=60.0, node_lease_s=600.0)
    live = an_operation("op")
    desk.start(msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, **spec)))
    desk.share(op=1.0)
    desk.beat("n")
    desk.beat("n", allocations=[shown(AllocationState.RUNNING)])
    return desk


def drain(desk: Desk) -> None:
    desk.engine.on_nodes({NodeName("n"): NodeRecord(NodeName("n"), drained=True)}, desk.now)


def give_up(desk: Desk, now_s: float) -> tuple[object, list[tuple[int, JobResult, str]]]:
    outcome = desk.engine.on_give_up_node(GiveUpNode(NodeName("n")), at(now_s))
    ends = [one.end for effect in outcome.effects if isinstance(effect, Report) for one in effect.ends]
    return outcome.answer, [(end.index, end.result, end.reason) for end in ends]


def test_a_drained_node_gives_back_what_it_has_not_started_and_runs_on_what_it_has() -> None:
    desk = a_desk_with_a_job_on_a_node()
    desk.operation("op").slots.take(1)
    desk.node("n").allocations[AllocationId("5-1")].slots[1] = JobSlot(1)
    drain(desk)

    orders, _ = desk.beat("n", allocations=[shown(AllocationState.RUNNING, 1)])

    assert orders.take_back == [TakeBack(AllocationId("5-1"), TakeBackReason.NODE_DRAINED, None)]
    assert orders.start == []


def test_a_node_whose_drain_ends_jobs_interrupts_them_until_it_is_undrained() -> None:
    desk = a_desk_with_a_job_on_a_node(interruption_timeout_ms=7_000)
    effects = desk.engine.on_nodes({NodeName("n"): NodeRecord(NodeName("n"), drained=True)}, desk.now).effects
    assert NudgeNode(NodeName("n")) in effects
    assert desk.beat("n", allocations=[shown(AllocationState.RUNNING)])[0].take_back == []

    ending = NodeRecord(NodeName("n"), drained=True, ends_jobs=True)
    assert NudgeNode(NodeName("n")) in desk.engine.on_nodes({NodeName("n"): ending}, desk.now).effects
    for _ in range(2):
        orders, _ = desk.beat("n", allocations=[shown(AllocationState.RUNNING)])
        assert orders.take_back == [TakeBack(AllocationId("5-1"), TakeBackReason.NODE_DRAINED, 7_000)]

    desk.engine.on_nodes({NodeName("n"): NodeRecord(NodeName("n"))}, desk.now)
    assert desk.beat("n", allocations=[shown(AllocationState.RUNNING)])[0].take_back == []


def test_the_room_of_a_drained_node_leaves_the_total_once_it_reported_empty() -> None:
    desk = a_desk_with_a_job_on_a_node()
    drain(desk)
    desk.beat("n", allocations=[shown(AllocationState.RUNNING)])
    before = desk.facts.total
    ended = JobEnd(OperationId("op"), 0, 1, AllocationId("5-1"), JobResult.COMPLETED)
    desk.beat("n", ends=[ended])
    desk.engine.on_recorded([ReportedEnd(NodeName("n"), ended)], desk.now)
    while_told = desk.facts.total
    desk.beat("n", ends=[ended])
    desk.beat("n")
    empty = desk.facts.total
    answer = desk.engine.on_question(ListNodes(), desk.now).answer
    assert isinstance(answer, NodeList)
    assert answer.nodes[0].total == before, "people see what the node has"
    desk.engine.on_nodes({NodeName("n"): NodeRecord(NodeName("n"))}, desk.now)

    assert (before, while_told, empty, desk.facts.total) == (cores(1, slots=9), before, ZERO, before)
    assert desk.engine.check() == []


def test_the_job_of_a_closing_allocation_is_interrupted_when_its_operation_ends() -> None:
    """It was closed gently before: by a drain, or since its place was wanted elsewhere. It gets the time that its operation asks for."""
    desk = a_desk_with_a_job_on_a_node(interruption_timeout_ms=70_000)
    desk.beat("n", allocations=[shown(AllocationState.CLOSING)])
    desk.learn(
        OperationStateChanged(OperationId("op"), OperationState.ABORTING, StateCause.ABORTED_BY_USER, "", at_ms=1)
    )

    orders, _ = desk.beat("n", allocations=[shown(AllocationState.CLOSING)])

    assert [(one.reason, one.timeout_ms) for one in orders.take_back] == [(TakeBackReason.OPERATION_ENDED, 70_000)]


def test_a_living_node_is_not_given_up_unless_it_is_drained_and_empty() -> None:
    desk = a_desk_with_a_job_on_a_node()
    assert isinstance(give_up(desk, 101.0)[0], WrongState)

    drain(desk)
    assert isinstance(give_up(desk, 101.0)[0], WrongState)

    ended = msgspec.structs.replace(shown(AllocationState.ENDED), job=None)
    desk.beat("n", allocations=[ended])
    desk.node("n").reporting.clear()
    assert give_up(desk, 101.0) == (GivenUpNode(NodeName("n"), 0), [])


def test_jobs_of_a_silent_node_that_is_given_up_are_lost_at_once() -> None:
    desk = a_desk_with_a_job_on_a_node()

    answer, ends = give_up(desk, 161.0)

    assert answer == GivenUpNode(NodeName("n"), 1)
    assert ends == [(0, JobResult.LOST, "node n was silent for 61 s")]
    desk.engine.on_nodes({NodeName("n"): None}, at(161.0))
    assert desk.facts.nodes == {}
    assert desk.engine.check() == []


def test_nobody_waits_for_a_node_that_was_removed() -> None:
    """An administrator says that it is gone for good."""
    desk = a_desk_with_a_job_on_a_node(on_lost_node=OnLostNode.WAIT)

    answer, ends = give_up(desk, 700.0)

    assert answer == GivenUpNode(NodeName("n"), 1)
    assert [(index, result) for index, result, _ in ends] == [(0, JobResult.LOST)]
    assert not desk.node("n").allocations
