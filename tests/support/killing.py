"""Ending a service's shell as a kill would: no farewell, no checkpoint, nothing flushed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

from headrace.runtime.clock import SystemClock
from headrace.runtime.handlers import Border
from headrace.runtime.service import Runtime
from headrace.runtime.settings import CommonSettings
from headrace.runtime.terms import TermBook
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
                clock = SystemClock()
                terms = TermBook(name)
                await terms.serve(bus)
                runtime = Runtime(
                    name=name,
                    settings=settings,
                    bus=bus,
                    clock=clock,
                    border=Border(bus, clock),
                    terms=terms,
                    tasks=tasks,
                    stopping=anyio.Event(),
                )
                tasks.start_soon(serve, runtime)
                yield runtime
                tasks.cancel_scope.cancel()
        finally:
            await bus.close()
