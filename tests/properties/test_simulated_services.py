"""Single services with their real shells in a simulated world, where the damage is chosen and not drawn."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest

from headrace.bus import RequestTimeout
from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.pools import TreeOptions, read_tree
from headrace.wire import operations as wire
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.ledger import Attach, Released, ReportedEnd, ReportEnds
from headrace.wire.log import Published
from headrace.wire.nodes import ChangedNode, ChangeNode, NodeChange, NodeRecord
from headrace.wire.operations import FINAL_STATES, OperationState
from headrace.wire.pool_changes import ChangePools, Create, PoolPlan
from headrace.wire.refusals import Busy, NotReady, NotRecorded, Refusal, decode_answer
from tests.simulation.bus import SimulatedBus, connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.world import World, a_pool, a_spec, everything_by_seed

pytestmark = pytest.mark.long


def in_world(course: Callable[[World], Awaitable[None]]) -> None:
    """Runs a course in a world of four services and two hosts."""
    worlds: list[World] = []

    async def run(loop: VirtualLoop) -> None:
        world = World(loop)
        worlds.append(world)
        await world.configure([a_pool("research")], TreeOptions())
        for kind in ("admission", "allocator", "fair_share", "integral"):
            world.start_service(kind)
        for name in ("n0", "n1"):
            world.start_host(name, 2)
        await anyio.sleep(5)
        await course(world)

    with everything_by_seed(lambda: worlds[0] if worlds else None, 1):
        run_virtually(1, run)


TREE = TreeName("default")


async def start(world: World, bus: SimulatedBus, name: str) -> wire.StartAnswer | Refusal | None:
    request = wire.StartOperation(OperationId(name), a_spec("research", 1, ["work", "0.1"]))
    return await world._ask(bus, "op.start", request, wire.StartAnswer)


def test_a_start_is_refused_as_busy_while_an_older_one_waits_for_the_log_too_long() -> None:
    answers: dict[str, object] = {}

    async def course(world: World) -> None:
        async with connect_to(world.server, "person", subjects.inbox("user", "anna")) as bus:
            world.server.lose_leader(9.0)

            async def ask(name: str) -> None:
                answers[name] = await start(world, bus, name)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, "operation-1")
                await anyio.sleep(2.5)
                tasks.start_soon(ask, "operation-2")

    in_world(course)

    assert isinstance(answers["operation-1"], NotRecorded)
    assert isinstance(answers["operation-2"], Busy)


@pytest.mark.parametrize("ahead", [1, 1_000, 2**40])
@pytest.mark.parametrize(
    ("subject", "lie"),
    [
        (subjects.ledger("attach"), lambda term: Attach(TREE, term)),
        (subjects.EVENTS, lambda term: Published(TREE, term, 10**6, 10**6, [])),
    ],
)
def test_one_message_of_a_term_that_nobody_took_shuts_nobody_out(
    subject: str, lie: Callable[[int], msgspec.Struct], ahead: int
) -> None:
    """Everything a reader believes of a term it can read for itself."""

    async def course(world: World) -> None:
        async with connect_to(world.server, "stranger", subjects.inbox("service", "stranger")) as bus:
            await bus.publish(subject, encode(lie(1 + ahead)))
        await anyio.sleep(1)
        with anyio.fail_after(30):
            await world.run_operation("operation-1", a_spec("research", 4, ["work", "0.1"]))

    in_world(course)


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_a_configuration_that_its_bucket_loses_stays_in_force_and_is_written_again(is_rolled_back: bool) -> None:
    """What admission took for the removal of the tree aborted every operation in it."""
    pools: list[set[str]] = []

    async def course(world: World) -> None:
        bucket = world.server.store.bucket(subjects.POOLS_BUCKET, 1)
        if is_rolled_back:
            await create_pool(world, "later")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.run_operation, "operation-1", a_spec("research", 2, ["work", "8"]))
            await anyio.sleep(3)
            if is_rolled_back:
                bucket.roll_back(1)
            else:
                world.server.store.lose_bucket(subjects.POOLS_BUCKET)
        entries = world.server.store.bucket(subjects.POOLS_BUCKET, 1).entries()
        pools.append({pool.name for pool in read_tree(entries["default"].value).pools})
        assert world.ended[OperationId("operation-1")].state is OperationState.COMPLETED

    in_world(course)

    assert pools == [{"research", "later"} if is_rolled_back else {"research"}]


def test_a_checkpoint_that_its_bucket_loses_is_written_again_before_anybody_needs_it() -> None:
    """The log alone could not tell any more what had been: no admission started again, and nobody knew before."""

    async def course(world: World) -> None:
        checkpoints = world.server.store.bucket(subjects.CHECKPOINT_BUCKET, 1)
        log = world.server.store.stream(subjects.STREAM)
        await world.run_operation("operation-1", a_spec("research", 60, ["work", "0.1"]))
        assert log.first_sequence > 1
        assert checkpoints.get("head") is not None

        world.server.store.lose_bucket(subjects.CHECKPOINT_BUCKET)
        await anyio.sleep(15)
        world.kill("admission.a")
        await anyio.sleep(8)

        async with connect_to(world.server, "person", subjects.inbox("user", "anna")) as bus:
            view = await view_of(world, bus, "operation-1")
        assert view is not None
        assert view.state is OperationState.COMPLETED

    in_world(course)


def test_a_request_that_finds_no_checkpoint_being_cut_is_decided_in_the_same_turn() -> None:
    """It would otherwise be decided while the checkpoint waits for what is in flight, which then holds what the log does not."""

    async def course(world: World) -> None:
        shell: Any = world.shells[world.process("admission.a")]
        service = shell._figures.__self__
        with pytest.raises(StopIteration):
            service._checkpointing.until_open().send(None)

    in_world(course)


async def create_pool(world: World, name: str) -> None:
    async with connect_to(world.server, "person", subjects.inbox("user", "anna")) as bus:
        await world._insist(bus, "pool.change", ChangePools([Create(PoolName(name))], TREE), PoolPlan)


def test_nodes_that_their_bucket_loses_are_waited_for_by_the_next_allocator() -> None:
    """It gave out again at once what they ran."""

    async def course(world: World) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.run_operation, "operation-1", a_spec("research", 3, ["work", "20"]))
            await anyio.sleep(2)
            (silent,) = [host for host in world.hosts.values() if len(host.living) == 2]
            world.freeze(f"agent.{silent.name}")
            world.server.store.lose_bucket(subjects.NODES_BUCKET)
            await anyio.sleep(6)
            world.kill("allocator.a")
            await anyio.sleep(8)
            world.thaw(f"agent.{silent.name}")
        assert world.truth.violations == []

    in_world(course)


def test_nodes_lost_while_no_admission_lives_are_waited_for_by_the_next_allocator() -> None:
    """Nobody knew who had been enrolled, and what a node ran that was just cut off went out again at once."""

    async def course(world: World) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.run_operation, "operation-1", a_spec("research", 3, ["work", "20"]))
            await anyio.sleep(2)
            (silent,) = [host for host in world.hosts.values() if len(host.living) == 2]
            world.freeze(f"agent.{silent.name}")
            for name in ("admission.a", "allocator.a"):
                switch_off(world, name)
            world.server.store.lose_bucket(subjects.NODES_BUCKET)
            await anyio.sleep(1)
            for name in ("admission.a", "allocator.a"):
                switch_on(world, name)
            await anyio.sleep(8)
            world.thaw(f"agent.{silent.name}")
        assert world.truth.violations == []

    in_world(course)


@pytest.mark.parametrize("lives", [False, True])
def test_a_drained_node_stays_so_when_its_bucket_comes_back_without_the_newest_writes(lives: bool) -> None:
    async def course(world: World) -> None:
        async with connect_to(world.server, "person", subjects.inbox("user", "anna")) as bus:
            drain = ChangeNode(NodeName("n0"), NodeChange.DRAIN)
            await world._insist(bus, "node.change", drain, ChangedNode)
        if not lives:
            switch_off(world, "admission.a")
        world.server.crash()
        world.server.store.roll_back([subjects.NODES_BUCKET], 1)
        world.server.start()
        switch_on(world, "admission.a")
        await anyio.sleep(15)

        entry = world.server.store.bucket(subjects.NODES_BUCKET, 1).entries()["n0"]
        assert msgspec.json.decode(entry.value, type=NodeRecord).drained

    in_world(course)


@pytest.mark.parametrize("first", ["fair_share.a", "admission.a"])
def test_pools_lost_while_nobody_lives_who_knows_them_are_there_when_services_start(first: str) -> None:
    """The first fair_share that came wrote an empty tree, and no limit held any more."""
    services = ("fair_share.a", "admission.a", "allocator.a", "integral.a")
    pools: list[set[str]] = []

    async def course(world: World) -> None:
        await create_pool(world, "later")
        for name in services:
            switch_off(world, name)
        world.server.store.lose_bucket(subjects.POOLS_BUCKET)
        await anyio.sleep(1)
        switch_on(world, first)
        await anyio.sleep(4)
        for name in services:
            switch_on(world, name)
        await anyio.sleep(8)
        entries = world.server.store.bucket(subjects.POOLS_BUCKET, 1).entries()
        pools.append({pool.name for pool in read_tree(entries["default"].value).pools})
        await create_pool(world, "latest")

    in_world(course)

    assert pools == [{"research", "later"}]


def test_a_leader_that_wakes_beside_its_successor_tells_nobody_what_was() -> None:
    """It said of an operation that its successor had accepted that there is none."""
    answers: list[object] = []

    async def course(world: World) -> None:
        world.start_service("admission", "b")
        await anyio.sleep(3)
        world.freeze("admission.a")
        await anyio.sleep(6)
        async with connect_to(world.server, "person", subjects.inbox("user", "anna")) as bus:
            await world._insist(bus, "op.start", start_of("operation-1", "0.1"), wire.StartAnswer)
            world.server.cut.add((world.process("admission.b"), "from"))
            world.thaw("admission.a")
            answers.append(await world._ask(bus, "op.get", get_of("operation-1"), wire.OperationView))

    in_world(course)

    assert answers == [None]


async def with_admission_succeeded(world: World, bus: SimulatedBus) -> None:
    """An operation that the second admission accepted while the first was frozen, which now wakes; neither hears who leads."""
    world.start_service("admission", "b")
    await anyio.sleep(3)
    world.freeze("admission.a")
    await anyio.sleep(6)
    await world._insist(bus, "op.start", start_of("operation-1", "0.1"), wire.StartAnswer)
    world.freeze("admission.b")
    world.thaw("admission.a")


END = JobEnd(OperationId("operation-1"), 0, 1, AllocationId("1-1"), JobResult.COMPLETED)


@pytest.mark.parametrize(
    ("verb", "request_"),
    [
        ("report", ReportEnds(TREE, 1, [ReportedEnd(NodeName("n0"), END)])),
        ("released", Released(TREE, 1, [END.operation])),
    ],
)
def test_a_leader_that_wakes_takes_nothing_for_recorded_that_its_successor_has_to_hear(
    verb: str, request_: msgspec.Struct
) -> None:
    """It knew nothing of the operation, so that it called the end of its job recorded, and the node forgot it."""
    answers: list[bytes] = []

    async def course(world: World) -> None:
        async with connect_to(world.server, "person", subjects.inbox("user", "anna")) as bus:
            await with_admission_succeeded(world, bus)
        async with connect_to(world.server, "allocator", subjects.inbox("service", "allocator")) as bus:
            with contextlib.suppress(RequestTimeout):
                answers.append(await bus.request(subjects.ledger(verb), encode(request_), timeout_s=3.0))

    in_world(course)

    assert answers == []


def test_a_leader_that_wakes_says_of_nothing_that_it_is_not_known_while_the_log_cannot_be_read() -> None:
    """It heard of no successor while the buckets were silent, and took that for proof that there is none."""
    answers: list[object] = []

    async def course(world: World) -> None:
        async with connect_to(world.server, "person", subjects.inbox("user", "anna")) as bus:
            world.server.deaf.add(world.process("admission.a"))
            await with_admission_succeeded(world, bus)
            for name in list(world._programs):
                if name != "admission.a":
                    world.freeze(name)
            # One that it heard of in no way: the start of the other may have waited for it.
            data = await bus.request(subjects.user("anna", "op.get"), encode(get_of("operation-2")), timeout_s=6.0)
            answers.append(decode_answer(data, wire.OperationView))

    in_world(course)

    assert [type(answer) for answer in answers] == [NotReady]


def test_a_new_life_of_an_agent_does_not_obey_an_allocator_that_wakes_beside_its_successor() -> None:
    """An agent that was just started has obeyed nobody, and would take the word of whoever answers it."""

    async def course(world: World) -> None:
        world.start_service("allocator", "b")
        await anyio.sleep(3)
        world.server.deaf.add(world.process("allocator.a"))
        world.freeze("allocator.a")
        await anyio.sleep(6)
        obeyed = {name: host.agent.engine.term for name, host in world.hosts.items() if host.agent is not None}
        assert set(obeyed.values()) == {2}
        world.server.cut.add((world.process("allocator.b"), "from"))
        world.kill("agent.n0")
        await anyio.sleep(2)
        world.thaw("allocator.a")
        await anyio.sleep(3)
        world.server.cut.clear()
        world.server.deaf.clear()
        await anyio.sleep(10)

        terms = {name: host.agent.engine.term for name, host in world.hosts.items() if host.agent is not None}
        assert min(terms.values()) >= 2
        world.invariants.check()

    async def checked(world: World) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.keep_checking)
            await course(world)
            tasks.cancel_scope.cancel()

    in_world(checked)


def test_people_are_answered_while_nobody_can_renew_a_lease() -> None:
    answers: list[object] = []

    async def course(world: World) -> None:
        async with connect_to(world.server, "person", subjects.inbox("user", "anna")) as bus:
            await world._insist(bus, "op.start", start_of("operation-1", "0.1"), wire.StartAnswer)
            world.server.lose_leader(9.0)
            for _ in range(4):
                await anyio.sleep(2)
                answers.append(await view_of(world, bus, "operation-1"))

    in_world(course)

    assert None not in answers


def test_a_host_that_can_start_nothing_costs_no_operation_a_failure() -> None:
    """All jobs failed there one after the other, as each made room for the next, and the operation with them."""

    async def course(world: World) -> None:
        world.hosts["n0"].fault = "not started: no space left on device"
        spec = msgspec.structs.replace(a_spec("research", 40, ["work", "0.5"]), max_failed_job_count=1)
        with anyio.fail_after(60):
            await world.run_operation("operation-1", spec)
        view = world.ended[OperationId("operation-1")]
        assert (view.state, view.failed_jobs) == (OperationState.COMPLETED, 0)
        assert view.aborted_jobs < 10
        allocator: Any = next(shell._engine for name, shell in world.shells.items() if name.startswith("allocator"))
        assert allocator.facts.nodes[NodeName("n0")].trouble == "not started: no space left on device"
        world.hosts["n0"].fault = ""
        await anyio.sleep(30)
        assert allocator.facts.nodes[NodeName("n0")].trouble == ""

    in_world(course)


def switch_off(world: World, name: str) -> None:
    """Ends a process that nobody starts again."""
    world.given_up.add(name)
    world.kill(name)


def switch_on(world: World, name: str) -> None:
    """Starts a process again that was switched off."""
    if name in world.given_up:
        world.given_up.remove(name)
        world.start(name, world._programs[name])


@pytest.mark.parametrize("lost", [1, 2, 5, 100])
def test_after_the_log_lost_its_newest_entries_the_rest_goes_on_and_what_nobody_knows_is_ended(lost: int) -> None:
    """What was acknowledged and lost cannot be made good. Everything else must be."""
    left: list[str] = []

    async def course(world: World) -> None:
        async with connect_to(world.server, "person", subjects.inbox("user", "anna")) as bus:
            for name, seconds in (("operation-1", "0.3"), ("operation-2", "100")):
                request = wire.StartOperation(OperationId(name), a_spec("research", 3, ["work", seconds]))
                await world._insist(bus, "op.start", request, wire.StartAnswer)
            await anyio.sleep(2)
            world.server.crash()
            world.server.store.roll_back([subjects.STREAM], lost)
            await anyio.sleep(0.1)
            world.server.start()
            await anyio.sleep(10)
            with anyio.fail_after(60):
                await world._insist(bus, "op.start", start_of("operation-3", "0.3"), wire.StartAnswer)
                view = await view_of(world, bus, "operation-3")
                while view is None or view.state not in FINAL_STATES:
                    await anyio.sleep(0.5)
                    view = await view_of(world, bus, "operation-3")
            assert view.state is OperationState.COMPLETED
            await anyio.sleep(20)
            known = {name for name in ("operation-1", "operation-2") if await view_of(world, bus, name) is not None}
            left.extend(key.operation for host in world.hosts.values() for key in host.living)
            assert set(left) <= known
            assert all(shell._engine.check() == [] for _, shell in world.invariants._shells())

    in_world(course)


def start_of(name: str, seconds: str) -> wire.StartOperation:
    return wire.StartOperation(OperationId(name), a_spec("research", 1, ["work", seconds]))


def get_of(name: str) -> wire.GetOperation:
    return wire.GetOperation(OperationId(name))


async def view_of(world: World, bus: SimulatedBus, name: str) -> wire.OperationView | None:
    answer = await world._ask(bus, "op.get", get_of(name), wire.OperationView)
    return answer if isinstance(answer, wire.OperationView) else None
