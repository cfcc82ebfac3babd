"""All services as `headrace up` runs them: what they cost with nothing to do, and how long their loops pause with much to do."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import cache, partial

import anyio

import headrace
from headrace.client import Client
from tests.bench.registry import REGISTRY, Figure
from tests.support.headrace_up import Up

OPERATIONS = 10_000
POOLS = 100
_SERVICES = ("admission", "allocator", "fair_share", "integral")
_SETTLED_S = 3.0
_LOOKED_S = 20.0
_LOOKS = 3
#: Starts in flight at a time, and operations that come and go once all are there.
IN_FLIGHT = 64
_MOVED = 500


@REGISTRY.add("idle_cpu_percent", "of a core, all processes of `headrace up` with nothing to do, over 20 s", 3)
def idle() -> Figure:
    with Up() as up:
        time.sleep(_SETTLED_S)
        percent = []
        for _ in range(_LOOKS):
            before_s, began = up.cpu_s(), time.monotonic()
            time.sleep(_LOOKED_S)
            percent.append((up.cpu_s() - before_s) / (time.monotonic() - began) * 100)
    return Figure.of(percent, "%")


@REGISTRY.add("longest_loop_pause_ms", f"of any service while {OPERATIONS:,} operations come and some go", 20)
def longest_loop_pause_of_all() -> Figure:
    return Figure.of([max(pauses_ms().values())], "ms")


def longest_loop_pause(service: str) -> Figure:
    return Figure.of([pauses_ms()[service]], "ms")


for _service in _SERVICES:
    REGISTRY.add(
        f"longest_loop_pause_ms_{_service}", f"of {_service} while {OPERATIONS:,} operations come and some go", 20
    )(partial(longest_loop_pause, _service))


@cache
def pauses_ms() -> dict[str, float]:
    """The longest pause of each service. Measured once."""
    with Up() as up:
        return anyio.run(_measure, up)


async def _start(client: Client, name: str, number: int) -> None:
    """Larger than the node, so that none of its jobs costs what is not measured."""
    await client.run(["true"], operation=name, pool=f"pool-{number % POOLS}", jobs=10, cpu=64)


async def each(count: int, work: Callable[[int], Awaitable[object]]) -> None:
    """Does so much work, some of it at a time."""
    numbers = iter(range(count))

    async def one_after_another() -> None:
        for number in numbers:
            await work(number)

    async with anyio.create_task_group() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.start_soon(one_after_another)


async def _measure(up: Up) -> dict[str, float]:
    async with headrace.connect(state=up.state) as client:
        await each(OPERATIONS, lambda number: _start(client, f"op-{number:05}", number))
        await each(_MOVED, lambda number: client.abort(f"op-{number:05}"))
        await each(_MOVED, lambda number: _start(client, f"new-{number:05}", number))
        told = await client.processes.figures()
    found = {
        each.service: figure.value for each in told for figure in each.figures if figure.name == "longest_loop_pause"
    }
    return {service: pause for service in _SERVICES if isinstance(pause := found[service], float)}
