"""admission killed at any moment: the same operations, the same queues in the same order, and nothing answered is lost."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import anyio
import msgspec
import pytest

from headrace.bus import Bus
from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName
from headrace.pools import EphemeralSubpoolConfig, Pool, PoolConfig, Tree, TreeOptions
from headrace.resources import Resources
from headrace.runtime.role import role_of
from headrace.wire import ledger, subjects
from headrace.wire.codec import encode
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import (
    CountPools,
    GetOperation,
    OperationSpec,
    OperationState,
    OperationView,
    PoolCounts,
    StartAnswer,
    StartOperation,
    UpdateOperation,
)
from headrace.wire.refusals import NotFound, OverLimit, decode_answer
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from tests.support.killing import killed
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import TREE, a_bus, ask, running, stand_in_for

pytestmark = pytest.mark.long

#: Checkpoints come often here, so that kills meet them.
SETTINGS = AdmissionSettings(checkpoint_events=40)


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


def a_start(name: str, pool: str, jobs: int = 1) -> StartOperation:
    return StartOperation(
        OperationId(name), OperationSpec(PoolName(pool), ["true"], jobs, Resources(user_slots=1, cpu=100))
    )


async def configure(server: NatsServer, *pools: Pool, options: TreeOptions | None = None) -> int:
    async with a_bus(server, "service", "configuring") as bus:
        bucket = await bus.key_value(subjects.POOLS_BUCKET, history=64)
        revision: int = await bucket.put(TREE, msgspec.json.encode(Tree(TREE, list(pools), options or TreeOptions())))
        return revision


def a_pool(name: str, parent: str = ROOT_POOL, **settings: Any) -> Pool:
    return Pool(PoolName(name), PoolName(parent), PoolConfig(**settings))


async def counted(server: NatsServer) -> list[Any]:
    async with a_bus(server, "user", "anna") as bus:
        answer = await ask(bus, subjects.user("anna", "pool.counts"), CountPools(), PoolCounts)
        assert isinstance(answer, PoolCounts)
        # Who holds slots is told with the time of their start, which a restart must not change either.
        return answer.pools


async def start(server: NatsServer, name: str, pool: str, user: str = "anna", revision: int = 0) -> Any:
    async with a_bus(server, "user", user) as bus:
        request = msgspec.structs.replace(a_start(name, pool), min_revision=revision)
        return await ask(bus, subjects.user(user, "op.start"), request, StartAnswer)


async def end(server: NatsServer, name: str) -> None:
    report = ledger.ReportEnds(
        TREE,
        1,
        [ledger.ReportedEnd(NodeName("n1"), JobEnd(OperationId(name), 0, 1, AllocationId("1-1"), JobResult.COMPLETED))],
    )
    async with a_bus(server, "service", "allocator") as bus:
        await stand_in_for(bus, role_of("allocator", TREE))
        await ask(bus, subjects.ledger("report"), report, ledger.ReportAnswer)


async def test_queues_counts_and_ephemeral_pools_outlive_kills_with_and_without_a_checkpoint(
    server: NatsServer,
) -> None:
    hub = a_pool(
        "hub",
        create_ephemeral_subpools=True,
        ephemeral_subpool_config=EphemeralSubpoolConfig(max_running_operation_count=1),
    )
    pools = [a_pool("top", max_running_operation_count=2), a_pool("p", "top", max_running_operation_count=1), hub]
    revision = await configure(server, *pools)
    pictures = []
    async with killed(server, SETTINGS, serve):
        for number in range(6):
            await start(server, f"operation-{number}", "p" if number % 2 else "top", revision=revision)
        for number in range(3):
            await start(server, f"in-a-hub-{number}", "hub")
        await start(server, "by-itself", "guests", user="boris")
        await end(server, "operation-0")
        pictures.append(await counted(server))
    async with running(server, SETTINGS, serve):
        # Ends in order, so it writes a checkpoint.
        pictures.append(await counted(server))
        await end(server, "operation-1")
        pictures.append(await counted(server))
    async with killed(server, SETTINGS, serve):
        pictures.append(await counted(server))
        async with a_bus(server, "user", "anna") as bus:
            update = UpdateOperation(OperationId("in-a-hub-0"), pool=PoolName("hub"), weight=3.0)
            await ask(bus, subjects.user("anna", "op.update"), update, OperationView)
    async with killed(server, SETTINGS, serve):
        pictures.append(await counted(server))

    queues = [{level.pool: list(level.first_waiting) for level in picture} for picture in pictures]
    assert queues[0]["p"] == ["operation-3", "operation-5"]
    assert queues[0]["hub$anna"] == ["in-a-hub-1", "in-a-hub-2"]
    assert pictures[0] == pictures[1]
    assert pictures[2] == pictures[3] == pictures[4]
    assert pictures[1] != pictures[2]


async def test_a_configuration_that_changed_while_admission_was_away_is_taken_when_it_is_back(
    server: NatsServer,
) -> None:
    revision = await configure(server, a_pool("old"), a_pool("p", max_running_operation_count=1))
    async with killed(server, SETTINGS, serve):
        await start(server, "operation-1", "old", revision=revision)
        await start(server, "operation-2", "p")
        await start(server, "operation-3", "p")

    await configure(server, a_pool("p", max_running_operation_count=3), options=TreeOptions(default_parent_pool="p"))
    async with killed(server, SETTINGS, serve):
        before = {level.pool: level for level in await counted(server)}
    async with killed(server, SETTINGS, serve):
        after = {level.pool: level for level in await counted(server)}

    assert (before["old"].parent, before["old"].ephemeral) == ("p", True)
    assert (before["p"].running_operation_count, before["p"].waiting) == (3, 0)
    assert before == after


@pytest.mark.parametrize("seed", range(2))
async def test_a_start_that_was_answered_is_never_lost_and_one_without_an_answer_happened_once_or_not_at_all(
    seed: int,
) -> None:
    """Eight clients start operations, ends come in between, and admission is killed again and again."""
    random = Random(seed)
    answered: set[str] = set()
    asked: set[str] = set()
    with nats_server() as server:
        await configure(server, a_pool("p", max_operation_count=10_000, max_running_operation_count=2))
        for life in range(4):
            async with killed(server, SETTINGS, serve), a_bus(server, "user", "anna") as anna:
                await start(server, "the-first", "p")
                async with anyio.create_task_group() as tasks:
                    for client in range(8):
                        tasks.start_soon(start_many, anna, f"life-{life}-client-{client}", asked, answered)
                    tasks.start_soon(end_some, server, random.randrange(1, 6))
                    await anyio.sleep(random.uniform(0.05, 0.4))
                    tasks.cancel_scope.cancel()
        async with killed(server, SETTINGS, serve), a_bus(server, "user", "anna") as anna:
            known = set()
            for name in sorted(asked):
                view = await ask(anna, subjects.user("anna", "op.get"), GetOperation(OperationId(name)), OperationView)
                known |= set() if isinstance(view, NotFound) else {name}
            again = {
                name: await ask(anna, subjects.user("anna", "op.start"), a_start(name, "p"), StartAnswer)
                for name in sorted(asked)
            }
            picture = await counted(server)

    assert answered
    assert answered <= known
    assert {name for name, answer in again.items() if answer.repeated} == known
    (level,) = (level for level in picture if level.pool == "p")
    states = [answer.state for answer in again.values()]
    assert level.running_operation_count == 2
    # The first of all is over by now or counts beside those that were asked for.
    counted_there = level.operation_count - sum(state is not OperationState.COMPLETED for state in states)
    assert counted_there in (0, 1)


async def start_many(anna: Bus, prefix: str, asked: set[str], answered: set[str]) -> None:
    for number in range(1_000):
        name = f"{prefix}-{number}"
        asked.add(name)
        data = await anna.request(subjects.user("anna", "op.start"), encode(a_start(name, "p")), timeout_s=10)
        answer = decode_answer(data, StartAnswer)
        assert not isinstance(answer, OverLimit)
        if isinstance(answer, StartAnswer):
            answered.add(name)


async def end_some(server: NatsServer, count: int) -> None:
    """Whatever runs in the pool comes to its end, so many times."""
    for _ in range(count):
        # Whole or not at all: a connection that is given up while it is made stays open until somebody collects it.
        with anyio.CancelScope(shield=True):
            levels = {level.pool: level for level in await counted(server)}
            for holder in levels["p"].holders[:1]:
                await end(server, holder.operation)
