"""Runs a replay of the recorded configuration and a replay of another configuration, and compares them. Pure.

The first replay is also compared with what really happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import Person, Tree
from headrace.resources import Resources
from headrace.wire.pool_changes import ChangePools, PoolPlan
from headrace.wire.replay import Agreement, ComparedPool, Replay, ReplayedPool, ReplayRefused, ReplayTask
from headrace_fair_share.configuration.change_decisions import Change, StoredTree, TreeConfiguration
from headrace_simulator.recording import JobRun, Recording
from headrace_simulator.results import Counted, ReplayAccount, Stretches, UsageSeries, hours, upwards
from headrace_simulator.world import World

#: Reports the fraction of the work that is done, from 0 to 1.
Say = Callable[[float], None]
#: Stands for the time of the end, for an operation that has not ended by the end of the replay.
_NEVER_MS: Final = 2**62
_WORTH_TELLING_MS: Final = 1_000
_BY_ANYBODY = Person("replay", administrator=True)


def replayed(task: ReplayTask, say: Say) -> Replay | ReplayRefused:
    """Replay the recorded configuration, then the other one. Raises `BrokenReplay` if an engine fails."""
    after = _changed(task)
    if isinstance(after, ReplayRefused):
        return after
    recording = Recording(task)
    accounts: list[ReplayAccount] = []
    length_ms = max(1, task.until_ms - task.since_ms)
    for tree in (task.configured, after):
        done = len(accounts) / 2
        account = ReplayAccount(Stretches(task.since_ms, task.until_ms), Counted.of(task.resource))
        World(task, recording, tree, account, lambda ms, done=done: say(done + min(ms / length_ms, 1) / 2)).run()  # type: ignore[misc]
        accounts.append(account)
    say(1.0)
    recorded = _recorded(task, recording)
    before = accounts[0]
    return Replay(
        tree=task.tree,
        resource=task.resource,
        since_ms=task.since_ms,
        until_ms=task.until_ms,
        step_ms=task.step_ms,
        stretch_ms=before.stretches.length_ms,
        operations=recording.started,
        job_runs=sum(_is_within(run, task) for run in recording.runs),
        agreement=_agreement(recorded, before.usage),
        pools=list(_compared(after, recorded, *accounts)),
        notes=[
            *_notes(task, recording),
            *_refusals("the recorded configuration", accounts[0]),
            *_refusals("the other configuration", accounts[1]),
        ],
    )


def _changed(task: ReplayTask) -> Tree | ReplayRefused:
    configuration = TreeConfiguration(task.tree)
    configuration.on_stored(StoredTree(1, task.configured))
    if configuration.trouble:
        return ReplayRefused(configuration.trouble)
    total = Resources.sum(node.total for node in task.nodes)
    decision = configuration.decide(ChangePools(task.changes, task.tree), {}, _BY_ANYBODY, total)
    if isinstance(decision, Change):
        return decision.tree
    return ReplayRefused("; ".join(decision.broken) if isinstance(decision, PoolPlan) else decision.text())


def _recorded(task: ReplayTask, recording: Recording) -> UsageSeries:
    usage = UsageSeries(Stretches(task.since_ms, task.until_ms))
    counted = Counted.of(task.resource)
    for run in recording.runs:
        amount = counted.amount(recording.specs[run.operation].resources)
        ended_ms = task.until_ms if run.ended_at_ms is None else run.ended_at_ms
        usage.add(recording.pool_of(run.operation), run.started_at_ms, ended_ms, amount)
    return usage


def _agreement(recorded: UsageSeries, replayed: UsageSeries) -> Agreement:
    overlap = sum(
        min(one, other)
        for pool, series in recorded.of.items()
        for one, other in zip(series, replayed.of[pool], strict=True)
    )
    sums = [sum(map(sum, each.of.values())) for each in (recorded, replayed)]
    recorded_usage, replayed_usage = (hours([each]) for each in sums)
    return Agreement(recorded_usage, replayed_usage, overlap / max(sums) if max(sums) else 1.0)


def _compared(after: Tree, recorded: UsageSeries, *accounts: ReplayAccount) -> Iterator[ComparedPool]:
    """Yield the pools of both replays: parents before children, configured pools in the order of the new tree."""
    parents = accounts[0].parents | accounts[1].parents
    places = {pool.name: place for place, pool in enumerate(after.pools)}
    happened = recorded.with_all_below(accounts[0].parents)
    pools: list[Mapping[PoolName, ReplayedPool]] = [account.pools() for account in accounts]
    sooner, delayed = _sooner_and_later(accounts[0], accounts[1], parents)
    stretches = accounts[0].stretches
    nothing = [0.0] * stretches.count
    below: dict[PoolName, list[PoolName]] = {}
    for name in sorted(parents, key=lambda each: (places.get(each, len(places)), each)):
        below.setdefault(parents[name], []).append(name)
    waiting = [(ROOT_POOL, "")] if ROOT_POOL in parents else []
    while waiting:
        name, above = waiting.pop()
        path = "" if name == ROOT_POOL else f"{above}/{name}"
        series = happened.get(name, nothing)
        before, later = (each.get(name) for each in pools)
        moved = sooner[name], delayed[name]
        yield ComparedPool(name, path or "/", hours(series), stretches.means(series), before, later, *moved)
        waiting += [(each, path) for each in reversed(below.get(name, []))]


def _sooner_and_later(
    before: ReplayAccount, after: ReplayAccount, parents: Mapping[PoolName, PoolName]
) -> tuple[Counter[PoolName], Counter[PoolName]]:
    """Count how many operations end sooner, and how many later, under the other configuration: by pool, with all pools below it."""
    sooner: Counter[PoolName] = Counter()
    later: Counter[PoolName] = Counter()
    for operation in before.over.keys() | after.over.keys():
        pool, before_ms = before.over.get(operation, (PoolName(""), _NEVER_MS))
        pool_after, after_ms = after.over.get(operation, (pool, _NEVER_MS))
        if abs(after_ms - before_ms) >= _WORTH_TELLING_MS:
            (sooner if after_ms < before_ms else later).update(upwards(pool or pool_after, parents))
    return sooner, later


def _is_within(run: JobRun, task: ReplayTask) -> bool:
    return run.started_at_ms <= task.until_ms and (run.ended_at_ms is None or run.ended_at_ms >= task.since_ms)


def _notes(task: ReplayTask, recording: Recording) -> Iterator[str]:
    """Yield the texts about what was assumed and what was left out."""
    yield f"{_many(len(task.nodes), 'node')}, as they are now, assumed to have been there all the time"
    yield "the recorded configuration is the present configuration: changes of pools in this period are not replayed"
    guessed = len(recording.lengths.guessed)
    if guessed:
        yield (
            f"{_many(guessed, 'job')} whose own end is not in the log: assumed to run as long as other jobs of the same "
            "operation, or else to the end of the period"
        )
    nodes = {node.node for node in task.nodes}
    gone = {run.node for run in recording.runs if _is_within(run, task)} - nodes
    if gone:
        yield f"jobs ran on nodes that no longer exist: {', '.join(sorted(gone)[:5])}"
    if recording.of_several_trees:
        yield f"{_many(len(recording.of_several_trees), 'operation')} left out, since they ran in several trees"
    if recording.forgotten:
        yield f"{_many(len(recording.forgotten), 'operation')} left out, since the log no longer has the start"


def _refusals(configuration: str, account: ReplayAccount) -> Iterator[str]:
    if account.refused:
        count = _many(account.refused, "operation")
        yield f"{count} refused under {configuration}, the first: {account.first_refusal}"


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
