"""How soon an operation is recorded again after the server died that led the log, one of three."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager

import anyio
import msgspec

from headrace.bus import Bus, BusError, connect
from headrace.runtime.service import runtime_on
from headrace.wire import subjects
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from tests.bench.recovery import PATIENCE_S, a_user, recorded
from tests.bench.registry import REGISTRY, Figure
from tests.support.nats_server import NatsServer, nats_cluster

ROUNDS = 3
_SERVERS = 3
#: As a supervisor starts a service anew that ended.
_AGAIN_S = 0.3
_TRY_S = 0.25


class _Cluster(msgspec.Struct, frozen=True):
    """Where a stream is kept, in the words of the server."""

    leader: str = ""
    replicas: list[dict[str, object]] = []


class _StreamInfo(msgspec.Struct, frozen=True):
    cluster: _Cluster = _Cluster()


@REGISTRY.add(
    "leader_loss_ms",
    f"from SIGKILL of the server that leads the log, of {_SERVERS}, to the first start recorded, beyond what JetStream takes",
    2000,
)
def leader_loss() -> Figure:
    return Figure.of(anyio.run(_beyond_ms), "ms")


async def _beyond_ms() -> list[float]:
    with nats_cluster(_SERVERS) as servers:
        urls = [server.url for server in servers]
        async with (
            a_user(*urls) as anna,
            _service(urls, "watcher", _TRY_S) as watcher,
            anyio.create_task_group() as tasks,
        ):
            for name in ("one", "two"):
                tasks.start_soon(_keep_admission, urls, name)
            await recorded(anna)
            found = [await _round(servers, anna, watcher) for _ in range(ROUNDS)]
            tasks.cancel_scope.cancel()
    return found


async def _round(servers: list[NatsServer], anna: Bus, watcher: Bus) -> float:
    leader = await _leader_of_all_replicas(watcher)
    server = next(each for each in servers if f"s{each.port}" == leader)
    log = await watcher.log(subjects.STREAM, subjects.LOG)
    took_ms: dict[str, float] = {}

    async def until_the_log_answers() -> None:
        while True:
            try:
                await log.bounds()
                break
            except BusError:
                await anyio.sleep(0.02)
        took_ms["log"] = (time.monotonic() - began_s) * 1000

    async def until_recorded() -> None:
        took_ms["recorded"] = await recorded(anna)

    began_s = time.monotonic()
    server.kill()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(until_the_log_answers)
        tasks.start_soon(until_recorded)
    await anyio.to_thread.run_sync(server.start)
    await recorded(anna)
    return max(0.0, took_ms["recorded"] - took_ms["log"])


async def _leader_of_all_replicas(watcher: Bus) -> str:
    """The server that leads the log once all others have the whole of it."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                data = await watcher.request(f"$JS.API.STREAM.INFO.{subjects.STREAM}", b"", timeout_s=3)
            except BusError:
                continue
            cluster = msgspec.json.decode(data, type=_StreamInfo).cluster
            current = [each for each in cluster.replicas if each.get("current") and not each.get("offline")]
            if cluster.leader and len(current) == _SERVERS - 1:
                return cluster.leader
            await anyio.sleep(0.1)


async def _keep_admission(urls: list[str], name: str) -> None:
    """An admission, started anew whenever it ends."""
    while True:
        try:
            async with (
                _service(urls, name) as bus,
                _service(urls, f"{name}-users") as users,
                anyio.create_task_group() as tasks,
            ):
                settings = AdmissionSettings(instance=name)
                runtime = runtime_on(bus, "admission", settings, tasks, anyio.Event(), users=users)
                tasks.start_soon(runtime.deposition.watch)
                await runtime.terms.serve(bus)
                await serve(runtime)
        except* Exception:
            await anyio.sleep(_AGAIN_S)


def _service(urls: list[str], name: str, api_timeout_s: float = 5.0) -> AbstractAsyncContextManager[Bus]:
    inbox = subjects.inbox("service", name)
    return connect(urls, name=name, inbox_prefix=inbox, replicas=_SERVERS, api_timeout_s=api_timeout_s)
