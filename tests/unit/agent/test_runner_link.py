"""The way to the runner, against one that comes and goes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from headrace_agent.effects import Trouble
from headrace_agent.runner.frames import SOCKET_NAME, FrameReader, connect, pack, unpack
from headrace_agent.runner.protocol import (
    LARGEST_REQUEST_BYTES,
    EndAll,
    FullReport,
    Hello,
    NodeLease,
    Recalled,
    ToAgent,
    ToRunner,
)
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner import hung_runner
from headrace_agent.to_runner import link as link_module
from headrace_agent.to_runner.link import RunnerLink

CONVERSATIONS = 8
PICTURE = pack(FullReport([], [], "none", "", 1))


@contextmanager
def a_listener(state: Path) -> Iterator[socket.socket]:
    """Where a runner of this state folder listens."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state / SOCKET_NAME))
        listener.listen()
        listener.setblocking(False)
        yield listener


async def test_what_is_told_while_the_runner_goes_away_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_LONGEST_PAUSE_S", 0.1)
    pictures = 0
    enough = anyio.Event()

    def on_message(message: ToAgent) -> None:
        nonlocal pictures
        pictures += isinstance(message, FullReport)
        if pictures == CONVERSATIONS:
            enough.set()

    with a_listener(tmp_path) as listener:
        link = RunnerLink(
            AgentSettings(state_folder=str(tmp_path)), "incarnation-1", on_message, lambda *_: link.reconnect()
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_give_a_picture_and_hang_up, listener)
            tasks.start_soon(link.run)
            with anyio.fail_after(60):
                while not enough.is_set():
                    link.send(EndAll(0, "now"))
                    link.flush()
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def _give_a_picture_and_hang_up(listener: socket.socket, pictures: int = 1) -> None:
    while True:
        await anyio.wait_readable(listener)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(PICTURE * pictures)


async def test_an_agent_that_is_to_start_no_runner_waits_for_one_and_says_so(tmp_path: Path) -> None:
    told: list[tuple[Trouble, str]] = []
    enough = anyio.Event()

    def on_trouble(kind: Trouble, words: str) -> None:
        told.append((kind, words))
        if len(told) == 2:
            enough.set()

    settings = AgentSettings(state_folder=str(tmp_path), starts_runner=False)
    link = RunnerLink(settings, "life-1", lambda _: None, on_trouble)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            await enough.wait()
            tasks.cancel_scope.cancel()

    words = f"no runner listens in {tmp_path} yet, and the agent may not start a runner (setting starts_runner)"
    assert (told, link.starts) == ([(Trouble.RUNNER_AWAY, words)] * 2, 0)


async def test_a_runner_that_reads_nothing_any_more_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is frozen. What it was told to start never started, and nobody was told why."""
    monkeypatch.setattr(hung_runner, "LOOK_S", 0.01)
    troubles: list[tuple[Trouble, str]] = []
    troubled = anyio.Event()

    def on_trouble(kind: Trouble, words: str) -> None:
        troubles.append((kind, words))
        troubled.set()

    with a_listener(tmp_path) as listener:
        link = RunnerLink(AgentSettings(state_folder=str(tmp_path)), "life-1", lambda _: tell(), on_trouble)

        def tell() -> None:
            link.send(NodeLease(1))
            link.flush()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            await anyio.wait_readable(listener)
            with listener.accept()[0] as connection, anyio.fail_after(30):
                connection.sendall(PICTURE)
                await troubled.wait()
            tasks.cancel_scope.cancel()

    assert troubles[0] == (Trouble.RUNNER_AWAY, "the runner has not answered for 0 s")


def test_a_runner_that_accepts_nobody_keeps_nobody_waiting(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as connections:
        listener.bind(str(tmp_path / SOCKET_NAME))
        listener.listen(2)
        for _ in range(3):
            connections.enter_context(connect(str(tmp_path)))
        with pytest.raises(BlockingIOError):
            connect(str(tmp_path))


async def test_a_node_whose_jobs_nobody_can_look_up_does_not_say_that_nothing_runs(tmp_path: Path) -> None:
    """No runner can be started here. A node that is silent keeps its jobs until its lease is over."""
    (tmp_path / "jobs").symlink_to("jobs")
    troubles: list[Trouble] = []
    troubled = anyio.Event()

    def on_trouble(kind: Trouble, _words: str) -> None:
        troubles.append(kind)
        troubled.set()

    link = RunnerLink(AgentSettings(state_folder=str(tmp_path)), "life-1", lambda _: None, on_trouble)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        with anyio.fail_after(60):
            await troubled.wait()
        tasks.cancel_scope.cancel()

    assert troubles == [Trouble.RUNNER_AWAY]


async def test_what_is_told_together_is_written_at_once_and_what_the_runner_is_slow_to_take_follows_in_order(
    tmp_path: Path,
) -> None:
    told = [NodeLease(number) for number in range(60_000)]
    taken: list[ToRunner] = []
    had_picture = anyio.Event()

    with a_listener(tmp_path) as listener:
        settings = AgentSettings(state_folder=str(tmp_path))
        link = RunnerLink(settings, "life-1", lambda _: had_picture.set(), lambda *_: None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            await anyio.wait_readable(listener)
            with listener.accept()[0] as connection, anyio.fail_after(60):
                connection.setblocking(False)
                connection.sendall(PICTURE)
                await had_picture.wait()
                reader, decoder = FrameReader(LARGEST_REQUEST_BYTES), msgspec.msgpack.Decoder(ToRunner)
                reader.feed(connection.recv(2**20))
                assert isinstance(unpack(reader.next() or b"", decoder), Hello)
                link.send(told[0])
                link.send(told[1])
                link.flush()
                # Without a turn of the loop in between.
                reader.feed(connection.recv(2**20))
                while (frame := reader.next()) is not None:
                    taken.append(unpack(frame, decoder))
                assert taken == told[:2]
                for lease in told[2:]:
                    link.send(lease)
                    link.flush()
                ended = anyio.Event()

                async def end() -> None:
                    assert await link.end(30.0, with_runner=False)
                    ended.set()

                tasks.start_soon(end)
                while len(taken) < len(told):
                    await anyio.wait_readable(connection)
                    reader.feed(connection.recv(2**20))
                    while (frame := reader.next()) is not None:
                        taken.append(unpack(frame, decoder))
                await ended.wait()
            tasks.cancel_scope.cancel()

    assert taken == told


async def test_messages_are_heard_one_by_one_with_one_reader_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, readers = asyncio.get_running_loop(), 0
    heard: list[ToAgent] = []
    one_more = anyio.Event()

    def on_message(message: ToAgent) -> None:
        heard.append(message)
        one_more.set()

    with a_listener(tmp_path) as listener:
        link = RunnerLink(AgentSettings(state_folder=str(tmp_path)), "life-1", on_message, lambda *_: None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            await anyio.wait_readable(listener)
            add_reader = loop.add_reader

            def count_and_add(*args: Any) -> None:
                nonlocal readers
                readers += 1
                add_reader(*args)

            monkeypatch.setattr(loop, "add_reader", count_and_add)
            with listener.accept()[0] as connection, anyio.fail_after(60):
                for number in range(20):
                    first, second = PICTURE if number == 0 else pack(Recalled(str(number))), b""
                    if number % 2:
                        first, second = first[:3], first[3:]
                    one_more = anyio.Event()
                    connection.sendall(first)
                    await anyio.lowlevel.checkpoint()
                    connection.sendall(second)
                    await one_more.wait()
            tasks.cancel_scope.cancel()

    assert heard[1:] == [Recalled(str(number)) for number in range(1, 20)]
    assert readers <= 1


@pytest.mark.parametrize("said", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xc1", b""])
async def test_a_runner_that_is_not_understood_or_has_ended_is_trouble_and_is_spoken_with_anew(
    tmp_path: Path, said: bytes
) -> None:
    troubles: list[Trouble] = []

    with a_listener(tmp_path) as listener:
        link = RunnerLink(
            AgentSettings(state_folder=str(tmp_path)), "life-1", lambda _: None, lambda kind, _: troubles.append(kind)
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            with anyio.fail_after(60):
                for _ in range(2):
                    await anyio.wait_readable(listener)
                    with listener.accept()[0] as connection:
                        connection.sendall(PICTURE + said)
                        if not said:
                            connection.shutdown(socket.SHUT_WR)
                        while connection.recv(2**20):
                            await anyio.wait_readable(connection)
            tasks.cancel_scope.cancel()

    assert troubles[:1] == [Trouble.RUNNER_AWAY]


async def test_a_defect_of_whoever_is_told_ends_the_agent(tmp_path: Path) -> None:
    def on_message(_message: ToAgent) -> None:
        raise OSError("a defect")

    with a_listener(tmp_path) as listener:
        link = RunnerLink(AgentSettings(state_folder=str(tmp_path)), "life-1", on_message, lambda *_: None)
        with pytest.raises(ExceptionGroup) as failed:
            await _speak_with_a_runner(link, listener)

    assert failed.group_contains(OSError, match="a defect")


async def test_a_defect_ends_the_agent_though_the_conversation_was_ended_by_a_message_before(tmp_path: Path) -> None:
    told: list[ToAgent] = []

    def on_message(message: ToAgent) -> None:
        told.append(message)
        if len(told) == 1:
            link.reconnect()
        else:
            raise OSError("a defect")

    with a_listener(tmp_path) as listener:
        link = RunnerLink(AgentSettings(state_folder=str(tmp_path)), "life-1", on_message, lambda *_: None)
        with pytest.raises(ExceptionGroup) as failed:
            await _speak_with_a_runner(link, listener, pictures=2)

    assert failed.group_contains(OSError, match="a defect")
    assert len(told) == 2


async def _speak_with_a_runner(link: RunnerLink, listener: socket.socket, pictures: int = 1) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        tasks.start_soon(_give_a_picture_and_hang_up, listener, pictures)
        with anyio.fail_after(60):
            await anyio.sleep_forever()
