"""A value of a bucket that nobody can read stops nobody: the real shells of all services, in virtual time."""

from __future__ import annotations

import anyio
import pytest

from headrace.wire import subjects
from tests.integration.test_forged_terms import NODE, SERVICES, begin
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.world import TREE, World, a_spec, everything_by_seed

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("bucket", "key"),
    [
        (subjects.TERMS_BUCKET, "admission"),
        (subjects.TERMS_BUCKET, f"allocator.{TREE}"),
        (subjects.NODES_BUCKET, NODE),
        (subjects.copies_of(subjects.NODES_BUCKET), NODE),
        (subjects.NODE_LEASES_BUCKET, TREE),
        (subjects.copies_of(subjects.NODE_LEASES_BUCKET), TREE),
        (subjects.copies_of(subjects.POOLS_BUCKET), TREE),
    ],
)
def test_everything_starts_though_a_value_cannot_be_read(bucket: str, key: str) -> None:
    """What a term, a node and a copy say is known elsewhere, too."""
    worlds: list[World] = []

    async def course(loop: VirtualLoop) -> None:
        world = World(loop)
        worlds.append(world)
        await begin(world)
        for kind in SERVICES:
            world.given_up.add(f"{kind}.a")
            world.kill(f"{kind}.a")
        async with connect_to(world.server, "rubbish", subjects.inbox("service", "rubbish")) as bus:
            await (await bus.key_value(bucket)).put(key, b"rubbish")
        await anyio.sleep(4)
        for kind in SERVICES:
            world.start_service(kind, "b")
        with anyio.fail_after(60):
            await world.run_operation("operation-2", a_spec("research", 2, ["sleep", "1"]))
        await anyio.sleep(3)
        assert world.invariants.defects_of_end() == []

    with everything_by_seed(lambda: worlds[0] if worlds else None, 1):
        run_virtually(1, course)
