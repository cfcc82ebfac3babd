"""How soon an operation is recorded again after the server came back, and after the leading admission was killed."""

from __future__ import annotations

import signal
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
from headrace.ids import OperationId, PoolName
from headrace.resources import Resources
from headrace.runtime.lease import LeaseRecord
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.operations import OperationSpec, StartAnswer, StartOperation
from headrace.wire.refusals import decode_answer
from tests.bench.registry import REGISTRY, Figure
from tests.support.nats_server import NatsServer, nats_server

ROUNDS = 5
#: So long the server is away: pauses between tries have grown to their longest by then.
AWAY_S = 3.0
_TRY_S = 0.5
_PATIENCE_S = 60.0


@REGISTRY.add(
    "server_return_ms", f"from the return of the server, after {AWAY_S:g} s, to the first start recorded", 500
)
def server_return() -> Figure:
    return Figure.of(anyio.run(_returns_ms), "ms")


@REGISTRY.add("takeover_ms", "from SIGKILL of the leading admission to the first start recorded, by the other", 5000)
def takeover() -> Figure:
    return Figure.of(anyio.run(_takeovers_ms), "ms")


async def _returns_ms() -> list[float]:
    found = []
    with nats_server() as server:
        async with _admissions(server, "one"), _a_user(server) as anna:
            await _recorded(anna)
            for _ in range(ROUNDS):
                server.kill()
                await anyio.sleep(AWAY_S)
                server.start()
                found.append(await _recorded(anna))
    return found


async def _takeovers_ms() -> list[float]:
    found = []
    with nats_server() as server:
        for _ in range(ROUNDS):
            async with _admissions(server, "one", "two") as processes, _a_user(server) as anna:
                await _recorded(anna)
                await anyio.sleep(1.0)  # both have connected, and one stands by
                processes[await _leader(server)].send_signal(signal.SIGKILL)
                found.append(await _recorded(anna))
    return found


@asynccontextmanager
async def _a_user(server: NatsServer) -> AsyncIterator[Bus]:
    """A connection that is there again as soon as the server is: not its pauses are measured."""
    inbox = subjects.inbox("user", "anna")
    async with connect([server.url], name="anna", inbox_prefix=inbox, longest_reconnect_delay_s=0.02) as bus:
        yield bus


async def _recorded(anna: Bus) -> float:
    """Milliseconds until a start is recorded that nobody knew before."""
    name = OperationId(f"operation-{time.monotonic_ns()}")
    spec = OperationSpec(PoolName("work"), ["true"], 1, Resources(user_slots=1, cpu=100))
    request = encode(StartOperation(name, spec))
    began = time.monotonic()
    with anyio.fail_after(_PATIENCE_S):
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


@asynccontextmanager
async def _admissions(server: NatsServer, *instances: str) -> AsyncIterator[dict[str, anyio.abc.Process]]:
    """Admission as a process for each instance; one of them leads."""
    with tempfile.TemporaryDirectory() as folder:
        processes: dict[str, anyio.abc.Process] = {}
        try:
            for name in instances:
                config = Path(folder) / f"{name}.toml"
                config.write_text(f'[common]\nnats_url = "{server.url}"\nlog_level = "error"\ninstance = "{name}"\n')
                command = [sys.executable, "-m", "headrace_admission", "--config", str(config)]
                processes[name] = await anyio.open_process(command, stdout=None, stderr=None)
            yield processes
        finally:
            for process in processes.values():
                if process.returncode is None:
                    process.terminate()
                await process.wait()
