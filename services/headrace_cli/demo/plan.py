"""The plan of the demo: three nodes of different sizes, three pools, sixty jobs.

Of six cores production is guaranteed two. The other four are shared by weight, 1 : 2 : 1. So the pools are owed three, two and one
core while all of them have work, and their jobs are in the same proportion: they end at about the same time. Many small operations get
no more than few large ones: that is a matter of pools.

Then production has nothing to do, and research takes all six cores with jobs that are longer. When production comes back with three
jobs it is owed three cores and gets them within a second or two: research gives its youngest jobs up.
"""

from __future__ import annotations

import msgspec

from headrace.ids import TreeName
from headrace_cli.pools.options import PoolOptions
from headrace_cli.up.node_option import NodeOption, parse_nodes, spread


class DemoPool(msgspec.Struct, frozen=True):
    """A pool, and how many jobs each of its operations has."""

    name: str
    options: PoolOptions
    operations: tuple[int, ...]

    @property
    def jobs(self) -> int:
        """The number of all its jobs."""
        return sum(self.operations)


class Load(msgspec.Struct, frozen=True):
    """An operation of the last act. Its jobs are so many times as long as the others."""

    pool: str
    jobs: int
    length: int


NODES: list[NodeOption] = spread(
    parse_nodes(["small:cpu=1,memory=1G", "medium:cpu=2,memory=2G", "large:cpu=3,memory=3G"]), [TreeName("default")]
)
POOLS = [
    DemoPool("production", PoolOptions(weight=1.0, guarantee="cpu=2"), (20, 10)),
    DemoPool("research", PoolOptions(weight=2.0), (5, 5, 5, 5)),
    DemoPool("students", PoolOptions(weight=1.0), (1,) * 10),
]
JOBS = sum(pool.jobs for pool in POOLS)

LENDER = Load("research", 6, 7)
RETURNING = Load("production", 3, 3)
#: Nobody watches a demo for the 30 seconds that a tree has by default.
STARVATION_TIMEOUT_MS = 500
#: Nor for the 5 seconds for which a node is left alone after it was asked to give something up, even in vain.
BACKOFF_MS = 500
