"""Calls that are made at the same time."""

from __future__ import annotations

import anyio
import pytest

from headrace.runtime.concurrent_calls import together


async def test_calls_wait_at_the_same_time() -> None:
    waiting: list[int] = []
    all_wait = anyio.Event()

    async def wait() -> None:
        waiting.append(1)
        if len(waiting) == 3:
            all_wait.set()
        await all_wait.wait()

    with anyio.fail_after(10):
        await together(wait, wait, wait)


async def test_the_error_of_a_call_is_raised_as_it_is_and_the_others_end() -> None:
    ended: list[str] = []

    async def fail() -> None:
        raise ValueError("this one")

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("waiting")

    with pytest.raises(ValueError, match="this one"):
        await together(wait, fail)
    assert ended == ["waiting"]
