"""What an answer orders must fit into the node's next heartbeats, however few slots its allocations have."""

from __future__ import annotations

import pytest

from headrace.ids import AllocationId, Incarnation, NodeName, OperationId, TreeName
from headrace.resources import Resources
from headrace.wire.heartbeat import (
    LARGEST_PICTURE_BYTES,
    AllocationReport,
    AllocationState,
    Heartbeat,
    HeartbeatReason,
    JobSlot,
    picture_bytes,
)
from headrace_allocator.heartbeat_orders import AnswerBudget


def a_heartbeat(allocations: int, unstarted: int) -> Heartbeat:
    slots = [JobSlot(index) for index in range(unstarted)]
    report = AllocationReport(
        AllocationId("a"), OperationId("o"), AllocationState.RUNNING, Resources(1, 100), unstarted=slots
    )
    return Heartbeat(
        NodeName("n"), TreeName("default"), Incarnation("n-1"), 1, 0, 1, HeartbeatReason.PERIOD,
        total=Resources(), allocations=[report] * allocations,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("allocations", "unstarted"),
    [
        pytest.param(0, 0, id="nothing held"),
        pytest.param(20, 0, id="room for all slots that there may be"),
        pytest.param(400, 64, id="more slots than that leaves room for"),
        pytest.param(1_000, 1, id="few slots in very many allocations"),
        pytest.param(1_470, 0, id="hardly any room left"),
    ],
)
def test_as_much_is_ordered_as_a_node_can_tell_of(allocations: int, unstarted: int) -> None:
    held_bytes = picture_bytes(allocations, allocations * unstarted)
    budget, ordered = AnswerBudget(a_heartbeat(allocations, unstarted)), 0
    while budget.fits_jobs(1, allocations=1):
        ordered += 1
        if ordered == 2_000:
            break

    room_for = (LARGEST_PICTURE_BYTES - held_bytes) // picture_bytes(1, 1)
    assert ordered == max(0, room_for)
    assert budget.is_short
