"""What makes orders unusable whoever sent them: figures that this node could not report back, names that are none.

Pure. Such orders are void as a whole, so that the allocator learns from `applied` that they never happened.
"""

from __future__ import annotations

from typing import Final

from headrace.errors import BadInput
from headrace.ids import AllocationId, operation_id
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS, Orders
from headrace_agent.node_allocations import NodeAllocations

__all__ = ["defect_of_figures", "is_legal"]

#: Longer ones are nobody's names, and would make heartbeats too large.
_LONGEST_ID: Final = 200


def defect_of_figures(orders: Orders, books: NodeAllocations) -> str:
    """Why these orders cannot be obeyed; empty: they can."""
    for start in orders.start:
        if max(len(start.allocation), len(start.operation)) > _LONGEST_ID:
            return f"{start.allocation[:20]}… of {start.operation[:20]}… has too long an id"
    counts: dict[AllocationId, int] = {}
    for extend in orders.extend:
        allocation = books.allocations.get(extend.allocation)
        if allocation is None:
            continue
        count = counts.get(allocation.id, len(allocation.unstarted)) + len(extend.slots)
        if count > LARGEST_ALLOCATION_JOBS:
            return f"{allocation.id} would have more than {LARGEST_ALLOCATION_JOBS} slots"
        counts[allocation.id] = count
    return ""


def is_legal(operation: str) -> bool:
    """The runner breaks the conversation off over an operation whose id is none, as ids become parts of paths there."""
    try:
        operation_id(operation)
    except BadInput:
        return False
    return True
