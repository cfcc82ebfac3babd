"""Beats: points in time at which all processes of a host wake together.

So an idle machine wakes once for all of its processes, and not once for each process.
"""

from __future__ import annotations

from typing import Final

import anyio

#: Shortest sleep, as a fraction of a period. If the next beat is sooner, `until_beat` waits for the beat after it.
_SHORTEST: Final = 0.1


async def until_beat(period_s: float) -> float:
    """Sleep until the loop's clock shows a multiple of the period. Return the time (s) at which the sleep was to end.

    The loop's clock is the same for all processes of a host. The sleep takes at least a tenth of a period and at most 1.1
    periods.
    """
    now_s = anyio.current_time()
    left_s = period_s - now_s % period_s
    due_s = now_s + (left_s if left_s >= _SHORTEST * period_s else left_s + period_s)
    await anyio.sleep_until(due_s)
    return due_s
