"""Consumption on a real server: each run counts once, through kills, stops, a lost bucket and a loss of the log's end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest

import headrace
from headrace.client.consumption import Consumed
from headrace.consumption_sums import By
from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.role import role_of
from headrace.wire import ledger, subjects
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import OperationSpec, StartAnswer, StartOperation
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from tests.support.killing import killed
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, ask, running, stand_in_for

pytestmark = pytest.mark.long

SETTINGS = AdmissionSettings(administrators="*", consumption_period_ms=100)
TREE = TreeName("default")
NAME = OperationId("operation-1")


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


async def start(server: NatsServer) -> None:
    spec = OperationSpec(PoolName("research"), ["true"], job_count=50, resources=Resources(1, 200, 0, 2**30))
    async with a_bus(server, "user", "anna") as bus:
        await ask(bus, subjects.user("anna", "op.start"), StartOperation(NAME, spec), StartAnswer)
    async with a_bus(server, "service", "allocator") as bus:
        await stand_in_for(bus, role_of("allocator", TREE))
        await ask(bus, subjects.ledger("attach"), ledger.Attach(TREE, 1), ledger.Attached)


async def end(server: NatsServer, *indexes: int) -> None:
    """These jobs end; nodes report each end several times."""
    ends = [
        JobEnd(NAME, index, 1, AllocationId("1-1"), JobResult.COMPLETED, started_at_ms=1, ended_at_ms=1 + index)
        for index in indexes
    ]
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), each) for each in ends])
    async with a_bus(server, "service", "allocator") as bus:
        await stand_in_for(bus, role_of("allocator", TREE))
        for _ in range(2):
            await ask(bus, subjects.ledger("report"), report, ledger.ReportAnswer)


async def counted(server: NatsServer, *by: By) -> Consumed:
    async with headrace.connect(url=server.url, user="anna") as client:
        return await client.consumption.summed(by, since=date(1970, 1, 1), until=date(2100, 1, 1))


async def test_each_run_counts_once_through_kills_and_stops(server: NatsServer) -> None:
    async with killed(server, SETTINGS, serve):
        await start(server)
        await end(server, 1, 2)
        assert (await counted(server)).lines[0].sums.runs == 2
        await end(server, 3)
    async with running(server, SETTINGS, serve):
        # The checkpoint of a stop covers this end, which only the records then know.
        await end(server, 4)
    async with killed(server, SETTINGS, serve):
        await end(server, 1, 4, 5)
    async with running(server, SETTINGS, serve):
        found = {by: await counted(server, *by) for by in ((), (By.OPERATION, By.USER), (By.DAY,), (By.TREE,))}

    for told in found.values():
        (sums,) = {line.sums for line in told.lines if line.pool in ("", "/")}
        assert (sums.runs, sums.allotted_byte_s) == (5, 15 * 2**30 / 1000)
        assert sums.allotted_core_s == pytest.approx(2 * 15 / 1000)
        assert (told.lost_runs, told.unreadable) == (0, 0)
    assert [(line.operation, line.user) for line in found[By.OPERATION, By.USER].lines] == [(NAME, "anna")]
    assert [line.pool for line in found[By.TREE,].lines] == ["/", "/research"]


async def test_runs_are_counted_again_after_the_bucket_was_lost(server: NatsServer) -> None:
    async with killed(server, SETTINGS, serve), a_bus(server, "service", "operator") as bus:
        await start(server)
        await end(server, 1)
        assert (await counted(server)).lines
        await bus.request(f"$JS.API.STREAM.DELETE.KV_{subjects.CONSUMPTION_BUCKET}", b"", timeout_s=5)
        await end(server, 2)
        assert [line.sums.runs for line in (await counted(server)).lines] == [1]
    async with running(server, SETTINGS, serve):
        await end(server, 3)
        assert [line.sums.runs for line in (await counted(server)).lines] == [2]
