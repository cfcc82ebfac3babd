"""The allocator's real shell on a real server, with a real admission; nodes are spoken for by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import nats
import pytest
from hypothesis import given, settings

from headrace.bus import Bus, BusError
from headrace.ids import Incarnation, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.role import Deposed, Role, role_of
from headrace.runtime.terms import take_term
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.figures import FiguresAnswer, FiguresRequest
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    Heartbeat,
    HeartbeatReason,
    JobEnd,
    JobResult,
    Orders,
)
from headrace.wire.ledger import Wanted
from headrace.wire.log import Published
from headrace.wire.nodes import Enrol, Enrolled, GiveUpNode, ListNodes, NodeList, OperationPlaces, WhereRequest
from headrace.wire.operations import (
    GetOperation,
    OperationSpec,
    OperationState,
    OperationView,
    StartAnswer,
    StartOperation,
)
from headrace.wire.preemption import ListObserved
from headrace.wire.refusals import BadRequest
from headrace.wire.snapshots import SharePart, UsagePart, WholeRequest
from headrace_admission.service import serve as serve_admission
from headrace_admission.settings import AdmissionSettings
from headrace_allocator.links.garbage_collection import YoungObjects
from headrace_allocator.service import AllocatorService
from headrace_allocator.service import serve as serve_allocator
from headrace_allocator.settings import AllocatorSettings
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from tests.support.effort import few_or_many
from tests.support.killing import killed
from tests.support.mutate import mutated_for
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, ask, running

TREE = TreeName("default")
PATIENCE_S = 20.0


class Node:
    """One node's agent, by hand."""

    def __init__(self, bus: Bus, name: str = "n1", life: int = 1, tree: TreeName = TREE) -> None:
        self._bus = bus
        self.tree = tree
        self.name = NodeName(name)
        self._life = Incarnation(f"{life:016}-abcdef01")
        self._seq = 0
        self._term = 0

    async def enrol(self) -> None:
        assert isinstance(
            await ask(self._bus, subjects.enrol(self.name), Enrol(self.name, self.tree), Enrolled), Enrolled
        )

    def heartbeat(self, **changes: Any) -> Heartbeat:
        self._seq += 1
        plain = Heartbeat(
            node=self.name,
            tree=self.tree,
            incarnation=self._life,
            seq=self._seq,
            applied=self._seq - 1,
            term=self._term,
            reason=HeartbeatReason.PERIOD,
            total=Resources(user_slots=10, cpu=200, memory=2**30),
        )
        return msgspec.structs.replace(plain, **changes)

    async def beat(self, **changes: Any) -> Orders:
        answer = await ask(self._bus, subjects.heartbeat(self.tree, self.name), self.heartbeat(**changes), Orders)
        assert isinstance(answer, Orders), answer
        self._term = answer.term
        return answer

    async def until_started(self) -> Orders:
        """Heartbeats until something starts."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                orders = await self.beat()
                if orders.start:
                    return orders
                await anyio.sleep(0.01)


@asynccontextmanager
async def a_house(server: NatsServer) -> AsyncIterator[None]:
    """admission, fair_share and an allocator."""
    async with (
        running(server, AdmissionSettings(administrators="*"), serve_admission, "admission"),
        running(server, FairShareSettings(), serve_fair_share, "fair_share"),
        running(server, AllocatorSettings(), serve_allocator, "allocator"),
    ):
        yield


async def start(bus: Bus, name: str = "operation-1", jobs: int = 2) -> None:
    spec = OperationSpec(PoolName("p"), ["true"], jobs, Resources(user_slots=1, cpu=100))
    answer = await ask(bus, subjects.user("anna", "op.start"), StartOperation(OperationId(name), spec), StartAnswer)
    assert isinstance(answer, StartAnswer), answer


async def test_an_operation_runs_from_its_start_to_its_end_by_heartbeats_alone() -> None:
    with nats_server() as server:
        async with a_bus(server, "user", "anna") as anna, a_bus(server, "node", "n1") as bus, a_house(server):
            node = Node(bus)
            await node.enrol()
            await start(anna)
            orders = await node.until_started()
            with anyio.fail_after(PATIENCE_S):
                while sum(len(one.slots) for one in orders.start) < 2:
                    orders = await node.until_started()
            spec = orders.start[0].spec
            over = [
                AllocationReport(s.allocation, s.operation, AllocationState.ENDED, s.resources) for s in orders.start
            ]
            ends = [
                JobEnd(s.operation, s.slots[0].index, 1, s.allocation, JobResult.COMPLETED, exit_code=0)
                for s in orders.start
            ]
            answer = await node.beat(allocations=over, ends=ends)
            with anyio.fail_after(PATIENCE_S):
                while len(answer.forget.ends) < 2:
                    answer = await node.beat(ends=ends)
            view = await ask(
                anna, subjects.user("anna", "op.get"), GetOperation(OperationId("operation-1")), OperationView
            )

    assert spec is not None
    assert spec.argv == ["true"]
    assert (view.state, view.completed_jobs) == (OperationState.COMPLETED, 2)


async def test_a_node_that_nobody_enrolled_is_told_so_and_gets_nothing() -> None:
    with nats_server() as server:
        async with a_bus(server, "node", "stranger") as bus, a_house(server):
            orders = await Node(bus, "stranger").beat()

    assert not orders.enrolled
    assert orders.start == []


async def test_young_objects_are_looked_at_as_heartbeats_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[YoungObjects] = []
    monkeypatch.setattr(YoungObjects, "note", lambda young: noted.append(young))
    with nats_server() as server:
        async with a_bus(server, "node", "n1") as bus, a_house(server):
            node = Node(bus)
            await node.enrol()
            for _ in range(3):
                await node.beat()

    assert len(noted) >= 3
    assert len(set(noted)) == 1, "one count for all"


async def test_of_two_trees_on_one_bus_each_answers_only_its_own_nodes_and_questions() -> None:
    """An allocator that heard of both would refuse every other heartbeat."""
    other = TreeName("other")
    with nats_server() as server:
        async with (
            a_bus(server, "user", "anna") as anna,
            a_bus(server, "node", "n1") as first,
            a_bus(server, "node", "n2") as second,
            a_house(server),
            running(server, AllocatorSettings(tree=other), serve_allocator, "allocator"),
        ):
            nodes = [Node(first), Node(second, "n2", tree=other)]
            for node in nodes:
                await node.enrol()
            orders = [await node.beat() for node in nodes for _ in range(10)]
            listed = [
                await ask(anna, subjects.user("anna", f"node.list.{node.tree}"), ListNodes(), NodeList)
                for node in nodes
                for _ in range(5)
            ]

    assert all(each.enrolled for each in orders)
    assert [[view.node for view in each.nodes] for each in listed] == [["n1"]] * 5 + [["n2"]] * 5


async def test_a_heartbeat_in_another_nodes_name_is_refused_and_changes_nothing() -> None:
    with nats_server() as server:
        async with a_bus(server, "node", "n1") as bus, a_house(server):
            node = Node(bus)
            await node.enrol()
            await node.beat()
            forged = node.heartbeat(node=NodeName("n2"))
            refused = await ask(bus, subjects.heartbeat(TREE, "n1"), forged, Orders)
            with pytest.raises(BusError):
                await bus.request(subjects.heartbeat(TREE, "n2"), encode(forged), timeout_s=0.3)
            async with a_bus(server, "user", "anna") as anna:
                nodes = await ask(anna, subjects.user("anna", "node.list.default"), ListNodes(), NodeList)

    assert isinstance(refused, BadRequest)
    assert [(view.node, view.state) for view in nodes.nodes] == [("n1", "online")]


async def test_a_restarted_allocator_learns_what_runs_from_the_nodes_and_starts_it_nowhere_else() -> None:
    with nats_server() as server:
        async with (
            a_bus(server, "user", "anna") as anna,
            a_bus(server, "node", "n1") as bus,
            running(server, AdmissionSettings(administrators="*"), serve_admission, "admission"),
            running(server, FairShareSettings(), serve_fair_share, "fair_share"),
        ):
            node = Node(bus)
            async with killed(server, AllocatorSettings(), serve_allocator, "allocator"):
                await node.enrol()
                await start(anna, jobs=1)
                orders = await node.until_started()
            (first,) = orders.start
            held = AllocationReport(
                first.allocation, first.operation, AllocationState.WAITING, first.resources, None, list(first.slots)
            )
            async with running(server, AllocatorSettings(), serve_allocator, "allocator"):
                answers = [await node.beat(allocations=[held]) for _ in range(3)]
                where = await ask(
                    anna, subjects.user("anna", "op.where.default"), WhereRequest("operation-1"), OperationPlaces
                )

    assert [answer.start for answer in answers] == [[], [], []]
    assert answers[-1].term > orders.term
    assert (where.pending_jobs, where.in_doubt_jobs) == (0, 0)


@pytest.mark.parametrize("is_bucket_lost", [False, True])
async def test_the_longest_lease_that_nodes_were_told_outlives_the_allocator(is_bucket_lost: bool) -> None:
    waited: list[float] = []

    async def noted(runtime: Any) -> None:
        service = AllocatorService(runtime, TREE)
        service.follow()

        async def with_role(role: Role) -> None:
            await service.lead(role)
            waited.append(service.engine.facts.longest_lease_s)
            await runtime.stopping.wait()

        await runtime.lead(role_of("allocator", TREE), with_role)

    with nats_server() as server:
        async with (
            running(server, AdmissionSettings(administrators="*"), serve_admission, "admission"),
            a_bus(server, "node", "n1") as bus,
            await nats.connect(server.url) as client,
        ):
            for number, lease_ms in enumerate((90_000, 30_000, 60_000)):
                async with running(server, AllocatorSettings(node_lease_ms=lease_ms), noted, "allocator"):
                    node = Node(bus, life=number)
                    await node.enrol()
                    assert (await node.beat()).lease_ms == lease_ms
                if is_bucket_lost:
                    await client.jetstream().delete_key_value(subjects.NODE_LEASES_BUCKET)

    assert waited == [90.0, 90.0, 90.0]


async def test_a_lost_bucket_of_terms_brings_no_former_term_back() -> None:
    """Two allocators of one term would call two allocations by one name, and take each other's jobs for their own."""
    terms: list[int] = []
    with nats_server() as server:
        async with (
            running(server, AdmissionSettings(administrators="*"), serve_admission, "admission"),
            a_bus(server, "node", "n1") as bus,
            await nats.connect(server.url) as client,
        ):
            for number in range(3):
                async with running(server, AllocatorSettings(), serve_allocator, "allocator"):
                    node = Node(bus, life=number)
                    await node.enrol()
                    terms.append((await node.beat()).term)
                await client.jetstream().delete_key_value(subjects.TERMS_BUCKET)

    assert terms == [1, 2, 3]


async def test_a_late_reader_of_usage_gets_the_whole_and_every_part_builds_on_the_one_before() -> None:
    with nats_server() as server:
        async with (
            a_bus(server, "user", "anna") as anna,
            a_bus(server, "node", "n1") as bus,
            a_bus(server, "service", "reader") as reader,
            a_house(server),
        ):
            node = Node(bus)
            await node.enrol()
            await node.beat()
            await start(anna)
            inbox = await reader.subscribe(subjects.usage(TREE))
            parts = []
            with anyio.fail_after(PATIENCE_S):
                async for message in inbox:
                    parts.append(decode(message.data, UsagePart))
                    if len(parts) == 5:
                        break
            data = await reader.request(subjects.usage_whole(TREE), encode(WholeRequest()), timeout_s=5)
            whole = decode(data, UsagePart)

    assert [part.base for part in parts[1:]] == [part.version for part in parts[:-1]]
    assert whole.base is None
    assert whole.version >= parts[-1].version
    assert [item.operation for item in whole.items if item.nodes is None] == ["operation-1"]
    assert [item.nodes.tags for item in whole.items if item.nodes] == [()]


async def test_an_allocator_ends_when_a_node_obeys_a_higher_term_that_was_truly_taken() -> None:
    """A forged term deposes nobody; the answer that the node gets is none in both cases."""
    deposed_before: list[bool] = []

    async def be_told() -> None:
        with nats_server() as server:
            async with (
                killed(server, AdmissionSettings(administrators="*"), serve_admission, "admission"),
                killed(server, AllocatorSettings(), serve_allocator, "allocator") as runtime,
                a_bus(server, "node", "n1") as bus,
            ):
                node = Node(bus)
                await node.enrol()
                term = (await node.beat()).term
                await bus.publish(subjects.heartbeat(TREE, "n1"), encode(node.heartbeat(term=term + 7)))
                await node.beat()
                deposed_before.append(bool(runtime.deposition.reason))
                taken = await take_term(runtime.bus, role_of("allocator", TREE))
                await bus.publish(subjects.heartbeat(TREE, "n1"), encode(node.heartbeat(term=taken)))
                with anyio.fail_after(PATIENCE_S):
                    await anyio.sleep_forever()

    with pytest.RaisesGroup(pytest.RaisesExc(Deposed, match="a node knows term 2"), flatten_subgroups=True):
        await be_told()
    assert deposed_before == [False]


async def test_the_allocator_answers_its_figures() -> None:
    with nats_server() as server:
        async with a_bus(server, "node", "n1") as bus, a_bus(server, "service", "reader") as reader, a_house(server):
            node = Node(bus)
            await node.enrol()
            term = (await node.beat()).term
            answers = await reader.gather(subjects.FIGURES, encode(FiguresRequest()), wait_s=0.5)

    told = [decode(data, FiguresAnswer) for data in answers]
    (answer,) = [each for each in told if each.service == "allocator"]
    values = {figure.name: figure.value for figure in answer.figures}
    assert (answer.role, answer.term) == ("allocator.default", term)
    assert (values["online_nodes"], values["heartbeats"], values["broken_invariants"]) == (1, 1, 0)


HANDLERS: list[tuple[str, str, Any]] = [
    (subjects.heartbeat(TREE, "n1"), "node", Heartbeat),
    (subjects.usage_whole(TREE), "service", WholeRequest),
    (subjects.user("anna", "node.list.default"), "user", ListNodes),
    (subjects.user("anna", "op.where.default"), "user", WhereRequest),
    (subjects.user("anna", "preemption.observed.default"), "user", ListObserved),
    (subjects.give_up_node(TREE), "service", GiveUpNode),
    (subjects.WANTED, "service", Wanted),
    (subjects.share(TREE), "service", SharePart),
    (subjects.EVENTS, "service", Published),
]


@settings(max_examples=few_or_many(4, 30))
@given(messages=mutated_for(HANDLERS))
async def test_no_damaged_message_stops_the_allocator_or_breaks_its_books(
    messages: list[tuple[tuple[str, str, Any], bytes]],
) -> None:
    """Whatever is sent to whichever handler: the books hold, and a good heartbeat is answered afterwards."""
    services: list[AllocatorService] = []

    async def watched(runtime: Any) -> None:
        services.append(AllocatorService(runtime, TREE))
        services[0].follow()

        async def with_role(role: Role) -> None:
            await services[0].lead(role)
            await anyio.sleep_forever()

        await runtime.lead(role_of("allocator", TREE), with_role)

    with nats_server() as server:
        async with (
            killed(server, AdmissionSettings(administrators="*"), serve_admission, "admission"),
            killed(server, AllocatorSettings(), watched, "allocator"),
            a_bus(server, "node", "n1") as bus,
        ):
            node = Node(bus)
            await node.enrol()
            await node.beat()
            for (subject, _, _), data in messages:
                # A heartbeat that is void gets no answer, so the message is only sent.
                await bus.publish(subject, data)
            await bus.barrier()
            orders = await Node(bus, life=2).beat()

    assert orders.enrolled
    assert services[0].engine.check() == []
