"""The plan of the demo: three nodes of different sizes, three pools, sixty jobs.

Production is guaranteed two of the six cores. The other four cores are shared by weight, 1 : 2 : 1. So the pools are
owed three, two and one core while all of them have work. Their numbers of jobs have the same proportion, so the pools
finish at about the same time. Many small operations get no more than few large operations, because cores are shared
between pools.

Then production has nothing to do, and research takes all six cores with longer jobs. When production comes back with
three jobs, it is owed three cores and gets them within a second or two: research's youngest jobs are preempted.
"""

from __future__ import annotations

import msgspec

from headrace.ids import TreeName
from headrace_cli.commands.pools.changes import PoolOptions
from headrace_cli.up.node_option import NodeOption, parse_nodes, spread


class DemoPool(msgspec.Struct, frozen=True):
    """A pool, and the number of jobs of each of its operations."""

    name: str
    options: PoolOptions
    operations: tuple[int, ...]

    @property
    def jobs(self) -> int:
        """Return the number of jobs in all operations."""
        return sum(self.operations)


class Load(msgspec.Struct, frozen=True):
    """An operation of the last act. Its jobs run for at least `seconds`, on a fast machine too: a job that ended before the starvation
    timeout would not be preempted.
    """

    pool: str
    jobs: int
    seconds: float


NODES: list[NodeOption] = spread(
    parse_nodes(["small:cpu=1,memory=1G", "medium:cpu=2,memory=2G", "large:cpu=3,memory=3G"]), [TreeName("default")]
)
POOLS = [
    DemoPool("production", PoolOptions(weight=1.0, guarantee="cpu=2"), (20, 10)),
    DemoPool("research", PoolOptions(weight=2.0), (5, 5, 5, 5)),
    DemoPool("students", PoolOptions(weight=1.0), (1,) * 10),
]
JOBS = sum(pool.jobs for pool in POOLS)

LENDER = Load("research", 6, 4.0)
RETURNING = Load("production", 3, 0.5)
#: Starvation timeout of the demo's tree. The default of a tree, 30 seconds, is too long for a demo.
STARVATION_TIMEOUT_MS = 500
#: Milliseconds until preemption is attempted on a node again, whether or not the last attempt preempted anything. The default, 5 seconds,
#: is too long for a demo.
BACKOFF_MS = 500
