"""The bytes of an answer to a heartbeat: orders that do not fit wait for the next one."""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from typing import Final, TypeVar

from headrace.wire.codec import LARGEST_MESSAGE_BYTES
from headrace.wire.heartbeat import LARGEST_ALLOCATION_JOBS, LARGEST_PICTURE_BYTES, Heartbeat, picture_bytes
from headrace.wire.nodes import LONGEST_ISOLATION_DETAIL

#: The most of one order beside its slots, its command and its record, and of one slot.
_ORDER_BYTES: Final = 256
_SLOT_BYTES: Final = 16
#: The most of the words on why the tree gives a node nothing, each letter of which may take four bytes.
_WORDS_BYTES: Final = 4 * (LONGEST_ISOLATION_DETAIL + 200)
_unstarted: Final = attrgetter("unstarted")

Item = TypeVar("Item")


class AnswerBudget:
    """Bytes that an answer may still take, and the node's heartbeats after it. What does not fit is left for the next one."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        #: True if an order found no room.
        self.is_short = False
        self._heartbeat = heartbeat
        self._left_bytes = LARGEST_MESSAGE_BYTES - 4 * _ORDER_BYTES - _WORDS_BYTES
        #: What is ordered adds so much to the node's picture.
        self._added_picture_bytes = 0

    def fits(self, more_bytes: int) -> bool:
        """True if an order with so many bytes more than any has fits, which it then takes."""
        fits = _ORDER_BYTES + more_bytes <= self._left_bytes
        self._left_bytes -= _ORDER_BYTES + more_bytes if fits else 0
        self.is_short |= not fits
        return fits

    def fits_jobs(self, jobs: int, *, allocations: int = 0, more_bytes: int = 0) -> bool:
        """True if an order of so many jobs fits, and the node can tell of them."""
        added_bytes = self._added_picture_bytes + picture_bytes(allocations, jobs)
        if not self._can_tell(added_bytes) or not self.fits(jobs * _SLOT_BYTES + more_bytes):
            self.is_short = True
            return False
        self._added_picture_bytes = added_bytes
        return True

    def _can_tell(self, added_bytes: int) -> bool:
        """True if so much more fits into the node's picture."""
        left_bytes, held = LARGEST_PICTURE_BYTES - added_bytes, len(self._heartbeat.allocations)
        # Mostly there is room for as many slots as allocations may have, and theirs need not be counted.
        return picture_bytes(held, LARGEST_ALLOCATION_JOBS * held) <= left_bytes or self._held_bytes <= left_bytes

    @cached_property
    def _held_bytes(self) -> int:
        held = self._heartbeat.allocations
        return picture_bytes(len(held), sum(map(len, map(_unstarted, held))))

    def cut(self, items: list[Item]) -> list[Item]:
        """The first of these, as many as fit."""
        cut = items[: self._left_bytes // _ORDER_BYTES]
        self._left_bytes -= _ORDER_BYTES * len(cut)
        return cut
