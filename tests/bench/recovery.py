"""How soon an operation is recorded again after the server came back, and after the leading admission was killed."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import msgspec

from headrace.bus import Bus, BusError, connect
from headrace.ids import OperationId, PoolName, TreeName
from headrace.pools import Tree, TreeOptions, write_tree
from headrace.resources import Resources
from headrace.runtime.lease import LeaseRecord
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.operations import OperationSpec, StartAnswer, StartOperation
from headrace.wire.refusals import decode_answer
from headrace.wire.services import ListServices, ServiceView
from tests.bench.registry import REGISTRY, Figure
from tests.support.nats_server import NatsServer, nats_server
from tests.support.stores import provision_stores

ROUNDS = 5
#: Known to admission when its leader is killed.
OPERATIONS = 10_000
_IN_FLIGHT = 64
#: So long the server is away: pauses between tries have grown to their longest by then.
AWAY_S = 3.0
_TRY_S = 0.5
PATIENCE_S = 60.0


@REGISTRY.add(
    "server_return_ms", f"from the return of the server, after {AWAY_S:g} s, to the first start recorded", 500
)
def server_return() -> Figure:
    return Figure.of(anyio.run(_returns_ms), "ms")


@REGISTRY.add(
    "takeover_ms",
    f"from SIGKILL of the admission that leads {OPERATIONS:,} operations to the first start recorded, by the other",
    5000,
)
def takeover() -> Figure:
    return Figure.of(anyio.run(_takeovers_ms), "ms")


async def _returns_ms() -> list[float]:
    found = []
    with nats_server() as server:
        async with _admissions(server, "one"), a_user(server.url) as anna:
            await recorded(anna)
            for _ in range(ROUNDS):
                server.kill()
                await anyio.sleep(AWAY_S)
                server.start()
                found.append(await recorded(anna))
    return found


async def _takeovers_ms() -> list[float]:
    found = []
    with nats_server() as server:
        async with _admissions(server, "one", "two") as admissions, a_user(server.url) as anna:
            await _start_all(anna)
            for _ in range(ROUNDS):
                await _stands_by(anna)
                name = await _leader(server)
                await admissions.kill(name)
                found.append(await recorded(anna))
                await admissions.start(name)
    return found


async def _start_all(anna: Bus) -> None:
    most = 2 * OPERATIONS
    options = TreeOptions(max_operation_count_per_pool=most, max_running_operation_count_per_pool=most)
    pools = await anna.key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
    await pools.put("default", write_tree(Tree(TreeName("default"), options=options)))

    async def one_after_another() -> None:
        for _ in numbers:
            await recorded(anna)

    numbers = iter(range(OPERATIONS))
    async with anyio.create_task_group() as tasks:
        for _ in range(_IN_FLIGHT):
            tasks.start_soon(one_after_another)


async def _stands_by(anna: Bus) -> None:
    """Waits until one process stands by and knows all that is in the log."""
    subject, request = subjects.user("anna", "service.list"), encode(ListServices())
    with anyio.fail_after(PATIENCE_S):
        while True:
            answers = [decode_answer(data, ServiceView) for data in await anna.gather(subject, request, wait_s=0.5)]
            views = [view for view in answers if isinstance(view, ServiceView)]
            if any(not view.leads and view.entries_behind == 0 for view in views):
                return


@asynccontextmanager
async def a_user(*urls: str) -> AsyncIterator[Bus]:
    """A connection that is there again as soon as the server is: not its pauses are measured."""
    inbox = subjects.inbox("user", "anna")
    async with connect(urls, name="anna", inbox_prefix=inbox, longest_reconnect_delay_s=0.02) as bus:
        yield bus


async def recorded(anna: Bus) -> float:
    """Milliseconds until a start is recorded that nobody knew before."""
    name = OperationId(f"operation-{time.monotonic_ns()}")
    spec = OperationSpec(PoolName("work"), ["true"], 1, Resources(user_slots=1, cpu=100))
    request = encode(StartOperation(name, spec))
    began = time.monotonic()
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                data = await anna.request(subjects.user("anna", "op.start"), request, timeout_s=_TRY_S)
            except BusError:
                await anyio.sleep(0.01)
                continue
            if isinstance(decode_answer(data, StartAnswer), StartAnswer):
                return (time.monotonic() - began) * 1000


async def _leader(server: NatsServer) -> str:
    """The instance that holds admission's lease."""
    async with connect([server.url], name="reader", inbox_prefix=subjects.inbox("service", "reader")) as bus:
        entry = await (await bus.key_value(subjects.LEASES_BUCKET)).get("admission")
    assert entry is not None
    return msgspec.json.decode(entry.value, type=LeaseRecord).instance


class _Admissions:
    """Processes of admission, one for each instance; one of them leads."""

    def __init__(self, server: NatsServer, folder: str) -> None:
        self._server = server
        self._folder = Path(folder)
        self._processes: dict[str, anyio.abc.Process] = {}

    async def start(self, instance: str) -> None:
        """Starts an instance, again where it was killed."""
        config = self._folder / f"{instance}.toml"
        config.write_text(
            f'[common]\nnats_url = "{self._server.url}"\nlog_level = "error"\ninstance = "{instance}"\n'
            f"[admission]\nmax_operation_count = {2 * OPERATIONS}\nmax_operation_count_per_user = {2 * OPERATIONS}\n"
        )
        command = [sys.executable, "-m", "headrace_admission", "--config", str(config)]
        self._processes[instance] = await anyio.open_process(command, stdout=None, stderr=None)

    async def kill(self, instance: str) -> None:
        """SIGKILL."""
        self._processes[instance].kill()
        await self._processes[instance].wait()

    async def stop(self) -> None:
        """Ends them all."""
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()
            await process.wait()


@asynccontextmanager
async def _admissions(server: NatsServer, *instances: str) -> AsyncIterator[_Admissions]:
    with tempfile.TemporaryDirectory() as folder:
        admissions = _Admissions(server, folder)
        try:
            await provision_stores(server.url)
            for name in instances:
                await admissions.start(name)
            yield admissions
        finally:
            await admissions.stop()
