"""The largest messages of admission: a million jobs, 100,000 retries, 128 trees of 30 levels, 10,000 ephemeral pools of one person.

What is recorded is held against the cap of an event and yielded as an entry of the log.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from headrace.bus.group_commit import MAX_GROUP_BYTES
from headrace.ids import ROOT_POOL, AllocationId, GroupName, OperationId, PoolName, TreeName
from headrace.pools import Access, Pool, PoolConfig, Tree
from headrace.resources import Resources
from headrace.runtime.engine import Outcome
from headrace.wire import ledger, subjects
from headrace.wire import operations as wire
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, runs_of_bytes
from headrace.wire.consumption import (
    ConsumptionPage,
    ConsumptionRecord,
    ConsumptionRow,
    GetConsumption,
    Level,
    RunSums,
)
from headrace.wire.groups import (
    MOST_GROUPS,
    MOST_GROUPS_OF_A_PERSON,
    MOST_MEMBERS,
    Group,
    GroupList,
    GroupOfPerson,
    GroupSize,
    GroupsOfPerson,
)
from headrace.wire.happenings import GetOperationHistory, OperationHistory, recorded
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import EphemeralPoolSet, Event, LogBatch, Published
from headrace.wire.lost_work import HOUR_MS, KEPT_HOURS, GetLostWork, LostWorkTold
from headrace.wire.operation_spec import Upstream, UpstreamEnd
from headrace.wire.placements import EphemeralPool
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace.wire.refusals import OverLimit
from headrace.wire.replay import LogPage, ReadEvents
from headrace.wire.rights import GetRights, Rights
from headrace_admission import disclosure, queries
from headrace_admission.consumption.keeping import PAGE_BYTES
from headrace_admission.consumption.records import LARGEST_RECORD_BYTES, packed_within
from headrace_admission.consumption.store import ConsumptionStore
from headrace_admission.decisions import starts
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.byte_budget import LARGEST_EVENT_BYTES, LARGEST_SPEC_BYTES, encode_event, size_bytes
from headrace_admission.log.checkpoint import Checkpoint
from headrace_admission.log.history_pages import history_page, log_page
from headrace_admission.log.recorder import encode_batch
from headrace_admission.state.groups import groups_of
from headrace_admission.state.rules import GlobalRules, PoolRules, TreeRules, rules_of
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer
from tests.support.clocks import at
from tests.support.largest.names import FAT, LONGEST_START, MANY, USER, a_node, a_pool, an_operation
from tests.support.moody_bucket import MoodyBucket

__all__ = [
    "consumption",
    "counts",
    "ends",
    "ephemeral_pools",
    "groups",
    "histories",
    "lost_work",
    "operations",
    "rights",
]

#: Trees that one operation may name, the tentative ones included.
TREES = [TreeName(f"tree-{number:03}".ljust(63, "t")) for number in range(128)]
TREE = TREES[0]
LEVELS = 30
NOW = at(0, 2**50)
WIDEST = OperationId("operation-".ljust(64, "w"))
#: As long a name as a person may give one.
NEW_POOL = PoolName("p" * 100)
Made = Iterator[msgspec.Struct]


def an_engine(*trees: TreeName, pools: dict[PoolName, PoolRules] | None = None, running: int = MANY) -> AdmissionEngine:
    engine = AdmissionEngine(GlobalRules(MANY, False, True, frozenset()))
    for tree in trees or [TREE]:
        engine.on_configuration(tree, rules(pools or {}, running), NOW)
    return engine


def rules(pools: dict[PoolName, PoolRules], running: int = MANY) -> TreeRules:
    return TreeRules(
        pools=pools,
        max_operation_count=MANY,
        max_running_operation_count=MANY,
        max_operation_count_per_pool=MANY,
        max_running_operation_count_per_pool=running,
        max_ephemeral_pools_per_user=10_000,
    )


def a_chain() -> dict[PoolName, PoolRules]:
    """As many levels of pools as a tree may have."""
    names = [ROOT_POOL, *(a_pool(f"level-{number:02}") for number in range(LEVELS))]
    return {name: PoolRules(parent=above) for above, name in pairwise(names)}


DEEPEST = a_pool(f"level-{LEVELS - 1:02}")


def started(engine: AdmissionEngine, name: OperationId, **spec: Any) -> Made:
    """The answer to a start and what it records."""
    wanted = wire.OperationSpec(**spec | {"argv": spec.get("argv", ["true"])})
    outcome = engine.on_start(wire.StartOperation(name, wanted), USER, NOW)
    assert isinstance(outcome.answer, wire.StartAnswer | OverLimit), outcome.answer
    yield from decided(outcome)


def decided(outcome: Outcome[Any, Event]) -> Made:
    """The answer to a request and what it records."""
    for event in outcome.effects:
        assert len(encode_event(event)) == size_bytes(event) <= LARGEST_EVENT_BYTES
        yield LogBatch(2**62, [event], "w" * 100, 2**62)
        published = Published(TREE, 2**62, 2**62, 2**62, [event])
        yield published
        yield recorded(published)
    if outcome.answer is not None:
        yield outcome.answer


def operations() -> Made:
    """An operation in 128 trees, each of 30 full levels with many who wait, seen from all sides and changed."""
    engine = an_engine(*TREES, pools=a_chain(), running=21)
    trees: dict[str, Any] = {"pool": DEEPEST, "pool_trees": TREES[:64], "tentative_pool_trees": TREES[64:]}
    for number in range(42):
        yield from started(engine, an_operation(number), **trees)
    wanted = wire.OperationSpec(**trees | {"argv": ["true"], "pool": NEW_POOL})
    yield starts.plan(engine.state, wire.StartOperation(WIDEST, wanted), USER)
    long = "x" * (LARGEST_SPEC_BYTES - 25_000)
    upstream = [Upstream(an_operation(number), UpstreamEnd.FAILED) for number in range(42)]
    yield from started(engine, WIDEST, argv=[long], job_count=MANY, max_failed_job_count=MANY, after=upstream, **trees)
    state = engine.state
    yield queries.get_operation(state, wire.GetOperation(WIDEST))
    listed = queries.list_operations(state, wire.ListOperations(limit=500))
    assert isinstance(listed, wire.OperationList)
    assert listed.more
    yield listed
    explained = queries.explain_operation(state, wire.ExplainOperation(WIDEST))
    assert isinstance(explained, wire.OperationExplanation)
    assert len(explained.levels) + explained.levels_left_out == len(TREES) * (LEVELS + 1)
    yield explained
    for outcome in (
        engine.on_suspend(wire.SuspendOperation(WIDEST), USER, NOW),
        engine.on_resume(wire.ResumeOperation(WIDEST), USER, NOW),
        engine.on_update(wire.UpdateOperation(WIDEST, weight=2.0), USER, NOW),
        engine.on_update(wire.UpdateOperation(WIDEST, pool=NEW_POOL), USER, NOW),
        engine.on_abort(wire.AbortOperation(WIDEST, reason=FAT * 4096), USER, NOW),
    ):
        yield from decided(outcome)


def counts() -> Made:
    """Pages of 45 pools with twice as many operations as may run, and of 2,000 ephemeral pools that hold a configuration back."""
    pools = [a_pool(f"pool-{number:02}") for number in range(45)]
    engine = an_engine(pools=dict.fromkeys(pools, PoolRules()), running=20)
    for number in range(len(pools) * 41):
        yield from started(engine, an_operation(number), pool=pools[number % len(pools)], tree=TREE)
    seen: list[str] = []
    more = True
    while more:
        page = queries.count_pools(engine.state, wire.CountPools(tree=TREE, after=(seen or [""])[-1]))
        assert isinstance(page, wire.PoolCounts)
        yield page
        seen += [level.pool for level in page.pools]
        more = page.more
    assert sorted(seen) == sorted([ROOT_POOL, *pools])
    hubs = [a_pool(f"hub-{number:04}") for number in range(2_000)]
    engine = an_engine()
    engine.on_configuration(TREE, rules({hub: PoolRules(create_ephemeral_subpools=True) for hub in hubs}), NOW)
    for number, hub in enumerate(hubs):
        yield from started(engine, an_operation(number), pool=hub, tree=TREE)
    yield from decided(engine.on_configuration(TREE, rules({hub: PoolRules(fifo=True) for hub in hubs}), NOW))
    counted = queries.count_pools(engine.state, wire.CountPools(tree=TREE))
    assert isinstance(counted, wire.PoolCounts)
    assert counted.held_back
    yield counted


def groups() -> Made:
    """A group of as many members as a group may have, all groups, and a person in as many groups as a person may be in."""
    members = {f"{number:04}".ljust(63, "m"): 2**53 for number in range(MOST_MEMBERS)}
    largest = Group(GroupName("g" * 63), members, USER, 2**53)
    assert len(msgspec.json.encode(largest)) < LARGEST_MESSAGE_BYTES
    yield largest
    names = [GroupName(f"{number:04}".ljust(63, "g")) for number in range(MOST_GROUPS)]
    yield GroupList([GroupSize(name, MOST_MEMBERS, USER, 2**53) for name in names])
    yield GroupsOfPerson(list(all_groups()))


def all_groups() -> tuple[GroupOfPerson, ...]:
    """The groups of a person in as many groups of both kinds as a person may be in."""
    own, of_host = (
        [GroupName(f"{number:04}".ljust(63, kind)) for number in range(MOST_GROUPS_OF_A_PERSON)] for kind in "oh"
    )
    return groups_of(dict.fromkeys(own, 2**53), of_host)


def rights() -> Made:
    """A user who is named for most rights on each of a hundred pools in each of 128 trees."""
    engine = AdmissionEngine(GlobalRules(administrators=frozenset()))
    for each in all_groups():
        engine.state.configuration.groups.take(each.name, Group(each.name, {USER: 2**53}))
    settings = PoolConfig(access=Access(use=(USER,), manage=(USER,), write=(USER,)))
    for tree in TREES:
        names = (PoolName(f"p-{number:03}".ljust(100, "p")) for number in range(100))
        pools = [Pool(name, ROOT_POOL, settings) for name in names]
        engine.on_configuration(tree, rules_of(Tree(tree, pools)), NOW)
    told = disclosure.rights_of(engine.state, GetRights(), USER)
    assert isinstance(told, Rights)
    assert told.left_out
    yield told


def ends() -> Made:
    """100,000 of a million jobs fail, many with long words: what is recorded, answered, seen, handed on and kept of them."""
    engine = an_engine()
    argv = ["x" * 120_000]
    yield from started(engine, WIDEST, pool=NEW_POOL, tree=TREE, argv=argv, job_count=MANY, max_failed_job_count=MANY)
    yield from decided(engine.on_draw(ledger.DrawBlock(TREE, 1, WIDEST, MANY), NOW))
    for first in range(0, 100_000, 1_000):
        words = FAT * 4096 if first == 0 else "e" * 2_000 if first < 5_000 else ""
        failed = JobEnd(WIDEST, 0, 1, AllocationId("a" * 64), JobResult.FAILED, 1, None, words, words)
        used = replace(failed, cpu_ms=2**53, max_rss_bytes=2**62, from_cgroup=True)
        end = replace(used, start=LONGEST_START, ended_at_ms=2**53)
        reported = [ledger.ReportedEnd(a_node(first), replace(end, index=first + more)) for more in range(1_000)]
        yield from decided(engine.on_report(ledger.ReportEnds(TREE, 1, reported), NOW))
        yield queries.get_operation(engine.state, wire.GetOperation(WIDEST))
    yield queries.jobs_of(engine.state, wire.GetJobs(WIDEST, limit=1_000))
    pages = list(wholes(engine))
    assert sum(len(page.more_attempts) + sum(len(one.attempts) for one in page.operations) for page in pages) == 100_000
    yield from pages
    # A page above the cap is written in pieces.
    assert all(len(page) < 16 * 1024 * 1024 for page in Checkpoint(engine.state).pages())


def lost_work() -> Made:
    """A week of work lost for every reason in each hour."""
    engine = an_engine()
    for hour in range(KEPT_HOURS):
        for reason in PreemptionReason:
            end = JobEnd(WIDEST, 0, 1, AllocationId("a"), JobResult.ABORTED, preemption=PreemptionRecord(reason))
            ended = replace(end, started_at_ms=1, ended_at_ms=2**53)
            most = Resources(*[2**60] * 5)
            engine.state.lost_work.note(TREE, NEW_POOL, ended, most, (2**20 + hour) * HOUR_MS)
    told = queries.lost_work(engine.state, GetLostWork(ROOT_POOL, 0, 10**14, TREE))
    assert isinstance(told, LostWorkTold)
    assert len(told.lost) == KEPT_HOURS * len(PreemptionReason)
    yield told


def consumption() -> Made:
    """Pages of records that are as large as records may be: more rows than fit, and as many as fit."""
    numbers = random.Random(1)
    path = "/".join(f"{level}".ljust(100, "p") for level in range(LEVELS))
    rows = [
        ConsumptionRow(TREE, path, f"{n}".ljust(63, "u"), WIDEST, RunSums(1, 1, *(numbers.random() for _ in range(11))))
        for n in range(5_000)
    ]
    values = [packed_within(ConsumptionRecord(1, some)) for some in (rows, rows[:4_000], rows[:4_000])]
    assert LARGEST_RECORD_BYTES >= max(map(len, values)) > 0.8 * LARGEST_RECORD_BYTES

    async def pages() -> list[ConsumptionPage]:
        bucket, found, after = MoodyBucket(), list[ConsumptionPage](), 0
        for number, value in enumerate(values):
            await bucket.put(f"days.2024.10.04.{number}", value)
        while True:
            records, following = await ConsumptionStore(bucket, 1).read(
                GetConsumption(Level.DAYS, "2024", after), PAGE_BYTES
            )
            found.append(ConsumptionPage(records, following, 2**62, 2**62, 2**62))
            if following is None:
                return found
            after = following

    told = anyio.run(pages)
    assert sum(len(page.records) for page in told) == len(values)
    yield from told


def histories() -> Made:
    """The log, and the history of its operation: every entry is as full as can be, with ends that were preempted."""
    engine = an_engine()
    list(started(engine, WIDEST, pool=NEW_POOL, tree=TREE, job_count=MANY, max_failed_job_count=MANY))
    list(decided(engine.on_draw(ledger.DrawBlock(TREE, 1, WIDEST, MANY), NOW)))
    share = (1 / 3,) * 5
    record = PreemptionRecord(
        PreemptionReason.RESOURCE_LIMITS_VIOLATED, WIDEST, False, 2**53, 2**62, 2, 1 / 3, share, share, share
    )
    events: list[bytes] = []
    for first in range(0, 20_000, 1_000):
        words, proof = (FAT * 4096, None) if first < 2_000 else ("", record if first < 10_000 else None)
        failed = JobEnd(WIDEST, 0, 1, AllocationId("a" * 64), JobResult.FAILED, 1, None, words, preemption=proof)
        end = replace(failed, start=LONGEST_START)
        reported = [ledger.ReportedEnd(a_node(first), replace(end, index=first + more)) for more in range(1_000)]
        events += map(encode_event, engine.on_report(ledger.ReportEnds(TREE, 1, reported), NOW).effects)
    entries = [encode_batch(1, run, "w" * 100, 1) for run in runs_of_bytes(events, MAX_GROUP_BYTES)]

    async def pages(loop: VirtualLoop) -> list[msgspec.Struct]:
        async with connect_to(SimulatedServer(loop), "admission") as bus:
            log = await bus.log(subjects.STREAM, subjects.LOG)
            for last, entry in enumerate(entries):
                await log.append(entry, expected_last=last, timeout_s=5.0)
            engine.state.operations[WIDEST].note_entry(len(entries))
            engine.state.operations[WIDEST].first_sequence = 1
            found: list[msgspec.Struct] = []
            after: int | None = 0
            while after is not None:
                page = await history_page(log, engine.state, GetOperationHistory(WIDEST, after))
                assert isinstance(page, OperationHistory)
                found.append(page)
                after = page.next
            after = 0
            while after is not None:
                told = await log_page(log, ReadEvents(after))
                assert isinstance(told, LogPage)
                found.append(told)
                after = told.next
            return found

    yield from run_virtually(1, pages)


def ephemeral_pools() -> Made:
    """10,000 ephemeral pools of one person in each of eight trees: one too many, and all of them told to a reader."""
    trees = TREES[:8]
    engine = an_engine(*trees)
    for tree in trees:
        for number in range(10_000):
            pool = EphemeralPool(PoolName(f"e-{number:05}".ljust(100, "e")), ROOT_POOL, user=USER)
            engine.state.apply(EphemeralPoolSet(tree, pool))
    (refused,) = started(engine, WIDEST, pool=PoolName("one-more"), pool_trees=trees)
    assert isinstance(refused, OverLimit)
    yield refused
    assert sum(len(page.ephemeral_pools) for page in wholes(engine)) == 10_000
    yield from wholes(engine)


def wholes(engine: AdmissionEngine) -> Iterator[ledger.WholeOperations]:
    """All pages of a tree, as a reader asks for them."""
    request, live = ledger.WholeOperationsRequest(TREE), []
    while True:
        page = queries.whole_operations(engine.state, request, 1)
        assert isinstance(page, ledger.WholeOperations)
        yield page
        if not page.more:
            return
        live += page.operations
        attempts = page.more_attempts or (live[-1].attempts if live else [])
        request = ledger.WholeOperationsRequest(
            tree=TREE,
            after=live[-1].operation if live else "",
            after_pool=page.ephemeral_pools[-1].name if page.ephemeral_pools else request.after_pool,
            next_index=attempts[-1].index + 1 if attempts else 0,
        )
