"""One forged message deposes nobody and silences nobody: the real shells of all services, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from headrace.bus import RequestTimeout
from headrace.ids import Incarnation, NodeName, OperationId
from headrace.pools import TreeOptions
from headrace.resources import ZERO
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import Heartbeat, HeartbeatReason, Orders
from headrace.wire.integral import Advance
from headrace.wire.ledger import Attach, DrawBlock, Released, ReportEnds
from headrace.wire.log import Published
from headrace.wire.snapshots import ShareFrame, SharePart, UsageFrame, UsagePart
from headrace.wire.version import LARGEST_JUMP, NEVER, Version
from tests.contract.waiting import eventually
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.world import TREE, World, a_pool, a_spec, everything_by_seed

pytestmark = pytest.mark.long

SERVICES = ("admission", "allocator", "fair_share", "integral")
NODE = NodeName("n1")


def heartbeat(term: int, seq: int = 1) -> tuple[str, bytes]:
    forged = Heartbeat(NODE, TREE, Incarnation(f"{9_999:016}-ffffffff"), seq, 0, term, HeartbeatReason.PERIOD, ZERO)
    return subjects.heartbeat(TREE, NODE), encode(forged)


def events(term: int) -> tuple[str, bytes]:
    return subjects.EVENTS, encode(Published(TREE, term, 10**6, 10**6))


def shares(term: int) -> tuple[str, bytes]:
    return subjects.share(TREE), encode(SharePart(TREE, Version(term, 1), None, 0, 1, ShareFrame()))


def usage(term: int) -> tuple[str, bytes]:
    return subjects.usage(TREE), encode(UsagePart(TREE, Version(term, 1), None, 0, 1, UsageFrame()))


def attach(term: int) -> tuple[str, bytes]:
    return subjects.ledger("attach"), encode(Attach(TREE, term))


def draw(term: int) -> tuple[str, bytes]:
    return subjects.ledger("draw"), encode(DrawBlock(TREE, term, OperationId("operation-1"), 1))


def report(term: int) -> tuple[str, bytes]:
    return subjects.ledger("report"), encode(ReportEnds(TREE, term, []))


def released(term: int) -> tuple[str, bytes]:
    return subjects.ledger("released"), encode(Released(TREE, term, []))


def advance(term: int) -> tuple[str, bytes]:
    return subjects.integral_advance(TREE), encode(Advance(TREE, Version(term, 1), NEVER, 0, ZERO, []))


FORGERIES: list[Callable[[int], tuple[str, bytes]]] = [
    heartbeat,
    events,
    shares,
    usage,
    attach,
    draw,
    report,
    released,
    advance,
]


async def everything_goes_on(world: World, name: str) -> None:
    """Nobody has ended, an operation runs to its end, and what each service hears of the others reaches it."""
    engines: dict[str, Any] = {kind: world.shells[world.process(f"{kind}.a")]._engine for kind in SERVICES}
    operation = OperationId(name)

    def is_owed() -> bool:
        """Admission is heard by the allocator, and fair_share."""
        known = engines["allocator"].facts.operations.get(operation)
        return known is not None and max(known.fair_share) > 0.0

    def is_used() -> bool:
        """The allocator is heard by fair_share."""
        known = engines["fair_share"].usage.items.get(operation)
        return known is not None and any(known.usage.as_tuple())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run_operation, name, a_spec("research", 4, ["sleep", "5"]))
        await eventually(is_owed)
        await eventually(is_used)
    assert world.restarts == 0, world.log
    assert engines["admission"].state.allocator_terms == {TREE: 1}
    assert engines["integral"].term <= 1


async def begin(world: World) -> None:
    """One of each service and a host, which have run an operation."""
    await world.configure([a_pool("research")], TreeOptions())
    for kind in SERVICES:
        world.start_service(kind)
    world.start_host(NODE, 4)
    await world.run_operation("operation-1", a_spec("research", 4, ["sleep", "1"]))


def test_an_allocator_that_may_have_been_succeeded_answers_no_node_until_it_knows() -> None:
    """It gave jobs out once more, to a node that had just been restarted and knew of no later term, while it could not read the terms."""
    worlds: list[World] = []

    async def course(loop: VirtualLoop) -> None:
        world = World(loop)
        worlds.append(world)
        await begin(world)
        async with connect_to(world.server, "node", subjects.inbox("node", NODE)) as node:
            world.server.lose_leader(4.0)
            await node.publish(*heartbeat(2))
            subject, data = heartbeat(0)
            await anyio.sleep(0.2)
            with pytest.raises(RequestTimeout):
                await node.request(subject, data, timeout_s=1)
            await anyio.sleep(8)
            subject, data = heartbeat(0, seq=2)
            assert decode(await node.request(subject, data, timeout_s=1), Orders).term == 1

    with everything_by_seed(lambda: worlds[0] if worlds else None, 1):
        run_virtually(1, course)


@pytest.mark.parametrize("term", [2, LARGEST_JUMP, 2**61], ids=["next", "far", "without bound"])
@pytest.mark.parametrize("forge", FORGERIES)
def test_a_term_that_nobody_took_deposes_and_silences_nobody(
    forge: Callable[[int], tuple[str, bytes]], term: int
) -> None:
    worlds: list[World] = []

    async def course(loop: VirtualLoop) -> None:
        world = World(loop)
        worlds.append(world)
        await begin(world)
        party = ("node", NODE) if forge is heartbeat else ("service", "liar")
        async with connect_to(world.server, "liar", subjects.inbox(*party)) as liar:
            await liar.publish(*forge(term))
        await anyio.sleep(3)
        await everything_goes_on(world, "operation-2")

    with everything_by_seed(lambda: worlds[0] if worlds else None, 1):
        run_virtually(1, course)


@pytest.mark.parametrize("forge", [events, shares, usage, attach, advance])
def test_whoever_has_just_started_believes_no_term_of_which_neither_bucket_nor_peers_know(
    forge: Callable[[int], tuple[str, bytes]],
) -> None:
    """The bucket of terms was lost, and the true leader kept silent for a moment: its word was refused for good afterwards."""
    worlds: list[World] = []

    async def course(loop: VirtualLoop) -> None:
        world = World(loop)
        worlds.append(world)
        await begin(world)
        world.server.store.lose_bucket(subjects.TERMS_BUCKET)
        for kind in SERVICES:
            world.freeze(f"{kind}.a")
            world.start_service(kind, "b")
        await anyio.sleep(0.2)
        async with connect_to(world.server, "liar", subjects.inbox("service", "liar")) as liar:
            await liar.publish(*forge(2))
        await anyio.sleep(0.5)
        for kind in SERVICES:
            world.thaw(f"{kind}.a")
        await anyio.sleep(3)
        await everything_goes_on(world, "operation-2")
        for number, kind in enumerate(("allocator", "fair_share"), 3):
            world.given_up.add(f"{kind}.a")
            world.kill(f"{kind}.a")
            with anyio.fail_after(60):
                await world.run_operation(f"operation-{number}", a_spec("research", 4, ["sleep", "1"]))
        await anyio.sleep(3)
        assert world.invariants.defects_of_end() == []

    with everything_by_seed(lambda: worlds[0] if worlds else None, 1):
        run_virtually(1, course)
