"""How many job starts `headrace simulate` simulates in a second, two configurations side by side on two cores."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from headrace.ids import TreeName
from headrace.pools import Tree
from headrace.resources import Resources
from headrace.wire.simulation import NodesOf, Setup, SimulationTask
from headrace_simulator.side_by_side import simulated_side_by_side
from headrace_simulator.simulation import prepared
from headrace_simulator.workloads.workload import Workload, WorkloadJob
from tests.bench.registry import REGISTRY, Figure

#: One million starts in ten minutes.
_GOAL = 1_000_000 / 600
_NODES, _CORES, _MEAN_S, _POOLS, _RUNS = 32, 16, 1_000, 5, 3
_GIB = 2**30


def _jobs(operations: int, jobs: int) -> Iterator[WorkloadJob]:
    """Operations that ask for a little more than the cluster has."""
    draw = random.Random(1)
    at_s = 0.0
    for number in range(operations):
        at_s += draw.expovariate(1.1 * _NODES * _CORES / (jobs * _MEAN_S))
        runs_s = max(60.0, draw.expovariate(1 / _MEAN_S))
        size = Resources(user_slots=1, cpu=100, memory=_GIB)
        account = f"pool{draw.randrange(_POOLS)}"
        yield WorkloadJob(str(number), round(at_s * 1_000), round(runs_s * 1_000), jobs, size, account=account)


def _starts_a_second(operations: int, jobs: int, step_ms: int) -> Figure:
    size = Resources(user_slots=1_000, cpu=100 * _CORES, memory=4 * _GIB * _CORES)
    tree = Tree(TreeName("default"), [])
    setups = [Setup("native", tree), Setup("fifo", tree, is_fifo=True)]
    task = SimulationTask("-", setups, nodes=[NodesOf(_NODES, size)], step_ms=step_ms)
    of = prepared(Workload("table", list(_jobs(operations, jobs))), task)
    speeds = []
    for _ in range(_RUNS):
        begun = time.perf_counter()
        results = simulated_side_by_side(of, lambda *_: None, None)
        speeds.append(sum(each.cluster.job_runs for each in results) / (time.perf_counter() - begun))
    return Figure.of(speeds, "starts/s")


@REGISTRY.add("simulated_starts", "simulated, operations of 500 jobs, two configurations", _GOAL, more_is_better=True)
def of_large_operations() -> Figure:
    return _starts_a_second(operations=40, jobs=500, step_ms=1_000)


@REGISTRY.add("simulated_starts_of_single_jobs", "the same, single jobs, --step 60s", _GOAL, more_is_better=True)
def of_single_jobs() -> Figure:
    return _starts_a_second(operations=2_000, jobs=1, step_ms=60_000)
