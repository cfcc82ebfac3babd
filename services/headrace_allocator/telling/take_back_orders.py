"""Orders to a node to end an allocation, or to give it back at the end of its job. Pure."""

from __future__ import annotations

from typing import Final

from headrace.wire.heartbeat import TakeBack, TakeBackReason
from headrace_allocator.decision.extending import GiveBack
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation

#: Milliseconds between the request to end and the kill, for an operation that is not known.
_INTERRUPTION_TIMEOUT_MS: Final = 10_000


def order_to_take_back(allocation: Allocation, operation: Operation | None, *, at_once: bool = False) -> TakeBack:
    """Return the order for an allocation that must end. `operation` is None if it is not known."""
    assert allocation.take_back is not None
    record = allocation.preemption
    if at_once:
        timeout_ms = 0
    elif record is not None:
        timeout_ms = record.timeout_ms
    else:
        timeout_ms = operation.spec.interruption_timeout_ms if operation else _INTERRUPTION_TIMEOUT_MS
    return TakeBack(allocation.id, allocation.take_back, timeout_ms, record.words if record else "", record)


def order_to_give_back(one: GiveBack) -> TakeBack:
    """Return the order to give an allocation back for use by another operation. The running job is not interrupted."""
    return TakeBack(allocation=one.allocation.id, reason=TakeBackReason.GIVEN_BACK, timeout_ms=None)
