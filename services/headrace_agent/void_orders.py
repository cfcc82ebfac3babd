"""The rules by which messages of an allocator are void. A void message is only counted and has no other effect.

Pure. Orders are void as a whole. So the next heartbeat, whose field `applied` names the last answer that was obeyed, shows the allocator
that none of these orders were carried out.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.ids import AllocationId, Incarnation, NodeName
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS, LARGEST_PICTURE_BYTES, Nudge, Orders, picture_bytes
from headrace.wire.version import Term
from headrace_agent.allocations.node_allocations import NodeAllocations

#: Length in characters of the longest legal id of an allocation or operation. Longer ids would make heartbeats too large.
_LONGEST_ID: Final = 64


class Awaited(msgspec.Struct, frozen=True):
    """The values that orders must name to be obeyed: this node, this incarnation, the heartbeat in flight, and at least this term."""

    node: NodeName
    incarnation: Incarnation
    #: Sequence number of the heartbeat in flight; None: none is in flight.
    seq: int | None
    #: The highest allocator term whose orders were obeyed.
    term: Term


def why_orders_are_void(orders: Orders, awaited: Awaited, held: NodeAllocations) -> str:
    """Return why these orders are void, or an empty string if they are to be obeyed."""
    if orders.node != awaited.node:
        return f"for node {orders.node}"
    if orders.incarnation != awaited.incarnation:
        return "for another incarnation of this agent"
    if orders.seq != awaited.seq:
        return f"not the awaited answer, whose sequence number is {'none' if awaited.seq is None else awaited.seq}"
    if orders.term < awaited.term:
        return f"term {orders.term} is over, term {awaited.term} is known"
    if not orders.enrolled and (orders.start or orders.extend):
        # All the orders are void, not only the jobs, so that this answer does not extend the node's lease either.
        return "jobs for a node that is not enrolled"
    return _too_long_an_id(orders) or _too_many_slots(orders, held) or _too_large_a_picture(orders, held)


def why_nudge_is_void(nudge: Nudge, node: NodeName, term: Term) -> str:
    """Return why a nudge is void, or an empty string if it is to be obeyed."""
    if nudge.node != node:
        return f"for node {nudge.node}"
    return f"term {nudge.term} is over, term {term} is known" if nudge.term < term else ""


def _too_long_an_id(orders: Orders) -> str:
    for start in orders.start:
        if max(len(start.allocation), len(start.operation)) > _LONGEST_ID:
            return f"{start.allocation[:20]}… of {start.operation[:20]}… has too long an id"
    return ""


def _too_large_a_picture(orders: Orders, held: NodeAllocations) -> str:
    """Return why the node, if it obeyed the orders, would hold more than a heartbeat can report; an empty string if it would not."""
    given = [order.slots for order in orders.start] + [order.slots for order in orders.extend]
    if not given:
        return ""
    allocations = len(held.by_id) + len(orders.start)
    unstarted = held.unstarted + sum(map(len, given))
    if picture_bytes(allocations, unstarted) <= LARGEST_PICTURE_BYTES:
        return ""
    return f"{allocations} allocations with {unstarted} slots are more than a heartbeat can report"


def _too_many_slots(orders: Orders, held: NodeAllocations) -> str:
    """Return a text if an allocation would get more slots than a heartbeat can report (`LARGEST_ALLOCATION_JOBS`); else an empty string."""
    counts: dict[AllocationId, int] = {}
    for extend in orders.extend:
        allocation = held.by_id.get(extend.allocation)
        if allocation is None:
            continue
        count = counts.get(allocation.id, len(allocation.unstarted)) + len(extend.slots)
        if count > LARGEST_ALLOCATION_JOBS:
            return f"{allocation.id} would have more than {LARGEST_ALLOCATION_JOBS} slots"
        counts[allocation.id] = count
    return ""
