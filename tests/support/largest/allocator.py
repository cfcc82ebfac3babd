"""The largest messages of an allocator: orders with long commands, lists of nodes in trouble, reports of ends with long last words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from msgspec.structs import replace

from headrace.ids import AllocationId, PoolName
from headrace.pools import TreeOptions
from headrace.resources import Resources
from headrace.runtime.engine import Moment
from headrace.runtime.role import Deposition, Role
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.explanations import ExplainWaiting
from headrace.wire.heartbeat import LONGEST_GPU_NAME, MOST_GPUS, JobEnd, JobResult, SessionSpan
from headrace.wire.ledger import (
    LiveOperation,
    Released,
    ReleasedAnswer,
    ReportAnswer,
    ReportedEnd,
    ReportedSession,
    ReportEnds,
)
from headrace.wire.nodes import (
    LONGEST_ISOLATION_DETAIL,
    LONGEST_TAG,
    MOST_TAGS,
    Enrol,
    ListNodes,
    LongestLeaseRecord,
    NodeList,
    NodeRecord,
    WhereRequest,
)
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.preemption import ListObserved, PreemptionReason
from headrace.wire.snapshot_parts import SnapshotPublisher
from headrace.wire.snapshots import UsageFrame, UsageItem, UsagePart, WholeRequest
from headrace.wire.start_plans import FitOperation
from headrace_agent.runner.protocol import Ended
from headrace_allocator.effects import Release
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.nodes import Timing
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.links.ledger_link import LedgerLink
from headrace_allocator.preemption.audit.observing import ObservedPreemptionLog
from headrace_allocator.preemption.victims import Preemption
from tests.support.allocating import nothing_owed
from tests.support.largest.agent import LargeNode
from tests.support.largest.names import FAT, LONGEST_START, MANY, TREE, a_node, an_operation

__all__ = ["observed_preemptions", "orders", "reports", "views_of_nodes"]

TERM = 2**40
OPERATIONS = 60
SIZE = Resources(user_slots=1, cpu=2**30, memory=2**40)


def live(number: int, *, command_bytes: int = 1, jobs: int = MANY) -> LiveOperation:
    spec = OperationSpec(PoolName("p"), ["x" * command_bytes], jobs, SIZE, max_failed_job_count=MANY)
    done = bytes((jobs + 7) // 8)
    name, state = an_operation(number), OperationState.RUNNING
    return LiveOperation(name, "anna", spec, state, False, False, 2**50, jobs, TERM, done)


def an_engine(*operations: LiveOperation, nodes: int = 1) -> AllocatorEngine:
    now = Moment(2**60, 2**50)
    engine = AllocatorEngine(TREE, TERM, Timing())
    engine.on_nodes({a_node(number): NodeRecord(a_node(number), TREE) for number in range(1, nodes + 1)}, now)
    engine.on_operations(operations, now)
    shares = {item.key: item for item in map(nothing_owed, operations)}
    engine.on_shares(ShareSnapshot(shares, shares.keys(), total=Resources(*[2**60] * 5)), now)
    while engine.on_refresh_due(MANY, now).answer:
        pass
    return engine


def orders() -> Iterator[msgspec.Struct]:
    """A thousand slots of one node for operations of which some have a command of 120 kB, and jobs that end as soon as they began."""
    node = LargeNode()
    engine = an_engine(
        *(live(number, command_bytes=120_000 if number % 5 == 1 else 1, jobs=100_000) for number in range(OPERATIONS))
    )
    while len(node.beats) < 12:
        outcome = engine.on_heartbeat(node.beats[-1], node.now)
        assert outcome.answer is not None
        yield from (node.beats[-1], outcome.answer)
        void = node.engine.void
        node.obey(outcome.answer)
        assert node.engine.void == void
        end_some(node)
        while engine.on_refresh_due(MANY, node.now).answer:
            pass
    for ask in (WhereRequest, ExplainWaiting):
        yield from (engine.on_question(ask(an_operation(number)), node.now).answer for number in range(100))
    yield engine.on_question(ListNodes(operations_of=node.identity.node), node.now).answer
    for number in range(100):
        fit = FitOperation(live(number, command_bytes=1, jobs=100_000).spec)
        yield engine.on_question(fit, node.now).answer
    yield from of_usage(engine, node.now)


def left_to_successors() -> Iterator[msgspec.Struct]:
    """The record of an allocator that stops with more operations and more empty nodes than the record holds."""
    engine = an_engine(*(live(number, command_bytes=1, jobs=100_000) for number in range(10_000)))
    for number in range(10_000):
        engine.facts.empty_nodes.add(a_node(number))
    names = engine.facts.empty_nodes.next_write()
    assert names is not None
    left = engine.on_stopping(Moment(2**60, 2**50)).answer
    assert len(names) > 1_000
    assert len(left) > 1_000
    yield LongestLeaseRecord(TERM, 2**50, names, left)


def end_some(node: LargeNode) -> None:
    """Half of the jobs end, after a moment."""
    for key, allocation in list(node.engine.held.by_job.items())[::2]:
        wall_ms = node.now.wall_ms
        end = JobEnd(
            *(key.operation, key.index, key.attempt, allocation.id, JobResult.COMPLETED, 0),
            started_at_ms=wall_ms,
            ended_at_ms=wall_ms,
        )
        node.do(node.engine.on_runner(Ended(end), node.now))


def of_usage(engine: AllocatorEngine, now: Moment) -> Iterator[msgspec.Struct]:
    """Parts of usage: what the engine tells, then 60,000 operations that come, and all of them gone."""
    publisher: SnapshotPublisher[UsageItem, UsageFrame] = SnapshotPublisher(
        UsagePart, TREE, TERM, UsageFrame(), key=lambda item: item.operation
    )
    cut = engine.on_usage_due(MANY, now).answer
    assert cut is not None
    (widest, *_) = sorted(cut.items, key=lambda item: -len(encode(item)))
    many = [replace(widest, operation=an_operation(number)) for number in range(60_000)]
    parts = publisher.advance(cut.frame, cut.items, cut.gone)
    parts += publisher.advance(cut.frame, many, [])
    parts.append(publisher.page(WholeRequest()))
    parts += publisher.advance(cut.frame, [], [item.operation for item in many])
    yield from (decode(part, UsagePart) for part in parts)


def observed_preemptions() -> Iterator[msgspec.Struct]:
    """A thousand preemptions that were only observed."""
    engine, log, now = an_engine(live(1), live(2)), ObservedPreemptionLog(), Moment(2**60, 2**50)
    victim, beneficiary = (engine.facts.operations[an_operation(number)] for number in (1, 2))
    allocations = [
        Allocation(AllocationId(f"{number}".ljust(64, FAT)), victim.id, a_node(1), SIZE) for number in range(1_000)
    ]
    reason = PreemptionReason.AGGRESSIVE_PREEMPTION
    log.note(engine.facts, [Preemption(one, reason, Group.PREEMPTIBLE, beneficiary) for one in allocations], now)
    yield log.page(engine.facts, ListObserved(limit=1_000))


def views_of_nodes() -> Iterator[msgspec.Struct]:
    """Two thousand nodes with all the tags that they may have, and long words on what is wrong with them."""
    tags = [f"{number:03}".ljust(LONGEST_TAG, FAT) for number in range(MOST_TAGS)]
    detail = FAT * LONGEST_ISOLATION_DETAIL
    records = {
        a_node(number): NodeRecord(a_node(number), TREE, tags, isolation_detail=detail) for number in range(2_000)
    }
    engine, now = AllocatorEngine(TREE, TERM, Timing()), Moment(2**60, 2**50)
    engine.on_options(TreeOptions(require_isolation=True), now)
    engine.on_nodes(records, now)
    for node in engine.facts.nodes.values():
        node.trouble = FAT * 4096
        node.gpus = {FAT * (LONGEST_GPU_NAME - 3) + f"{gpu:03}": AllocationId("") for gpu in range(MOST_GPUS)}
    first, more = 0, True
    while more:
        page = engine.on_question(ListNodes(first), now).answer
        assert isinstance(page, NodeList)
        yield page
        first, more = first + len(page.nodes), page.more
        assert all(len(node.left_out) > len(detail) for node in page.nodes)
    assert first == len(records)
    yield from (NodeRecord(a_node(1), TREE, tags, True, 2**62), Enrol(a_node(1), TREE, tags))


def reports() -> Iterator[msgspec.Struct]:
    """Ends of which each has the longest words that there are, and operations that all end at once."""
    released: list[Released] = []
    reported: list[ReportEnds] = []
    answers: list[msgspec.Struct] = []

    class Ledger:
        async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
            if subject == subjects.ledger("released"):
                released.append(decode(data, Released))
                answers.append(ReleasedAnswer(released[-1].operations))
                return encode(answers[-1])
            reported.append(decode(data, ReportEnds))
            answers.append(ReportAnswer([one.end.key for one in reported[-1].ends], len(reported[-1].sessions)))
            return encode(answers[-1])

    over = replace(live(0, jobs=1), block=0, done=b"", state=OperationState.ABORTING)
    engine, now = an_engine(), Moment(2**60, 2**50)
    ending = [replace(over, operation=an_operation(number)) for number in range(20_000)]
    effects = engine.on_operations(ending, now).effects
    bus: Any = Ledger()
    an_end = JobEnd(an_operation(0), 2**30, 2**30, AllocationId("a" * 64), JobResult.FAILED, 1, 9)

    async def tell() -> None:
        link = LedgerLink(bus, engine, Role("allocator", TERM, Deposition()), lambda _: None, lambda: now)
        for words in (FAT * 4096, "e" * 2_000, ""):
            spans = (
                SessionSpan(an_end.key, an_end.allocation, FAT * 200, 2**50, 2**53, number) for number in range(1_000)
            )
            end = replace(an_end, reason=words, stderr_tail=words, start=LONGEST_START)
            link.report(
                [ReportedEnd(a_node(1), replace(end, operation=an_operation(number))) for number in range(2_000)],
                [ReportedSession(a_node(1), span) for span in spans],
            )
        with anyio.move_on_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(link.keep_reporting, anyio.lowlevel.checkpoint)
                for effect in effects:
                    if isinstance(effect, Release):
                        await link.release(effect)
                while link._to_report:
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()

    anyio.run(tell)
    assert sum(len(one.ends) for one in reported) == 6_000
    assert sum(len(one.sessions) for one in reported) == 1_000
    assert sum(len(one.operations) for one in released) == 20_000
    yield from (*reported, *released, *answers)
