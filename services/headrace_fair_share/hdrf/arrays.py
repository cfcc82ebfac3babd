"""Arrays of figures by element, and the few functions on such arrays that the whole algorithm uses.

Figures per resource and element are an array of shape (5, elements), with the resources in the order of `RESOURCE_NAMES`. Amounts are
int64, for cpu in hundredths of a core; share = amount / total. Children are always summed in their order, because in another order the last
bits of the sum would differ.

    shares_of(amounts = 25 of cpu 100, total = 100 of cpu 100) = 0.25

Section: docs/reference/fair-share-algorithm.md#1-amounts-shares-and-volumes
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from headrace.errors import HeadraceError
from headrace.resources import RESOURCE_NAMES, Resources

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RESOURCES: Final = len(RESOURCE_NAMES)
CPU: Final = RESOURCE_NAMES.index("cpu")

#: Relative excess up to which a figure counts as equal to another figure, because rounding may cause such a difference.
ROUNDING: Final = 1e-13

_Figure = TypeVar("_Figure", bound=np.generic)


class BrokenInvariant(HeadraceError, ArithmeticError):
    """Raised because a condition that must hold in every update of the fair share does not hold."""


def amounts_of(rows: Iterable[Resources], count: int) -> Ints:
    """Return the amounts of many elements as an array with one column per element."""
    flat: Ints = np.fromiter(chain.from_iterable(map(astuple, rows)), np.int64, count * RESOURCES)
    return np.ascontiguousarray(flat.reshape(count, RESOURCES).T)


def column(amounts: Resources) -> Ints:
    """Return the amounts of one element as a column, to compare it with many elements."""
    return np.array(amounts.as_tuple(), np.int64).reshape(RESOURCES, 1)


def in_units(amounts: Ints | Floats) -> Floats:
    """Convert amounts to whole units: cpu from hundredths to cores."""
    units = amounts.astype(np.float64)
    units[CPU] /= 100.0
    return units


def shares_of(amounts: Ints | Floats, total: Ints) -> Floats:
    """Divide amounts by the total. The share of a resource that the cluster lacks is 0."""
    whole = in_units(total)
    there = whole > 0.0
    return np.where(there, in_units(amounts) / np.where(there, whole, 1.0), 0.0)


def rounded(figures: Floats) -> Floats:
    """Round to the nearest whole numbers, halves away from zero."""
    size = np.abs(figures)
    whole = np.floor(size)
    return np.asarray(np.copysign(whole + (size - whole >= 0.5), figures))


def starts_of(counts: NDArray[np.integer[Any]]) -> Ints:
    """Return the starts of consecutive pieces with the given sizes: piece k has the indexes starts[k]:starts[k + 1]."""
    starts = np.zeros(len(counts) + 1, np.int64)
    counts.cumsum(out=starts[1:])
    return starts


def ranges(first: Ints, counts: Ints) -> Ints:
    """Return counts[0] consecutive indexes from first[0] on, then counts[1] from first[1] on, and so on."""
    starts = starts_of(counts)
    places: Ints = np.arange(starts[-1]) + (first - starts[:-1]).repeat(counts)
    return places


def between(a: Floats, b: Floats, t: Floats) -> Floats:
    """Interpolate from a at t = 0 to b at t = 1. The result is exact at both ends, and monotone in between."""
    way = b - a
    return np.where(t < 0.5, a + way * t, b - way * (1.0 - t))


def beyond(figures: Floats, floor: Floats) -> Floats:
    """Return by how much figures exceed a floor; the result is negative for figures below the floor. A difference that rounding may have
    caused counts as 0.
    """
    more = figures - floor
    more[np.abs(more) < ROUNDING * floor] = 0.0
    return more


def fits_into(figures: Floats, room: Floats) -> Bools:
    """Return True for each column of `figures` in which no component is larger than the same component of `room`."""
    return np.asarray((figures <= room).all(axis=0))


def sums_by(owner: Ints, figures: Floats, owners: int) -> Floats:
    """Return the sum of each owner's columns. The columns are added up in their order."""
    return np.asarray([np.bincount(owner, row, owners) for row in figures], np.float64)


@dataclass(frozen=True, slots=True)
class Family:
    """Some parents and all their children, for summing figures over children and for copying a parent's figure to its children."""

    parents: Ints
    #: Numbers of the children; the children of one parent are consecutive.
    children: Ints
    #: Position of each child's parent in `parents`.
    owner: Ints

    @staticmethod
    def of(parents: Ints, first: Ints, end: Ints) -> Family:
        """Return the family of these parents. The children of each parent are the elements from its `first` to before its `end`."""
        counts = end - first
        return Family(parents, ranges(first, counts), np.repeat(np.arange(len(parents)), counts))

    def sum(self, figures: Floats) -> Floats:
        """Sum the figures of each parent's children, in their order."""
        return sums_by(self.owner, figures, len(self.parents))

    def spread(self, figures: NDArray[_Figure]) -> NDArray[_Figure]:
        """Give each child the figure of its parent."""
        spread: NDArray[_Figure] = figures.take(self.owner, axis=-1)
        return spread

    def only(self, wanted: Bools) -> Family:
        """Return the family of the wanted parents and their children. `chosen` is True for these children."""
        place = np.cumsum(wanted) - 1
        chosen = self.chosen(wanted)
        return Family(self.parents[wanted], self.children[chosen], place[self.owner[chosen]])

    def chosen(self, wanted: Bools) -> Bools:
        """Return True for each child whose parent is wanted."""
        mask: Bools = wanted[self.owner]
        return mask
