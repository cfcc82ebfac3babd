"""The options of `pool create` and `pool set`, as keys of a pool's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from headrace_cli.pools.key_values import parse_figures


@Parameter(name="*")
@dataclass(frozen=True)
class PoolOptions:
    """Settings of a pool that have options of their own."""

    weight: float | None = None
    """Its part among its siblings; unless given, by its guarantee, or 1."""
    guarantee: str | None = None
    """What it is owed at any time, such as `cpu=4,memory=16G`; `none` for nothing."""
    integral: Literal["none", "burst", "relaxed"] | None = None
    """Kind of its integral guarantee: savings that accrue while it uses less than its flow."""
    flow: str | None = None
    """What accrues, such as `cpu=2`: cores, and so on, per second of time."""
    burst: str | None = None
    """The most that it may draw from its savings at once, such as `cpu=8`."""

    def changes(self) -> dict[str, object]:
        """Return the keys that were given, with their values as the user wrote them. Raises `BadInput`."""
        changes: dict[str, object] = {}
        if self.weight is not None:
            changes["weight"] = self.weight
        if self.guarantee is not None:
            changes["strong_guarantee_resources"] = parse_figures("--guarantee", self.guarantee)
        if self.integral is not None:
            changes["integral_guarantees/guarantee_type"] = self.integral
        if self.flow is not None:
            changes["integral_guarantees/resource_flow"] = parse_figures("--flow", self.flow)
        if self.burst is not None:
            changes["integral_guarantees/burst_guarantee_resources"] = parse_figures("--burst", self.burst)
        return changes
