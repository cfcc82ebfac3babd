"""Averages of the usage of pools' children, with less weight for earlier usage. The higher the average of a child, the lower its weight.
Pure.

An element's average follows the largest component of its usage share. Usage one period ago counts half as much as present usage. The
average starts at zero when the element appears and whenever the service starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from headrace.ids import PoolName
from headrace.pools import PoolTree
from headrace.wire.snapshots import ShareItem

DEFAULT_PERIOD_S: Final = 86_400.0


class UsageAverages:
    """Usage averages of one tree, by element key."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}
        self._waiting_us = 0

    def add(self, dt_us: int) -> None:
        """Add `dt_us` to the microseconds by which `bring_up_to_date` will move the averages on."""
        self._waiting_us += dt_us

    def bring_up_to_date(self, pools: PoolTree, items: Iterable[ShareItem]) -> None:
        """Move the averages on by the time since the last call, for which the usage in `items` counts.

        Only children of pools that infer weights from historic usage have an average.
        """
        passed_s, self._waiting_us = self._waiting_us / 1e6, 0
        periods_s = {name: _period_s(pools, name) for name in _asking(pools)}
        if not periods_s:
            self.of = {}
            return
        self.of = {
            item.key: _faded(self.of.get(item.key, 0.0), max(item.usage_share), passed_s / periods_s[item.parent])
            for item in items
            if item.parent in periods_s
        }


def _asking(pools: PoolTree) -> list[PoolName]:
    return [name for name in pools.pools if pools.settings(name).infer_children_weights_from_historic_usage]


def _period_s(pools: PoolTree, name: PoolName) -> float:
    period_ms = pools.settings(name).historic_usage_aggregation_period
    return DEFAULT_PERIOD_S if period_ms is None else max(period_ms, 1) / 1000


def _faded(before: float, now: float, periods: float) -> float:
    return now + (before - now) * math.exp2(-periods)
