"""Heartbeats on which everything goes on: they are answered without a decision, and no news is overlooked for that."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from headrace.ids import ROOT_POOL, NodeName, OperationId
from headrace.pools.amounts import PartialResources
from headrace.resources import ZERO
from headrace.wire.heartbeat import JobEnd, JobResult, Start, TakeBackReason
from headrace.wire.ledger import ReportedEnd
from headrace.wire.log import OperationSuspended
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace.wire.snapshots import ElementKind, PreemptionPriority, ShareItem
from headrace_allocator import heartbeat_answer
from headrace_allocator.decide import DueSteps, HeartbeatDecision, decide
from headrace_allocator.decision.view import Overlay, restless
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.nodes import PreemptiveTry
from headrace_allocator.facts.preempted import preempt_and_stop_counting
from headrace_allocator.facts.preemption_groups import AllocationGroups
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.unit.allocator.test_engine import running


class Decisions:
    """Counts what is decided."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(heartbeat_answer, "decide", self._decide)

    def _decide(self, overlay: Overlay, due: DueSteps) -> HeartbeatDecision:
        self.count += 1
        return decide(overlay, due)


def a_full_node() -> tuple[Desk, Start]:
    """A node that has shown the one job that fits on it twice."""
    desk = Desk({"n1": cores(1)})
    desk.start(an_operation("operation-1", jobs=9))
    (start,) = desk.beat("n1")[0].start
    desk.beat("n1", allocations=[running(start)])
    desk.beat("n1", allocations=[running(start)])
    return desk, start


def the_end_of(start: Start) -> JobEnd:
    return JobEnd(OperationId("operation-1"), 0, 1, start.allocation, JobResult.COMPLETED)


def test_nothing_is_decided_for_a_full_node_until_something_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, start = a_full_node()
    decisions = Decisions(monkeypatch)

    desk.beat("n1", allocations=[running(start)])
    assert decisions.count == 0

    # The pause between two preemptive stages is over. Nobody starves, so that they count as run.
    desk.now_s += 3600
    desk.beat("n1", allocations=[running(start)])
    assert decisions.count == 0
    assert desk.node("n1").preemptive_stages_s == desk.now_s

    # It was suspended, and what runs may run to its end.
    desk.learn(OperationSuspended(OperationId("operation-1"), suspended=True, at_ms=1))
    desk.beat("n1", allocations=[running(start)])
    assert decisions.count == 0

    # Its place is to be taken back.
    desk.learn(OperationSuspended(OperationId("operation-1"), suspended=True, at_ms=1, abort_running_jobs=True))
    desk.beat("n1", allocations=[running(start)])
    assert decisions.count == 1


def test_somebody_who_starves_is_looked_after_once_the_pause_between_stages_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, start = a_full_node()
    decisions = Decisions(monkeypatch)
    desk.now_s += 3600
    desk.beat("n1", allocations=[running(start)])
    desk.start(an_operation("operation-1", jobs=9), an_operation("operation-2"))
    desk.tell(
        [
            a_share("operation-1", 0.0),
            msgspec.structs.replace(a_share("operation-2", 1.0), preemption_priority=PreemptionPriority.NORMAL),
        ],
        total=cores(1),
    )

    desk.beat("n1", allocations=[running(start)])
    assert decisions.count == 0

    desk.now_s += 3600
    orders, _ = desk.beat("n1", allocations=[running(start)])
    assert [one.allocation for one in orders.take_back] == [start.allocation]
    assert [one.operation for one in orders.start] == ["operation-2"]


def beside_one_that_starves(
    *, of_which_nothing_may_go: bool, priority: PreemptionPriority = PreemptionPriority.NORMAL
) -> tuple[Desk, Start]:
    """A full node of an operation that is owed it all or nothing, beside two that wait, when the next stages are due."""
    desk, start = a_full_node()
    desk.start(an_operation("operation-1", jobs=9), an_operation("operation-2"), an_operation("operation-3"))
    starving = msgspec.structs.replace(a_share("operation-2", 1.0), preemption_priority=priority)
    owed = 1.0 if of_which_nothing_may_go else 0.0
    desk.tell([a_share("operation-1", owed), starving, a_share("operation-3", 1.0)], total=cores(1))
    desk.now_s += 3600
    return desk, start


@pytest.mark.parametrize("is_quick", [True, False])
def test_stages_for_somebody_who_starves_count_as_run_where_nothing_may_go(
    is_quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, start = beside_one_that_starves(of_which_nothing_may_go=True)
    decisions = Decisions(monkeypatch)
    if not is_quick:
        monkeypatch.setattr(heartbeat_answer, "may_have_work", lambda *facts: True)
    before = passed_over(desk)

    desk.beat("n1", allocations=[running(start)])

    assert decisions.count == (0 if is_quick else 1)
    assert desk.node("n1").preemptive_stages_s == desk.now_s
    assert desk.node("n1").tries == {
        PreemptionPriority.NORMAL: PreemptiveTry(desk.now_s, 0, ZERO, OperationId(""), 0, desk.now_s)
    }
    # The class of the one that starves is too large, the other does not starve. With no room at all the regular stages pass over none.
    assert passed_over(desk) - before == {
        "min_needed_resources_unsatisfied": 1,
        "is_not_eligible_for_normal_preemptive_scheduling": 1,
    }


def test_operations_of_which_nothing_may_go_are_not_asked_again_until_a_share_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, start = beside_one_that_starves(of_which_nothing_may_go=True)
    asked: list[str] = []
    may_be_preemptible = AllocationGroups.may_be_preemptible

    def note(groups: AllocationGroups, allocation: Allocation) -> bool:
        asked.append(allocation.operation)
        return may_be_preemptible(groups, allocation)

    monkeypatch.setattr(AllocationGroups, "may_be_preemptible", note)
    for _ in range(3):
        desk.now_s += 3600
        assert not desk.beat("n1", allocations=[running(start)])[0].take_back
    assert asked == []

    # Who does not know asks once.
    desk.facts.operations[OperationId("operation-1")].rest.preemptible_from = None
    for _ in range(3):
        desk.now_s += 3600
        assert not desk.beat("n1", allocations=[running(start)])[0].take_back
    assert asked == ["operation-1"]

    desk.tell([a_share("operation-1", 0.0)], total=cores(1))
    desk.now_s += 3600
    assert [one.allocation for one in desk.beat("n1", allocations=[running(start)])[0].take_back] == [start.allocation]


def passed_over(desk: Desk) -> Counter[str]:
    of_reason = {one.labels["reason"]: one.value for one in desk.engine.figures() if one.family == "deactivations"}
    return Counter({reason: int(count) for reason, count in of_reason.items() if isinstance(count, float | int)})


def test_stages_that_could_make_room_or_find_some_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, start = beside_one_that_starves(of_which_nothing_may_go=False)
    decisions = Decisions(monkeypatch)
    assert desk.beat("n1", allocations=[running(start)])[0].take_back
    assert decisions.count == 1

    desk, start = beside_one_that_starves(of_which_nothing_may_go=True, priority=PreemptionPriority.AGGRESSIVE)
    desk.beat("n1", allocations=[running(start)])
    assert PreemptionPriority.AGGRESSIVE in desk.node("n1").tries

    desk, start = beside_one_that_starves(of_which_nothing_may_go=True)
    desk.nodes["n1"] = cores(2, slots=2)
    assert desk.beat("n1", allocations=[running(start)])[0].start


def test_an_end_that_is_recorded_is_forgotten_without_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, start = a_full_node()
    end = the_end_of(start)
    (other,) = desk.beat("n1", ends=[end])[0].start
    decisions = Decisions(monkeypatch)
    desk.engine.on_recorded([ReportedEnd(NodeName("n1"), end)], desk.now)

    orders, _ = desk.beat("n1", allocations=[running(other)], ends=[end])

    assert orders.forget.ends == [end.key]
    assert decisions.count == 0


@pytest.mark.parametrize("above", ["its operation", "its pool", "its node"])
def test_what_is_used_above_a_limit_is_looked_at_though_nobody_starves(
    above: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, start = a_full_node()
    desk.now_s += 3600
    limits = PartialResources(cpu=50)
    if above == "its operation":
        live = an_operation("operation-1", jobs=9)
        desk.start(msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, resource_limits=limits)))
    elif above == "its pool":
        pool = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=limits)
        desk.tell([pool, a_share("operation-1", 1.0)], total=cores(1))
    else:
        desk.nodes["n1"] = cores(0.5)
    decisions = Decisions(monkeypatch)

    desk.beat("n1", allocations=[running(start)])

    assert decisions.count == 1


def test_room_that_a_full_node_comes_to_have_is_used() -> None:
    desk, start = a_full_node()
    desk.beat("n1", allocations=[running(start)])

    desk.nodes["n1"] = cores(2, slots=2)
    orders, _ = desk.beat("n1", allocations=[running(start)])

    assert len(orders.start) == 1


def test_a_job_that_ended_and_is_still_shown_is_taken_back() -> None:
    """Its allocation was known to run that one job, and is looked at anew."""
    desk, start = a_full_node()

    orders, _ = desk.beat("n1", allocations=[running(start)], ends=[the_end_of(start)])

    assert [order.allocation for order in orders.take_back] == [start.allocation]


def test_a_job_that_the_ledger_knows_to_be_over_is_taken_back() -> None:
    desk, start = a_full_node()
    (allocation,) = desk.node("n1").allocations.values()
    assert allocation.settled

    allocation.drop(0)
    desk.operation("operation-1").slots.end(0, 1)
    orders, _ = desk.beat("n1", allocations=[running(start)])

    assert [order.allocation for order in orders.take_back] == [start.allocation]


def test_an_extended_allocation_is_looked_at_again() -> None:
    """Of two jobs that it has it shows one: the other is nowhere."""
    desk, start = a_full_node()
    desk.operation("operation-1").mean_job_ms = 100.0
    extended, _ = desk.beat("n1", allocations=[running(start)])
    assert extended.extend

    _, effects = desk.beat("n1", allocations=[running(start)])

    assert effects


def test_allocations_that_all_rest_are_not_asked_again_while_their_node_shows_the_same() -> None:
    desk, start = a_full_node()
    (allocation,) = desk.node("n1").allocations.values()
    desk.engine.check = list  # type: ignore[method-assign]  # it finds what is done to the allocation below
    desk.beat("n1", allocations=[running(start)])

    # Nobody does so without a word: it tells whether the allocation is asked.
    allocation.take_back = TakeBackReason.OPERATION_ENDED
    assert desk.beat("n1", allocations=[running(start)])[0].take_back == []

    # That is a word.
    desk.node("n1").picture.booked = None
    assert desk.beat("n1", allocations=[running(start)])[0].take_back


def test_a_node_that_is_to_be_empty_is_remembered_as_nothing_that_rests() -> None:
    desk, start = a_full_node()
    desk.beat("n1", allocations=[running(start)])
    node = desk.node("n1")
    assert restless(desk.facts, node, 1000) == []

    node.record = msgspec.structs.replace(node.record, drained=True)
    asked = restless(desk.facts, node, 1000)

    assert asked == list(node.allocations.values())
    assert node.picture.rests is None


def test_a_reason_to_go_that_is_gone_before_the_node_heard_of_it_is_dropped() -> None:
    desk, start = a_full_node()
    suspended = OperationSuspended(OperationId("operation-1"), suspended=True, at_ms=1, abort_running_jobs=True)
    desk.learn(suspended)
    ended, _ = desk.beat("n1", allocations=[running(start)])
    assert [order.reason for order in ended.take_back] == [TakeBackReason.SUSPENDED]

    desk.learn(OperationSuspended(OperationId("operation-1"), suspended=False, at_ms=2))
    kept = [desk.beat("n1", obeyed=False, allocations=[running(start)])[0].take_back for _ in range(3)]

    assert kept == [[], [], []]
    (allocation,) = desk.node("n1").allocations.values()
    assert allocation.take_back is None


def test_a_preempted_allocation_is_asked_at_once() -> None:
    desk, start = a_full_node()
    desk.beat("n1", allocations=[running(start)])
    (allocation,) = desk.node("n1").allocations.values()
    assert desk.node("n1").picture.rests

    preempt_and_stop_counting(desk.facts, allocation, PreemptionRecord(PreemptionReason.PREEMPTION))

    assert restless(desk.facts, desk.node("n1"), 1000) == [allocation]
