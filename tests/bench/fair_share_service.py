"""The fair-share service as a process, at 10,000 operations: how soon it answers while it computes, and how large it is."""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from random import Random

import anyio
import msgspec

from headrace.bus import BusError, Message
from headrace.ids import PoolName
from headrace.pools import PartialResources, Pool, PoolConfig, Tree
from headrace.resources import Resources
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.ledger import WholeOperations, WholeOperationsRequest
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.refusals import decode_answer
from headrace.wire.snapshots import SharePart, UsageItem
from tests.bench.registry import REGISTRY, Figure
from tests.support.nats_server import NatsServer, nats_server
from tests.support.stores import provision_stores
from tests.support.tree_services import TREE, SmallAdmission, SmallAllocator, a_bus, live

OPERATIONS = 10_000
POOLS = 1_000
REQUESTS = 300
ROUNDS = 3
#: Operations whose usage changes between two requests.
MOVED = 20
_PATIENCE_S = 120.0
_PAGE = 500


class PagingAdmission(SmallAdmission):
    """Tells of its operations a few hundred at a time, which fit a message."""

    async def _whole(self, message: Message) -> bytes:
        request = decode(message.data, WholeOperationsRequest)
        behind = sorted(
            (one for one in self.operations if one.operation > request.after), key=lambda one: one.operation
        )
        page = WholeOperations(self.sequence, 1, behind[:_PAGE], more=len(behind) > _PAGE)
        return encode(page)


class Seen(msgspec.Struct, frozen=True):
    """What was measured of one life of the service."""

    #: Of each round.
    p99_ms: list[float]
    memory_mb: float


@cache
def seen() -> Seen:
    """Measured once for all figures."""
    with nats_server() as server, tempfile.TemporaryDirectory() as folder:
        return anyio.run(_measure, server, Path(folder))


async def _measure(server: NatsServer, folder: Path) -> Seen:
    async with a_bus(server, "service", "world") as service, a_bus(server, "user", "anna") as anna:
        await _configure(server)
        admission, allocator = PagingAdmission(service), SmallAllocator(service)
        names = [f"operation-{number}" for number in range(OPERATIONS)]
        admission.operations = [live(name, f"leaf-{number % 900}", 50) for number, name in enumerate(names)]
        allocator.total = Resources(user_slots=200_000, cpu=10_000_000, memory=2**46)
        await admission.serve()
        await allocator.serve()
        random = Random(1)
        await allocator.tell(*(_usage(name, random) for name in names))
        async with _a_process(server, folder) as pid:
            await _until_shared(server)
            gc.freeze()  # the service is measured, not this process's collector
            gc.disable()
            ask = encode(GetPools(limit=20))
            p99_ms = []
            for _ in range(ROUNDS):
                answers_ms = []
                for _ in range(REQUESTS):
                    await allocator.tell(*(_usage(name, random) for name in random.sample(names, MOVED)))
                    begun = time.perf_counter()
                    data = await anna.request(subjects.user("anna", "pool.list"), ask, timeout_s=30)
                    answers_ms.append((time.perf_counter() - begun) * 1e3)
                    assert isinstance(decode_answer(data, PoolList), PoolList)
                    await anyio.sleep(0.02)
                p99_ms.append(sorted(answers_ms)[int(REQUESTS * 0.99)])
            return Seen(p99_ms, _peak_mb(pid))


def _usage(name: str, random: Random) -> UsageItem:
    running = random.randrange(50)
    one = Resources(user_slots=1, cpu=100)
    return UsageItem(
        operation=name,  # type: ignore[arg-type]
        usage=one * running,
        pending_jobs=50 - running,
        pending=one * (50 - running),
        min_needed=one,
    )


async def _configure(server: NatsServer) -> None:
    """A hundred pools of nine each."""
    root = PoolName("<Root>")
    guarantee = PoolConfig(strong_guarantee_resources=PartialResources(cpu=50_000))
    pools = [Pool(PoolName(f"top-{number}"), root, guarantee) for number in range(POOLS // 10)]
    pools += [
        Pool(PoolName(f"leaf-{number}"), PoolName(f"top-{number // 9}"), PoolConfig(weight=1.0 + number % 3))
        for number in range(POOLS - POOLS // 10)
    ]
    async with a_bus(server, "service", "configuring") as bus:
        bucket = await bus.key_value(subjects.POOLS_BUCKET, history=64)
        await bucket.put(TREE, msgspec.json.encode(Tree(TREE, pools)))


@asynccontextmanager
async def _a_process(server: NatsServer, folder: Path) -> AsyncIterator[int]:
    config = folder / "services.toml"
    await provision_stores(server.url)
    config.write_text(f'[common]\nnats_url = "{server.url}"\nlog_level = "warning"\n', encoding="utf-8")
    process = await anyio.open_process(
        [sys.executable, "-m", "headrace_fair_share", "--config", str(config)], stdout=None, stderr=None
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        await process.wait()


async def _until_shared(server: NatsServer) -> None:
    """Returns when a published snapshot speaks of all operations' usage."""
    with anyio.fail_after(_PATIENCE_S):
        async with a_bus(server, "service", "reader") as bus:
            inbox = await bus.subscribe(subjects.share(TREE))
            async for message in inbox:
                part = decode(message.data, SharePart)
                if part.frame.total.cpu and part.version.epoch > 5:
                    return


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise BusError(f"process {pid} says nothing of its memory")


@REGISTRY.add("fair_share_answer_p99_ms", "the service's answer to a request, 99th percentile, 10,000 operations", 20)
def answer_p99() -> Figure:
    return Figure.of(seen().p99_ms, "ms")


@REGISTRY.add("fair_share_memory_mb", "the most memory that the service ever had, 10,000 operations", 250)
def memory() -> Figure:
    return Figure.of([seen().memory_mb], "MB")
