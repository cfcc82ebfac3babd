"""Drawing: more indexes of an operation are asked of the ledger before they run out."""

from __future__ import annotations

from typing import Final

from headrace_allocator.facts.operations import Operation

__all__ = ["indexes_to_draw"]

#: A block is drawn when fewer jobs than this can be given out at once.
_LOW_BLOCK: Final = 128
#: The most that one draw adds: after a change of the allocator everything drawn and not ended is in doubt for a while.
_MOST_DRAWN: Final = 16_384


def indexes_to_draw(operation: Operation) -> int | None:
    """The border up to which indexes should be drawn, or None if there are enough, or some are being drawn."""
    slots = operation.slots
    if not operation.schedulable or operation.drawing or slots.block >= operation.spec.job_count:
        return None
    if slots.ready_count >= _LOW_BLOCK:
        return None
    return min(operation.spec.job_count, slots.block + min(_MOST_DRAWN, max(slots.block, 2 * _LOW_BLOCK)))
