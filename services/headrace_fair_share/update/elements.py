"""The elements of a tree in the order in which an update keeps everything about them.

The order is root, configured pools with parents first, ephemeral pools, operations. Results of elements are arrays in this order.
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
    """The key of a pool's share item."""
    return f"/{name}"


@dataclass(frozen=True)
class Elements:
    """All elements of a tree. Stays the same object as long as none comes, goes or moves."""

    names: list[str]
    #: Name of the pool in which each stands; empty for the root.
    parents: list[PoolName]
    #: Places of these pools; -1 for the root.
    above: list[int]
    #: How many come first that are no operations: the root and all pools.
    pools: int
    #: How many of them are the root or configured.
    configured: int
    #: Order of children outside of fifo pools: the place of a pool, the Unix time in milliseconds of an operation's start.
    ranks: list[int]
    #: In force for the root and the pools, and by place for operations that ask for other ones than their pool has.
    options: list[EffectiveOptions]
    own_options: Mapping[int, EffectiveOptions]
    #: Of the root and the pools, as configured.
    limits: list[PartialResources]

    @cached_property
    def parent(self) -> Ints:
        """`above` as an array."""
        return np.array(self.above, np.int64)

    @cached_property
    def order(self) -> Ints:
        """`ranks` as an array."""
        return np.array(self.ranks, np.int64)

    @cached_property
    def keys(self) -> list[str]:
        """The key of each element's share item, see `ShareItem.key`."""
        return [f"/{name}" for name in self.names[: self.pools]] + self.names[self.pools :]

    @cached_property
    def places(self) -> dict[str, int]:
        """Place of each key."""
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def is_operation(self) -> Bools:
        """True at the places of operations."""
        return np.arange(len(self.names)) >= self.pools

    @cached_property
    def tolerance(self) -> Floats:
        """The part of its fair share that counts as having it, of each element."""
        return self._each(lambda options: options.fair_share_starvation_tolerance)

    @cached_property
    def starvation_timeout_ms(self) -> Floats:
        """The time below its fair share after which each element starves."""
        return self._each(lambda options: options.fair_share_starvation_timeout_ms)

    @cached_property
    def aggressive_enabled(self) -> Bools:
        """True where an element may starve aggressively."""
        return self._each(lambda options: options.enable_aggressive_starvation) > 0

    @cached_property
    def min_share_timeout_ms(self) -> Floats:
        """The time below its strong guarantee after which each element starves, infinite where it never does."""
        return self._each(lambda options: or_never(options.min_share_preemption_timeout_ms))

    def _each(self, value: Callable[[EffectiveOptions], float]) -> Floats:
        """An option of every element."""
        of_pool = np.array([value(options) for options in self.options], np.float64)
        each = of_pool[np.where(self.is_operation, self.parent, np.arange(len(self.names)))]
        for place, options in self.own_options.items():
            each[place] = value(options)
        return each

    def differs(self, place: int, before: Elements, old: int) -> bool:
        """True if parent, kind or options of an element are not as they were, which no figure tells."""
        return (
            self.parents[place] != before.parents[old]
            or self.is_ephemeral(place) != before.is_ephemeral(old)
            or (
                place < self.pools
                and (self.options[place], self.limits[place]) != (before.options[old], before.limits[old])
            )
        )

    def kind(self, place: int) -> ElementKind:
        """The kind of the element at a place."""
        if place >= self.pools:
            return ElementKind.OPERATION
        return ElementKind.POOL if place else ElementKind.ROOT

    def is_ephemeral(self, place: int) -> bool:
        """True if it is a pool that lives only by its operations."""
        return self.configured <= place < self.pools


def elements_of(
    tree: TreeInput,
    configured: int,
    options: list[EffectiveOptions],
    limits: list[PartialResources],
    own_options: Mapping[int, EffectiveOptions] | None = None,
) -> Elements:
    """Lists the elements of an update, of whose pools the first are configured.

    `options` and `limits` are of the root and all pools, `own_options` of operations by their place among themselves.
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
    """A timeout as a number: infinite where there is none."""
    return math.inf if timeout_ms is None else timeout_ms
