"""What can be measured: a figure has a name, a goal, and a function that measures it some times over."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

__all__ = [
    "REGISTRY",
    "CannotMeasure",
    "Figure",
    "Measured",
    "Registry",
    "head_of_table",
    "milliseconds",
    "row_of_table",
    "write_figures",
]


class Figure(msgspec.Struct, frozen=True):
    """What came of measuring."""

    median: float
    min: float
    max: float
    unit: str
    runs: int
    #: Best figure of this machine without any code of ours, and the median over it. None if no floor is measured.
    floor: float | None = None
    ratio: float | None = None

    @staticmethod
    def of(values: list[float], unit: str, floor: float | None = None) -> Figure:
        median = statistics.median(values)
        ratio = median / floor if floor else None
        return Figure(median, min(values), max(values), unit, len(values), floor, ratio)


class CannotMeasure(Exception):
    """This machine lacks what a figure needs. The text says what."""


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


def head_of_table(width: int) -> str:
    """The names of the columns, that of figures so wide."""
    return (
        f"{'figure':{width}}  {'median':>9} {'smallest':>9} {'largest':>9} {'goal':>9} {'floor':>9} {'ratio':>9}  unit"
    )


def row_of_table(each: Measured, got: Figure, width: int) -> str:
    """A figure beside its goal."""
    goal = f"{'>' if each.more_is_better else ''}{each.goal:.4g}"
    beside = "".join(f" {value:9.4g}" if value is not None else " " * 10 for value in (got.floor, got.ratio))
    row = f"{got.median:9.4g} {got.min:9.4g} {got.max:9.4g} {goal:>9}{beside}"
    return f"{each.name:{width}}  {row}  {got.unit}: {each.what}"


def write_figures(figures: dict[str, Figure]) -> None:
    """Writes them to the file that BENCH_JSON names, if it names one."""
    if os.environ.get("BENCH_JSON"):
        Path(os.environ["BENCH_JSON"]).write_bytes(msgspec.json.format(msgspec.json.encode(figures)))


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
