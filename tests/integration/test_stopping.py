"""The end of a service that was asked to stop: whatever its tasks are in the middle of, that is no failure."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from headrace.bus import Message
from headrace.bus.provisioning import provision
from headrace.ids import TreeName
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.role import Role, role_of
from headrace.runtime.service import Runtime, _run
from headrace.runtime.settings import CommonSettings
from headrace.systemd.notifier import silent_notifier
from headrace.wire import subjects
from headrace.wire.version import WhoRequest
from tests.support.nats_server import nats_server
from tests.support.tree_services import a_bus

TREE = TreeName("default")
UNANSWERED = "headrace.v1.test.unanswered"


async def ask(runtime: Runtime[Any], begun: anyio.Event) -> None:
    """Has a request on its way, as leases and copies of buckets often have."""
    begun.set()
    await runtime.bus.request(UNANSWERED, b"", timeout_s=60)


async def serve_late(runtime: Runtime[Any], begun: anyio.Event) -> None:
    """Begins to serve people over and over, as a task does that was begun just before the stop."""

    async def answer(_request: WhoRequest, _caller: Caller) -> None:
        raise AssertionError

    while True:
        await runtime.endpoints.serve(subjects.user("*", "test.late"), WhoRequest, CallerKind.USER, answer)
        begun.set()


@pytest.mark.parametrize("task", [ask, serve_late])
async def test_a_service_that_stops_while_a_task_is_at_work_ends_well(
    task: Callable[[Runtime[Any], anyio.Event], Coroutine[Any, Any, None]],
) -> None:
    async def never(_message: Message) -> bytes:
        await anyio.sleep_forever()
        raise AssertionError

    async def serve(runtime: Runtime[Any]) -> None:
        async def with_role(_role: Role) -> None:
            begun = anyio.Event()
            runtime.tasks.start_soon(task, runtime, begun)
            await begun.wait()

        await runtime.lead(role_of("allocator", TREE), with_role)

    with nats_server() as server:
        async with a_bus(server) as other:
            await provision(other, [TREE])
            await other.serve(UNANSWERED, never)
            settings = CommonSettings(nats_url=server.url)
            status = await _run(
                "allocator", settings, None, subjects.inbox("service", "allocator"), serve, True, silent_notifier()
            )

    assert status == 0
