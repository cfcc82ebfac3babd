"""Drawing: more indexes of an operation are asked of the ledger before they run out.

Of an operation of several trees each draws for itself. A tree that could run more says so each second while no index is free, and those
that sit on ready jobs return half of them to the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace_allocator.decision.holding_back import held_back, pool_limit_reached
from headrace_allocator.effects import Draw, Effect, Return, Want
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation, Returning

#: A block is drawn when fewer jobs than this can be given out at once.
_LOW_BLOCK: Final = 128
#: Of an operation of several trees when there are fewer than this part of those that no tree has: the last ones go where they run at once.
_LOW_PART: Final = 8
#: The most that one draw adds: after a change of the allocator everything drawn and not ended is in doubt for a while.
_MOST_DRAWN: Final = 16_384
#: Operations of one word to other trees, and runs of one return.
_MOST_WANTED: Final = 4_000
_MOST_RETURNED: Final = 4_000


def next_draw(operation: Operation) -> Draw | None:
    """The indexes that should be drawn, or None if there are enough, or some are being drawn."""
    slots = operation.slots
    if not operation.schedulable or operation.drawing:
        return None
    # A gang starts none of its jobs before all of them are drawn.
    enough_ready = slots.ready_count >= _LOW_BLOCK and operation.gang is None
    if slots.free is None and (enough_ready or slots.block >= operation.spec.job_count):
        return None
    more = min(_MOST_DRAWN, max(slots.block, 2 * _LOW_BLOCK))
    if slots.free is not None:
        enough = min(_LOW_BLOCK, slots.free // _LOW_PART)
        is_held_back = operation.yields or operation.returning is not None
        return None if is_held_back or not slots.free or slots.ready_count > enough else Draw(operation.id, 1, more)
    return Draw(operation.id, min(operation.spec.job_count, slots.block + more))


def wants(facts: Facts) -> list[Effect]:
    """Tells other trees of operations that have room here and no job to give out, while no index is free."""
    if facts.starts_paused or facts.superseded:
        return []
    wanted = [each.id for each in facts.of_several_trees.values() if each.slots.free == 0 and _could_start(facts, each)]
    return [Want(wanted[:_MOST_WANTED])] if wanted else []


def set_aside_to_return(operation: Operation) -> bool:
    """Takes half of the ready jobs out to be returned, and a single one too. False if there is none."""
    ready = operation.slots.ready_count
    if operation.slots.free is None or operation.returning is not None or not ready:
        return False
    runs = operation.slots.return_ready(min(_MOST_RETURNED, ready - ready // 2))
    operation.returning = Returning(operation.changes, runs)
    operation.yields = True
    return True


def pending_returns(operations: Iterable[Operation]) -> list[Effect]:
    """Returns what is to be returned, until the log tells what became of it."""
    return [Return(each.id, each.returning.change, each.returning.runs) for each in operations if each.returning]


def _could_start(facts: Facts, operation: Operation) -> bool:
    is_idle = not operation.slots.ready_count and not operation.drawing and max(operation.fair_share) > 0.0
    room = facts.total - facts.used
    if not is_idle or not room.dominates(operation.spec.resources):
        return False
    return held_back(operation, 1, operation.held) is None and pool_limit_reached(operation, facts.pools) is None
