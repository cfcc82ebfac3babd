"""Two machines that were given one node's name: the real shells of all services, in virtual time."""

from __future__ import annotations

import anyio
import pytest

from headrace.ids import NodeName, TreeName
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.nodes import Enrol, Enrolled
from headrace.wire.refusals import WrongState, decode_answer
from tests.properties.test_simulated_services import in_world
from tests.simulation.bus import connect_to
from tests.simulation.world import World, a_spec


def jobs_on(world: World, host: str) -> int:
    return sum(1 for process in world.truth.processes if process.host == host)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_second_machine_of_a_name_gets_nothing_and_takes_no_job_from_the_first(restarted: bool) -> None:
    """Jobs of the first were lost at once, and ran a second time until its lease was over."""

    async def course(world: World) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.run_operation, "operation-1", a_spec("research", 6, ["work", "12"]))
            await anyio.sleep(2)
            world.start_host("twin", 2, node="n0")
            if restarted:
                for name in ("admission.a", "allocator.a"):
                    world.kill(name)
        assert world.truth.violations == []
        assert not jobs_on(world, "twin")
        assert jobs_on(world, "n0")

    in_world(course)


def test_a_name_passes_to_another_machine_once_nothing_can_run_on_the_first() -> None:
    async def course(world: World) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.run_operation, "operation-1", a_spec("research", 4, ["work", "5"]))
            await anyio.sleep(2)
            world.switch_off("n0")
            world.start_host("twin", 2, node="n0")
            await anyio.sleep(world.node_lease_s - 2)
            assert not jobs_on(world, "twin")
        # Long enough for the other machine to ask again for the name.
        await world.run_operation("operation-2", a_spec("research", 60, ["work", "2"]))
        assert world.truth.violations == []
        assert jobs_on(world, "twin")

    in_world(course)


def test_the_refusal_of_a_name_tells_both_machines() -> None:
    answers: list[object] = []

    async def course(world: World) -> None:
        async with connect_to(world.server, "rogue", subjects.inbox("node", "n0")) as bus:
            request = Enrol(NodeName("n0"), TreeName("default"), machine="twin")
            data = await bus.request(subjects.enrol("n0"), encode(request), timeout_s=5.0)
            answers.append(decode_answer(data, Enrolled))

    in_world(course)

    (answer,) = answers
    assert isinstance(answer, WrongState)
    assert answer.text().startswith("node n0 is on n0, heard ")
    assert answer.text().endswith(
        " s ago, and may run jobs there; expected another name for the node on twin, or no agent and no jobs on the old machine"
    )
