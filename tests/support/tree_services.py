"""fair_share and integral as they run, on a real nats-server, with an admission and an allocator of a few lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec

from headrace.bus import Bus, Message, connect
from headrace.ids import OperationId, PoolName, TreeName
from headrace.resources import ZERO, Resources
from headrace.runtime.role import role_of
from headrace.runtime.service import Runtime, runtime_on
from headrace.runtime.settings import CommonSettings
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.groups import AskGroups, GroupsOfPerson
from headrace.wire.ledger import LiveOperation, WholeOperations, WholeOperationsRequest
from headrace.wire.log import Event, Published
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.refusals import Refusal
from headrace.wire.snapshot_parts import SnapshotPublisher, SnapshotReader
from headrace.wire.snapshots import (
    ShareFrame,
    ShareItem,
    SharePart,
    UsageFrame,
    UsageItem,
    UsagePart,
    WholeRequest,
)
from tests.support.nats_server import NatsServer

__all__ = [
    "TREE",
    "Shares",
    "SmallAdmission",
    "SmallAllocator",
    "a_bus",
    "live",
    "running",
    "running_on",
    "small_world",
    "stand_in_for",
]

TREE = TreeName("default")
S = TypeVar("S", bound=CommonSettings)
PATIENCE_S = 20.0
_LAST_TERM_OF_TESTS = 99


def a_bus(server: NatsServer, kind: str = "service", name: str = "test") -> Any:
    """A connection as that party."""
    return connect([server.url], name=f"test-{name}", inbox_prefix=subjects.inbox(kind, name))


@asynccontextmanager
async def running(
    server: NatsServer, settings: S, serve: Callable[[Runtime[S]], Awaitable[None]], name: str = "tested"
) -> AsyncIterator[Runtime[S]]:
    """A service's real `serve` in this process; asked to stop at the end, and waited for."""
    async with a_bus(server, "service", name) as bus, running_on(bus, settings, serve, name) as runtime:
        yield runtime


@asynccontextmanager
async def running_on(
    bus: Bus, settings: S, serve: Callable[[Runtime[S]], Awaitable[None]], name: str, news: Bus | None = None
) -> AsyncIterator[Runtime[S]]:
    """The same over a connection that is there."""
    async with anyio.create_task_group() as tasks:
        runtime = runtime_on(bus, name, settings, tasks, anyio.Event(), news=news)
        tasks.start_soon(runtime.deposition.watch)
        await runtime.terms.serve(bus)
        ended = anyio.Event()

        async def run() -> None:
            await serve(runtime)
            ended.set()

        tasks.start_soon(run)
        yield runtime
        runtime.stopping.set()
        with anyio.fail_after(PATIENCE_S):
            await ended.wait()
        tasks.cancel_scope.cancel()


def live(operation: str, pool: str, jobs: int = 10, **changes: Any) -> LiveOperation:
    """A running operation of jobs of one core each."""
    spec = OperationSpec(pool=PoolName(pool), argv=["work"], job_count=jobs, resources=Resources(user_slots=1, cpu=100))
    given: dict[str, Any] = {
        "operation": OperationId(operation),
        "user": "anna",
        "spec": spec,
        "state": OperationState.RUNNING,
        "suspended": False,
        "ephemeral_pool": False,
        "started_at_ms": 1,
        "block": jobs,
        "block_term": 1,
    }
    return LiveOperation(**{**given, **changes})


async def stand_in_for(bus: Bus, role: str) -> None:
    """Takes all terms of a role that a test speaks for: nobody believes one that nobody took."""
    bucket = await bus.key_value(subjects.TERMS_BUCKET)
    await bucket.put(role, msgspec.json.encode({"term": _LAST_TERM_OF_TESTS}))


class SmallAdmission:
    """Knows `operations`; tells events as the log would. Nobody is in a group."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.operations: list[LiveOperation] = []
        self.sequence = 0

    async def serve(self) -> None:
        await stand_in_for(self._bus, "admission")
        await self._bus.serve(subjects.OPERATIONS_WHOLE, self._whole)
        await self._bus.serve(subjects.GROUPS_OF, self._no_groups)

    async def tell(self, *events: Event) -> None:
        self.sequence += 1
        published = Published(
            tree=TREE, term=1, sequence=self.sequence, previous=self.sequence - 1, events=list(events)
        )
        await self._bus.publish(subjects.EVENTS, encode(published))

    async def _whole(self, message: Message) -> bytes:
        decode(message.data, WholeOperationsRequest)
        return encode(WholeOperations(sequence=self.sequence, term=1, operations=self.operations))

    async def _no_groups(self, message: Message) -> bytes:
        decode(message.data, AskGroups)
        return encode(GroupsOfPerson([]))


class SmallAllocator:
    """Publishes usage."""

    def __init__(self, bus: Bus, term: int = 1) -> None:
        self._bus = bus
        self.publisher: SnapshotPublisher[UsageItem, UsageFrame] = SnapshotPublisher(
            UsagePart, TREE, term, UsageFrame(), key=lambda item: item.operation
        )
        self.total = ZERO

    async def serve(self) -> None:
        await stand_in_for(self._bus, role_of("allocator", TREE))
        await self._bus.serve(subjects.usage_whole(TREE), self.answer_whole)

    async def tell(self, *items: UsageItem, complete: bool = True, removed: tuple[str, ...] = ()) -> None:
        frame = UsageFrame(total=self.total, complete=complete)
        for part in self.publisher.advance(frame, items, removed):
            await self._bus.publish(subjects.usage(TREE), part)

    async def answer_whole(self, message: Message) -> bytes:
        return self.publisher.page(decode(message.data, WholeRequest))


class Shares:
    """Reads what fair_share publishes, as every reader does."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.reader: SnapshotReader[ShareItem, ShareFrame] = SnapshotReader(
            TREE, ShareFrame(), key=lambda item: item.key
        )

    async def until(self, what: Callable[[SnapshotReader[ShareItem, ShareFrame]], object]) -> None:
        """Returns when it is true of what was read."""
        with anyio.fail_after(PATIENCE_S):
            inbox = await self._bus.subscribe(subjects.share(TREE))
            async for message in inbox:
                self.reader.on_part(decode(message.data, SharePart))
                if self.reader.needs_whole:
                    await self.ask_whole()
                if not self.reader.needs_whole and what(self.reader):
                    await inbox.close()
                    return

    async def ask_whole(self) -> None:
        request = WholeRequest()
        while True:
            data = await self._bus.request(subjects.share_whole(TREE), encode(request), timeout_s=5)
            part = decode(data, SharePart)
            self.reader.on_part(part)
            if part.part + 1 >= part.parts:
                return
            request = WholeRequest(version=part.version, part=part.part + 1)


class SmallWorld(msgspec.Struct):
    """Everybody whom fair_share talks to."""

    service: Bus
    user: Bus
    admission: SmallAdmission
    allocator: SmallAllocator
    shares: Shares

    async def ask(self, verb: str, request: msgspec.Struct, answer: Any, user: str = "anna") -> Any:
        """What a person gets for a request; waits for the service to be there."""
        return await ask(self.user, subjects.user(user, verb), request, answer)


async def ask(bus: Bus, subject: str, request: msgspec.Struct | bytes, answer: Any) -> Any:
    """The answer, or the refusal; asks again while nobody serves."""
    data = request if isinstance(request, bytes) else encode(request)
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                reply = await bus.request(subject, data, timeout_s=5)
            except Exception as error:
                if type(error).__name__ != "NoResponders":
                    raise
                await anyio.sleep(0.01)
            else:
                kind: Any = answer | Refusal
                return decode(reply, kind)


@asynccontextmanager
async def small_world(server: NatsServer) -> AsyncIterator[SmallWorld]:
    """A world of 10 cores without operations."""
    async with a_bus(server, "service", "world") as service, a_bus(server, "user", "anna") as user:
        admission, allocator = SmallAdmission(service), SmallAllocator(service)
        allocator.total = Resources(user_slots=100, cpu=1000, memory=2**34)
        await admission.serve()
        await allocator.serve()
        await allocator.tell()
        yield SmallWorld(service, user, admission, allocator, Shares(service))
