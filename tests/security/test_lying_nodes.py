"""A node with a credential of its own and an agent that lies: other nodes, operations and the tree's usage go on as if it said nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from headrace.bus import Bus
from headrace.ids import AllocationId, Incarnation, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.service import Runtime
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult, Orders, RunningJob
from headrace.wire.nodes import ListNodes, NodeList, WhereRequest
from headrace.wire.operations import GetOperation, OperationSpec, OperationState, OperationView
from headrace.wire.refusals import BadRequest, Refusal
from headrace.wire.snapshots import UsagePart
from headrace.wire.start_plans import FitOperation, OperationFit
from headrace_admission.service import serve as serve_admission
from headrace_admission.settings import AdmissionSettings
from headrace_allocator.service import serve as serve_allocator
from headrace_allocator.settings import AllocatorSettings
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from tests.integration.test_allocator_service import Node, start
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, ask, running

pytestmark = pytest.mark.long

TREE = TreeName("default")
OPERATION = OperationId("operation-1")


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


class House:
    """Services, a person, an honest node that runs one job of hers, and a node that lies."""

    def __init__(self, allocator: Runtime[AllocatorSettings], anna: Bus, honest: Node, liar: Node, bus: Bus) -> None:
        self.allocator = allocator
        self.anna = anna
        self.honest = honest
        self.liar = liar
        self.liars_bus = bus
        self.running: list[AllocationReport] = []

    async def start(self, jobs: int) -> None:
        """Starts an operation. The honest node runs its first two jobs."""
        await start(self.anna, OPERATION, jobs)
        while len(self.running) < 2:
            for one in (await self.honest.until_started()).start:
                job = RunningJob(one.slots[0].index, 1, 1, 1)
                report = AllocationReport(one.allocation, one.operation, AllocationState.RUNNING, one.resources, job)
                self.running.append(report)
        await self.honest.beat(allocations=self.running)

    async def lie(self, **changes: Any) -> Any:
        """What the services answer to a heartbeat of the liar."""
        message = encode(self.liar.heartbeat())
        raw = msgspec.msgpack.decode(message) | msgspec.to_builtins(changes)
        data = msgspec.msgpack.encode(raw)
        return decode(await self.liars_bus.request(subjects.heartbeat(TREE, "n2"), data, timeout_s=5), Orders | Refusal)  # type: ignore[arg-type]

    async def view(self) -> OperationView:
        answer = await ask(self.anna, subjects.user("anna", "op.get"), GetOperation(OPERATION), OperationView)
        assert isinstance(answer, OperationView)
        return answer

    @property
    def forged(self) -> int:
        return self.allocator.endpoints.forged


@asynccontextmanager
async def a_house() -> AsyncIterator[House]:
    # Each with a log of its own: the operations have the same ids.
    with nats_server() as server:
        async with (
            a_bus(server, "user", "anna") as anna,
            a_bus(server, "node", "n1") as first,
            a_bus(server, "node", "n2") as second,
            running(server, AdmissionSettings(administrators="*"), serve_admission, "admission"),
            running(server, FairShareSettings(), serve_fair_share, "fair_share"),
            running(server, AllocatorSettings(), serve_allocator, "allocator") as allocator,
        ):
            house = House(allocator, anna, Node(first), Node(second, "n2"), second)
            await house.honest.enrol()
            await house.liar.enrol()
            await house.honest.beat()
            await house.liar.beat(total=Resources())
            yield house


@pytest.mark.parametrize("result", [JobResult.COMPLETED, JobResult.FAILED])
async def test_a_node_ends_no_job_of_another_node_and_none_that_never_began(result: JobResult) -> None:
    async with a_house() as house:
        await house.start(jobs=20)
        ends = [JobEnd(OPERATION, index, 1, AllocationId("7-f"), result, stderr_tail="forged") for index in range(20)]
        orders = await house.lie(total=list(Resources().as_tuple()), ends=ends)
        theirs = [msgspec.structs.replace(each, allocation=house.running[0].id) for each in ends]
        again = await house.lie(total=list(Resources().as_tuple()), ends=theirs)
        kept = await house.honest.beat(allocations=house.running)
        view = await house.view()

        assert isinstance(orders, Orders)
        assert len(orders.forget.ends) == len(again.forget.ends) == 20
        assert kept.take_back == []
        assert (view.state, view.completed_jobs) == (OperationState.RUNNING, 0)
        assert house.forged == 2, "one alarm of each heartbeat, told once a minute"


async def test_the_usage_of_the_tree_goes_on_whatever_a_node_says_it_has() -> None:
    async with a_house() as house:
        await house.start(jobs=2)
        async with a_bus_of(house) as usage:
            refused = [await house.lie(total=[amount] * 5) for amount in (2**62, 2**62 + 1, 2**64 - 1, -1)]
            await house.honest.beat(allocations=house.running, total=Resources(user_slots=10, cpu=300))
            with anyio.fail_after(20):
                async for message in usage:
                    if decode(message.data, UsagePart).frame.total.cpu == 300:
                        break

        assert all(isinstance(each, BadRequest) for each in refused)
        assert "total.user_slots" in refused[0].fault
        assert "$.total" in refused[1].fault


@asynccontextmanager
async def a_bus_of(house: House) -> AsyncIterator[Any]:
    inbox = await house.allocator.bus.subscribe(subjects.usage(TREE))
    yield inbox
    await inbox.close()


@pytest.mark.parametrize("life", ["zzz", "9999999999999999-ffffffff"])
async def test_an_honest_agent_is_heard_after_a_life_that_no_agent_has(life: str) -> None:
    async with a_house() as house:
        refused = await house.lie(incarnation=Incarnation(life))
        orders = await house.liar.beat(total=Resources())

        assert isinstance(refused, BadRequest)
        assert refused.place == "incarnation"
        assert orders.enrolled


@pytest.mark.parametrize("name", ["", "a b", "[red]0[/]", "0,1", "\x1b[2J", "\u202e0", "\n", "💥", "x" * 65])
async def test_a_device_has_a_name_that_every_table_can_show(name: str) -> None:
    async with a_house() as house:
        refused = await house.lie(gpus={name: ""})
        told = await house.liar.beat(total=Resources(), gpus={"/dev/MIG-0:1.2": AllocationId("")})

        assert isinstance(refused, BadRequest)
        assert "gpus" in refused.fault
        assert told.enrolled


async def test_a_person_who_asks_with_a_filter_that_is_no_formula_is_refused_at_once() -> None:
    async with a_house() as house:
        spec = OperationSpec(PoolName("p"), ["true"], 1, scheduling_tag_filter="a &")
        subject = subjects.user("anna", subjects.of_tree("op.fit", TREE))
        refused = await ask(house.anna, subject, FitOperation(spec), OperationFit)

        assert isinstance(refused, BadRequest)
        assert refused.place == "spec.scheduling_tag_filter"
        answer = await ask(house.anna, subjects.user("anna", f"node.list.{TREE}"), ListNodes(), NodeList)
        assert isinstance(answer, NodeList)


async def test_where_an_operation_runs_is_not_told_by_nodes_that_were_not_given_its_jobs() -> None:
    async with a_house() as house:
        await house.start(jobs=20)
        claim = AllocationReport(
            AllocationId("7-f"), OPERATION, AllocationState.RUNNING, Resources(), RunningJob(7, 1, 1, 1)
        )
        await house.lie(allocations=[claim])
        subject = subjects.user("anna", f"op.where.{TREE}")
        places = await ask(house.anna, subject, WhereRequest(OPERATION), Any)

        assert {place["node"] if isinstance(place, dict) else place[2] for place in places["running"]} == {"n1"}
        assert house.forged == 1
