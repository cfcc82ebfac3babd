"""The web service under load: a long list of operations, and many readers of the stream of events while operations end."""

from __future__ import annotations

import json
import multiprocessing
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx
import msgspec
import psutil

from headrace.bus import Bus
from headrace.ids import AllocationId, NodeName, OperationId, PoolName
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.happenings import JobEnded, OperationStep, Recorded
from headrace.wire.heartbeat import JobResult, JobSlot
from headrace.wire.operations import ListOperations, OperationList, OperationState
from tests.bench.admission import a_tree, an_admission, start_all
from tests.bench.registry import REGISTRY, Figure
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import TREE, a_bus, ask

OPERATIONS = 10_000
LISTS = 5
READERS = 200
#: Ends of jobs a second; each operation has ten jobs.
ENDS_PER_S = 1_000
FOLLOWED_S = 10
#: Events before the first look at the memory: more than the service keeps for readers who come back.
FIRST_EVENTS = 20_000
EVENTS = 100_000
_JOBS = 10
#: Events in one message of admission.
_TOGETHER = 20


class _Web:
    """A web service as a process of its own, and what its requests need."""

    def __init__(self, server: NatsServer) -> None:
        environment = {**os.environ, "HEADRACE_NATS_URL": server.url}
        argv = [sys.executable, "-m", "headrace_cli", "web", "--port", "0", "--json"]
        self.process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.api: str = told["api"]
        self.header = Path(told["header_file"]).read_text(encoding="ascii").strip()
        self.measured = psutil.Process(self.process.pid)

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate()

    def cpu_s(self) -> float:
        times = self.measured.cpu_times()
        return times.user + times.system


@asynccontextmanager
async def _a_web() -> AsyncIterator[tuple[_Web, Bus]]:
    """A web service with the services that it asks, and a connection that stands for admission and a person."""
    with nats_server() as server, tempfile.TemporaryDirectory() as folder:
        async with a_bus(server, "service", "configuring") as bus:
            bucket = await bus.key_value(subjects.POOLS_BUCKET, history=64)
            await bucket.put(TREE, msgspec.json.encode(a_tree()))
        async with an_admission(server, Path(folder)), a_bus(server, "user", "anna") as anna:
            fair_share = [sys.executable, "-m", "headrace_fair_share", "--config", f"{folder}/services.toml"]
            with _process(fair_share):
                await ask(anna, subjects.user("anna", "op.list"), ListOperations(), OperationList)  # waits for it
                web = await anyio.to_thread.run_sync(_Web, server)
                try:
                    yield web, anna
                finally:
                    web.end()


@contextmanager
def _process(argv: list[str]) -> Iterator[None]:
    process = subprocess.Popen(argv)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


class _Lists(msgspec.Struct):
    """Milliseconds of each page, and of each whole list."""

    pages_ms: list[float]
    lists_ms: list[float]


@cache
def _lists() -> _Lists:
    return anyio.run(_read_lists)


async def _read_lists() -> _Lists:
    async with _a_web() as (web, anna):
        await start_all(anna, "listed", OPERATIONS)
        return await anyio.to_thread.run_sync(_timed_lists, web)


def _timed_lists(web: _Web) -> _Lists:
    name, _, value = web.header.partition(": ")
    with httpx.Client(base_url=web.api, headers={name: value}, timeout=60) as client:
        _pages_ms(client)  # does not count
        lists = [_pages_ms(client) for _ in range(LISTS)]
    return _Lists([each for pages in lists for each in pages], [sum(pages) for pages in lists])


def _pages_ms(client: httpx.Client) -> list[float]:
    """Milliseconds of each page, of a list that is read from its beginning to its end."""
    taken, listed, cursor = list[float](), 0, ""
    while cursor is not None:
        began = time.perf_counter()
        answer = client.get("/operations", params={"limit": 500, "cursor": cursor})
        taken.append((time.perf_counter() - began) * 1e3)
        page = msgspec.json.decode(answer.content)
        listed, cursor = listed + len(page["operations"]), page["next"]
    assert listed == OPERATIONS
    return taken


@REGISTRY.add("web_page_ms", f"a page of 500 of {OPERATIONS:,} operations by the HTTP API, wherever it begins", 300)
def web_page() -> Figure:
    return Figure.of(_lists().pages_ms, "ms")


@REGISTRY.add("web_list_ms", f"all {OPERATIONS:,} operations by the HTTP API, page after page: 20 MB of JSON", 1_500)
def web_list() -> Figure:
    return Figure.of(_lists().lists_ms, "ms")


class _Publisher:
    """Publishes ends of jobs and operations as admission does."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._sequence = 1_000_000
        self._number = 0

    async def publish(self, count: int, per_s: float) -> None:
        """Publish this number of events at this rate, or as fast as the machine can if it is slower."""
        began = time.perf_counter()
        for sent in range(0, count, _TOGETHER):
            await anyio.sleep(max(0.0, began + sent / per_s - time.perf_counter()))
            told = Recorded(TREE, 1, self._sequence + 1, self._sequence, [self._next() for _ in range(_TOGETHER)])
            self._sequence += 1
            await self._bus.publish(subjects.HAPPENINGS, encode(told))

    def _next(self) -> JobEnded | OperationStep:
        self._number += 1
        operation, job = divmod(self._number, _JOBS + 1)
        name = OperationId(f"operation-{operation:08}")
        if job == _JOBS:
            return OperationStep(1, name, OperationState.COMPLETED, "jobs_done", pool=PoolName("work"), user="anna")
        return JobEnded(2, name, JobSlot(job, 1), NodeName("node-1"), AllocationId("1-1"), 1, JobResult.COMPLETED)


def _read_events(
    address: tuple[str, int], request: bytes, count: int, begun: Synchronized[int], got: Synchronized[int]
) -> None:
    """Read a number of streams until killed: count streams that follow, and events."""
    selector = selectors.DefaultSelector()

    def take(connection: socket.socket) -> None:
        data = connection.recv(1 << 20)
        if not data:
            raise ConnectionError("the web service ended a stream")
        begun.value += data.count(b"event: following")
        got.value += data.count(b"\nevent: operation\n") + data.count(b"\nevent: job_ended\n")

    for number in range(1, count + 1):
        # One after the other, because the service closes the oldest of too many connections that have shown no secret.
        connection = socket.create_connection(address)
        connection.sendall(request)
        while begun.value < number:
            take(connection)
        selector.register(connection, selectors.EVENT_READ, connection)
    while True:
        for key, _ in selector.select():
            take(key.data)


@contextmanager
def _readers(web: _Web, count: int) -> Iterator[Synchronized[int]]:
    """Readers of all events in another process; the number of events that they got together."""
    parts = urlsplit(web.api)
    assert parts.hostname is not None
    assert parts.port is not None
    words = f"GET {parts.path}/events HTTP/1.1\r\nHost: {parts.netloc}\r\n{web.header}\r\n\r\n"
    begun: Any = multiprocessing.Value("q", 0)
    got: Any = multiprocessing.Value("q", 0)
    argv = ((parts.hostname, parts.port), words.encode(), count, begun, got)
    process = multiprocessing.get_context("fork").Process(target=_read_events, args=argv)
    process.start()
    try:
        while begun.value < count:
            if not process.is_alive():
                raise RuntimeError("the readers of the web service ended")
            time.sleep(0.05)
        yield got
    finally:
        process.kill()
        process.join()


@REGISTRY.add(
    "web_readers_cores", f"CPU of the web service, {READERS} readers of its events at {ENDS_PER_S:,} ends a second", 1
)
def web_readers() -> Figure:
    return Figure.of(anyio.run(_cores), "cores")


async def _cores() -> list[float]:
    """CPU seconds for the events of a second, so that a busy machine, which sends fewer a second, changes little."""
    events, found = ENDS_PER_S * FOLLOWED_S, []
    async with _a_web() as (web, anna):
        with _readers(web, READERS) as got:
            publisher = _Publisher(anna)
            for turn in range(3):
                before_s, before = web.cpu_s(), got.value
                await publisher.publish(events, ENDS_PER_S)
                await anyio.sleep(1)
                found.append((web.cpu_s() - before_s) / FOLLOWED_S)
                lost = READERS * events - (got.value - before)
                if lost:
                    print(f"turn {turn}: readers missed {lost / READERS / events:.1%} of the events", file=sys.stderr)
    return found


@REGISTRY.add("web_memory_growth", f"memory of the web service after {EVENTS:,} events over the memory before", 1.1)
def web_memory() -> Figure:
    return Figure.of([anyio.run(_growth)], "times")


async def _growth() -> float:
    async with _a_web() as (web, anna):
        with _readers(web, 4):
            publisher = _Publisher(anna)
            await publisher.publish(FIRST_EVENTS, 5_000)
            before = web.measured.memory_info().rss
            await publisher.publish(EVENTS, 5_000)
            return web.measured.memory_info().rss / before
