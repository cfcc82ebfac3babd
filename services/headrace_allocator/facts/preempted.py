"""Allocations that are taken back for others. From the decision on they count as used no more, so that others may have the room.

A graceful request is no more than that: what it asks for counts until it ends.
"""

from __future__ import annotations

from typing import Final

from headrace.resources import ZERO
from headrace.wire.heartbeat import TakeBackReason
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts

_FOR_LIMITS: Final = frozenset({PreemptionReason.RESOURCE_LIMITS_VIOLATED, PreemptionReason.RESOURCE_OVERCOMMIT})


def preempt(facts: Facts, allocation: Allocation, record: PreemptionRecord) -> None:
    """Takes an allocation back."""
    allocation.picture.booked = None
    allocation.take_back = _reason(record)
    _note(facts, allocation, record)


def settle_preemption(facts: Facts, allocation: Allocation, shown: PreemptionRecord | None) -> None:
    """Brings an allocation in line with what its node knows of its preemption.

    What the node does not know it is told again, though the allocation may be closing: that may let its job run to the end.
    """
    if allocation.preemption is not None:
        allocation.take_back = _reason(allocation.preemption)
    elif shown is not None:
        _note(facts, allocation, shown)


def _reason(record: PreemptionRecord) -> TakeBackReason:
    return TakeBackReason.LIMITS if record.reason in _FOR_LIMITS else TakeBackReason.PREEMPTED


def _note(facts: Facts, allocation: Allocation, record: PreemptionRecord) -> None:
    allocation.preemption = record
    if record.reason is not PreemptionReason.GRACEFUL_PREEMPTION:
        facts.set_usage(allocation, ZERO)


def undo_preemption(facts: Facts, allocation: Allocation) -> None:
    """Books an allocation as before, since its node was never told."""
    allocation.take_back = allocation.preemption = None
    facts.set_usage(allocation, allocation.resources)
