"""Concurrent calls to the server. One after another, each call would wait for a round trip, which takes long with a distant or busy
server.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio


async def together(*calls: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Make all calls concurrently, and return when all are done. If a call raises an error, cancel the remaining calls and raise
    this error.
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
