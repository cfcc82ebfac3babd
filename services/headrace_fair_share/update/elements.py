"""The elements of a tree, in the order that an update uses throughout.

The order is: root, configured pools (parents first), ephemeral pools, operations. Results of elements are arrays in this order. An index
into them is called the position of the element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.amounts import PartialResources
from headrace.pools.effective_options import EffectiveOptions
from headrace.wire.snapshots import ElementKind
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints
from headrace_fair_share.hdrf.model import TreeInput


def pool_key(name: PoolName) -> str:
    """Return the key of a pool's share item."""
    return f"/{name}"


@dataclass(frozen=True)
class Elements:
    """All elements of a tree. The object stays the same as long as no element is added, removed or moved."""

    names: list[str]
    #: Name of each element's parent pool; empty for the root.
    parents: list[PoolName]
    #: Position of each element's parent pool; -1 for the root.
    above: list[int]
    #: Number of elements before the first operation: the root and all pools.
    pools: int
    #: Number of configured pools, plus one for the root. The pools after them are ephemeral.
    configured: int
    #: Rank by which the children of a pool that is not fifo are ordered. The rank of a pool is its position, the rank of an operation is
    #: its start in milliseconds of Unix time.
    ranks: list[int]
    #: Effective options of the root and the pools.
    options: list[EffectiveOptions]
    #: Effective options of those operations whose options differ from their pool's, by position.
    own_options: Mapping[int, EffectiveOptions]
    #: Configured resource limits of the root and the pools.
    limits: list[PartialResources]

    @cached_property
    def parent(self) -> Ints:
        """Position of each element's parent pool, as an array; -1 for the root."""
        return np.array(self.above, np.int64)

    @cached_property
    def order(self) -> Ints:
        """Order of children outside fifo pools (see `ranks`), as an array."""
        return np.array(self.ranks, np.int64)

    @cached_property
    def keys(self) -> list[str]:
        """The key of each element's share item, see `ShareItem.key`."""
        return [f"/{name}" for name in self.names[: self.pools]] + self.names[self.pools :]

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each element, by the key of its share item."""
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def is_operation(self) -> Bools:
        """True at the positions of operations."""
        return np.arange(len(self.names)) >= self.pools

    @cached_property
    def tolerance(self) -> Floats:
        """The starvation tolerance of each element: the fraction of its fair share that its usage must reach."""
        return self._each(lambda options: options.fair_share_starvation_tolerance)

    @cached_property
    def starvation_timeout_ms(self) -> Floats:
        """Milliseconds below its fair share after which each element starves."""
        return self._each(lambda options: options.fair_share_starvation_timeout_ms)

    @cached_property
    def aggressive_enabled(self) -> Bools:
        """True for elements that may starve aggressively."""
        return self._each(lambda options: options.enable_aggressive_starvation) > 0

    @cached_property
    def min_share_timeout_ms(self) -> Floats:
        """Milliseconds below its strong guarantee after which each element starves; infinite if it never does."""
        return self._each(lambda options: or_never(options.min_share_preemption_timeout_ms))

    def _each(self, value: Callable[[EffectiveOptions], float]) -> Floats:
        """Return an option's value for every element."""
        of_pool = np.array([value(options) for options in self.options], np.float64)
        each = of_pool[np.where(self.is_operation, self.parent, np.arange(len(self.names)))]
        for place, options in self.own_options.items():
            each[place] = value(options)
        return each

    def differs(self, place: int, before: Elements, old: int) -> bool:
        """Return True if the parent, kind, options or limits of an element changed. No column of `ElementResults` has them."""
        return (
            self.parents[place] != before.parents[old]
            or self.is_ephemeral(place) != before.is_ephemeral(old)
            or (
                place < self.pools
                and (self.options[place], self.limits[place]) != (before.options[old], before.limits[old])
            )
        )

    def kind(self, place: int) -> ElementKind:
        """Return the kind of the element at a position."""
        if place >= self.pools:
            return ElementKind.OPERATION
        return ElementKind.POOL if place else ElementKind.ROOT

    def is_ephemeral(self, place: int) -> bool:
        """Return True if the element is an ephemeral pool, which exists only while it has operations."""
        return self.configured <= place < self.pools


def elements_of(
    tree: TreeInput,
    configured: int,
    options: list[EffectiveOptions],
    limits: list[PartialResources],
    own_options: Mapping[int, EffectiveOptions] | None = None,
) -> Elements:
    """Return the elements of an update. The first `configured` of the tree's pools are configured pools, the rest are ephemeral.

    `options` and `limits` cover the root and all pools. `own_options` covers operations, by their position among the operations.
    """
    pools = [ROOT_POOL, *(PoolName(pool.name) for pool in tree.pools)]
    above = [each.parent + 1 for each in tree.pools] + [each.pool + 1 for each in tree.operations]
    return Elements(
        names=[*pools, *(each.name for each in tree.operations)],
        parents=[PoolName(""), *(pools[place] for place in above)],
        above=[-1, *above],
        pools=len(pools),
        configured=1 + configured,
        ranks=[*range(len(pools)), *(each.start_time_ms for each in tree.operations)],
        options=options,
        limits=limits,
        own_options={len(pools) + number: own for number, own in (own_options or {}).items()},
    )


def or_never(timeout_ms: int | None) -> float:
    """Return a timeout as a number: infinite if there is none."""
    return math.inf if timeout_ms is None else timeout_ms
