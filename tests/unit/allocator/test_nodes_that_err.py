"""Nodes whose heartbeats say what cannot be: the books stay exact, and every job runs in the end."""

from __future__ import annotations

import msgspec

from headrace.ids import OperationId
from headrace.wire.heartbeat import AllocationState, JobEnd, JobResult, JobSlot
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from tests.support.allocating import an_operation
from tests.unit.allocator.test_preemption import FOUR, Host, a_share, used


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
