"""Whether the order of allocation delivers what pools are owed, by the clock, without any preemption."""

from __future__ import annotations

from typing import Final

import anyio

from tests.bench.registry import REGISTRY, Figure
from tests.support.delivered_share import SHAPES, delivered_shares

_WINDOW_S: Final = 20.0


@REGISTRY.add(
    "delivered_share_error", "mean distance of usage from the fair share, of the worst pool in several trees", 0.1
)
def delivered_share_error() -> Figure:
    pools = [pool for shape in SHAPES.values() for pool in anyio.run(delivered_shares, shape, _WINDOW_S).values()]
    return Figure.of([max(pool.error for pool in pools)], "of it")
