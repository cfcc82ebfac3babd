"""The walk from a wish to a process and back, through `headrace up` as a person starts it: how prompt, how fast, for how much cpu.

Each figure is measured on one agent, and again with 20 agents and with 2,000 operations that wait.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Final, NamedTuple

import anyio
import msgspec
import psutil

import headrace
from headrace.client import Client
from headrace.client.place import traces_folder
from tests.bench import floors
from tests.bench.hops import HOPS, hops_of
from tests.bench.registry import REGISTRY, Figure
from tests.bench.whole_stack import IN_FLIGHT, each
from tests.support.headrace_up import Up

_STARTS: Final = 200
_JOBS: Final = 5_000
_OPERATIONS: Final = 500
_RUNS: Final = 3
_POOL: Final = "measured"
_SETTLED_S: Final = 3.0
_REGISTERED: Final = 1_000
#: Larger than any machine, so that no job of them ever starts.
_NEVER_CPU: Final = 5_000


class World(NamedTuple):
    """Surroundings of what is measured."""

    suffix: str
    words: str
    nodes: tuple[str, ...] = ()
    waiting: int = 0


_WORLDS: Final = (
    World("", ""),
    World("_20_agents", ", 20 agents on this machine", tuple(f"n{number:02}:cpu=2,memory=1G" for number in range(20))),
    World("_2000_waiting", ", 2,000 operations waiting", waiting=2_000),
)
_ROLES: Final = ("admission", "allocator", "fair_share", "integral", "agent", "runner", "nats-server", "jobs")


class Fast(NamedTuple):
    """What came of one operation with many jobs, some times over."""

    jobs_per_second: list[float]
    #: By process, for each run. Jobs are a process of their own here.
    cpu_ms_per_job: Mapping[str, list[float]]


@asynccontextmanager
async def _client(up: Up, world: World) -> AsyncIterator[Client]:
    async with headrace.connect(state=up.state) as client:
        if world.waiting:
            await register(client, world.waiting)
        await (await client.run(["true"], pool=_POOL)).wait()
        await anyio.sleep(_SETTLED_S)
        yield client


async def register(client: Client, count: int) -> None:
    """Starts operations whose jobs never start."""
    await each(count, lambda number: client.run(["true"], pool=f"{_POOL}-{number % 20}", cpu=_NEVER_CPU))


class Starts(NamedTuple):
    """What came of single jobs, started one after the other."""

    #: From before each request to the time that the started program itself read.
    whole_ms: list[float]
    hops_ms: Mapping[str, list[float]]


@cache
def starts(world: World) -> Starts:
    async def measure(up: Up) -> Starts:
        began_ns: dict[str, int] = {}
        pause = random.Random(1)
        async with _client(up, world) as client:
            for _ in range(_STARTS):
                before_ns = time.time_ns()
                operation = await client.run(["date", "+%s%N"], pool=_POOL)
                began_ns[operation.id] = before_ns
                await operation.wait()
                await anyio.sleep(pause.uniform(*floors.PAUSES_S))
        told_ns = {path.parent.name: int(path.read_text()) for path in up.state.rglob("*.stdout") if path.is_file()}
        whole_ms = [(told_ns[name] - before_ns) / 1e6 for name, before_ns in began_ns.items()]
        return Starts(whole_ms, hops_of(traces_folder(up.state), began_ns))

    with Up(nodes=world.nodes) as up:
        return anyio.run(measure, up)


@cache
def many_jobs(world: World) -> Fast:
    async def measure(up: Up) -> Fast:
        rates: list[float] = []
        cpu: dict[str, list[float]] = {role: [] for role in _ROLES}
        async with _client(up, world) as client:
            for _ in range(_RUNS):
                before, began = cpu_s(up), time.perf_counter()
                operation = await client.run(["true"], pool=_POOL, jobs=_JOBS)
                view = await operation.wait()
                rates.append(_JOBS / (time.perf_counter() - began))
                assert view.completed_jobs == _JOBS, view
                await anyio.sleep(_SETTLED_S)
                after = cpu_s(up)
                for role in _ROLES:
                    cpu[role].append((after[role] - before[role]) / _JOBS * 1e3)
        return Fast(rates, cpu)

    with Up(nodes=world.nodes) as up:
        return anyio.run(measure, up)


@cache
def many_operations(world: World) -> list[float]:
    async def measure(up: Up) -> list[float]:
        rates = []
        async with _client(up, world) as client:

            async def whole(_number: int) -> None:
                await (await client.run(["true"], pool=_POOL)).wait()

            for _ in range(_RUNS):
                began = time.perf_counter()
                await each(_OPERATIONS, whole)
                rates.append(_OPERATIONS / (time.perf_counter() - began))
                await anyio.sleep(_SETTLED_S)
        return rates

    with Up(nodes=world.nodes) as up:
        return anyio.run(measure, up)


@cache
def memory_mb() -> dict[str, float]:
    """Resident memory by process, the largest of each kind."""

    async def fill(up: Up) -> None:
        async with headrace.connect(state=up.state) as client:
            await register(client, _REGISTERED)
            await (await client.run(["true"], pool=_POOL, jobs=100)).wait()
            await anyio.sleep(_SETTLED_S)

    with Up(nodes=()) as up:
        anyio.run(fill, up)
        found: dict[str, float] = {}
        for process in up.processes():
            size_mb = psutil.Process(process.pid).memory_info().rss / 1e6
            found[process.role] = max(size_mb, found.get(process.role, 0.0))
    return found


def cpu_s(up: Up) -> Counter[str]:
    """Processor time so far by process; that of all jobs that have ended is `jobs`."""
    spent: Counter[str] = Counter()
    for process in up.processes():
        times = psutil.Process(process.pid).cpu_times()
        spent[process.role] += times.user + times.system  # type: ignore[assignment]
        if process.role == "runner":
            spent["jobs"] += times.children_user + times.children_system  # type: ignore[assignment]
    return spent


def _start_figure(world: World) -> Figure:
    return Figure.of(starts(world).whole_ms, "ms", floors.floor(rested=False).submit_ms)


def _start_p99_figure(world: World) -> Figure:
    return Figure.of(
        [statistics.quantiles(starts(world).whole_ms, n=100)[98]], "ms", floors.floor(rested=False).submit_ms
    )


def _hop_figure(name: str) -> Figure:
    return Figure.of(starts(_WORLDS[0]).hops_ms[name], "ms")


def _jobs_figure(world: World) -> Figure:
    return Figure.of(many_jobs(world).jobs_per_second, "/s", floors.spawns_per_second())


def _operations_figure(world: World) -> Figure:
    return Figure.of(many_operations(world), "/s", floors.spawns_per_second())


def _cpu_figure(role: str) -> Figure:
    return Figure.of(many_jobs(_WORLDS[0]).cpu_ms_per_job[role], "ms")


@REGISTRY.add(
    "cpu_ms_per_job", f"of a processor, all processes but the job itself, of {_JOBS:,} jobs of one operation", 1.0
)
def cpu_per_job() -> Figure:
    by_role = many_jobs(_WORLDS[0]).cpu_ms_per_job
    return Figure.of(
        [sum(each) for each in zip(*(by_role[role] for role in _ROLES if role != "jobs"), strict=True)], "ms"
    )


for _role in _ROLES:
    _what = "of a processor, the jobs themselves" if _role == "jobs" else f"of a processor, {_role} alone"
    _goal = 1.0 if _role == "jobs" else 0.3
    REGISTRY.add(f"cpu_ms_per_job_{_role}".replace("-", "_"), _what, _goal)(partial(_cpu_figure, _role))

for _name, (_begin, _end, _what) in HOPS.items():
    REGISTRY.add(_name, f"of a single start, {_what}", 2.0)(partial(_hop_figure, _name))


@REGISTRY.add("submit_over_rested_floor", "submit_to_start_ms over its floor at rest, which stands beside in ms", 4)
def submit_over_rested_floor() -> Figure:
    whole_ms, floor_ms = starts(_WORLDS[0]).whole_ms, floors.floor(rested=True).submit_ms
    return msgspec.structs.replace(Figure.of([each_ms / floor_ms for each_ms in whole_ms], "times"), floor=floor_ms)


for _world in _WORLDS:
    REGISTRY.add(
        f"submit_to_start_ms{_world.suffix}", f"from before the request to the time the program reads{_world.words}", 5
    )(partial(_start_figure, _world))
    REGISTRY.add(f"submit_to_start_p99_ms{_world.suffix}", f"its 99th percentile of {_STARTS}{_world.words}", 20)(
        partial(_start_p99_figure, _world)
    )
    REGISTRY.add(
        f"jobs_per_second{_world.suffix}",
        f"of one operation of {_JOBS:,}, from the request to completed{_world.words}",
        1_000,
        more_is_better=True,
    )(partial(_jobs_figure, _world))
    REGISTRY.add(
        f"operations_per_second{_world.suffix}",
        f"{_OPERATIONS} of one job each, {IN_FLIGHT} in flight, all completed{_world.words}",
        300,
        more_is_better=True,
    )(partial(_operations_figure, _world))


@REGISTRY.add("service_memory_mb", f"resident, the largest service with {_REGISTERED:,} operations registered", 120)
def service_memory() -> Figure:
    return Figure.of([max(memory_mb()[role] for role in ("admission", "allocator", "fair_share", "integral"))], "MB")


@REGISTRY.add("agent_memory_mb", f"resident, with {_REGISTERED:,} operations registered", 60)
def agent_memory() -> Figure:
    return Figure.of([memory_mb()["agent"]], "MB")


@REGISTRY.add("runner_memory_mb", f"resident, with {_REGISTERED:,} operations registered", 25)
def runner_memory() -> Figure:
    return Figure.of([memory_mb()["runner"]], "MB")
