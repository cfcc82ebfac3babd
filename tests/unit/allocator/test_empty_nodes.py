"""Nodes that run nothing, as an allocator records them for the next one, and jobs that it never gave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot, NodeState, Orders
from headrace.wire.log import IndexRun
from headrace.wire.nodes import LongestLeaseRecord, NodeRecord
from headrace_allocator.effects import Effect, NudgeNode, RecordEmptyNodes, Report
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.empty_nodes import EmptyNodes
from tests.support.allocating import TERM, TREE, Desk, an_operation, cores, drawn_before, nothing_owed
from tests.unit.allocator.test_recovery import running, waiting

STOPPING: dict[str, Any] = {"state": NodeState.STOPPING, "term": TERM}


def recorded(effects: Sequence[Effect]) -> list[str] | None:
    """The names that are to be recorded, None if nothing is."""
    told = [one.nodes for one in effects if isinstance(one, RecordEmptyNodes)]
    assert len(told) < 2
    return list(told[0]) if told else None


def written(desk: Desk, *, durable: bool = True) -> Sequence[Effect]:
    """The record is written."""
    return desk.engine.on_empty_nodes_recorded(durable=durable, now=desk.now).effects


def a_desk(*nodes: str, **timing: Any) -> Desk:
    desk = Desk({name: cores(1, slots=9) for name in nodes}, recovering=True, **timing)
    for name in nodes:
        desk.beat(name, term=TERM)
    return desk


def succeeded(desk: Desk, left: LongestLeaseRecord, *operations: Any) -> Desk:
    """The next allocator, to which the one before left this. No node has spoken to it."""
    later = Desk(desk.nodes)
    later.engine = AllocatorEngine(TREE, TERM, later.facts.timing)
    later.engine.on_operations(operations, later.now)
    later.engine.on_left(left, later.now)
    later.engine.on_nodes({NodeName(name): NodeRecord(NodeName(name)) for name in desk.nodes}, later.now)
    Desk.tell(later, [nothing_owed(each) for each in operations], total=cores(1000, slots=1000))
    return later


def test_a_node_that_stops_in_order_is_recorded_and_the_next_allocator_does_not_wait_for_it() -> None:
    desk = a_desk("off", "on")

    _, effects = desk.beat("off", **STOPPING)
    later = succeeded(desk, LongestLeaseRecord(empty_nodes=[NodeName("off")]), drawn_before(an_operation("op", jobs=1)))
    orders, _ = later.beat("on", term=TERM)

    assert recorded(effects) == ["off"]
    assert len(orders.start) == 1


def test_a_node_that_is_back_gets_jobs_only_once_the_record_without_it_is_durable() -> None:
    desk = a_desk("n")
    desk.beat("n", **STOPPING)
    written(desk)
    desk.start(an_operation("op", jobs=1))

    early, effects = desk.beat("n", term=TERM)
    still, _ = desk.beat("n", term=TERM)
    released = written(desk)
    orders, _ = desk.beat("n", term=TERM)

    assert recorded(effects) == []
    assert early.start == still.start == []
    assert NudgeNode(NodeName("n")) in released
    assert len(orders.start) == 1


def test_a_node_that_is_back_while_it_is_being_recorded_waits_for_the_next_write() -> None:
    desk = a_desk("n")
    desk.beat("n", **STOPPING)
    desk.start(an_operation("op", jobs=1))

    early, effects = desk.beat("n", term=TERM)
    again = written(desk)
    still, _ = desk.beat("n", term=TERM)
    written(desk)

    assert recorded(effects) is None, "one write at a time"
    assert recorded(again) == []
    assert early.start == still.start == []
    assert len(desk.beat("n", term=TERM)[0].start) == 1


def test_a_write_of_which_the_outcome_is_not_known_counts_both_ways_and_is_repeated() -> None:
    desk = a_desk("n")
    desk.beat("n", **STOPPING)
    assert written(desk, durable=False) == []
    desk.start(an_operation("op", jobs=1))

    early, effects = desk.beat("n", term=TERM)

    assert recorded(effects) == []
    assert early.start == []
    assert written(desk, durable=False) == []
    assert desk.beat("n", term=TERM)[0].start == []
    assert recorded(desk.tick(desk.now_s)) is None, "its heartbeat had it written again"
    written(desk)
    assert len(desk.beat("n", term=TERM)[0].start) == 1


def holds_an_order(desk: Desk) -> Orders:
    desk.start(an_operation("op", jobs=1))
    return desk.beat("n", term=TERM)[0]


@pytest.mark.parametrize("obeys", [True, False])
def test_a_node_that_may_still_obey_an_order_is_not_recorded_before_its_lease_is_over(obeys: bool) -> None:
    desk = a_desk("n", node_lease_s=100.0, longest_lease_s=100.0)
    (start,) = holds_an_order(desk).start
    if obeys:
        desk.beat("n", term=TERM, allocations=[running(start.allocation, "op", 0)])

    silent = desk.tick(desk.now_s + 70)
    over = desk.tick(desk.now_s + 101)
    (report,) = [one for one in over if isinstance(one, Report)]
    before = desk.tick(desk.now_s + 102)
    desk.engine.on_recorded(report.ends, desk.now)
    after = desk.tick(desk.now_s + 103)

    assert recorded(silent) is recorded(over) is None
    assert recorded(before) is None, "the ledger does not have the loss yet"
    assert recorded(after) == ["n"]


def test_orders_of_a_node_that_holds_nothing_are_a_broken_invariant() -> None:
    """A node is recorded as empty by its allocations alone, so that an order of none would be missed there."""
    desk = a_desk("n")
    holds_an_order(desk)
    assert desk.engine.check() == []

    for allocation in [*desk.node("n").allocations.values()]:
        desk.facts.remove(allocation)

    assert any("orders that it may still obey" in words for words in desk.engine.check())


def test_a_node_that_falls_silent_with_nothing_on_it_is_recorded_when_it_is_offline() -> None:
    desk = a_desk("n")

    assert recorded(desk.tick(desk.now_s + 59)) is None
    assert recorded(desk.tick(desk.now_s + 61)) == ["n"]
    written(desk)
    assert recorded(desk.tick(desk.now_s + 62)) is None


def test_a_node_whose_jobs_wait_for_it_is_not_recorded() -> None:
    desk = a_desk("n", node_lease_s=100.0, longest_lease_s=100.0)
    desk.start(waiting(an_operation("op", jobs=1)))
    desk.beat("n", term=TERM)

    assert recorded(desk.tick(desk.now_s + 500)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"ends": [JobEnd(OperationId("op"), 0, 1, AllocationId("4-1"), JobResult.COMPLETED)]},
        {"ends_waiting": 1},
        {"term": TERM - 1},
        {"allocations": [running("4-1", "op", 0)]},
    ],
)
def test_a_node_that_stops_and_may_have_something_is_not_recorded(changes: dict[str, Any]) -> None:
    """An end, one that found no room, an order of a former allocator, or a job that its runner keeps."""
    desk = Desk({"n": cores(1, slots=9)}, recovering=True)
    desk.start(drawn_before(an_operation("op", jobs=1)))

    _, effects = desk.beat("n", **{**STOPPING, **changes})

    assert recorded(effects) is None


def test_a_lost_node_is_not_recorded_while_a_job_that_may_have_run_there_is_in_doubt() -> None:
    desk = Desk({"gone": cores(1)}, recovering=True)
    desk.start(drawn_before(an_operation("op", jobs=1)))

    lost = desk.tick(desk.now_s + 601)
    (report,) = [one for one in lost if isinstance(one, Report)]
    before = desk.tick(desk.now_s + 602)
    desk.engine.on_recorded(report.ends, desk.now)

    assert recorded(lost) is recorded(before) is None
    assert recorded(desk.tick(desk.now_s + 603)) == ["gone"]


def test_a_node_that_was_removed_leaves_the_record() -> None:
    desk = a_desk("n", "other")
    later = succeeded(desk, LongestLeaseRecord(empty_nodes=[NodeName("n"), NodeName("unknown")]))

    effects = later.tick(later.now_s)

    assert recorded(effects) == ["n"]


def test_the_reason_names_the_nodes_that_may_still_run_jobs() -> None:
    desk = Desk({"on": cores(1), "off": cores(1)}, recovering=True)
    desk.start(drawn_before(an_operation("op", jobs=3)))
    desk.beat("on", term=TERM)

    assert desk.reasons("op")[0] == (
        "the allocator is recovering: 1 of 2 nodes have reported; 3 jobs may still be running on off"
    )


def test_jobs_that_an_allocator_never_gave_out_are_ready_for_the_next_one_whichever_node_is_silent() -> None:
    desk = a_desk("n", "dead")
    live = an_operation("op", jobs=400)
    desk.start(live)
    desk.beat("dead", term=TERM)
    left = desk.engine.on_stopping(desk.now).answer
    nothing = desk.beat("n", term=TERM)[0]

    later = succeeded(desk, LongestLeaseRecord(not_given_out=left), drawn_before(live))
    orders, _ = later.beat("n", term=TERM)

    assert left == {"op": [IndexRun(1, 256), IndexRun(256, 400)]}
    assert nothing.start == [], "it was its last word"
    assert later.operation("op").slots.in_doubt() == [JobSlot(0)]
    assert [one.slots for one in orders.start] == [[JobSlot(1)]]


def test_an_allocator_that_recovers_itself_hands_over_no_job_that_is_in_doubt() -> None:
    desk = Desk({"n": cores(1), "dead": cores(1)}, recovering=True)
    desk.start(drawn_before(an_operation("op", jobs=400)))

    assert desk.engine.on_stopping(desk.now).answer == {"op": [IndexRun(256, 400)]}


def test_what_an_allocator_hands_over_fits_a_message() -> None:
    desk = Desk({"n": cores(1)})
    desk.start(*[an_operation(f"operation-{number:050}", jobs=1000) for number in range(3_000)])

    left = desk.engine.on_stopping(desk.now).answer

    assert 1_000 < len(left) < 3_000
    assert len(msgspec.json.encode(LongestLeaseRecord(not_given_out=left))) < 200 * 1024


def test_the_record_holds_as_many_names_as_fit_it() -> None:
    empty = EmptyNodes()
    for number in range(10_000):
        empty.add(NodeName(f"node-{number:055}"))
    names = empty.next_write()

    assert names is not None
    assert len(msgspec.json.encode(names)) <= 128 * 1024
    assert len(names) > 1_900


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["gone", "back", "write", "done", "lost"])), max_size=60)
)
def test_always_a_node_that_may_stand_in_the_record_is_known(course: list[tuple[str, str]]) -> None:
    """Whatever is lost: the record that a successor reads names no node that may get jobs."""
    empty, there, doubt, writing = EmptyNodes(), set[str](), list[set[str]](), list[set[str]]()
    for name, what in course:
        if what == "gone":
            empty.add(NodeName(name))
        elif what == "back":
            empty.discard(NodeName(name))
        elif what == "write":
            names = empty.next_write()
            if names is not None:
                writing.append({str(each) for each in names})
        elif writing:
            wrote = writing.pop()
            if what == "done":
                there, doubt = wrote, []
            else:
                doubt.append(wrote)
            empty.written(durable=what == "done")
        for may_stand in [there, *doubt, *writing]:
            assert may_stand <= {str(each) for each in empty.names}
