"""Whether the order of allocation delivers what pools are owed, by the clock, without any preemption."""

from __future__ import annotations

from typing import Final

import anyio

from tests.bench.registry import REGISTRY, Figure
from tests.support.delivered_share import LARGE_SHAPES, SHAPES, delivered_shares

_WINDOW_S: Final = 20.0
#: Some seconds of it pass until the first large job has its node.
_LARGE_WINDOW_S: Final = 40.0


@REGISTRY.add(
    "delivered_share_error", "mean distance of usage from the fair share, of the worst pool in several trees", 0.1
)
def delivered_share_error() -> Figure:
    pools = [pool for shape in SHAPES.values() for pool in anyio.run(delivered_shares, shape, _WINDOW_S).values()]
    return Figure.of([max(pool.error for pool in pools)], "of it")


@REGISTRY.add(
    "delivered_share_error_large_jobs",
    "the same where jobs of one pool need whole nodes beside a stream of small ones",
    0.2,
)
def delivered_share_error_large_jobs() -> Figure:
    shapes = LARGE_SHAPES.values()
    pools = [pool for shape in shapes for pool in anyio.run(delivered_shares, shape, _LARGE_WINDOW_S).values()]
    return Figure.of([max(pool.error for pool in pools)], "of it")
