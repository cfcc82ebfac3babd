"""Nodes whose heartbeats say what cannot be: the books stay exact, and every job runs in the end."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult, JobSlot, RunningJob
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from tests.support.allocating import TERM, Desk, an_operation, cores
from tests.unit.allocator.test_preemption import FOUR, Host, a_share, rich, used


def test_the_end_of_an_attempt_that_nobody_let_out_keeps_no_job_from_running() -> None:
    """The ledger answers no such end, so that the job would wait for ever."""
    host = Host()
    host.next_beat()
    ready = host.operation("rich").slots.ready_count
    running, waiting = (
        JobEnd(OperationId("rich"), index, 2, host.starts[0].allocation, JobResult.LOST) for index in (0, 5)
    )

    host.next_beat(ends=[running, waiting])

    assert host.operation("rich").slots.ready_count == ready
    assert host.operation("rich").slots.is_out(0)


def test_an_end_that_a_node_tells_of_another_operation_takes_no_job_out_of_its_place() -> None:
    host = Host(an_operation("other"))
    host.next_beat()
    start = host.starts[0]
    slot = start.slots[0]
    mistaken = JobEnd(OperationId("other"), slot.index, slot.attempt, start.allocation, JobResult.LOST)

    # `beat` checks that the jobs that are out are those in allocations.
    host.next_beat(ends=[mistaken])

    assert host.operation("rich").slots.is_out(slot.index)


def test_jobs_that_a_node_shows_under_the_name_of_another_operation_are_booked_where_the_allocation_is() -> None:
    host = Host(an_operation("other"))
    host.next_beat()
    mistaken = msgspec.structs.replace(host.picture()[0], operation=OperationId("other"), unstarted=[JobSlot(7)])

    # Else job 7 of `other` would be out in a place that is not its own, and never come back.
    host.next_beat(allocations=[mistaken, *host.picture()[1:]])

    assert not host.operation("other").slots.is_out(7)


def test_a_job_that_a_node_gives_back_twice_at_once_is_ready_once() -> None:
    host = Host()
    host.next_beat()
    ready = host.operation("rich").slots.ready_count
    ended = msgspec.structs.replace(
        host.picture()[3], state=AllocationState.ENDED, job=None, unstarted=list(host.starts[3].slots) * 2
    )
    host.facts.starts_paused = True

    host.next_beat(allocations=[*host.picture()[:3], ended])

    assert host.operation("rich").slots.ready_count == ready + 1


def test_who_gave_a_place_up_that_nobody_asked_for_has_its_place_in_the_order_by_that() -> None:
    host = Host()
    host.next_beat()
    host.tell([a_share("rich", 4, demand=8)], total=FOUR)
    host.facts.starts_paused = True
    record = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId("poor"))
    closing = msgspec.structs.replace(host.picture()[0], state=AllocationState.CLOSING, preemption=record)

    # `beat` checks that each operation stands in the order where its usage puts it.
    host.next_beat(allocations=[closing, *host.picture()[1:]])

    assert used(host, "rich") == 3


def test_an_allocation_that_is_named_twice_hides_none_that_is_missing() -> None:
    host = Host()
    host.next_beat()
    host.facts.starts_paused = True
    missing = host.starts[3].slots[0]

    host.next_beat(allocations=[*host.picture()[:3], host.picture()[0]])

    assert len(host.node("n").allocations) == 3
    assert not host.operation("rich").slots.is_out(missing.index)
    assert used(host, "rich") == 3


@pytest.mark.parametrize("state", [AllocationState.RUNNING, AllocationState.CLOSING, AllocationState.ENDED])
def test_what_a_node_still_shows_of_an_operation_whose_id_comes_again_belongs_to_it_and_harms_nothing(
    state: AllocationState,
) -> None:
    """So it is in a tree whose jobs of an operation were given to another tree, and that draws of it again."""
    host = Host()
    host.next_beat()
    over = [msgspec.structs.replace(one, state=state) for one in host.picture()]
    host.facts.starts_paused = True

    host.start()
    host.start(msgspec.structs.replace(rich(), block_term=TERM - 1))
    host.next_beat(allocations=over)
    slots = host.operation("rich").slots
    shown_as_out = [slots.is_out(one.slots[0].index) for one in host.starts]
    host.next_beat(allocations=[])

    assert shown_as_out == [state is not AllocationState.ENDED] * 4
    assert host.node("n").used.cpu == used(host, "rich") * 100


def test_a_job_of_an_operation_that_is_not_known_yet_is_given_to_nobody_else_once_it_is() -> None:
    desk = Desk({"n": FOUR})
    job = RunningJob(0, 1, 1, 10)
    shown = AllocationReport(AllocationId("4-1"), OperationId("late"), AllocationState.RUNNING, cores(1), job)
    desk.beat("n", allocations=[shown])

    desk.start(an_operation("late", term=TERM - 1))
    desk.share(late=4)
    orders, _ = desk.beat("n", term=TERM, allocations=[shown])

    assert desk.operation("late").slots.is_out(0)
    assert [one.slots[0].index for one in orders.start] == [1, 2, 3]
