"""How long a person's starts take while another floods the same service as fast as a connection carries it."""

from __future__ import annotations

import multiprocessing
import re
import socket
import threading
import time
from functools import cache

import anyio

import headrace
from headrace.client import Client
from headrace.wire import subjects
from tests.bench.registry import REGISTRY, Figure
from tests.support.headrace_up import Up

_FLOODS = 2
_FLOODED_S = 6.0
_EVERY_S = 0.1
_AT_ONCE = 100


@REGISTRY.add("flood_delay_ms", "longest start of one person while another sends all that a connection carries", 1000)
def flood_delay() -> Figure:
    return Figure.of([max(lengths_ms) for lengths_ms in _starts_ms()], "ms")


@REGISTRY.add("flood_requests_per_second", "that the other sends meanwhile", 30_000, more_is_better=True)
def flood_requests() -> Figure:
    return Figure.of([_sent.value / _FLOODED_S / len(_starts_ms())], "/s")


_sent = multiprocessing.Value("q", 0)


@cache
def _starts_ms() -> list[list[float]]:
    return [_in_one_flood_ms() for _ in range(_FLOODS)]


def _in_one_flood_ms() -> list[float]:
    with Up() as up:
        told = (up.state / "nats.conf").read_text()
        port = re.search(r'listen: "127.0.0.1:(\d+)"', told)
        proof = re.search(r'user: "(headrace)", password: "([^"]+)"', told)
        assert port is not None
        assert proof is not None
        flood = multiprocessing.Process(target=_flood, args=(int(port[1]), proof[1], proof[2]))
        return anyio.run(_measure, up, flood)


async def _measure(up: Up, flood: multiprocessing.Process) -> list[float]:
    async with headrace.connect(state=up.state) as client:
        await _start_ms(client)
        flood.start()
        lengths_ms = []
        while flood.is_alive():
            lengths_ms.append(await _start_ms(client))
            await anyio.sleep(_EVERY_S)
        flood.join()
    return lengths_ms


async def _start_ms(client: Client) -> float:
    began = time.perf_counter()
    await client.run(["true"], pool="p", jobs=1, cpu=1)
    return (time.perf_counter() - began) * 1000


def _flood(port: int, user: str, password: str) -> None:
    """Sends requests that nobody can read in another user's name, and takes what comes back."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connect = f'{{"verbose":false,"headers":true,"no_responders":true,"user":"{user}","pass":"{password}"}}'
        connection.sendall(f"CONNECT {connect}\r\nPING\r\n".encode())
        threading.Thread(target=_read, args=(connection,), daemon=True).start()
        subject = subjects.user("flood", "op.start")
        requests = f"PUB {subject} {subjects.inbox('user', 'flood')}.1 0\r\n\r\n".encode() * _AT_ONCE
        ends_s = time.monotonic() + _FLOODED_S
        while time.monotonic() < ends_s:
            connection.sendall(requests)
            _sent.value += _AT_ONCE


def _read(connection: socket.socket) -> None:
    while connection.recv(1 << 20):
        pass
