"""What this machine can do at best, with nothing of Headrace in between: a request, a durable append, a process.

Figures stand beside these floors, so that a slow machine is not taken for slow code. Those that last a few milliseconds have two:
warm, step after step, and at rest, each step after a pause, when the processors sleep and the caches have been given to others.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import select
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Final, NamedTuple

import nats
from nats.aio.msg import Msg

from tests.support.nats_server import nats_server

#: Between two starts, so that none is helped or hindered by the end of the one before, and before each step of a rested floor.
PAUSES_S: Final = (0.05, 0.1)
_TIMES = 300
_RESTED_TIMES = 100
_PROCESSES = 2_000
_AT_ONCE = 2
_PAYLOAD = bytes(256)
_TRUE = "/bin/true"


class Floor(NamedTuple):
    """The least that lies between a wish and a process, each a median in milliseconds."""

    #: A request on NATS that another process answers.
    request_ms: float
    #: An append to a stream that is on the disk when it is answered.
    append_ms: float
    #: The whole life of a process that does nothing.
    spawn_ms: float

    @property
    def submit_ms(self) -> float:
        """It is asked for, recorded, and started."""
        return self.request_ms + self.append_ms + self.spawn_ms


class _Steps:
    """Takes the time of one kind of step, again and again: at once, or each after a pause."""

    def __init__(self, *, rested: bool) -> None:
        self._pause = random.Random(1) if rested else None
        self._times = _RESTED_TIMES if rested else _TIMES

    async def median_ms(self, step: Callable[[], Awaitable[object]]) -> float:
        taken_s = []
        for _ in range(self._times):
            if self._pause:
                await asyncio.sleep(self._pause.uniform(*PAUSES_S))
            began = time.perf_counter()
            await step()
            taken_s.append(time.perf_counter() - began)
        return statistics.median(taken_s) * 1e3


@cache
def floor(*, rested: bool) -> Floor:
    """One step at a time, each at once after the one before, or after a pause like that between two starts."""
    with nats_server() as server:
        responder = multiprocessing.Process(target=_answer, args=(server.url,), daemon=True)
        responder.start()
        try:
            return asyncio.run(_measure(server.url, _Steps(rested=rested)))
        finally:
            responder.kill()
            responder.join()


@cache
def spawns_per_second() -> float:
    """Processes that do nothing, as many at once as fill this machine best."""
    ends = select.epoll()
    running: dict[int, int] = {}

    def start() -> None:
        pid = os.posix_spawn(_TRUE, [_TRUE], os.environ)
        pidfd = os.pidfd_open(pid)
        running[pidfd] = pid
        ends.register(pidfd, select.EPOLLIN)

    began = time.perf_counter()
    for _ in range(_AT_ONCE):
        start()
    left = _PROCESSES - _AT_ONCE
    while running:
        for pidfd, _mask in ends.poll():
            ends.unregister(pidfd)  # closing it is not enough while a child on its way to exec has it too
            os.waitpid(running.pop(pidfd), 0)
            os.close(pidfd)
            if left:
                left -= 1
                start()
    taken_s = time.perf_counter() - began
    ends.close()
    return _PROCESSES / taken_s


async def _measure(url: str, steps: _Steps) -> Floor:
    connection = await nats.connect(url)
    try:
        while True:
            try:
                await connection.request("floor", _PAYLOAD, timeout=1)
                break
            except nats.errors.Error:
                await asyncio.sleep(0.05)  # the other process is not there yet
        stream = connection.jetstream()
        await stream.add_stream(name="floor", subjects=["appended"])
        request_ms = await steps.median_ms(partial(connection.request, "floor", _PAYLOAD))
        append_ms = await steps.median_ms(partial(stream.publish, "appended", _PAYLOAD))
    finally:
        await connection.close()
    return Floor(request_ms, append_ms, await steps.median_ms(_spawn))


async def _spawn() -> None:
    _live()  # nothing else goes on in this loop


def _live() -> None:
    os.waitpid(os.posix_spawn(_TRUE, [_TRUE], os.environ), 0)


def _answer(url: str) -> None:
    async def answer() -> None:
        connection = await nats.connect(url)

        async def on_request(message: Msg) -> None:
            await message.respond(message.data)

        await connection.subscribe("floor", cb=on_request)
        await asyncio.Event().wait()

    asyncio.run(answer())
