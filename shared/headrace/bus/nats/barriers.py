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

#: Seconds that a barrier waits for its PONG. A PONG that arrives after the barrier gave up would end nats-py's read loop. So the barrier
#: waits longer than the 15 s after which nats-py gives up a stale connection.
_FLUSH_TIMEOUT_S = 60


class Barriers:
    """The barriers of one connection.

    `write` writes the bytes that wait to be sent. `check_connected` raises if the connection is broken.
    """

    def __init__(
        self, client: Client, tasks: TaskGroup, write: Callable[[], None], check_connected: Callable[[], None]
    ) -> None:
        self._nats = client
        self._tasks = tasks
        self._write = write
        self._check_connected = check_connected
        self._waiting: set[asyncio.Future[None]] = set()
        #: The waiting barriers for which the next PING is sent.
        self._joining: list[asyncio.Future[None]] = []

    async def wait(self, timeout_s: float) -> None:
        """Return when the server has processed everything sent before. Barriers that begin in one turn of the loop share a PING."""
        self._check_connected()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._joining:
            # The flush runs in a task of its own, since a caller may give up. If the flush were cancelled together with
            # that caller, the later PONG would find a cancelled future, and nats-py's read loop would end.
            self._tasks.start_soon(self._flush)
        self._joining.append(done)
        self._waiting.add(done)
        try:
            with anyio.move_on_after(timeout_s):
                await done
                return
        finally:
            self._waiting.discard(done)
            if done.done() and not done.cancelled():
                done.exception()
        raise RequestTimeout(f"the server did not answer within {timeout_s:g} s")

    def fail(self, error: BusError) -> None:
        """Raise `error` in all waiting callers."""
        for barrier in self._waiting:
            if not barrier.done():
                barrier.set_exception(error)

    async def _flush(self) -> None:
        joined, self._joining = self._joining, []
        error: BusError | None = None
        try:
            await self._write_all()
            await self._nats.flush(_FLUSH_TIMEOUT_S)
        except BusError as trouble:
            error = trouble
        except Exception:
            error = NotConnected()
        for done in joined:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    async def _write_all(self) -> None:
        """Write the bytes that wait for nats-py's flusher.

        nats-py's `flush` writes its PING ahead of these bytes, so the PONG does not show that the server has processed them. With that
        `flush`, 15 of 500 requests that were sent right after a barrier found no responder.
        """
        self._write()
        while self._nats.pending_data_size > 0:
            self._check_connected()
            await anyio.sleep(0.001)
        self._check_connected()
