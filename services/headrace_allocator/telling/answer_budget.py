"""The size budget of an answer to a heartbeat, in bytes. Orders that do not fit wait for the next answer."""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from typing import Final, TypeVar

from headrace.wire.codec import LARGEST_MESSAGE_BYTES
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS, LARGEST_PICTURE_BYTES, Heartbeat, picture_bytes
from headrace.wire.nodes import LONGEST_ISOLATION_DETAIL

#: Upper bound of the bytes of one order without its slots, command and record, and of the bytes of one slot.
_ORDER_BYTES: Final = 256
_SLOT_BYTES: Final = 16
#: Upper bound of the bytes of the text that says why the tree gives a node no jobs; each character may take four bytes.
_WORDS_BYTES: Final = 4 * (LONGEST_ISOLATION_DETAIL + 200)
_unstarted: Final = attrgetter("unstarted")

Item = TypeVar("Item")


class AnswerBudget:
    """The bytes that an answer may still take, and that the next node reports may grow by.

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
        """True if an order fits that is `more_bytes` larger than the basic size of an order. Its bytes are then taken from the budget."""
        fits = _ORDER_BYTES + more_bytes <= self._left_bytes
        self._left_bytes -= _ORDER_BYTES + more_bytes if fits else 0
        self.is_short |= not fits
        return fits

    def fits_jobs(self, jobs: int, *, allocations: int = 0, more_bytes: int = 0) -> bool:
        """True if an order of so many jobs fits and the node can report all its jobs. Its bytes are then taken from the budget."""
        added_bytes = self._added_picture_bytes + picture_bytes(allocations, jobs)
        if not self._can_tell(added_bytes) or not self.fits(jobs * _SLOT_BYTES + more_bytes):
            self.is_short = True
            return False
        self._added_picture_bytes = added_bytes
        return True

    def _can_tell(self, added_bytes: int) -> bool:
        """True if the node report may grow by so many bytes."""
        left_bytes, held = LARGEST_PICTURE_BYTES - added_bytes, len(self._heartbeat.allocations)
        # The report usually has room for the largest number of slots in every allocation, so the actual slots need not be counted.
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
