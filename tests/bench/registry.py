"""What can be measured: a figure has a name, a goal, and a function that measures it some times over."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

__all__ = ["REGISTRY", "Figure", "Measured", "Registry", "milliseconds"]


class Figure(msgspec.Struct, frozen=True):
    """What came of measuring."""

    median: float
    min: float
    max: float
    unit: str
    runs: int

    @staticmethod
    def of(values: list[float], unit: str) -> Figure:
        return Figure(statistics.median(values), min(values), max(values), unit, len(values))


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure that can be measured. `goal` is the largest median that is good enough, or the least where more is better."""

    name: str
    what: str
    goal: float
    measure: Callable[[], Figure]
    more_is_better: bool = False


@dataclass(slots=True)
class Registry:
    """All figures by name."""

    figures: dict[str, Measured] = field(default_factory=dict)

    def add(
        self, name: str, what: str, goal: float, *, more_is_better: bool = False
    ) -> Callable[[Callable[[], Figure]], Callable[[], Figure]]:
        """Makes a function known that measures a figure."""

        def known(measure: Callable[[], Figure]) -> Callable[[], Figure]:
            if name in self.figures:
                raise ValueError(f"two figures are named {name}")
            self.figures[name] = Measured(name, what, goal, measure, more_is_better)
            return measure

        return known


REGISTRY: Final = Registry()


def milliseconds(work: Callable[[], object], runs: int) -> list[float]:
    """How long each of some runs took, after one that does not count."""
    work()
    gc.collect()
    taken = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        taken.append((time.perf_counter() - begun) * 1e3)
    return taken
