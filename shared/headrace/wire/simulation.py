"""Messages between `headrace simulate` and the process that simulates. They pass directly from one process to another, never over the bus.

`headrace simulate --json` prints `Simulation`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import PoolName
from headrace.pools.stored_tree import Tree
from headrace.resources import Finite, Resources
from headrace.wire.pool_changes import PoolChange
from headrace.wire.version import Counter


class PoolOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that chooses the pool of jobs. A job matches if each field that is not empty matches, with `*` for any letters."""

    pool: PoolName
    user: str = ""
    group: str = ""
    account: str = ""
    queue: str = ""


class NodesOf(msgspec.Struct, frozen=True):
    """Nodes of the same size."""

    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    size: Resources
    tags: list[str] = []


class Setup(msgspec.Struct, frozen=True):
    """One configuration under which the workload is simulated."""

    name: str
    #: Tree to which `changes` are applied. Pools that only the workload names are added to it.
    tree: Tree
    changes: list[PoolChange] = []
    #: True: all operations share one pool in the order of their submission.
    is_fifo: bool = False


class SimulationTask(msgspec.Struct, frozen=True):
    """The complete input of a simulation, apart from the files of the workload."""

    #: File of the workload, and for `openb` a file of nodes; - for standard input.
    file: str
    setups: list[Setup]
    format: str = "auto"
    nodes_file: str = ""
    #: Nodes to simulate; empty: those of the workload.
    nodes: list[NodesOf] = []
    rules: list[PoolOf] = []
    #: Property of jobs that names the pool of those that no rule matches: `account`, `queue`, `group` or `user`; empty: the first one that
    #: the workload has.
    pool_by: str = ""
    resource: str = "cpu"
    #: Fraction of the work of a preempted run that the next run need not repeat.
    kept_fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    #: Mean milliseconds between the failures of a node, 0: nodes do not fail; milliseconds from a failure to the node's return; number that
    #: chooses the times of the failures.
    failures_ms: Counter = 0
    repair_ms: Counter = 0
    seed: int = 0
    #: Shortest simulated milliseconds between two updates of shares on average, and between two ticks of the allocator.
    step_ms: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    #: True: a job that a user submitted soon after the end of an earlier one follows the simulated end of that one.
    feedback: bool = False
    #: True: a line that cannot be read refuses the workload.
    strict: bool = False
    #: File that gets one line for each job and configuration; empty: none.
    jobs_file: str = ""


class Waits(msgspec.Struct, frozen=True):
    """Waits of operations from submission to the first job, in milliseconds, and their slowdowns."""

    #: Number of operations that started.
    count: Counter = 0
    median_ms: Counter = 0
    p95_ms: Counter = 0
    longest_ms: Counter = 0
    #: Mean of max(1, time from submission to the end / max(10 s, length of the run)), the bounded slowdown of Feitelson.
    bounded_slowdown: Finite = 0.0


class SimulatedPerson(msgspec.Struct, frozen=True):
    """The figures of one user in one configuration. Usage is in the unit of the resource times hours."""

    user: str
    operations: Counter
    usage: Finite
    waits: Waits


class SimulatedPool(msgspec.Struct, frozen=True):
    """The figures of a pool, including all pools below it, in one configuration.

    Amounts are in cores, bytes or devices times hours. Each value of a series is a mean over one stretch of time.
    """

    pool: PoolName
    path: str
    operations: Counter
    never_started: Counter
    refused: Counter
    usage: Finite
    fair_share: Finite
    demand: Finite
    #: Amount that the pool's strong guarantee gives it at any time, at the end of the simulation.
    guarantee: Finite
    #: Amount that the pool was owed and did not have while the cluster was saturated.
    owed: Finite
    #: Usage of runs that must be repeated because of preemption, a failed node or a missing job of their gang.
    lost_usage: Finite
    preemptions: Counter
    #: Milliseconds for which the pool or an operation in it starved.
    starving_ms: Counter
    waits: Waits
    usage_series: list[Finite] = []
    fair_share_series: list[Finite] = []
    demand_series: list[Finite] = []


class SimulatedCluster(msgspec.Struct, frozen=True):
    """The figures of the whole cluster in one configuration."""

    #: Milliseconds from the first submission to the end of the last run.
    makespan_ms: Counter
    #: Usage divided by the capacity in this time.
    utilisation: Finite
    #: Milliseconds for which the demand was at least the capacity.
    saturated_ms: Counter
    #: Mean fraction of the cluster that was idle while it was saturated: places too small for the jobs that waited, limits, and the time
    #: between the end of a job and the next start.
    idle_fraction: Finite
    #: Mean fraction of the cluster that pools were owed and did not have while it was saturated. It includes the idle fraction.
    share_error: Finite
    #: Largest usage at any time, as a fraction of the capacity.
    peak: Finite
    completed: Counter
    failed: Counter
    never_started: Counter
    refused: Counter
    job_runs: Counter


class SimulatedSetup(msgspec.Struct, frozen=True):
    """The results under one configuration."""

    name: str
    cluster: SimulatedCluster
    waits: Waits
    #: Pools in the order of the tree, parents before children.
    pools: list[SimulatedPool]
    #: The users with the most usage first.
    persons: list[SimulatedPerson]
    since_ms: Counter
    stretch_ms: Counter
    notes: list[str] = []


class Simulation(msgspec.Struct, frozen=True, tag_field="outcome", tag="simulated"):
    """The results of a simulation."""

    format: str
    resource: str
    capacity: Finite
    nodes: Counter
    jobs: Counter
    since_ms: Counter
    #: True if the times of the workload are dates, false if they count from its beginning.
    has_dates: bool
    setups: list[SimulatedSetup]
    #: Waits that the workload itself recorded; None: it has none.
    recorded: Waits | None = None
    #: Jobs that were left out, by reason.
    left_out: dict[str, int] = {}
    #: The first lines that could not be read: number and reason.
    damaged: list[tuple[int, str]] = []
    damaged_count: Counter = 0
    notes: list[str] = []


class SimulationRefused(msgspec.Struct, frozen=True, tag_field="outcome", tag="refused"):
    """The reason why nothing was simulated."""

    why: str
