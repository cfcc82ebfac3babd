"""Beats: moments at which all processes of a host wake together.

An idle machine wakes once for all of them, instead of once for each.
"""

from __future__ import annotations

from typing import Final

import anyio

#: Of a period: whoever comes this shortly before a beat waits for the next one.
_SHORTEST: Final = 0.1


async def until_beat(period_s: float) -> float:
    """Sleeps for about a period, until a whole multiple of it. Returns the moment that was slept for.

    The loop's clock is the same for all processes of a host. At most 1.1 periods pass, and at least a tenth of one.
    """
    now_s = anyio.current_time()
    left_s = period_s - now_s % period_s
    due_s = now_s + (left_s if left_s >= _SHORTEST * period_s else left_s + period_s)
    await anyio.sleep_until(due_s)
    return due_s
