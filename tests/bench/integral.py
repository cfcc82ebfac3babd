"""How long integral takes to let time pass for all volumes of a tree."""

from __future__ import annotations

import random

from headrace.ids import PoolName, TreeName
from headrace.wire.integral import Advance, PoolFlow
from headrace.wire.version import NEVER, Version
from headrace_integral.engine import IntegralEngine
from tests.bench.registry import REGISTRY, Figure, milliseconds
from tests.bench.trees import TOTAL
from tests.support.clocks import NOW

TREE = TreeName("default")
POOLS = 10_000
#: Of each so many pools one is a parent that hands on what overflows below it.
FAMILY = 10


def _flows(draw: random.Random) -> list[PoolFlow]:
    flows: list[PoolFlow] = []
    for place in range(POOLS):
        name = PoolName(f"pool{place}")
        if place % FAMILY == 0:
            flows.append(PoolFlow(name, 0.0, 0.0, 0.0, "none", distributes_free_volume=True))
        else:
            ratio = draw.random() / POOLS
            flows.append(
                PoolFlow(name, ratio, 2 * ratio, draw.choice((0.0, ratio)), "burst", parent=place - place % FAMILY)
            )
    return flows


@REGISTRY.add("integral_advance_10k_ms", "an advance of 10,000 pools in families, some of which overflow", 150)
def advance_of_many() -> Figure:
    flows, engine = _flows(random.Random(7)), IntegralEngine(TREE, 1)
    version = NEVER

    def advance() -> None:
        nonlocal version
        following = Version(1, version.epoch + 1)
        dt_us = 200_000 if version != NEVER else 0
        outcome = engine.on_advance(
            Advance(TREE, following, version, dt_us, TOTAL, flows, saturation_period_s=1.0), NOW
        )
        assert outcome.effects
        engine.on_saved(outcome.effects[0].record, NOW)
        version = following

    return Figure.of(milliseconds(advance, 15), "ms")
