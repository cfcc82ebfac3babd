"""Tests of the bus that run twice: on a real server, and on the simulated one in virtual time."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio
import pytest

from headrace.bus import Bus, connect
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer
from tests.support.nats_server import NatsServer, nats_server

__all__ = ["World", "on_both_worlds"]


class World(Protocol):
    """A server that a test may end and start again."""

    #: A word that no other test uses.
    word: str

    def connect(self, name: str) -> AbstractAsyncContextManager[Bus]: ...

    async def crash(self) -> None: ...

    async def start(self) -> None: ...


class _Real:
    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self.word = f"t{secrets.token_hex(6)}"

    def connect(self, name: str) -> AbstractAsyncContextManager[Bus]:
        return connect([self._server.url], name=name, inbox_prefix=f"_INBOX.service.{name}")

    async def crash(self) -> None:
        self._server.kill()

    async def start(self) -> None:
        await anyio.to_thread.run_sync(self._server.start)


class _Simulated:
    def __init__(self, loop: VirtualLoop) -> None:
        self._server = SimulatedServer(loop)
        self.word = "word"

    def connect(self, name: str) -> AbstractAsyncContextManager[Bus]:
        return connect_to(self._server, name)

    async def crash(self) -> None:
        self._server.crash()

    async def start(self) -> None:
        self._server.start()


def on_both_worlds(test: Callable[[World], Awaitable[None]]) -> Callable[..., None]:
    """Runs a test on a server of its own, and on a simulated one under three seeds."""

    @pytest.mark.parametrize("where", ["server", 1, 2, 3])
    @functools.wraps(test)
    def run(where: Any) -> None:
        if where == "server":
            with nats_server() as server:
                anyio.run(test, _Real(server))
        else:
            run_virtually(where, lambda loop: test(_Simulated(loop)))

    # Else pytest would look for the argument of the test itself.
    vars(run).pop("__wrapped__")
    marked: Callable[..., None] = run
    return marked
