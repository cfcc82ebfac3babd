"""The elements of a tree in the order in which everything about them is kept, and the algorithm's input made of them; pure.

The order is root, configured pools with parents first, ephemeral pools, operations. Figures of elements are arrays in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np
from msgspec.structs import replace

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import PoolTree
from headrace.resources import ZERO, Resources
from headrace.wire import integral as wire
from headrace.wire.pools import Pool
from headrace.wire.snapshots import ElementKind, UsageItem
from headrace_fair_share.hdrf.arrays import Bools, Ints
from headrace_fair_share.hdrf.model import IntegralState, OperationInput, PoolInput, TreeInput, Volume
from headrace_fair_share.starvation.tolerance_and_timeouts import Patience, patience_of
from headrace_fair_share.update.cut import Cut, KnownOperation
from headrace_fair_share.update.ephemeral_pools import guests_of
from headrace_fair_share.update.pool_inputs import pool_input, tree_options

__all__ = ["Elements", "Roll", "Roster", "pool_key"]


def pool_key(name: PoolName) -> str:
    """The key of a pool's share item."""
    return f"/{name}"


@dataclass(frozen=True)
class Elements:
    """Who there is. Stays the same object as long as nobody comes, goes or moves."""

    names: list[str]
    #: Name of the pool in which each stands; empty for the root.
    parents: list[PoolName]
    #: Places of these pools; -1 for the root.
    parent: Ints
    #: How many come first that are no operations: the root and all pools.
    pools: int
    #: How many of them are the root or configured.
    configured: int

    @cached_property
    def keys(self) -> list[str]:
        """What names each in a snapshot, see `ShareItem.key`."""
        return [f"/{name}" for name in self.names[: self.pools]] + self.names[self.pools :]

    @cached_property
    def places(self) -> dict[str, int]:
        """Place of each key."""
        return {key: place for place, key in enumerate(self.keys)}

    @cached_property
    def is_operation(self) -> Bools:
        return np.arange(len(self.names)) >= self.pools

    def kind(self, place: int) -> ElementKind:
        """What stands at a place."""
        if place >= self.pools:
            return ElementKind.OPERATION
        return ElementKind.POOL if place else ElementKind.ROOT

    def is_ephemeral(self, place: int) -> bool:
        """True for a pool that lives only by its operations."""
        return self.configured <= place < self.pools


@dataclass(frozen=True, slots=True)
class Roll:
    """Who there is at one moment, and what the algorithm is to work on."""

    elements: Elements
    tree: TreeInput
    #: By place of operations among themselves: whether it waits for more than it has, and whether it has a running slot.
    wants: Bools
    runs: Bools
    #: By place of the root and the pools.
    patience: list[Patience]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An operation as it was taken in, and what was made of it."""

    known: KnownOperation
    item: UsageItem | None
    named: bool
    input: OperationInput
    wants: bool


class Roster:
    """Makes the input of updates; an operation of which nothing changed since the update before costs next to nothing."""

    def __init__(self) -> None:
        self._configured: PoolTree | None = None
        self._guests: list[Pool] = []
        self._averages: dict[str, float] = {}
        self._pools: list[PoolInput] = []
        self._patience: list[Patience] = []
        self._place: dict[PoolName, int] = {}
        self._entries: dict[OperationId, _Entry] = {}
        self._elements: Elements | None = None

    def take(self, cut: Cut) -> Roll:
        """The tree as the cut has it."""
        self._take_pools(cut)
        before, entries = self._entries, {}
        moved = list(cut.operations) != list(before)
        for known in cut.operations.values():
            operation = known.operation
            item, old = cut.usage.get(operation), before.get(operation)
            named = item is None and operation in cut.named
            average = cut.usage_averages.get(operation, 0.0)
            if (
                old is not None
                and old.known is known
                and old.item is item
                and old.named is named
                and old.input.historic_usage_average == average
            ):
                entries[operation] = old
                continue
            entry = self._entry(known, item, named, average)
            moved = moved or old is None or old.input.pool != entry.input.pool
            entries[operation] = entry
        self._entries = entries
        if moved or self._elements is None:
            self._elements = self._new_elements(cut)
        count = len(entries)
        tree = TreeInput(
            total=cut.total,
            options=tree_options(cut.pools.options),
            pools=self._pools,
            operations=[entry.input for entry in entries.values()],
            integral={
                name: IntegralState(_volume(volume.volume), cut.grants.get(name, 0.0))
                for name, volume in cut.volumes.items()
            },
        )
        return Roll(
            elements=self._elements,
            tree=tree,
            wants=np.fromiter((entry.wants for entry in entries.values()), np.bool_, count),
            patience=self._patience,
            runs=np.fromiter((not entry.known.waits for entry in entries.values()), np.bool_, count),
        )

    def _take_pools(self, cut: Cut) -> None:
        configured = cut.pools
        used = dict.fromkeys(map(attrgetter("pool"), cut.operations.values()))
        guests = guests_of([name for name in used if name not in configured.pools], cut.guests, configured)
        if configured is not self._configured or guests != self._guests:
            pools = [*(configured.pools[name] for name in configured.preorder), *guests]
            self._configured, self._guests = configured, guests
            self._place = {ROOT_POOL: -1, **{pool.name: place for place, pool in enumerate(pools)}}
            self._pools = [pool_input(pool, self._place[pool.parent], configured) for pool in pools]
            self._patience = patience_of(configured, self._pools)
            self._averages, self._entries, self._elements = {}, {}, None
        averages = {key: average for key, average in cut.usage_averages.items() if key.startswith("/")}
        if averages != self._averages:
            self._averages = averages
            self._pools = [
                _with_average(pool, averages.get(pool_key(PoolName(pool.name)), 0.0)) for pool in self._pools
            ]

    def _entry(self, known: KnownOperation, item: UsageItem | None, named: bool, average: float) -> _Entry:
        demand, usage, wants = _wishes(known, item, named)
        given = OperationInput(
            name=known.operation,
            pool=self._place[known.pool],
            weight=known.weight,
            demand=demand,
            usage=usage,
            limits=known.limits.as_tuple(),
            gang=known.is_gang,
            start_time_ms=known.started_at_ms,
            pending_job_count=item.pending_jobs if item is not None else known.initial_jobs,
            historic_usage_average=average,
        )
        return _Entry(known, item, named, given, wants)

    def _new_elements(self, cut: Cut) -> Elements:
        pools = [pool.name for pool in self._pools]
        above = [-1, *(pool.parent + 1 for pool in self._pools)]
        above += [entry.input.pool + 1 for entry in self._entries.values()]
        names = [ROOT_POOL, *pools]
        return Elements(
            names=[*names, *self._entries],
            parents=[PoolName(""), *(PoolName(names[place]) for place in above[1:])],
            parent=np.array(above, np.int64),
            pools=len(names),
            configured=1 + len(cut.pools.preorder),
        )


def _wishes(known: KnownOperation, item: UsageItem | None, named: bool) -> tuple[Resources, Resources, bool]:
    """Demand, usage, and whether it waits for anything."""
    if item is None:
        if named or not known.takes_part:
            return ZERO, ZERO, False
        return known.initial, ZERO, known.initial_jobs > 0
    if not known.takes_part:
        return item.usage, item.usage, False
    return item.usage + item.precommit + item.pending, item.usage, item.pending_jobs > 0


def _with_average(pool: PoolInput, average: float) -> PoolInput:
    return pool if pool.historic_usage_average == average else replace(pool, historic_usage_average=average)


def _volume(volume: wire.Volume) -> Volume:
    return (volume.user_slots, float(volume.cpu), volume.gpu, volume.memory, volume.network)
