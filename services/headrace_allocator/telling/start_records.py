"""Records of starts, made when a start is ordered from a node.

Agents report them with the end of each job, so that the log contains them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headrace.resources import Share
from headrace.wire.start_stages import StartRecord, StartStage
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolTree


def start_record(
    allocation: Allocation, operation: Operation, pools: PoolTree, stage: StartStage, taken: int
) -> StartRecord:
    """Return the record of an allocation that is already counted in what its operation holds."""
    before = (operation.held - allocation.resources).share_of(pools.total)
    return StartRecord(stage, _short(before), _short_fair_share(operation.fair_share), taken)


def _short(share: Share) -> Share:
    """Return the same share with whole zeros.

    A whole 0 takes one byte on the wire and a float nine, and the log has the record for each job.
    """
    slots, cpu, gpu, memory, network = share
    return slots or 0, cpu or 0, gpu or 0, memory or 0, network or 0


#: Cached, since every allocation keeps its record, and the records of one operation mostly have the same fair share.
_short_fair_share: Final = lru_cache(maxsize=10_000)(_short)
