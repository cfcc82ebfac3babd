"""The parts of an answer to a heartbeat: its size budget in bytes, orders to end or return allocations, and the records of starts. Pure.

Orders that do not fit into the answer wait for the next answer. Agents report the record of a start with the end of each job, so that the
log contains the record.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Final, TypeVar

from headrace.resources import Share
from headrace.wire.codec import LARGEST_MESSAGE_BYTES
from headrace.wire.heartbeat import (
    LARGEST_ALLOCATION_JOBS,
    LARGEST_PICTURE_BYTES,
    Heartbeat,
    TakeBack,
    TakeBackReason,
    picture_bytes,
)
from headrace.wire.nodes import LONGEST_ISOLATION_DETAIL
from headrace.wire.start_stages import StartRecord, StartStage
from headrace_allocator.decision.extending import GiveBack
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolStates

#: Upper bound of the bytes of one order without its slots, command and record.
_ORDER_BYTES: Final = 256
#: Upper bound of the bytes of one slot.
_SLOT_BYTES: Final = 16
#: Upper bound of the bytes of the text that says why the tree gives a node no jobs; each character may take four bytes.
_WORDS_BYTES: Final = 4 * (LONGEST_ISOLATION_DETAIL + 200)
_unstarted: Final = attrgetter("unstarted")

Item = TypeVar("Item")


class AnswerBudget:
    """The bytes that an answer may still take, and the bytes by which the next node reports may still grow.

    Orders that do not fit are left for the next answer.
    """

    def __init__(self, heartbeat: Heartbeat) -> None:
        #: True if an order did not fit.
        self.is_short = False
        self._heartbeat = heartbeat
        self._left_bytes = LARGEST_MESSAGE_BYTES - 4 * _ORDER_BYTES - _WORDS_BYTES
        #: Bytes that the orders so far will add to the node report.
        self._added_picture_bytes = 0

    def fits(self, more_bytes: int) -> bool:
        """True if an order of the basic size plus `more_bytes` fits. The bytes of the order are then taken from the budget."""
        fits = _ORDER_BYTES + more_bytes <= self._left_bytes
        self._left_bytes -= _ORDER_BYTES + more_bytes if fits else 0
        self.is_short |= not fits
        return fits

    def fits_jobs(self, jobs: int, *, allocations: int = 0, more_bytes: int = 0) -> bool:
        """True if an order with this number of jobs fits, and later node reports with these jobs fit, too.

        The bytes of the order are then taken from the budget.
        """
        added_bytes = self._added_picture_bytes + picture_bytes(allocations, jobs)
        if not self._can_tell(added_bytes) or not self.fits(jobs * _SLOT_BYTES + more_bytes):
            self.is_short = True
            return False
        self._added_picture_bytes = added_bytes
        return True

    def _can_tell(self, added_bytes: int) -> bool:
        """True if the node report may grow by this number of bytes."""
        left_bytes, held = LARGEST_PICTURE_BYTES - added_bytes, len(self._heartbeat.allocations)
        # Most reports would fit even if every allocation had the largest number of slots. Then the actual slots need not be counted.
        return picture_bytes(held, LARGEST_ALLOCATION_JOBS * held) <= left_bytes or self._held_bytes <= left_bytes

    @cached_property
    def _held_bytes(self) -> int:
        held = self._heartbeat.allocations
        return picture_bytes(len(held), sum(map(len, map(_unstarted, held))))

    def cut(self, items: list[Item]) -> list[Item]:
        """Return the first of the items, as many as fit into the budget."""
        cut = items[: self._left_bytes // _ORDER_BYTES]
        self._left_bytes -= _ORDER_BYTES * len(cut)
        return cut


def start_record(
    allocation: Allocation, operation: Operation, pools: PoolStates, stage: StartStage, taken: int
) -> StartRecord:
    """Return the record of an allocation's start. `operation.held` must already include the allocation."""
    before = (operation.held - allocation.resources).share_of(pools.total)
    return StartRecord(stage, _short(before), _short_fair_share(operation.fair_share), taken)


def _short(share: Share) -> Share:
    """Return the same share with the int 0 in place of 0.0.

    On the wire the int takes one byte and the float nine, and the log has such a record for each job.
    """
    slots, cpu, gpu, memory, network = share
    return slots or 0, cpu or 0, gpu or 0, memory or 0, network or 0


#: Cached, so that records share one object: each allocation keeps its record, and the records of one operation mostly have the same fair
#: share.
_short_fair_share: Final = lru_cache(maxsize=10_000)(_short)


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
