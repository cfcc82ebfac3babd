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
    """Weight among sibling pools. Unless given: by its guarantee, else 1."""
    guarantee: str | None = None
    """Strong guarantee, such as `cpu=4,memory=16G`; `none`: no guarantee."""
    integral: Literal["none", "burst", "relaxed"] | None = None
    """Kind of integral guarantee: savings that accrue while the pool uses less than its flow."""
    flow: str | None = None
    """Resource flow: the amount that accrues per second, such as `cpu=2`."""
    burst: str | None = None
    """Burst guarantee: the most that the pool may draw from its savings at once, such as `cpu=8`."""

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
