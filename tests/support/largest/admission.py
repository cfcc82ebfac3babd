"""The largest messages of admission: a million jobs, 100,000 retries, 128 trees of 30 levels, 10,000 ephemeral pools of one person.

What is recorded is held against the cap of an event and yielded as an entry of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec

from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.wire import ledger
from headrace.wire import operations as wire
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import EphemeralPoolSet, Event, LogBatch, Published
from headrace.wire.placements import EphemeralPool
from headrace.wire.refusals import OverLimit
from headrace_admission import queries
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.byte_budget import LARGEST_SPEC_BYTES, encode_event, size_bytes
from headrace_admission.log.checkpoint import Checkpoint
from headrace_admission.state.rules import GlobalRules, PoolRules, TreeRules
from tests.support.clocks import at
from tests.support.largest.names import FAT, MANY, USER, a_pool

__all__ = ["changes", "configurations", "counts", "ends", "starts", "views"]

#: Trees that one operation may name, the tentative ones included.
TREES = [TreeName(f"tree-{number:03}".ljust(63, "t")) for number in range(128)]
TREE = TREES[0]
LEVELS = 30
NOW = at(0, 2**50)
WIDEST = OperationId("operation-".ljust(64, "w"))
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


def started(engine: AdmissionEngine, name: OperationId, **spec: Any) -> msgspec.Struct:
    wanted = wire.OperationSpec(**spec | {"argv": spec.get("argv", ["true"])})
    outcome = engine.on_start(wire.StartOperation(name, wanted), USER, NOW)
    check_events(outcome.effects)
    return outcome.answer


def check_events(events: Any) -> None:
    for event in events:
        assert len(encode_event(event)) == size_bytes(event)
        check(LogBatch(1, [event], "writer", 1))


def check(message: msgspec.Struct) -> None:
    assert len(encode(message)) <= LARGEST_MESSAGE_BYTES


@pytest.fixture(scope="module")
def widest() -> AdmissionEngine:
    """An operation in 128 trees, each of 30 full levels with many who wait, and 100,000 of its million jobs retried."""
    engine = an_engine(*TREES, pools=a_chain(), running=21)
    for number in range(42):
        name = OperationId(f"operation-{number:03}".ljust(64, "n"))
        answer = started(engine, name, pool=DEEPEST, pool_trees=TREES[:64], tentative_pool_trees=TREES[64:])
        assert isinstance(answer, wire.StartAnswer), answer
        check(answer)
    long = "x" * (LARGEST_SPEC_BYTES - 20_000)
    answer = started(
        engine,
        WIDEST,
        pool=DEEPEST,
        argv=[long],
        job_count=MANY,
        max_failed_job_count=MANY,
        pool_trees=TREES[:64],
        tentative_pool_trees=TREES[64:],
    )
    assert isinstance(answer, wire.StartAnswer)
    check(answer)
    return engine


def test_no_answer_about_an_operation_outgrows_the_wire(widest: AdmissionEngine) -> None:
    state = widest.state
    check(queries.get_operation(state, wire.GetOperation(WIDEST)))
    listed = queries.list_operations(state, wire.ListOperations(limit=500))
    assert isinstance(listed, wire.OperationList)
    assert listed.more
    check(listed)
    explained = queries.explain_operation(state, wire.ExplainOperation(WIDEST))
    assert isinstance(explained, wire.OperationExplanation)
    assert len(explained.levels) + explained.levels_left_out == len(TREES) * (LEVELS + 1)
    check(explained)


def test_no_page_of_counted_pools_outgrows_the_wire() -> None:
    pools = [a_pool(f"pool-{number:02}") for number in range(45)]
    engine = an_engine(pools=dict.fromkeys(pools, PoolRules()), running=20)
    for number in range(len(pools) * 41):
        name = OperationId(f"operation-{number:04}".ljust(64, "n"))
        started(engine, name, pool=pools[number % len(pools)], tree=TREE)
    seen: list[str] = []
    more = True
    while more:
        page = queries.count_pools(engine.state, wire.CountPools(tree=TREE, after=(seen or [""])[-1]))
        assert isinstance(page, wire.PoolCounts)
        check(page)
        seen += [level.pool for level in page.pools]
        more = page.more
    assert sorted(seen) == sorted([ROOT_POOL, *pools])


def test_no_change_of_an_operation_outgrows_the_log(widest: AdmissionEngine) -> None:
    for outcome in (
        widest.on_suspend(wire.SuspendOperation(WIDEST), USER, NOW),
        widest.on_resume(wire.ResumeOperation(WIDEST), USER, NOW),
        widest.on_update(wire.UpdateOperation(WIDEST, weight=2.0), USER, NOW),
        widest.on_update(wire.UpdateOperation(WIDEST, pool=a_pool("else")), USER, NOW),
        widest.on_abort(wire.AbortOperation(WIDEST, reason=FAT * 4096), USER, NOW),
    ):
        check_events(outcome.effects)
        check(outcome.answer)


def test_ends_of_a_million_jobs_with_long_words_fit_the_log_its_views_and_its_checkpoint() -> None:
    engine = an_engine()
    argv = ["x" * 120_000]
    started(engine, WIDEST, pool=a_pool("p"), tree=TREE, argv=argv, job_count=MANY, max_failed_job_count=MANY)
    drawn = engine.on_draw(ledger.DrawBlock(TREE, 1, WIDEST, MANY), NOW)
    check_events(drawn.effects)
    for first in range(0, 100_000, 1_000):
        words = FAT * 4096 if first == 0 else "e" * 2_000 if first < 5_000 else ""
        ends = [
            JobEnd(WIDEST, index, 1, AllocationId("a" * 40), JobResult.FAILED, 1, None, words, words)
            for index in range(first, first + 1_000)
        ]
        node = NodeName(f"node-{first}".ljust(63, "n"))
        report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(node, end) for end in ends])
        outcome = engine.on_report(report, NOW)
        check_events(outcome.effects)
        check(outcome.answer)
        check(queries.get_operation(engine.state, wire.GetOperation(WIDEST)))
    check(queries.jobs_of(engine.state, wire.GetJobs(WIDEST, limit=1_000)))
    check(queries.whole_operations(engine.state, ledger.WholeOperationsRequest(TREE), 1))
    check(queries.whole_operations(engine.state, ledger.WholeOperationsRequest(TREE, WIDEST, next_index=1), 1))
    assert all(len(page) < 16 * 1024 * 1024 for page in Checkpoint(engine.state).pages())


def test_the_record_of_a_preemption_is_no_longer_than_it_says() -> None:
    share = (1 / 3,) * 5
    for reason in PreemptionReason:
        record = PreemptionRecord(reason, WIDEST, False, 2**53, 2**62, 2, 1 / 3, share, share, share)

        assert len(encode(record)) <= LARGEST_RECORD_BYTES


def test_ten_thousand_ephemeral_pools_of_one_person_fit_a_refusal() -> None:
    trees = TREES[:8]
    engine = an_engine(*trees)
    for tree in trees:
        for number in range(10_000):
            pool = EphemeralPool(PoolName(f"e-{number:05}".ljust(100, "e")), ROOT_POOL, user=USER)
            engine.state.apply(EphemeralPoolSet(tree, pool))

    refused = started(engine, WIDEST, pool=PoolName("one-more"), pool_trees=trees)

    assert isinstance(refused, OverLimit)
    check(refused)


def test_a_configuration_that_two_thousand_ephemeral_pools_hold_back_says_so_in_a_message() -> None:
    hubs = [a_pool(f"hub-{number:04}") for number in range(2_000)]
    engine = an_engine()
    engine.on_configuration(TREE, rules({hub: PoolRules(create_ephemeral_subpools=True) for hub in hubs}), NOW)
    for number, hub in enumerate(hubs):
        started(engine, OperationId(f"operation-{number:04}"), pool=hub, tree=TREE)

    check_events(engine.on_configuration(TREE, rules({hub: PoolRules(fifo=True) for hub in hubs}), NOW).effects)

    counted = queries.count_pools(engine.state, wire.CountPools(tree=TREE))
    assert isinstance(counted, wire.PoolCounts)
    assert counted.held_back
    check(counted)
