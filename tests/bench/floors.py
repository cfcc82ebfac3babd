"""What this machine can do at best, with nothing of Headrace in between: a request, a durable append, a process.

Figures stand beside these floors, so that a slow machine is not taken for slow code.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import select
import statistics
import time
from collections.abc import Callable
from functools import cache

import nats
from nats.aio.msg import Msg

from tests.support.nats_server import nats_server

_TIMES = 300
_PROCESSES = 2_000
_AT_ONCE = 2
_PAYLOAD = bytes(256)
_TRUE = "/bin/true"


@cache
def request_ms() -> float:
    """A request on NATS that another process answers, one at a time."""
    return _on_a_server()[0]


@cache
def append_ms() -> float:
    """An append to a stream that is on the disk when it is answered, one at a time."""
    return _on_a_server()[1]


@cache
def spawn_ms() -> float:
    """The whole life of a process that does nothing, one at a time."""

    def one() -> None:
        os.waitpid(os.posix_spawn(_TRUE, [_TRUE], os.environ), 0)

    return statistics.median(_ms(one) for _ in range(_TIMES))


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


def submit_ms() -> float:
    """The least that lies between a wish and a process: it is asked for, recorded, and started."""
    return request_ms() + append_ms() + spawn_ms()


@cache
def _on_a_server() -> tuple[float, float]:
    with nats_server() as server:
        responder = multiprocessing.Process(target=_answer, args=(server.url,), daemon=True)
        responder.start()
        try:
            return asyncio.run(_measure(server.url))
        finally:
            responder.kill()
            responder.join()


async def _measure(url: str) -> tuple[float, float]:
    connection = await nats.connect(url)
    try:
        while True:
            try:
                await connection.request("floor", _PAYLOAD, timeout=1)
                break
            except nats.errors.Error:
                await asyncio.sleep(0.05)  # the other process is not there yet
        requests = []
        for _ in range(_TIMES):
            began = time.perf_counter()
            await connection.request("floor", _PAYLOAD)
            requests.append(time.perf_counter() - began)
        stream = connection.jetstream()
        await stream.add_stream(name="floor", subjects=["appended"])
        appends = []
        for _ in range(_TIMES):
            began = time.perf_counter()
            await stream.publish("appended", _PAYLOAD)
            appends.append(time.perf_counter() - began)
    finally:
        await connection.close()
    return statistics.median(requests) * 1e3, statistics.median(appends) * 1e3


def _answer(url: str) -> None:
    async def answer() -> None:
        connection = await nats.connect(url)

        async def on_request(message: Msg) -> None:
            await message.respond(message.data)

        await connection.subscribe("floor", cb=on_request)
        await asyncio.Event().wait()

    asyncio.run(answer())


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3
