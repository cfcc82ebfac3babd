"""How an agent begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from headrace.bus import Handler
from headrace.ids import Incarnation
from headrace.runtime.service import runtime_on
from headrace.wire.nodes import StopMode
from headrace_agent.runner.frames import SOCKET_NAME
from headrace_agent.service import Agent
from headrace_agent.settings import AgentSettings
from tests.support.clocks import NOW


class StuckBus:
    """Takes a subscription and never says that it is in force."""

    async def serve(self, subject: str, handler: Handler, **_: object) -> None:
        await anyio.sleep_forever()


async def test_an_agent_has_its_runner_and_can_be_stopped_before_the_bus_lets_it_listen(tmp_path: Path) -> None:
    bus: Any = StuckBus()
    async with anyio.create_task_group() as tasks:
        settings = AgentSettings(node="n", state_folder=str(tmp_path))
        agent = Agent(runtime_on(bus, "agent", settings, tasks, anyio.Event()), Incarnation("life-1"))
        with anyio.fail_after(30):
            async with anyio.create_task_group() as running:
                running.start_soon(agent.run)
                while not agent.engine.pulse.is_open:  # noqa: ASYNC110 - the runner tells the engine
                    await anyio.sleep(0.01)
                agent._do(agent.engine.on_stop(StopMode.KILL, NOW))

    assert agent.runner.starts == 1
    assert not (tmp_path / SOCKET_NAME).exists()
