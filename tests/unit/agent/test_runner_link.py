"""The way to the runner, against one that comes and goes."""

from __future__ import annotations

import socket
from pathlib import Path

import anyio
import anyio.lowlevel

from headrace_agent.runner.frames import SOCKET_NAME, pack
from headrace_agent.runner.protocol import EndAll, Picture, ToAgent
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner.link import RunnerLink

CONVERSATIONS = 8


async def test_what_is_told_while_the_runner_goes_away_is_dropped(tmp_path: Path) -> None:
    pictures = 0
    enough = anyio.Event()

    def on_message(message: ToAgent) -> None:
        nonlocal pictures
        pictures += isinstance(message, Picture)
        if pictures == CONVERSATIONS:
            enough.set()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET_NAME))
        listener.listen()
        listener.setblocking(False)
        link = RunnerLink(
            AgentSettings(state_folder=str(tmp_path)), "incarnation-1", on_message, lambda *_: link.reconnect()
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_give_a_picture_and_hang_up, listener)
            tasks.start_soon(link.run)
            with anyio.fail_after(60):
                while not enough.is_set():
                    link.tell(EndAll(0, "now"))
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def _give_a_picture_and_hang_up(listener: socket.socket) -> None:
    while True:
        await anyio.wait_readable(listener)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(pack(Picture([], [], "none", "", 1)))
