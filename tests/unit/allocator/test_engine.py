"""Decisions of the allocator on one heartbeat after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import msgspec
import pytest

from headrace.ids import AllocationId, Incarnation, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.engine import Outcome
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, encode
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    Heartbeat,
    HeartbeatReason,
    JobEnd,
    JobResult,
    JobSlot,
    NodeState,
    Orders,
    RunningJob,
    Start,
    TakeBackReason,
)
from headrace.wire.log import (
    AllocatorAttached,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    StateCause,
)
from headrace.wire.nodes import ListNodes, NodeRecord
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.effects import (
    Draw,
    NudgeNode,
    RecordEmptyNodes,
    Release,
    Report,
    StepDown,
    Superseded,
    UnknownOperation,
)
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.explain.answers import list_nodes
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_allocator.pool_metrics import pool_figures
from headrace_allocator.usage_changes import usage_changed
from tests.support.allocating import TERM, TREE, Desk, a_share, an_operation, cores


def running(start: Start, *, ended: int = 0, state: AllocationState = AllocationState.RUNNING) -> AllocationReport:
    """The allocation as its node shows it: its first slot runs, unless it is over."""
    slots = start.slots[ended:]
    job = RunningJob(slots[0].index, slots[0].attempt, 1, 10) if slots and state is not AllocationState.ENDED else None
    unstarted = slots[1:] if job else slots
    return AllocationReport(start.allocation, start.operation, state, start.resources, job, unstarted)


def an_end(start: Start, at: int = 0, result: JobResult = JobResult.COMPLETED, ran_ms: int = 100) -> JobEnd:
    slot = start.slots[at]
    return JobEnd(
        start.operation,
        slot.index,
        slot.attempt,
        start.allocation,
        result,
        started_at_ms=1000,
        ended_at_ms=1000 + ran_ms,
    )


def names(orders: Orders) -> list[str]:
    return [start.operation for start in orders.start]


def test_the_room_of_a_node_goes_to_the_least_satisfied_again_and_again() -> None:
    """Owed three to one, four places: three to one."""
    desk = Desk({"n1": cores(4, slots=9), "n2": cores(4, slots=9)})
    desk.start(an_operation("op-large-share"), an_operation("op-small-share"))
    desk.share(op_large_share=0.75, op_small_share=0.25)
    desk.beat("n2", obeyed=False, trouble="no log folder")

    orders, _ = desk.beat("n1")

    assert sorted(names(orders)) == ["op-large-share"] * 3 + ["op-small-share"]


def test_a_job_that_does_not_fit_holds_up_nobody_else() -> None:
    desk = Desk({"n1": cores(2, slots=9)})
    desk.start(an_operation("op-with-giants", size=cores(4)), an_operation("op-ordinary"))
    desk.share(op_with_giants=0.9, op_ordinary=0.1)

    orders, _ = desk.beat("n1")

    assert names(orders) == ["op-ordinary", "op-ordinary"]


def test_an_operation_that_is_owed_nothing_comes_last_but_comes() -> None:
    desk = Desk({"n1": cores(3, slots=9)})
    desk.start(an_operation("op-owed-nothing", jobs=9), an_operation("op-owed-something", jobs=2))
    desk.share(op_owed_something=0.5)

    orders, _ = desk.beat("n1")

    assert names(orders) == ["op-owed-something", "op-owed-something", "op-owed-nothing"]


def test_the_command_travels_only_to_a_node_that_shows_no_allocation_of_the_operation() -> None:
    desk = Desk({"n1": cores(2, slots=9)})
    desk.start(an_operation("operation-1"))
    first, _ = desk.beat("n1")
    assert [start.spec is not None for start in first.start] == [True, False]

    second, _ = desk.beat("n1", allocations=[running(first.start[0])], ends=[an_end(first.start[1])])

    assert [start.spec for start in second.start] == [None]


def test_orders_that_were_not_obeyed_never_happened() -> None:
    desk = Desk({"n1": cores(2, slots=9)})
    desk.start(an_operation("operation-1", jobs=2))
    lost, _ = desk.beat("n1")

    again, _ = desk.beat("n1", obeyed=False)

    assert [start.slots for start in again.start] == [start.slots for start in lost.start]
    assert {start.allocation for start in again.start}.isdisjoint(start.allocation for start in lost.start)


def test_a_start_that_was_not_obeyed_never_happened_though_ends_wait_at_the_node() -> None:
    desk = Desk({"n1": cores(2, slots=9)})
    desk.start(an_operation("operation-1", jobs=1))
    orders, _ = desk.beat("n1")
    assert len(orders.start) == 1

    again, _ = desk.beat("n1", obeyed=False, ends_waiting=3)
    _, effects = desk.beat("n1", obeyed=False)

    assert [start.slots for start in again.start] == [[JobSlot(0)]]
    assert again.start[0].allocation != orders.start[0].allocation
    assert not [effect for effect in effects if isinstance(effect, Report)]


def test_what_a_former_life_of_the_agent_may_have_obeyed_stays_booked_while_ends_wait() -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=9))
    orders, _ = desk.beat("n1")
    desk.operation("operation-1").mean_job_ms = 500.0
    (start,) = orders.start
    extended, _ = desk.beat("n1", allocations=[running(start)])
    assert extended.extend

    again, _ = desk.beat("n1", incarnation=Incarnation("life-2"), ends_waiting=3, allocations=[running(start)])

    assert not {slot.index for one in extended.extend for slot in one.slots} & {
        slot.index for one in again.extend for slot in one.slots
    }


def test_long_commands_travel_with_as_many_answers_as_they_need() -> None:
    desk = Desk({"n1": cores(8, slots=9)})
    long = [an_operation(f"op-{number}", jobs=1) for number in range(8)]
    for live in long:
        live.spec.argv.append("x" * 120_000)
    desk.start(*long)

    started: list[Start] = []
    answers = 0
    while len(started) < 8:
        orders, _ = desk.beat("n1", allocations=[running(start) for start in started])
        assert len(encode(orders)) <= LARGEST_MESSAGE_BYTES
        assert len(orders.start) >= min(3, 8 - len(started))
        started += orders.start
        answers += 1

    assert sorted(start.operation for start in started) == sorted(live.operation for live in long)
    assert answers == 2


def test_an_extension_that_was_not_obeyed_never_happened() -> None:
    """Its jobs are ready again, and no end of them is told: they never ran."""
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=4))
    orders, _ = desk.beat("n1")
    desk.operation("operation-1").mean_job_ms = 100.0
    shown = [running(orders.start[0])]
    lost, _ = desk.beat("n1", allocations=shown)

    again, effects = desk.beat("n1", obeyed=False, allocations=shown)

    assert [len(extend.slots) for extend in lost.extend] == [3]
    assert again.extend == lost.extend
    assert not [effect for effect in effects if isinstance(effect, Report)]


def test_an_order_whose_answer_was_lost_on_the_way_back_is_seen_by_its_allocation() -> None:
    """The agent obeyed, died before it could say so, and its next life shows what the runner runs."""
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=2))
    orders, _ = desk.beat("n1")
    (start,) = orders.start

    after, effects = desk.beat("n1", incarnation=Incarnation("life-2"), seq=1, applied=0, allocations=[running(start)])

    assert after.start == []
    assert not [effect for effect in effects if isinstance(effect, Report)]


@pytest.mark.parametrize("void", [{"seq": 1}, {"seq": 2}])
def test_a_repeated_or_overtaken_heartbeat_gets_no_answer_and_changes_nothing(void: dict[str, int]) -> None:
    desk = Desk({"n1": cores(2, slots=9)})
    desk.start(an_operation("operation-1"))
    desk.beat("n1")
    desk.beat("n1")
    before = dict(desk.node("n1").allocations)

    heartbeat = Heartbeat(
        NodeName("n1"), TREE, Incarnation("life-1"), void["seq"], 0, 0, HeartbeatReason.PERIOD, cores(2, slots=9)
    )

    assert desk.engine.on_heartbeat(heartbeat, desk.now) == Outcome(None)
    assert desk.node("n1").allocations == before
    assert desk.engine.void_heartbeats == 1


def test_a_former_life_of_an_agent_is_not_listened_to() -> None:
    desk = Desk({"n1": cores(2, slots=9)})
    desk.beat("n1")
    desk.beat("n1", incarnation=Incarnation("life-2"), seq=1, applied=0)
    late = Heartbeat(NodeName("n1"), TREE, Incarnation("life-1"), 99, 0, 0, HeartbeatReason.PERIOD, cores(2, slots=9))

    assert desk.engine.on_heartbeat(late, desk.now) == Outcome(None)


def test_an_allocator_that_never_heard_a_former_life_does_not_take_its_late_heartbeat_for_a_new_one() -> None:
    desk = Desk({"n1": cores(2, slots=9)})
    desk.beat("n1", incarnation=Incarnation("life-2"), seq=1, applied=0)
    late = Heartbeat(NodeName("n1"), TREE, Incarnation("life-1"), 99, 0, 0, HeartbeatReason.PERIOD, cores(2, slots=9))

    assert desk.engine.on_heartbeat(late, desk.now) == Outcome(None)
    for seq in (2, 3):
        living, _ = desk.beat("n1", incarnation=Incarnation("life-2"), seq=seq, applied=seq - 1)
        assert living.seq == seq


def test_an_allocator_that_heard_a_late_heartbeat_first_listens_to_the_living_agent() -> None:
    desk = Desk({"n1": cores(2, slots=9)})
    desk.beat("n1", incarnation=Incarnation("life-1"), seq=99, applied=98)

    living, _ = desk.beat("n1", incarnation=Incarnation("life-2"), seq=1, applied=0)

    assert living.seq == 1


def test_a_node_that_obeys_a_higher_term_makes_this_allocator_step_down() -> None:
    desk = Desk({"n1": cores(2)})
    heartbeat = Heartbeat(NodeName("n1"), TREE, Incarnation("x"), 1, 0, TERM + 1, HeartbeatReason.PERIOD, cores(2))

    assert desk.engine.on_heartbeat(heartbeat, desk.now) == Outcome(None, [StepDown(TERM + 1)])


def test_an_allocator_that_hears_of_jobs_drawn_for_a_later_term_steps_down_and_gives_nothing_out() -> None:
    desk = Desk({"n1": cores(2)})
    desk.start(an_operation("op-old"))
    spec = OperationSpec(PoolName("p"), ["work"], 2, cores(1))
    started = OperationStarted(
        OperationId("op-new"), "anna", spec, OperationState.RUNNING, False, 2, block_term=TERM + 1, at_ms=1
    )

    elsewhere = msgspec.structs.replace(started, spec=msgspec.structs.replace(spec, tree=TreeName("other")))

    assert list(desk.learn(elsewhere)) == []
    effects = desk.learn(started)
    orders, _ = desk.beat("n1")

    assert Superseded(TERM + 1) in effects
    assert orders.start == []


def test_an_allocator_that_hears_that_a_later_one_attached_gives_nothing_out() -> None:
    """A retry that both heard of ran twice."""
    desk = Desk({"n1": cores(2)})
    desk.start(an_operation("op"))

    assert list(desk.learn(AllocatorAttached(TreeName("other"), TERM + 1), AllocatorAttached(TREE, TERM))) == []
    assert list(desk.learn(AllocatorAttached(TREE, TERM + 1))) == [Superseded(TERM + 1)]
    assert desk.beat("n1")[0].start == []


def test_an_end_is_told_to_the_ledger_once_and_forgotten_when_the_ledger_has_it() -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=1))
    orders, _ = desk.beat("n1")
    (start,) = orders.start
    over = running(start, ended=1, state=AllocationState.ENDED)

    first, effects = desk.beat("n1", allocations=[over], ends=[an_end(start)])
    (report,) = [effect for effect in effects if isinstance(effect, Report)]
    assert (first.forget.ends, first.forget.allocations) == ([], [start.allocation])
    second, effects = desk.beat("n1", ends=[an_end(start)])
    assert not [effect for effect in effects if isinstance(effect, Report)]
    assert second.forget.ends == []
    desk.engine.on_recorded(report.ends, desk.now)
    third, _ = desk.beat("n1", ends=[an_end(start)])

    assert third.forget.ends == [an_end(start).key]


def test_an_allocation_that_its_node_does_not_know_any_more_is_lost_and_told_so() -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=1))
    orders, _ = desk.beat("n1")
    desk.beat("n1", allocations=[running(orders.start[0])])

    _, effects = desk.beat("n1")

    (report,) = [effect for effect in effects if isinstance(effect, Report)]
    assert [(one.end.index, one.end.result) for one in report.ends] == [(0, JobResult.LOST)]


@pytest.mark.parametrize("keeps_allocation", [False, True])
def test_a_lost_job_that_no_heartbeat_showed_to_begin_says_so(keeps_allocation: bool) -> None:
    """As where an agent was killed: another one adopts what its runner has begun, and nobody knows of the rest."""
    desk = Desk({"n1": cores(1, slots=9)}, recovering=True)
    desk.start(an_operation("operation-1", jobs=3, term=TERM - 1))
    slots = [JobSlot(0, 1), JobSlot(1, 1), JobSlot(2, 1)]
    first, second = (
        AllocationReport(
            AllocationId("4-1"), OperationId("operation-1"), AllocationState.RUNNING, cores(1),
            RunningJob(slot.index, slot.attempt, 1_000, 10), behind,
        )
        for slot, behind in ((slots[0], slots[1:]), (slots[2], []))
    )  # fmt: skip
    desk.beat("n1", allocations=[first])

    _, effects = desk.beat("n1", allocations=[second] if keeps_allocation else [])

    (report,) = [effect for effect in effects if isinstance(effect, Report)]
    unknown = "node n1 does not know this job any more"
    unbegun = f"{unknown}, and never reported that it began"
    told = [unknown, unbegun] if keeps_allocation else [unknown, unbegun, unbegun]
    assert [one.end.reason for one in report.ends] == told


def test_a_job_whose_end_may_be_on_its_way_is_not_lost_before_all_ends_have_come() -> None:
    """Ends that did not fit into a heartbeat wait for the next; its job is not shown meanwhile."""
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=1))
    orders, _ = desk.beat("n1")
    (start,) = orders.start
    desk.beat("n1", allocations=[running(start)])
    idle = running(start, ended=1)

    _, waiting = desk.beat("n1", allocations=[idle], ends_waiting=1)
    _, gone = desk.beat("n1", allocations=[], ends_waiting=1)
    _, told = desk.beat("n1", allocations=[idle], ends=[an_end(start)])

    assert not [effect for effect in (*waiting, *gone) if isinstance(effect, Report)]
    (report,) = [effect for effect in told if isinstance(effect, Report)]
    assert [one.end.result for one in report.ends] == [JobResult.COMPLETED]


def test_slots_that_a_closing_allocation_gives_back_are_given_out_again_once() -> None:
    desk = Desk({"n1": cores(1, slots=9), "n2": cores(2, slots=9)})
    desk.start(an_operation("operation-1", jobs=3))
    orders, _ = desk.beat("n1")
    (start,) = orders.start
    given_back = AllocationReport(
        start.allocation, start.operation, AllocationState.ENDED, start.resources, None, list(start.slots)
    )

    again, _ = desk.beat("n1", allocations=[given_back])
    other, _ = desk.beat("n2")

    assert again.forget.allocations == [start.allocation]
    assert [start.slots for start in (*again.start, *other.start)] == [[JobSlot(0)], [JobSlot(1)], [JobSlot(2)]]


def test_nothing_starts_on_a_node_that_still_waits_for_room_drains_or_is_in_trouble() -> None:
    waiting = AllocationReport(AllocationId("1-1"), OperationId("unknown-1"), AllocationState.WAITING, cores(1))
    for changes in ({"allocations": [waiting]}, {"state": NodeState.DRAINING}, {"trouble": "disk full"}):
        desk = Desk({"n1": cores(4, slots=9)})
        desk.start(an_operation("operation-1"))
        orders, _ = desk.beat("n1", **changes)

        assert orders.start == []


def test_what_no_operation_owns_is_taken_back() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    job = RunningJob(0, 1, 1, 1)
    foreign = AllocationReport(AllocationId("1-1"), OperationId("unknown-1"), AllocationState.RUNNING, cores(1), job)

    orders, effects = desk.beat("n1", allocations=[foreign])

    assert [(t.allocation, t.reason) for t in orders.take_back] == [("1-1", TakeBackReason.OPERATION_ENDED)]
    assert UnknownOperation(NodeName("n1"), AllocationId("1-1"), OperationId("unknown-1")) in effects
    assert not [e for e in desk.beat("n1", allocations=[foreign])[1] if isinstance(e, UnknownOperation)]


def test_an_aborting_operation_is_released_when_no_node_holds_anything_of_it() -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=5))
    orders, _ = desk.beat("n1")
    (start,) = orders.start
    desk.beat("n1", allocations=[running(start)])
    aborting = OperationStateChanged(
        OperationId("operation-1"), OperationState.ABORTING, StateCause.ABORTED_BY_USER, "", 1
    )

    assert NudgeNode(NodeName("n1")) in desk.learn(aborting)
    closing, _ = desk.beat("n1", allocations=[running(start)])
    assert [t.reason for t in closing.take_back] == [TakeBackReason.OPERATION_ENDED]
    assert not [e for e in desk.tick(101.0) if isinstance(e, Release)]
    over = running(start, ended=1, state=AllocationState.ENDED)
    desk.beat("n1", allocations=[over], ends=[an_end(start, result=JobResult.ABORTED)])

    assert Release([OperationId("operation-1")]) in desk.tick(102.0)
    assert not [e for e in desk.tick(103.0) if isinstance(e, Release)]


def test_pages_of_nodes_are_cut_by_bytes() -> None:
    """A thousand nodes in trouble once made a page that nobody could send."""
    desk = Desk({f"n{number:03}": cores(1) for number in range(300)})
    for node in desk.nodes:
        desk.beat(node, obeyed=False, trouble="t" * 4_000)
    seen: list[str] = []
    more = True
    while more:
        page = list_nodes(desk.facts, ListNodes(first=len(seen)), desk.now)
        assert len(encode(page)) <= LARGEST_MESSAGE_BYTES
        seen += [view.node for view in page.nodes]
        more = page.more

    assert seen == sorted(desk.nodes)


def test_short_jobs_are_given_out_by_the_handful_but_never_while_nodes_stand_idle() -> None:
    """Once the length of its jobs is known, an allocation gets as many as end in two round trips, 64 at most."""
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=200))
    orders, _ = desk.beat("n1")
    (start,) = orders.start
    assert len(start.slots) == 1

    over = running(start, ended=1, state=AllocationState.ENDED)
    orders, _ = desk.beat("n1", allocations=[over], ends=[an_end(start, ran_ms=100)])
    assert [len(start.slots) for start in orders.start] == [20]

    desk = Desk({"n1": cores(1, slots=9), "n2": cores(500, slots=999)})
    desk.start(an_operation("operation-1", jobs=200))
    desk.beat("n2", state=NodeState.OPEN, trouble="", total=cores(0, slots=0))
    desk.beat("n2", total=cores(500, slots=999), state=NodeState.DRAINING)
    orders, _ = desk.beat("n1")
    over = running(orders.start[0], ended=1, state=AllocationState.ENDED)
    orders, _ = desk.beat("n1", allocations=[over], ends=[an_end(orders.start[0], ran_ms=100)])
    assert [len(start.slots) for start in orders.start] == [1]


@pytest.mark.parametrize(
    ("result", "is_known"), [(JobResult.FAILED, True), (JobResult.TIMED_OUT, True), (JobResult.ABORTED, False)]
)
def test_the_length_of_jobs_is_learned_from_every_run_that_was_not_interrupted_for_others(
    result: JobResult, is_known: bool
) -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=200))
    orders, _ = desk.beat("n1")
    over = running(orders.start[0], ended=1, state=AllocationState.ENDED)
    desk.beat("n1", allocations=[over], ends=[an_end(orders.start[0], ran_ms=100, result=result)])

    assert (desk.operation("operation-1").mean_job_ms == 100) == is_known


def test_a_living_allocation_is_extended_as_its_jobs_end() -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=300))
    orders, _ = desk.beat("n1")
    over = running(orders.start[0], ended=1, state=AllocationState.ENDED)
    orders, _ = desk.beat("n1", allocations=[over], ends=[an_end(orders.start[0], ran_ms=200)])
    (start,) = orders.start
    assert len(start.slots) == 10

    orders, _ = desk.beat("n1", allocations=[running(start, ended=6)], ends=[an_end(start, at=i) for i in range(6)])

    (extend,) = orders.extend
    assert extend.allocation == start.allocation
    assert [slot.index for slot in extend.slots] == list(range(11, 11 + len(extend.slots)))


def test_a_place_is_given_back_at_the_end_of_its_job_when_another_is_owed_it() -> None:
    """No preemption: the running job ends by itself, only the jobs behind it go back."""
    desk = Desk({"n1": cores(2, slots=9)})
    desk.start(an_operation("op-greedy", jobs=500))
    desk.share(op_greedy=1.0)
    orders, _ = desk.beat("n1")
    overs = [running(start, ended=1, state=AllocationState.ENDED) for start in orders.start]
    orders, _ = desk.beat("n1", allocations=overs, ends=[an_end(start) for start in orders.start])
    starts = orders.start
    desk.start(an_operation("op-greedy", jobs=500), an_operation("op-waiting"))
    desk.share(op_greedy=0.5, op_waiting=0.5)

    orders, _ = desk.beat("n1", allocations=[running(start) for start in starts])

    reasons = {t.allocation: (t.reason, t.timeout_ms) for t in orders.take_back}
    assert orders.extend == []
    assert set(reasons.values()) == {(TakeBackReason.GIVEN_BACK, None)}


def test_more_indexes_are_drawn_before_they_run_out_and_only_once_at_a_time() -> None:
    desk = Desk({"n1": cores(500, slots=999)})
    desk.start(an_operation("operation-1", jobs=5000))

    _, effects = desk.beat("n1")
    (draw,) = [effect for effect in effects if isinstance(effect, Draw)]
    assert draw == Draw(OperationId("operation-1"), 512)
    assert not [e for e in desk.tick(101.0) if isinstance(e, Draw)]
    desk.engine.on_drawn(draw.operation, None, desk.now)

    assert [e for e in desk.tick(102.0) if isinstance(e, Draw)] == [draw]


class NeverWalked(dict[OperationId, Operation]):
    """Operations that may be looked up and not gone through."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all operations are gone through")

    values = items = __iter__


def test_a_block_is_drawn_also_when_jobs_went_to_an_allocation_that_lives() -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=5000, block=129, done=bytes(17)))
    orders, effects = desk.beat("n1")
    assert not [effect for effect in effects if isinstance(effect, Draw)]
    desk.operation("operation-1").note_length(10)

    _, effects = desk.beat("n1", allocations=[running(orders.start[0])])

    assert [effect.operation for effect in effects if isinstance(effect, Draw)] == ["operation-1"]


def test_neither_a_tick_nor_a_cut_of_usage_goes_through_all_operations() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.start(*(an_operation(f"operation-{number}", jobs=300, block=100, done=bytes(13)) for number in range(3)))
    desk.beat("n1")
    desk.tick(101.0)
    desk.facts.operations = NeverWalked(desk.facts.operations)

    desk.engine.on_drawn(OperationId("operation-1"), None, desk.now)
    desk.cut_usage()

    assert [effect.operation for effect in desk.tick(102.0) if isinstance(effect, Draw)] == ["operation-1"]
    assert not desk.tick(103.0)


def test_a_silent_node_leaves_the_total_and_its_jobs_run_elsewhere_only_after_the_lease() -> None:
    desk = Desk({"n1": cores(1, slots=9), "n2": cores(2, slots=9)}, node_heartbeat_timeout_s=60, node_lease_s=600)
    desk.start(an_operation("operation-1", jobs=1))
    orders, _ = desk.beat("n1")
    desk.beat("n1", allocations=[running(orders.start[0])])
    desk.beat("n2")

    # The second node was given nothing: a later allocator need not wait for it.
    assert list(desk.tick(161.0)) == [RecordEmptyNodes([NodeName("n2")])]
    assert desk.facts.total.cpu == 0
    effects = desk.tick(701.0)

    (report,) = [effect for effect in effects if isinstance(effect, Report)]
    assert [(one.node, one.end.result) for one in report.ends] == [("n1", JobResult.LOST)]
    # What was lost with the node counts from when the job began.
    assert [(one.end.started_at_ms, one.end.ended_at_ms) for one in report.ends] == [(1, 701_000)]
    lost = {
        one.labels["pool"]: one.value for one in pool_figures(desk.engine)() if one.family == "jobs_lost_with_nodes"
    }
    assert lost == {"<Root>": 0, desk.operation("operation-1").spec.pool: 1}
    assert list(desk.tick(702.0)) == []


def test_news_of_an_operation_nudge_as_many_nodes_as_it_can_use_and_no_more() -> None:
    desk = Desk({f"n{number}": cores(2, slots=9) for number in range(5)})
    for name in desk.nodes:
        desk.beat(name)
    desk.start(an_operation("operation-1", jobs=5))

    effects = desk.share(operation_1=0.5)

    assert len([effect for effect in effects if isinstance(effect, NudgeNode)]) == 3


def test_while_recovering_a_doubtful_job_waits_until_every_node_has_spoken_in_this_term() -> None:
    """A word from before this term does not count: it may be late."""
    desk = Desk({})
    desk.engine = AllocatorEngine(TREE, TERM, desk.facts.timing)
    desk.nodes = {"n1": cores(1, slots=9)}
    desk.seq, desk.applied = {"n1": 0}, {"n1": 0}
    desk.engine.on_operations([an_operation("operation-1", jobs=1, term=TERM - 1)], desk.now)
    desk.engine.on_nodes({NodeName("n1"): NodeRecord(NodeName("n1"))}, desk.now)
    desk.tell([a_share("operation-1", 1.0)], total=cores(1, slots=9))
    assert "recovering: 0 of 1" in desk.reasons("operation-1")[0]

    first, _ = desk.beat("n1", term=TERM - 1)
    second, _ = desk.beat("n1", term=TERM)

    assert first.start == []
    assert first.next_heartbeat_ms < 1000
    assert [start.slots for start in second.start] == [[JobSlot(0)]]


def test_every_reason_for_waiting_is_told_with_its_figures() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.start(an_operation("operation-1", size=cores(64)), an_operation("operation-2", size=cores(4), jobs=2))
    desk.beat("n1")
    desk.refresh()

    (too_large,) = desk.reasons("operation-1")
    (no_room, unknown_share) = desk.reasons("operation-2")

    assert "cpu 64 (the most any node has is 4)" in too_large
    assert "n1" in too_large
    assert "fair share" in unknown_share
    assert "1 node takes jobs" in no_room


def test_jobs_larger_than_every_node_ask_for_nothing_in_the_published_demand() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.beat("n1")
    desk.start(an_operation("operation-1", size=cores(64)))

    (item, _nodes) = desk.cut_usage().items
    assert (item.pending_jobs, item.pending) == (10, cores(0, slots=0))


def test_only_what_changed_is_published() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.start(an_operation("operation-1"), an_operation("operation-2"))
    desk.cut_usage()

    desk.learn(OperationSuspended(OperationId("operation-2"), suspended=True, at_ms=1))
    cut = desk.cut_usage()

    assert [item.operation for item in cut.items] == ["operation-2"]
    assert cut.gone == []


def test_a_large_cut_of_usage_is_made_in_slices_and_tells_all_at_once() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.start(*(an_operation(f"operation-{number}") for number in range(5)))

    assert desk.engine.on_usage_due(2, desk.now).answer is None
    over = OperationStateChanged(OperationId("operation-0"), OperationState.ABORTED, StateCause.ABORTED_BY_USER, "", 1)
    desk.learn(over, OperationSuspended(OperationId("operation-1"), suspended=True, at_ms=1))
    assert desk.engine.on_usage_due(2, desk.now).answer is None
    cut = desk.engine.on_usage_due(2, desk.now).answer

    assert cut is not None
    assert [item.operation for item in cut.items] == [f"operation-{number}" for number in range(1, 5)]
    assert cut.gone == ["operation-0"]
    assert [(item.operation, item.pending_jobs) for item in desk.cut_usage().items] == [("operation-1", 0)]


def test_new_shares_are_taken_in_slices_and_by_operations_without_a_share_first() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.beat("n1")
    desk.start(*(an_operation(f"operation-{number}") for number in range(4)))
    desk.share(operation_0=0.1, operation_1=0.1, operation_2=0.1)
    desk.node("n1").nudged = False
    items = {item.key: item for item in (a_share(f"operation-{number}", 0.2) for number in range(4))}
    desk.engine.on_shares(ShareSnapshot(items, items.keys(), options=desk.options), desk.now)

    more, effects = msgspec.structs.astuple(desk.engine.on_refresh_due(1, desk.now))
    owed = [desk.operation(f"operation-{number}").fair_share[1] for number in range(4)]

    assert (more, owed) == (True, [0.1, 0.1, 0.1, 0.2])
    assert effects == [NudgeNode(NodeName("n1"))]
    desk.refresh()
    assert {desk.operation(f"operation-{number}").fair_share[1] for number in range(4)} == {0.2}


def test_a_share_that_came_before_its_operation_is_taken_once_the_operation_is_known() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    desk.beat("n1")
    desk.share(operation_1=0.1)

    desk.start(an_operation("operation-1"))

    assert desk.operation("operation-1").fair_share[1] == 0.1


def test_heartbeats_and_shares_that_change_nothing_are_no_news() -> None:
    desk = Desk({"n1": cores(4, slots=9)})
    assert usage_changed(desk.facts)
    desk.cut_usage()

    desk.beat("n1")
    assert usage_changed(desk.facts)
    desk.cut_usage()
    desk.beat("n1")
    assert not usage_changed(desk.facts)

    desk.start(an_operation("operation-1"))
    assert usage_changed(desk.facts)


def test_a_suspended_operation_keeps_what_runs_unless_that_is_to_end_as_well() -> None:
    desk = Desk({"n1": cores(1, slots=9)})
    desk.start(an_operation("operation-1", jobs=5))
    orders, _ = desk.beat("n1")
    (start,) = orders.start
    desk.beat("n1", allocations=[running(start)])

    desk.learn(OperationSuspended(OperationId("operation-1"), suspended=True, at_ms=1))
    kept, _ = desk.beat("n1", allocations=[running(start)])
    hard = OperationSuspended(OperationId("operation-1"), suspended=True, at_ms=2, abort_running_jobs=True)
    effects = desk.learn(hard)
    ended, _ = desk.beat("n1", allocations=[running(start)])

    assert kept.take_back == []
    assert NudgeNode(NodeName("n1")) in effects
    assert [(each.allocation, each.reason) for each in ended.take_back] == [
        (start.allocation, TakeBackReason.SUSPENDED)
    ]

    desk.learn(OperationSuspended(OperationId("operation-1"), suspended=False, at_ms=3))
    resumed, _ = desk.beat("n1", allocations=[running(start)], obeyed=False)
    assert resumed.take_back == []


def test_what_was_missed_of_an_operation_is_learnt_from_the_whole() -> None:
    """Its pool and its weight among it."""
    desk = Desk({"n1": cores(1, slots=9)})
    operation = an_operation("operation-1")
    desk.start(operation)
    moved = msgspec.structs.replace(operation.spec, pool=PoolName("elsewhere"), weight=3.0)

    desk.start(msgspec.structs.replace(operation, spec=moved, suspended=True, ends_running_jobs=True))

    known = desk.operation("operation-1")
    assert (known.spec, known.taken_back) == (moved, TakeBackReason.SUSPENDED)


def test_every_sum_and_every_place_in_the_order_is_checked() -> None:
    """Each damage is told by the structure that it is in."""
    damages: dict[str, Callable[[Desk], None]] = {
        "used differs": lambda desk: setattr(desk.node("n1"), "used", cores(3)),
        "held differs": lambda desk: setattr(desk.operation("operation-1"), "held", cores(3)),
        "unconfirmed differs": lambda desk: desk.operation("operation-1").unconfirmed.clear(),
        "running_jobs differs": lambda desk: setattr(desk.operation("operation-1"), "running_jobs", 3),
        "that are given out differ": lambda desk: desk.operation("operation-1").slots.give_back([JobSlot(0)]),
        "total cpu differs": lambda desk: setattr(desk.facts, "total", cores(3)),
        "used memory differs": lambda desk: setattr(desk.facts, "used", desk.facts.used + Resources(memory=1)),
        "online_nodes differs": lambda desk: setattr(desk.facts, "online_nodes", 3),
        "position in the order does not follow": lambda desk: setattr(desk.operation("operation-1"), "rank", 7),
        "job class does not follow": lambda desk: setattr(
            desk.operation("operation-1"), "preemption_priority", PreemptionPriority.NORMAL
        ),
        "is in the order and is not known": lambda desk: desk.facts.operations.clear(),
    }
    for words, damage in damages.items():
        desk = Desk({"n1": cores(2, slots=9)})
        desk.start(an_operation("operation-1"))
        desk.beat("n1")
        desk.refresh()
        assert desk.engine.check() == []
        damage(desk)

        assert any(words in told for told in desk.engine.check()), words


def test_figures_of_all_pools_are_for_prometheus_alone() -> None:
    desk = Desk({})
    names = {figure.name for figure in desk.engine.figures()}

    of_pools = {figure.name for figure in pool_figures(desk.engine)()}

    assert of_pools == {"jobs_lost_with_nodes_of_<Root>"} | {
        f"pool_preempted_{reason.value}_<Root>" for reason in PreemptionReason
    }
    assert not names & of_pools


def test_figures_count_what_there_is() -> None:
    desk = Desk({"n1": cores(2, slots=9), "n2": cores(2, slots=9)})
    desk.start(an_operation("operation-1"), an_operation("operation-2", size=cores(2)))
    desk.beat("n1")

    figures = {figure.name: figure.value for figure in desk.engine.figures()}

    assert figures == {
        "nodes": 2,
        "online_nodes": 1,
        "heartbeats_above_rate": 0,
        "pace_stretch": 1.0,
        "heartbeat_wait": 0.0,
        "operations": 2,
        "operations_in_order": 2,
        "held_back_operation_not_running": 0,
        "held_back_operation_suspended": 0,
        "held_back_gang_waits": 0,
        "held_back_gang_never_fits": 0,
        "held_back_job_size_refused": 0,
        "held_back_no_job_ready": 0,
        "held_back_no_share_yet": 0,
        "held_back_fair_share_reached": 0,
        "held_back_demand_covered": 0,
        "held_back_fifo_count_reached": 0,
        "held_back_operation_limit_reached": 0,
        "room_left_no_job_waits": 0,
        "room_left_no_job_fits": 1,
        "room_left_tags_differ": 0,
        "room_left_held_back": 0,
        "room_left_reserved": 0,
        "reserved_nodes": 0,
        "reservations_ended_started": 0,
        "reservations_ended_moved": 0,
        "reservations_ended_timed_out": 0,
        "reservations_ended_released": 0,
        "unmet_guarantees": 0,
        "unmet_guarantees_found": 0,
        "deactivations_min_needed_resources_unsatisfied": 2,
        "deactivations_unmatched_scheduling_tag": 0,
        "deactivations_resource_limits_exceeded": 0,
        "deactivations_gang_waits_for_a_turn": 0,
        "deactivations_is_not_eligible_for_aggressive_preemptive_scheduling": 0,
        "deactivations_is_not_eligible_for_normal_preemptive_scheduling": 0,
        "deactivations_schedule_allocation_failed": 0,
        "deactivations_no_best_leaf_descendant": 0,
        "preempted_by_preemption": 0,
        "preempted_by_aggressive_preemption": 0,
        "preempted_by_graceful_preemption": 0,
        "preempted_by_resource_limits_violated": 0,
        "preempted_by_resource_overcommit": 0,
        "preempted_by_pool_shortage": 0,
        "would_preempt_by_preemption": 0,
        "would_preempt_by_aggressive_preemption": 0,
        "would_preempt_by_graceful_preemption": 0,
        "would_preempt_by_resource_limits_violated": 0,
        "would_preempt_by_resource_overcommit": 0,
        "would_preempt_by_pool_shortage": 0,
        "preempted_of_non_preemptible": 0,
        "preempted_of_aggressively_preemptible": 0,
        "preempted_of_preemptible": 0,
        "job_classes_in_order": 2,
        "heartbeats": 1,
        "void_heartbeats": 0,
        "twice_held_jobs": 0,
        "foreign_claims": 0,
        "allocations_made": 2,
        "preemptions_undone": 0,
        "preempted_unused_user_slots": 0,
        "preempted_unused_cpu": 0,
        "preempted_unused_gpu": 0,
        "preempted_unused_memory": 0,
        "preempted_unused_network": 0,
        "preempted_too_much_operation_below_fair_share": 0,
        "preempted_too_much_pool_below_guarantee": 0,
        "preempted_again": 0,
        "preempted_again_and_again": 0,
        "shares_are_old": 0,
        "claims_seen_to": 0,
        "warned": 0,
        "plans_made": 0,
        "plans_dropped": 0,
        "gangs_gathering": 0,
        "gangs_started": 0,
        "gangs_given_up": 0,
        "gangs_taken_back": 0,
        "stuck": 0,
        "stuck_operations": 0,
        "held_back_nodes": 0,
        "suspect_nodes": 0,
        "suspect_nodes_found": 0,
        "tried_nodes": 0,
    }
