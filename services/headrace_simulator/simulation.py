"""Runs a workload under one configuration. Pure.

Each configuration is a tree: the pools that the user gave, and those that only the workload names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import Person, Pool, PoolConfig, PoolMode, Tree, TreeOptions
from headrace.pools.new_tree import NEW_TREE_OPTIONS
from headrace.resources import Resources
from headrace.wire.pool_changes import ChangePools, PoolChange, PoolPlan, SetOptions
from headrace.wire.replay import ReplayTask
from headrace.wire.simulation import Setup, SimulatedCluster, SimulatedSetup, Simulation, SimulationTask, Waits
from headrace_fair_share.configuration.change_decisions import Change, StoredTree, TreeConfiguration
from headrace_simulator.results import Counted, Stretches
from headrace_simulator.submissions import Plan, Submission, Submissions, planned
from headrace_simulator.workload_account import WorkloadAccount
from headrace_simulator.workloads.workload import Workload, WorkloadJob
from headrace_simulator.world import World

#: Reports the simulated time in milliseconds, and the fraction of all submissions that are done.
Tell = Callable[[int, float], None]
#: Called for each operation that has ended: submission, time of the first job (0: none), time of the end.
OnEnded = Callable[[Submission, int, int], None]

_FIFO: Final = PoolName("fifo")
_BY_ANYBODY: Final = Person("simulate", administrator=True)
#: Time before the first submission in which the nodes join.
_BEFORE_MS: Final = 10_000
_UNLIMITED: Final = 10**9
#: Years that a simulation may take at most.
_LONGEST_MS: Final = 100 * 365 * 86_400_000
#: Begin of a workload whose times are not dates: 2000-01-01. Times of 0 stand for unknown times in messages.
NO_DATE_MS: Final = 946_684_800_000
#: Times from here on are dates.
FIRST_DATE_MS: Final = 315_532_800_000


class Prepared(msgspec.Struct):
    """A workload that can be simulated under each configuration of its task."""

    workload: Workload
    task: SimulationTask
    plan: Plan
    total: Resources
    #: The tree of each configuration.
    trees: list[Tree]
    has_dates: bool


def prepared(workload: Workload, task: SimulationTask) -> Prepared:
    """Check a workload and its configurations. Raises `BadInput`."""
    plan = planned(workload, task)
    total = Resources.sum(node.total for node in plan.nodes)
    names = sorted({each.pool for each in plan.submissions})
    trees = [_tree_of(setup, names, total) for setup in task.setups]
    has_dates = plan.submissions[0].at_ms >= FIRST_DATE_MS
    if not has_dates:
        plan.submissions = [msgspec.structs.replace(each, at_ms=each.at_ms + NO_DATE_MS) for each in plan.submissions]
    return Prepared(workload, task, plan, total, trees, has_dates)


def simulation_of(of: Prepared, results: list[SimulatedSetup]) -> Simulation:
    """Return the answer of a simulation with these results of all configurations."""
    workload, task, plan = of.workload, of.task, of.plan
    return Simulation(
        format=workload.format,
        resource=task.resource,
        capacity=Counted.of(task.resource).amount(of.total),
        nodes=len(plan.nodes),
        jobs=len(plan.submissions),
        since_ms=plan.submissions[0].at_ms,
        has_dates=of.has_dates,
        setups=results,
        recorded=_recorded(workload.jobs),
        left_out=dict(plan.left_out),
        damaged=workload.damaged,
        damaged_count=workload.damaged_count,
        notes=plan.notes,
    )


def _tree_of(setup: Setup, names: Sequence[PoolName], total: Resources) -> Tree:
    """Return the tree of a configuration with all pools that the workload needs. Raises `BadInput` if the configuration breaks rules."""
    new = SetOptions(msgspec.json.encode(NEW_TREE_OPTIONS))
    tree = _changed(setup.tree, [new, *setup.changes], total)
    known = {pool.name for pool in tree.pools}
    gangs = [
        msgspec.structs.replace(
            pool, settings=msgspec.structs.replace(pool.settings, always_allow_gang_operations=True)
        )
        for pool in tree.pools
    ]
    own = PoolConfig(always_allow_gang_operations=True)
    pools = [*gangs, *(Pool(name, ROOT_POOL, own) for name in names if name not in known)]
    if setup.is_fifo:
        # The other pools are kept, because usage and waits are counted by them in every configuration.
        pools.append(Pool(_FIFO, ROOT_POOL, msgspec.structs.replace(own, mode=PoolMode.FIFO)))
    defaults, options = TreeOptions(), tree.options
    # A workload of months has more operations than the defaults allow at a time. Limits that the user set are kept.
    raised = {
        name: _UNLIMITED
        for name in (
            "max_operation_count",
            "max_running_operation_count",
            "max_operation_count_per_pool",
            "max_running_operation_count_per_pool",
        )
        if getattr(options, name) == getattr(defaults, name)
    }
    # A plain queue preempts nothing and reserves nothing: whatever fits starts, in the order of submission.
    plain = {"pause_preemption": True, "node_reservation_time": defaults.node_reservation_time} if setup.is_fifo else {}
    return Tree(tree.tree, pools, msgspec.structs.replace(options, **raised, **plain))


def _changed(tree: Tree, changes: list[PoolChange], total: Resources) -> Tree:
    configuration = TreeConfiguration(tree.tree)
    configuration.on_stored(StoredTree(1, tree))
    decision = configuration.decide(ChangePools(changes, tree.tree), {}, _BY_ANYBODY, total)
    if isinstance(decision, Change):
        return decision.tree
    broken = decision.broken if isinstance(decision, PoolPlan) else [decision.text()]
    raise BadInput.because("--pools", "; ".join(broken))


def simulated(of: Prepared, number: int, tell: Tell, on_ended: OnEnded) -> SimulatedSetup:
    """Simulate a workload under the configuration with this number, from 0. Raises `BrokenReplay` if an engine fails."""
    setup, tree, plan, task = of.task.setups[number], of.trees[number], of.plan, of.task
    since_ms = plan.submissions[0].at_ms
    counted = Counted.of(task.resource)
    capacity = counted.amount(of.total)
    source = Submissions(plan, tree.tree, task, _FIFO if setup.is_fifo else None)
    account = WorkloadAccount(source, capacity, Stretches(since_ms), counted)
    account.on_ended = on_ended
    inner = ReplayTask(
        tree=tree.tree,
        since_ms=since_ms - _BEFORE_MS,
        until_ms=since_ms + _LONGEST_MS,
        step_ms=task.step_ms,
        resource=task.resource,
        entries=[],
        nodes=plan.nodes,
        running=[],
        configured=tree,
        changes=[],
    )

    def say(ms: int) -> None:
        tell(since_ms - _BEFORE_MS + ms, source.done / len(plan.submissions))

    World(inner, source, tree, account, say, until_over=True).run()
    account.close(max(account.last_end_ms, since_ms + 1))
    return SimulatedSetup(
        name=setup.name,
        cluster=_cluster(account, capacity, since_ms, source.left),
        waits=account.waits,
        pools=account.pools(),
        persons=account.persons(),
        since_ms=since_ms,
        stretch_ms=account.stretches.length_ms,
        notes=list(_notes(account, source.left)),
    )


def _cluster(account: WorkloadAccount, capacity: float, since_ms: int, left: int) -> SimulatedCluster:
    makespan_ms = account.last_end_ms - since_ms
    used = sum(map(sum, account.usage.of.values()))
    saturated = capacity * account.saturated_ms
    ended = account.completed + account.failed
    return SimulatedCluster(
        makespan_ms=makespan_ms,
        utilisation=used / (capacity * makespan_ms) if makespan_ms and capacity else 0.0,
        saturated_ms=account.saturated_ms,
        idle_fraction=account.idle / saturated if saturated else 0.0,
        share_error=account.owed / saturated if saturated else 0.0,
        peak=account.peak / capacity if capacity else 0.0,
        completed=account.completed,
        failed=account.failed,
        never_started=account.started - ended + left,
        refused=account.refused,
        job_runs=account.job_runs,
    )


def _notes(account: WorkloadAccount, left: int) -> Iterator[str]:
    if account.refused:
        yield f"{account.refused} operations were refused, the first: {account.first_refusal}"
    if left:
        yield f"{left} jobs were not submitted, because the job that they follow never ended"


def _recorded(jobs: Sequence[WorkloadJob]) -> Waits | None:
    """Return the waits that the trace itself recorded, with the slowdown that they gave."""
    known = [job for job in jobs if job.waited_ms >= 0]
    if not known:
        return None
    waited = sorted(job.waited_ms for job in known)
    slowdown = sum(max(1.0, (job.waited_ms + job.runs_ms) / max(job.runs_ms, 10_000)) for job in known) / len(known)
    return Waits(len(known), waited[len(waited) // 2], waited[len(waited) * 95 // 100], waited[-1], slowdown)
