"""Prometheus metrics of every pool: its demand, fair share, usage and volume. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from headrace.ids import PoolName
from headrace.resources import Resources
from headrace.runtime.engine import Figure, FigureKind
from headrace.wire.snapshots import ShareItem, StarvationStatus
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.update.elements import pool_key
from headrace_fair_share.update.results import PoolResults

#: Resources that have metrics, with their units.
_UNITS: Final = {"user_slots": "slots", "cpu": "hundredths of a core", "gpu": "gpus", "memory": "bytes"}


def pool_figures(engine: FairShareEngine) -> Callable[[], Iterator[Figure]]:
    """Take a snapshot of the pools. The returned function makes metrics from it and may run in any thread."""
    items = dict(engine.items)
    pools = [
        (name, items[key], results) for name, results in engine.pool_results.items() if (key := pool_key(name)) in items
    ]
    total = engine.frame.total
    return lambda: _figures(pools, total)


def _figures(pools: list[tuple[PoolName, ShareItem, PoolResults]], total: Resources) -> Iterator[Figure]:
    amounts: dict[str, tuple[str, Callable[[ShareItem, PoolResults], Resources]]] = {
        "demand": (
            "Demand of this pool's operations: what they use and what they wait for.",
            lambda _, of: of.demand,
        ),
        "fair_share": ("Fair share of this pool.", lambda item, _: total.part(item.fair_share.total)),
        "usage": ("Usage of this pool's operations.", lambda _, of: of.usage),
        "guarantee": ("Strong guarantee of this pool.", lambda item, _: total.part(item.strong_guarantee_share)),
    }
    for resource, unit in _UNITS.items():
        if getattr(total, resource):
            for name, (says, amount) in amounts.items():
                for pool, item, results in pools:
                    yield _gauge(f"pool_{name}_{resource}", unit, getattr(amount(item, results), resource), says, pool)
    for pool, _, results in pools:
        yield _gauge("pool_operations", "operations", results.operations, "Operations of this pool.", pool)
    for pool, item, _ in pools:
        starves = item.starvation_status is not StarvationStatus.NON_STARVING
        yield _gauge("pool_starving", "", starves, "1 while this pool starves.", pool)
    for pool, item, _ in pools:
        says = "Savings of this pool, as the time for which they would pay for the whole cluster."
        yield _gauge("pool_volume", "seconds", item.accumulated_ratio_volume, says, pool)


def _gauge(name: str, unit: str, value: float, says: str, pool: PoolName) -> Figure:
    return Figure(name, unit, FigureKind.GAUGE, value, says, name, {"pool": pool})
