"""Barriers: waiting until the server has processed everything that was sent before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from headrace.bus.protocol import BusError, NotConnected, RequestTimeout

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from nats.aio.client import Client

#: A PONG that comes after its waiter gave up ends nats-py's read loop, so the waiter must outlive a stale connection (15 s).
_FLUSH_TIMEOUT_S = 60


class Barriers:
    """The barriers of one connection.

    `write` writes what waits. `check_connected` raises what whoever waits on a broken one gets.
    """

    def __init__(
        self, client: Client, tasks: TaskGroup, write: Callable[[], None], check_connected: Callable[[], None]
    ) -> None:
        self._nats = client
        self._tasks = tasks
        self._write = write
        self._check_connected = check_connected
        self._waiting: set[asyncio.Future[None]] = set()

    async def wait(self, timeout_s: float) -> None:
        """Returns when the server has processed everything sent before.

        nats-py's `flush` writes its PING past the commands that still wait for the flusher: 15 of 500 requests right after
        subscribe and flush found nobody. So they are written first.
        """
        self._check_connected()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(done)
        try:
            with anyio.move_on_after(timeout_s):
                self._write()
                while self._nats.pending_data_size > 0:
                    self._check_connected()
                    await anyio.sleep(0.001)
                self._check_connected()
                self._tasks.start_soon(self._flush, done)
                await done
                return
        finally:
            self._waiting.discard(done)
            if done.done() and not done.cancelled():
                done.exception()
        raise RequestTimeout(f"the server did not answer within {timeout_s:g} s")

    def fail(self, error: BusError) -> None:
        """Ends all that wait."""
        for barrier in self._waiting:
            if not barrier.done():
                barrier.set_exception(error)

    async def _flush(self, done: asyncio.Future[None]) -> None:
        # In a task of its own, since a caller may give up: the PONG that comes later would find a cancelled future, and nats-py's
        # read loop would end on it.
        error: Exception | None = None
        try:
            await self._nats.flush(_FLUSH_TIMEOUT_S)
        except Exception:
            error = NotConnected()
        if not done.done():
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
