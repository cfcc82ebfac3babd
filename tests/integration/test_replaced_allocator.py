"""What an allocator leaves to the next one, on a real nats-server: nodes that run nothing, and jobs that it never gave out."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from headrace.bus import Bus
from headrace.wire import subjects
from headrace.wire.heartbeat import AllocationReport, AllocationState, NodeState, RunningJob
from headrace.wire.nodes import LongestLeaseRecord
from headrace_admission.service import serve as serve_admission
from headrace_admission.settings import AdmissionSettings
from headrace_allocator.service import serve as serve_allocator
from headrace_allocator.settings import AllocatorSettings
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from tests.integration.test_allocator_service import PATIENCE_S, TREE, Node, start
from tests.support.nats_server import nats_server
from tests.support.tree_services import a_bus, running

pytestmark = pytest.mark.long


async def until_recorded(bus: Bus, nodes: list[str]) -> None:
    """Returns once these nodes and no others are recorded as empty."""
    bucket = await bus.key_value(subjects.NODE_LEASES_BUCKET)
    with anyio.fail_after(PATIENCE_S):
        async with bucket.mirror() as mirror:
            while True:
                entry = mirror.entries.get(TREE)
                if entry and msgspec.json.decode(entry.value, type=LongestLeaseRecord).empty_nodes == nodes:
                    return
                await anyio.sleep(0.02)


@pytest.mark.parametrize("dies_with_a_job", [False, True])
async def test_jobs_start_at_once_under_the_next_allocator_though_a_node_is_off(dies_with_a_job: bool) -> None:
    """Jobs that were drawn and not given out waited for its whole lease."""
    with nats_server() as server:
        async with (
            a_bus(server, "user", "anna") as anna,
            a_bus(server, "node", "n1") as first,
            a_bus(server, "node", "n2") as second,
            a_bus(server) as service,
            running(server, AdmissionSettings(administrators="*"), serve_admission, "admission"),
            running(server, FairShareSettings(), serve_fair_share, "fair_share"),
        ):
            off, on = Node(first), Node(second, "n2")
            async with running(server, AllocatorSettings(), serve_allocator, "allocator"):
                await off.enrol()
                await on.enrol()
                await off.beat()
                if dies_with_a_job:
                    await start(anna, "operation-1", 20)
                    given = (await off.until_started()).start
                else:
                    await off.beat(state=NodeState.STOPPING)
                    await until_recorded(service, ["n1"])
                    await start(anna, "operation-1", 20)
                    given = []
            async with running(server, AllocatorSettings(), serve_allocator, "allocator"):
                orders = await on.until_started()
                if not dies_with_a_job:
                    back = await off.beat(state=NodeState.OPEN)
                    assert back.start == [], "it is recorded as empty"
                    await until_recorded(service, [])

    given_out = {slot.index for one in given for slot in one.slots}
    assert not given_out & {slot.index for one in orders.start for slot in one.slots}


async def test_a_node_is_recorded_as_empty_only_without_jobs() -> None:
    with nats_server() as server:
        async with (
            a_bus(server, "user", "anna") as anna,
            a_bus(server, "node", "n1") as bus,
            a_bus(server) as service,
            running(server, AdmissionSettings(administrators="*"), serve_admission, "admission"),
            running(server, FairShareSettings(), serve_fair_share, "fair_share"),
            running(server, AllocatorSettings(), serve_allocator, "allocator"),
        ):
            node = Node(bus)
            await node.enrol()
            await start(anna, "operation-1", 1)
            (one,) = (await node.until_started()).start
            job = RunningJob(one.slots[0].index, 1, 1, 1)
            shown = AllocationReport(one.allocation, one.operation, AllocationState.RUNNING, one.resources, job)
            await node.beat(state=NodeState.STOPPING, allocations=[shown])
            await node.beat(state=NodeState.STOPPING, allocations=[shown])
            bucket = await service.key_value(subjects.NODE_LEASES_BUCKET)
            entry = await bucket.get(TREE)

            assert entry is not None
            assert msgspec.json.decode(entry.value, type=LongestLeaseRecord).empty_nodes == []
