"""Records of starts, made when nodes are told of them.

Agents hand them back with the end of each job, so that the log has them.
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
    """The record of an allocation that its operation holds already."""
    before = (operation.held - allocation.resources).share_of(pools.total)
    return StartRecord(stage, _short(before), _short_fair_share(operation.fair_share), taken)


def _short(share: Share) -> Share:
    """The same share. A whole 0 takes one byte on the wire, a float nine, and the record is in the log with each job."""
    slots, cpu, gpu, memory, network = share
    return slots or 0, cpu or 0, gpu or 0, memory or 0, network or 0


#: Every allocation keeps its record, and those of one operation mostly have the very same fair share in it.
_short_fair_share: Final = lru_cache(maxsize=10_000)(_short)
