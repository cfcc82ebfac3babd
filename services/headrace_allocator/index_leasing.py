"""Leases of job indexes: ask the ledger for more indexes of an operation before the leased indexes run out.

If several trees run an operation, each tree leases indexes for itself. A tree that could run more jobs while no index is free reports so
each second. The trees that hold ready jobs then release half of these jobs to the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace_allocator.decision.start_limits import held_back, pool_limit_reached
from headrace_allocator.effects import Draw, Effect, Return, Want
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation, Returning

#: Number of ready jobs of an operation below which more indexes are leased.
_LOW_BLOCK: Final = 128
#: Divisor for operations that run in several trees. Such a tree leases more indexes if its number of ready jobs is at most the number of
#: indexes that no tree has leased, divided by `_LOW_PART`. The fewer indexes are left, the fewer jobs a tree keeps ready. So the last
#: indexes go to trees that run their jobs at once.
_LOW_PART: Final = 8
#: Upper bound of the indexes that one lease adds. It limits how many jobs are unconfirmed for a while when another allocator takes over:
#: all leased jobs that have not ended.
_MOST_DRAWN: Final = 16_384
#: Upper bound of the operations in one message to other trees.
_MOST_WANTED: Final = 4_000
#: Upper bound of the indexes in one release, and so also of the runs of consecutive indexes in it.
_MOST_RETURNED: Final = 4_000


def next_lease(operation: Operation) -> Draw | None:
    """Return the lease of indexes to ask for, or None if enough are ready or a lease is under way."""
    slots = operation.slots
    if not operation.schedulable or operation.drawing:
        return None
    # For a gang all indexes are leased, because it starts no job before it has all of them. For an operation with tasks all indexes are
    # leased, because possibly only jobs of its last task fit.
    leases_all = operation.gang is not None or bool(operation.kinds)
    enough_ready = slots.ready_count >= _LOW_BLOCK and not leases_all
    if slots.free is None and (enough_ready or slots.block >= operation.spec.job_count):
        return None
    more = min(_MOST_DRAWN, max(slots.block, 2 * _LOW_BLOCK))
    if slots.free is not None:
        enough = min(_LOW_BLOCK, slots.free // _LOW_PART)
        is_held_back = operation.yields or operation.returning is not None
        return None if is_held_back or not slots.free or slots.ready_count > enough else Draw(operation.id, 1, more)
    return Draw(operation.id, min(operation.spec.job_count, slots.block + more))


def wants(facts: Facts) -> list[Effect]:
    """Return a request that asks other trees to release jobs; an empty list if nothing is needed.

    The request names the operations that could start a job in this tree, but have no ready job and no index to lease.
    """
    if facts.starts_paused or facts.superseded:
        return []
    shared = [each for each in facts.of_several_trees.values() if each.spec.after_each is None]
    wanted = [each.id for each in shared if each.slots.free == 0 and _could_start(facts, each)]
    return [Want(wanted[:_MOST_WANTED])] if wanted else []


def set_aside_to_return(operation: Operation) -> bool:
    """Set aside half of an operation's ready jobs, rounded up, to be released. Return False if no job can be released now."""
    ready = operation.slots.ready_count
    if operation.slots.free is None or operation.returning is not None or not ready:
        return False
    runs = operation.slots.return_ready(min(_MOST_RETURNED, ready - ready // 2))
    operation.returning = Returning(operation.changes, runs)
    operation.yields = True
    return True


def pending_returns(operations: Iterable[Operation]) -> list[Effect]:
    """Return the releases to send. They are sent again until the log shows whether they were accepted."""
    return [Return(each.id, each.returning.change, each.returning.runs) for each in operations if each.returning]


def _could_start(facts: Facts, operation: Operation) -> bool:
    is_idle = not operation.slots.ready_count and not operation.drawing and max(operation.fair_share) > 0.0
    room = facts.total - facts.used
    if not is_idle or not room.dominates(operation.spec.resources):
        return False
    return held_back(operation, 1, operation.held) is None and pool_limit_reached(operation, facts.pools) is None
