"""Starting operations: how many a second with a durable answer each, and that neither a start nor a promotion costs more for there
being many."""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import anyio
import msgspec

from headrace.bus import Bus
from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName
from headrace.pools import Pool, PoolConfig, Tree, TreeOptions
from headrace.resources import Resources
from headrace.wire import ledger, subjects
from headrace.wire.codec import encode
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import OperationSpec, OperationState, StartAnswer, StartOperation
from headrace.wire.refusals import decode_answer
from headrace_admission.engine import AdmissionEngine, Decision
from headrace_admission.log.byte_budget import encode_event
from headrace_admission.state.rules import GlobalRules, rules_of
from tests.bench.registry import REGISTRY, Figure
from tests.support.clocks import NOW, at
from tests.support.nats_server import NatsServer, nats_server
from tests.support.stores import provision_stores
from tests.support.tree_services import TREE, a_bus, ask

#: Raised for the measurement; an installation has 5,000 unless it says otherwise.
CAP = 60_000
FEW, MANY = 100, 50_000
IN_FLIGHT = 64
STARTS = 6_000
ROUNDS = 3
_TIMED = 300


def a_start(number: int, prefix: str = "operation", pool: str = "work") -> StartOperation:
    spec = OperationSpec(PoolName(pool), ["python", "work.py"], 10, Resources(user_slots=1, cpu=100))
    return StartOperation(OperationId(f"{prefix}-{number:06}"), spec)


def a_tree(running: int = CAP) -> Tree:
    """A pool three levels down, as teams have them."""
    limits = PoolConfig(max_operation_count=CAP, max_running_operation_count=CAP)
    narrow = PoolConfig(max_operation_count=CAP, max_running_operation_count=running)
    pools = [
        Pool(PoolName("company"), ROOT_POOL, limits),
        Pool(PoolName("team"), PoolName("company"), limits),
        Pool(PoolName("work"), PoolName("team"), narrow),
    ]
    return Tree(TREE, pools, TreeOptions(max_operation_count=CAP, max_running_operation_count=CAP))


def an_engine(registered: int, running: int = CAP) -> AdmissionEngine:
    engine = AdmissionEngine(GlobalRules(max_operation_count=CAP))
    engine.on_configuration(TREE, rules_of(a_tree(running)), NOW)
    for number in range(registered):
        engine.on_start(a_start(number), "anna", at(0, number))
    return engine


def decided(decision: Decision) -> list[bytes]:
    """What the service does with a decision before it is on its way to the log."""
    return [encode_event(event) for event in decision.effects]


def start_us(engine: AdmissionEngine, prefix: str) -> float:
    """Microseconds of a start, the median of some hundred."""
    requests = [a_start(number, prefix) for number in range(_TIMED)]
    taken = []
    for request in requests:
        begun = time.perf_counter()
        decision = engine.on_start(request, "anna", NOW)
        decided(decision)
        encode(decision.answer)
        taken.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(taken)


@REGISTRY.add(
    "start_growth", f"a start at {MANY:,} registered operations over one at {FEW} (cap raised to {CAP:,})", 1.2
)
def start_growth() -> Figure:
    few, many = an_engine(FEW), an_engine(MANY)
    gc.collect()
    gc.freeze()
    ratios = [start_us(many, f"many-{turn}") / start_us(few, f"few-{turn}") for turn in range(5)]
    return Figure.of(ratios, "times")


@REGISTRY.add("promotion_ms", f"an end that promotes one of {MANY:,} that wait (cap raised to {CAP:,})", 1)
def promotion() -> Figure:
    engine = an_engine(MANY + 1, running=1)
    gc.collect()
    gc.freeze()
    taken = []
    for number in range(_TIMED):
        operation = engine.state.operations[OperationId(f"operation-{number:06}")]
        ends = [
            ledger.ReportedEnd(NodeName("n1"), JobEnd(operation.id, index, 1, AllocationId("1-1"), JobResult.COMPLETED))
            for index in range(operation.spec.job_count)
        ]
        begun = time.perf_counter()
        decision = engine.on_report(ledger.ReportEnds(TREE, 1, ends), NOW)
        decided(decision)
        taken.append((time.perf_counter() - begun) * 1e3)
        following = engine.state.operations[OperationId(f"operation-{number + 1:06}")]
        assert following.state is OperationState.RUNNING
    return Figure.of(taken, "ms")


@cache
def starts() -> list[float]:
    """Starts a second of each round, measured once."""
    with nats_server() as server, tempfile.TemporaryDirectory() as folder:
        return anyio.run(_measure, server, Path(folder))


async def _measure(server: NatsServer, folder: Path) -> list[float]:
    async with a_bus(server, "service", "configuring") as bus:
        bucket = await bus.key_value(subjects.POOLS_BUCKET, history=64)
        await bucket.put(TREE, msgspec.json.encode(a_tree()))
    async with an_admission(server, folder), a_bus(server, "user", "anna") as anna:
        await ask(anna, subjects.user("anna", "op.start"), a_start(0, "first"), StartAnswer)
        gc.freeze()
        rates = []
        for turn in range(ROUNDS):
            begun = time.perf_counter()
            await start_all(anna, f"turn-{turn}")
            rates.append(STARTS / (time.perf_counter() - begun))
        return rates


async def start_all(anna: Bus, prefix: str, count: int = STARTS) -> None:
    """Start operations, `IN_FLIGHT` at a time."""
    requests = iter([encode(a_start(number, prefix)) for number in range(count)])
    subject = subjects.user("anna", "op.start")

    async def one_after_another() -> None:
        for request in requests:
            data = await anna.request(subject, request, timeout_s=10)
            assert isinstance(decode_answer(data, StartAnswer), StartAnswer)

    async with anyio.create_task_group() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.start_soon(one_after_another)


@asynccontextmanager
async def an_admission(server: NatsServer, folder: Path) -> AsyncIterator[None]:
    """Run admission as a process of its own."""
    config = folder / "services.toml"
    await provision_stores(server.url)
    config.write_text(
        f'[common]\nnats_url = "{server.url}"\nlog_level = "warning"\n[admission]\nmax_operation_count = {CAP}\n'
        f"max_operation_count_per_user = {CAP}\n",
        encoding="utf-8",
    )
    process = await anyio.open_process(
        [sys.executable, "-m", "headrace_admission", "--config", str(config)], stdout=None, stderr=None
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@REGISTRY.add(
    "starts_per_second",
    f"starts with a durable answer each, {IN_FLIGHT} in flight, every write on the disk (cap raised to {CAP:,})",
    2_000,
    more_is_better=True,
)
def starts_per_second() -> Figure:
    return Figure.of(starts(), "starts/s")
