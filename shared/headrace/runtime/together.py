"""Calls that wait for the server, made at the same time: far from the server a start costs by its round trips in a row."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio


async def together(*calls: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Makes calls at the same time and returns when all are done. When one raises, the others are cancelled, and that is raised."""
    try:
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(call)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
