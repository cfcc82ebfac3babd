"""Drains that begin, end jobs and end at later times, in the bucket of nodes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from headrace.ids import NodeName
from headrace.wire import subjects
from headrace.wire.nodes import Drain, NodeRecord
from headrace_admission.nodes.drains import Drains
from tests.support.clocks import at
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus

pytestmark = pytest.mark.anyio
NODE = NodeName("n1")


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server() as running:
        yield running


async def test_records_change_once_when_their_times_come_also_after_a_restart(server: NatsServer) -> None:
    record = NodeRecord(NODE, drain=Drain("anna", 100, from_ms=1_000, until_ms=5_000, abort_after_ms=2_000))
    seen = []
    async with a_bus(server, "service", "admission") as bus:
        nodes = await bus.key_value(subjects.NODES_BUCKET)
        await nodes.put(NODE, msgspec.json.encode(record))
        for now_ms in (999, 1_000, 3_500, 6_000):
            drains = Drains(nodes)
            await drains.read()
            revision = await nodes.revision()
            for _ in range(2):
                await drains.apply(at(0, now_ms))
            entry = await nodes.get(NODE)
            assert entry is not None
            stored = msgspec.json.decode(entry.value, type=NodeRecord)
            written = await nodes.revision() - revision
            seen.append((stored.drained, stored.ends_jobs, stored.drain is None, written))

    assert seen == [(False, False, False, 0), (True, False, False, 1), (True, True, False, 1), (False, False, True, 1)]


async def test_one_process_applies_the_times_one_after_the_other(server: NatsServer) -> None:
    async with a_bus(server, "service", "admission") as bus:
        nodes = await bus.key_value(subjects.NODES_BUCKET)
        drain = Drain("anna", 100, from_ms=1_000, until_ms=5_000)
        await nodes.put(NODE, msgspec.json.encode(NodeRecord(NODE, drain=drain)))
        drains = Drains(nodes)
        drains.note(NODE, drain, 100)
        seen = []
        for now_ms in (500, 1_500, 5_500):
            await drains.apply(at(0, now_ms))
            entry = await nodes.get(NODE)
            assert entry is not None
            seen.append(msgspec.json.decode(entry.value, type=NodeRecord).drained)

    assert seen == [False, True, False]
