"""Concurrent calls to the server. If they were made one after another, each call would delay a service's start by a
round trip, which takes long with a distant server.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio


async def together(*calls: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Make all calls concurrently, and return when all are done. If a call raises, the remaining calls are cancelled and its error
    is raised.
    """
    try:
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(call)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def cancel_when(stopping: anyio.Event, scope: anyio.CancelScope) -> None:
    """Cancel the scope when the process is asked to stop."""
    await stopping.wait()
    scope.cancel()
