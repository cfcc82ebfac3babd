"""Waiting for what gives no event."""

from __future__ import annotations

from collections.abc import Callable

import anyio

__all__ = ["eventually"]


async def eventually(holds: Callable[[], object], *, within_s: float = 60.0) -> None:
    """Returns as soon as `holds()` is true; fails the test when that takes too long."""
    with anyio.fail_after(within_s):
        while not holds():  # noqa: ASYNC110 - that is what it is for
            await anyio.sleep(0.005)
