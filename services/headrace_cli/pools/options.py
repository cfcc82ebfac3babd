"""Options of `pool create` and `pool set` as the keys of a pool's settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from headrace.errors import BadInput
from headrace.resources import RESOURCE_NAMES, parse_resources


@Parameter(name="*")
@dataclass(frozen=True)
class PoolOptions:
    """Options of a pool that have names of their own."""

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
        """The keys that were given, as people write them. Raises `BadInput`."""
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


def parse_figures(option: str, text: str) -> dict[str, str]:
    """Reads `cpu=4,memory=16G`. `none` or nothing is an empty map. Raises `BadInput`, also for a figure that cannot be read."""
    figures: dict[str, str] = {}
    pieces: Sequence[str] = () if text.strip() == "none" else [piece.strip() for piece in text.split(",")]
    for piece in filter(None, pieces):
        resource, equals, figure = (part.strip() for part in piece.partition("="))
        if not equals or resource not in RESOURCE_NAMES or resource in figures:
            raise BadInput(option, piece, "resource=amount, each resource once: " + ", ".join(RESOURCE_NAMES))
        figures[resource] = figure
    parse_resources(figures, place=option)
    return figures
