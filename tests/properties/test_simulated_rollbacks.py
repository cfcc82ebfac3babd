"""A server that comes back without its newest writes: the real shells of all services, in virtual time."""

from __future__ import annotations

import anyio

from headrace.ids import OperationId
from headrace.wire import subjects
from headrace.wire.operations import OperationState
from tests.properties.test_simulated_services import in_world
from tests.simulation.recorded import Recorded
from tests.simulation.world import World, a_spec


def test_jobs_whose_ends_the_log_lost_run_again_though_an_allocator_lived_that_knew_them() -> None:
    """It waited for ever for what it had reported, and the ledger for what it had given out."""

    async def course(world: World) -> None:
        stream = world.server.store.stream(subjects.STREAM)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.run_operation, "operation-1", a_spec("research", 12, ["work", "2"]))
            await anyio.sleep(1)
            known = stream.last_sequence
            await anyio.sleep(4)
            world.server.crash()
            stream.roll_back(stream.last_sequence - known)
            world.recorded = world.truth.recorded = Recorded(stream)
            world.server.start()
            with anyio.move_on_after(60):
                while not world.ended:  # noqa: ASYNC110 - nobody tells
                    await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        assert world.ended[OperationId("operation-1")].state is OperationState.COMPLETED
        assert world.truth.violations == []

    in_world(course)
