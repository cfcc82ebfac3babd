"""Ending a service's shell as a kill would: no farewell, no checkpoint, nothing flushed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

from headrace.runtime.service import Runtime, runtime_on
from headrace.runtime.settings import CommonSettings
from tests.support.nats_server import NatsServer
from tests.support.tree_services import a_bus

__all__ = ["killed"]

S = TypeVar("S", bound=CommonSettings)


@asynccontextmanager
async def killed(
    server: NatsServer, settings: S, serve: Callable[[Runtime[S]], Coroutine[Any, Any, Any]], name: str = "tested"
) -> AsyncIterator[Runtime[S]]:
    """A service's real `serve` in this process, cancelled in the middle of whatever it does when the block ends."""
    async with a_bus(server, "service", name) as bus:
        try:
            async with anyio.create_task_group() as tasks:
                runtime = runtime_on(bus, name, settings, tasks, anyio.Event())
                tasks.start_soon(runtime.deposition.watch)
                await runtime.terms.serve(bus)
                tasks.start_soon(serve, runtime)
                yield runtime
                tasks.cancel_scope.cancel()
        finally:
            await bus.close()
