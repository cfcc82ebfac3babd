"""Arrays of figures: how amounts and shares of many elements are kept, and the few operations that everything here is made of.

A figure per resource and element is an array of shape (5, elements), resources in the order of `RESOURCE_NAMES`. Amounts are int64 as
everywhere else, cpu in hundredths. Sums run in the order of the children: another order would end in other last bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.errors import HeadraceError
from headrace.resources import RESOURCE_NAMES, Resources, Share

__all__ = [
    "CPU",
    "RESOURCES",
    "Bools",
    "BrokenInvariant",
    "Family",
    "Floats",
    "Ints",
    "amounts_of",
    "as_share",
    "between",
    "column",
    "fits_into",
    "in_units",
    "ranges",
    "rounded",
    "shares_of",
    "starts_of",
    "sums_by",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RESOURCES: Final = len(RESOURCE_NAMES)
CPU: Final = RESOURCE_NAMES.index("cpu")

_Figure = TypeVar("_Figure", bound=np.generic)


class BrokenInvariant(HeadraceError, ArithmeticError):
    """Something that always holds in an update of the fair share does not hold."""


def amounts_of(rows: Iterable[Resources], count: int) -> Ints:
    """Amounts of many elements side by side."""
    flat: Ints = np.fromiter((amount for row in rows for amount in row.as_tuple()), np.int64, count * RESOURCES)
    return np.ascontiguousarray(flat.reshape(count, RESOURCES).T)


def column(amounts: Resources) -> Ints:
    """Amounts of one element, so that they can be set against those of many."""
    return np.array(amounts.as_tuple(), np.int64).reshape(RESOURCES, 1)


def in_units(amounts: Ints | Floats) -> Floats:
    """Amounts as numbers of whole units: cpu in cores."""
    units = amounts.astype(np.float64)
    units[CPU] /= 100.0
    return units


def shares_of(amounts: Ints | Floats, total: Ints) -> Floats:
    """Fractions of the total; 0 of what there is none of."""
    whole = in_units(total)
    there = whole > 0.0
    return np.where(there, in_units(amounts) / np.where(there, whole, 1.0), 0.0)


def rounded(figures: Floats) -> Floats:
    """The nearest whole numbers; halves go away from zero."""
    size = np.abs(figures)
    whole = np.floor(size)
    return np.asarray(np.copysign(whole + (size - whole >= 0.5), figures))


def as_share(figures: Floats) -> Share:
    """Five figures as a plain tuple."""
    u, c, g, m, n = figures.tolist()
    return (u, c, g, m, n)


def starts_of(counts: NDArray[np.integer[Any]]) -> Ints:
    """Where pieces of such sizes begin that stand one behind the other, and where the last one ends."""
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def ranges(first: Ints, counts: Ints) -> Ints:
    """The places first[0], first[0] + 1, ... (counts[0] of them), first[1], ..., one behind the other."""
    starts = starts_of(counts)
    return np.arange(starts[-1]) + np.repeat(first - starts[:-1], counts)


def between(a: Floats, b: Floats, t: Floats) -> Floats:
    """The point t of the way from a to b; exact at both ends and never turning back between them."""
    way = b - a
    return np.where(t < 0.5, a + way * t, b - way * (1.0 - t))


def fits_into(figures: Floats, room: Floats) -> Bools:
    """Where no component is larger than the room for it."""
    return np.asarray((figures <= room).all(axis=0))


def sums_by(owner: Ints, figures: Floats, owners: int) -> Floats:
    """Sums of columns that have the same owner, added up in their order."""
    return np.asarray([np.bincount(owner, row, owners) for row in figures], np.float64)


@dataclass(frozen=True, slots=True)
class Family:
    """Some parents and all their children: what is summed over children, and what is spread over them."""

    parents: Ints
    #: Elements, those of one parent in a row.
    children: Ints
    #: Place of each child's parent among `parents`.
    owner: Ints

    @staticmethod
    def of(parents: Ints, first: Ints, end: Ints) -> Family:
        """The parents, and the elements from `first` to before `end` of each."""
        counts = end - first
        return Family(parents, ranges(first, counts), np.repeat(np.arange(len(parents)), counts))

    def sum(self, figures: Floats) -> Floats:
        """Sums over the children of each parent, in their order."""
        return sums_by(self.owner, figures, len(self.parents))

    def spread(self, figures: NDArray[_Figure]) -> NDArray[_Figure]:
        """To each child what is its parent's."""
        spread: NDArray[_Figure] = np.take(figures, self.owner, axis=-1)
        return spread

    def only(self, wanted: Bools) -> Family:
        """Some of the parents with their children; also which children these are is told by `chosen`."""
        place = np.cumsum(wanted) - 1
        chosen = self.chosen(wanted)
        return Family(self.parents[wanted], self.children[chosen], place[self.owner[chosen]])

    def chosen(self, wanted: Bools) -> Bools:
        """Which children belong to the parents that are wanted."""
        mask: Bools = wanted[self.owner]
        return mask
