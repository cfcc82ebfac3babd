"""Preempted allocations. An allocation stops counting as used when its preemption is decided, so that other operations get the resources.

A graceful preemption only asks the job to end, so the allocation counts as used until its end.
"""

from __future__ import annotations

from typing import Final

from headrace.resources import ZERO
from headrace.wire.heartbeat import TakeBackReason
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts

_FOR_LIMITS: Final = frozenset({PreemptionReason.RESOURCE_LIMITS_VIOLATED, PreemptionReason.RESOURCE_OVERCOMMIT})


def preempt_and_stop_counting(facts: Facts, allocation: Allocation, record: PreemptionRecord) -> None:
    """Mark an allocation to be taken back, with the record of its preemption.

    Its usage stops counting unless the preemption is graceful.
    """
    allocation.picture.booked = None
    allocation.take_back = _reason(record)
    _record_and_stop_counting(facts, allocation, record)


def settle_preemption(facts: Facts, allocation: Allocation, shown: PreemptionRecord | None) -> None:
    """Take over what the node reports about the preemption of an allocation.

    If the node does not know of a preemption that was decided, the order to take the allocation back is sent again. The order is sent even
    if the allocation is closing: a closing allocation may let its job run to the end.
    """
    if allocation.preemption is not None:
        allocation.take_back = _reason(allocation.preemption)
    elif shown is not None:
        _record_and_stop_counting(facts, allocation, shown)


def _reason(record: PreemptionRecord) -> TakeBackReason:
    return TakeBackReason.LIMITS if record.reason in _FOR_LIMITS else TakeBackReason.PREEMPTED


def _record_and_stop_counting(facts: Facts, allocation: Allocation, record: PreemptionRecord) -> None:
    allocation.preemption = record
    if record.reason is not PreemptionReason.GRACEFUL_PREEMPTION:
        facts.set_usage(allocation, ZERO)


def undo_preemption(facts: Facts, allocation: Allocation) -> None:
    """Book a preempted allocation as it was before its preemption, since the node never got the order."""
    allocation.take_back = allocation.preemption = None
    facts.set_usage(allocation, allocation.resources)
