"""Everything beside the nodes: a server, all services as processes, a tree of pools, operations, and shares that change each second."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Final

import anyio
import msgspec
import psutil

from headrace.bus import Bus
from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import Pool, PoolConfig, Tree, TreeOptions
from headrace.pools.amounts import PartialResources
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.resources import Resources
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.figures import Figure, FiguresAnswer, FiguresRequest, Histogram
from headrace.wire.nodes import ListNodes, NodeList
from headrace.wire.operations import OperationSpec, StartAnswer, StartOperation
from headrace.wire.pool_changes import ChangePools, PoolPlan, Set
from headrace.wire.snapshots import ElementKind
from tests.support.nats_server import NatsServer
from tests.support.stores import provision_stores
from tests.support.tree_services import TREE, a_bus, ask

__all__ = [
    "NODE",
    "Processes",
    "ShareWatch",
    "change_shares",
    "configure",
    "figures_of",
    "services",
    "serving",
    "start_operations",
]

SERVICES: Final = ("admission", "fair_share", "integral", "allocator")
#: Of each node; the jobs take 20 places of it. Of small ones there are more than of large ones, since all operations are owed alike.
NODE: Final = Resources(user_slots=100, cpu=1_650, memory=2**36)
_JOBS_OF_AN_OPERATION: Final = 100
_SIZES_CPU: Final = (50, 100, 150)
_TOPS: Final = 10
_IN_FLIGHT: Final = 64
#: Priority of fair_share beside the nodes and the server: a third of theirs.
_BEHIND_NODES: Final = 5


def job_size(number: int) -> Resources:
    """One core on average."""
    return Resources(user_slots=1, cpu=_SIZES_CPU[number % len(_SIZES_CPU)], memory=2**30)


def leaves_of_a_top(pools: int) -> int:
    """Pools that operations stand in, below each of the highest ones."""
    return max(1, pools // _TOPS - 1)


async def configure(server: NatsServer, pools: int) -> None:
    """Ten pools of a hundredth of all pools each: all that is asked for is more than there is."""
    await provision_stores(server.url)
    most = 10**6
    tops = [Pool(PoolName(f"top-{top}"), ROOT_POOL, PoolConfig()) for top in range(_TOPS)]
    below = range(leaves_of_a_top(pools))
    leaves = [
        Pool(PoolName(f"leaf-{top}-{number}"), PoolName(f"top-{top}")) for top in range(_TOPS) for number in below
    ]
    options = TreeOptions(
        # As in a tree that `headrace tree create` makes.
        use_pool_satisfaction_for_scheduling=True,
        fifo_pool_scheduling_order=FifoPoolSchedulingOrder.FIFO,
        min_spare_allocation_resources_on_node=PartialResources(user_slots=1),
        max_operation_count=most,
        max_running_operation_count=most,
        max_operation_count_per_pool=most,
        max_running_operation_count_per_pool=most,
    )
    async with a_bus(server, "service", "configuring") as bus:
        bucket = await bus.key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        await bucket.put(TREE, msgspec.json.encode(Tree(TREE, [*tops, *leaves], options)))


async def serving(user: Bus) -> None:
    """Returns when the allocator leads, which does not before it has admission's word."""
    await ask(user, subjects.user("anna", subjects.of_tree("node.list", TREE)), ListNodes(limit=1), NodeList)


async def start_operations(user: Bus, operations: int, pools: int) -> None:
    """Starts all as a person would. When it returns each was recorded."""
    leaves = leaves_of_a_top(pools)
    numbers = iter(range(operations))

    async def one_after_another() -> None:
        for number in numbers:
            pool = PoolName(f"leaf-{number % _TOPS}-{number // _TOPS % leaves}")
            spec = OperationSpec(pool, ["work"], _JOBS_OF_AN_OPERATION, job_size(number))
            request = StartOperation(OperationId(f"operation-{number:05}"), spec)
            answer = await ask(user, subjects.user("anna", "op.start"), request, StartAnswer)
            if not isinstance(answer, StartAnswer):
                raise RuntimeError(f"{request.operation} was refused: {answer.text()}")

    async with anyio.create_task_group() as tasks:
        for _ in range(_IN_FLIGHT):
            tasks.start_soon(one_after_another)


async def change_shares(user: Bus, pools: int) -> None:
    """Once a second changes the weight of a pool in two tops of ten: a fifth of all operations get another share. For ever."""
    leaves, random = leaves_of_a_top(pools), Random(1)
    for turn in itertools.count():
        began_s = anyio.current_time()
        tops = (2 * turn % _TOPS, (2 * turn + 1) % _TOPS)
        weight = msgspec.json.encode({"weight": 1 + random.random()})
        changes = [Set(PoolName(f"leaf-{top}-{random.randrange(leaves)}"), weight) for top in tops]
        await ask(user, subjects.user("anna", "pool.change"), ChangePools([*changes]), PoolPlan)
        await anyio.sleep(max(0.0, began_s + 1 - anyio.current_time()))


class _Item(msgspec.Struct, array_like=True):
    """The first of a `ShareItem`."""

    kind: ElementKind


class _Moved(msgspec.Struct, array_like=True):
    """The first of a `MovedShare`."""

    key: str


class _Counted(msgspec.Struct):
    """A `SharePart` as far as it is counted: to read all of it would hold the nodes up, which the same process stands for."""

    part: int
    parts: int
    items: list[_Item] = []
    moved: list[_Moved] = []


class ShareWatch:
    """Counts what fair_share publishes."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.snapshots = 0
        self.operations = 0

    async def run(self) -> None:
        """For ever."""
        async for message in await self._bus.subscribe(subjects.share(TREE)):
            part = decode(message.data, _Counted)
            self.snapshots += part.part + 1 == part.parts
            self.operations += sum(item.kind is ElementKind.OPERATION for item in part.items)
            self.operations += sum(not moved.key.startswith("/") for moved in part.moved)


async def figures_of(bus: Bus) -> dict[str, dict[str, float | Histogram]]:
    """Each service's figures by name."""
    answers = [
        decode(data, FiguresAnswer) for data in await bus.gather(subjects.FIGURES, encode(FiguresRequest()), wait_s=2.0)
    ]
    return {answer.service: {figure.name: _value(figure) for figure in answer.figures} for answer in answers}


def _value(figure: Figure) -> float | Histogram:
    return figure.value


class Processes:
    """All processes that are measured, and what they cost. Services are started here, and killed when the block ends.

    Unless they are to share all cores the allocator has one for itself, as the page on a cluster has it for thousands of nodes, and
    on the others fair_share gives way to the nodes, which stand for other machines.
    """

    def __init__(self, server: NatsServer, folder: Path, *, share_cores: bool) -> None:
        self._folder = folder
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._by_name = {"nats-server": psutil.Process(server.pid), "fleet": psutil.Process()}
        first, *others = sorted(os.sched_getaffinity(0))
        self._cores = None if share_cores or not others else ([first], others)
        for process in self._by_name.values():
            self._place(process, of_allocator=False)

    def __enter__(self) -> Processes:
        for name in SERVICES:
            self._start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started.values():
            # Nothing of it is kept, and to stop in order takes long under load.
            process.kill()
            process.wait()

    def restart(self, name: str) -> None:
        """Kills a service and starts it again."""
        self._started[name].kill()
        self._started[name].wait()
        self._start(name)

    def cpu_s(self) -> dict[str, float]:
        """Seconds of cpu until now."""
        return {name: sum(process.cpu_times()[:2]) for name, process in self._by_name.items()}

    def memory_mb(self) -> dict[str, float]:
        """Memory in use now."""
        return {name: process.memory_info().rss / 2**20 for name, process in self._by_name.items()}

    def ended(self) -> list[str]:
        """Services that are no more."""
        return [name for name, process in self._started.items() if process.poll() is not None]

    def _start(self, name: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"headrace_{name}", "--config", str(self._folder / "services.toml")],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started[name] = process
        known = self._by_name[name] = psutil.Process(process.pid)
        self._place(known, of_allocator=name == "allocator")
        if self._cores is not None and name == "fair_share":
            # Where each session is a group of its own for the scheduler the group's priority counts, and that of the process does not.
            known.nice(_BEHIND_NODES)
            with contextlib.suppress(FileNotFoundError):
                Path(f"/proc/{process.pid}/autogroup").write_text(str(_BEHIND_NODES), encoding="ascii")

    def _place(self, process: psutil.Process, *, of_allocator: bool) -> None:
        """Keeps a process, and all threads that it starts from now on, to its cores."""
        if self._cores is not None:
            cores = self._cores[0] if of_allocator else self._cores[1]
            for thread in process.threads():
                os.sched_setaffinity(thread.id, cores)


def services(server: NatsServer, folder: Path, operations: int, *, share_cores: bool) -> Processes:
    """All services, for as long as the block that they are entered in."""
    (folder / "services.toml").write_text(
        f'[common]\nnats_url = "{server.url}"\nlog_level = "warning"\nadministrators = "anna"\n'
        f"[admission]\nmax_operation_count = {2 * operations}\nmax_operation_count_per_user = {2 * operations}\n",
        encoding="utf-8",
    )
    return Processes(server, folder, share_cores=share_cores)
