"""Names at their longest, in letters of four bytes each where the rules of names allow them."""

from __future__ import annotations

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.wire.start_stages import StartRecord, StartStage

__all__ = ["FAT", "LONGEST_START", "MANY", "TREE", "USER", "a_node", "a_pool", "an_operation"]

MANY = 10**6
FAT = "\U0001f600"
USER = "u" * 63
LONGEST_START = StartRecord(StartStage.REGULAR_MEDIUM_PRIORITY, (1 / 3,) * 5, (1 / 3,) * 5, 2**62)
TREE = TreeName("tree-000".ljust(63, "t"))


def a_pool(name: str) -> PoolName:
    """A name of a hundred letters, four bytes each."""
    return PoolName(name + FAT * (100 - len(name)))


def an_operation(number: int) -> OperationId:
    return OperationId(f"operation-{number:07}".ljust(64, "n"))


def a_node(number: int) -> NodeName:
    return NodeName(f"node-{number:05}".ljust(63, "n"))
