"""Values of functions: tuples of floats, one component a resource (or a single one), and the few operations on them.

A plain number among vectors stands for the vector with that number in every component.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from functools import reduce
from typing import Final

from headrace.resources import EPS, RESOURCE_NAMES, Resources, Share

__all__ = [
    "COMPONENTS",
    "CPU",
    "EPS",
    "ONES",
    "ZEROS",
    "Invariant",
    "Values",
    "add",
    "as_share",
    "ensure",
    "every",
    "fill",
    "fits",
    "half_away",
    "larger",
    "largest",
    "ratio_of",
    "real",
    "share",
    "smaller",
    "subtract",
    "sum_in_order",
    "times",
    "total_of",
]

Values = tuple[float, ...]
COMPONENTS: Final = 5
CPU: Final = RESOURCE_NAMES.index("cpu")
ZEROS: Final[Values] = (0.0,) * COMPONENTS
ONES: Final[Values] = (1.0,) * COMPONENTS


class Invariant(AssertionError):
    """Something that always holds does not."""


def ensure(holds: bool, what: str) -> None:
    """Raises `Invariant` unless it holds; not an assert, for those can be switched off."""
    if not holds:
        raise Invariant(what)


def fill(number: float) -> Values:
    return (number,) * COMPONENTS


def add(a: Values, b: Values) -> Values:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def subtract(a: Values, b: Values) -> Values:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def times(a: Values, factor: float) -> Values:
    return tuple(x * factor for x in a)


def smaller(a: Values, b: Values) -> Values:
    """The lesser one, component by component."""
    return tuple(min(x, y) for x, y in zip(a, b, strict=True))


def larger(a: Values, b: Values) -> Values:
    """The greater one, component by component."""
    return tuple(max(x, y) for x, y in zip(a, b, strict=True))


def largest(a: Values) -> float:
    return max(a)


def fits(a: Values, b: Values, slack: float = 0.0) -> bool:
    """True when `a`, with some slack added, is at least `b` in every component."""
    return all(x + slack >= y for x, y in zip(a, b, strict=True))


def every(a: Values, bound: float) -> bool:
    """True when no component is above the bound."""
    return all(x <= bound for x in a)


def sum_in_order(numbers: Iterable[float]) -> float:
    """The sum from the first to the last; `sum` of newer Pythons rounds otherwise."""
    return reduce(operator.add, numbers, 0.0)


def total_of(parts: Iterable[Values], start: Values = ZEROS) -> Values:
    """The sum, in order."""
    total = start
    for part in parts:
        total = add(total, part)
    return total


def real(r: int, amount: float) -> float:
    """An amount as a number of cores or units: what shares are made from, rounding included."""
    return amount / 100 if r == CPU else float(amount)


def share(amounts: Iterable[float], total: Resources) -> Values:
    """Amounts over the total's; 0 where there is none."""
    pairs = zip(amounts, total.as_tuple(), strict=True)
    return tuple(real(r, a) / real(r, t) if t > 0 else 0.0 for r, (a, t) in enumerate(pairs))


def ratio_of(amounts: Iterable[float], total: Resources) -> float:
    """The largest share of all."""
    return largest(share(amounts, total))


def half_away(number: float) -> int:
    """The nearest integer; halves go away from zero."""
    whole = math.floor(abs(number))
    up = abs(number) - whole >= 0.5
    return int(math.copysign(whole + up, number))


def as_share(a: Values) -> Share:
    u, c, g, m, n = a
    return (u, c, g, m, n)
