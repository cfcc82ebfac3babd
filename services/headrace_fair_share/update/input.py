"""The algorithm's input, made of a cut. Pure.

An operation of which nothing changed since the update before keeps what was made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from msgspec.structs import replace

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import PoolTree, TreeOptions
from headrace.pools.effective_options import EffectiveOptions, of_operation
from headrace.wire import integral as wire
from headrace.wire.pools import Pool
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.demand import Demand, demand_of
from headrace_fair_share.facts.ephemeral_pools import ephemeral_pools_of
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.facts.pool_inputs import effective_options_of, pool_input, tree_options
from headrace_fair_share.hdrf.arrays import Bools
from headrace_fair_share.hdrf.model import IntegralState, OperationInput, PoolInput, TreeInput, Volume
from headrace_fair_share.update.cut import Cut
from headrace_fair_share.update.elements import Elements, elements_of, pool_key

__all__ = ["InputMaker", "UpdateInput"]


@dataclass(frozen=True, slots=True)
class UpdateInput:
    """The elements of one moment, and the tree that the algorithm is to work on."""

    elements: Elements
    tree: TreeInput
    #: By place of operations among themselves: True if jobs of it wait for a place, and if it has a running slot.
    pending: Bools
    running: Bools
    demands: Sequence[Demand] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    """An operation as the last cut had it, and what was made of it."""

    known: KnownOperation
    usage: UsageItem | None
    was_named: bool
    input: OperationInput
    demand: Demand
    own_options: EffectiveOptions | None


class InputMaker:
    """Makes the input of one update after another."""

    def __init__(self) -> None:
        self._configured: PoolTree | None = None
        self._ephemeral: list[Pool] = []
        self._averages: dict[str, float] = {}
        self._pools: list[PoolInput] = []
        self._options: list[EffectiveOptions] = []
        self._place: dict[PoolName, int] = {}
        self._entries: dict[OperationId, _Entry] = {}
        self._elements: Elements | None = None

    def take(self, cut: Cut) -> UpdateInput:
        """Makes the input of a cut."""
        self._take_pools(cut)
        before, entries = self._entries, {}
        moved = list(cut.operations) != list(before)
        for known in cut.operations.values():
            operation = known.operation
            usage, old = cut.usage.get(operation), before.get(operation)
            was_named = usage is None and operation in cut.named
            average = cut.usage_averages.get(operation, 0.0)
            if (
                old is not None
                and old.known is known
                and old.usage is usage
                and old.was_named is was_named
                and old.input.historic_usage_average == average
            ):
                entries[operation] = old
                continue
            entry = self._entry(cut.pools.options, known, usage, was_named, average)
            moved = moved or old is None or old.input.pool != entry.input.pool
            entries[operation] = entry
        self._entries = entries
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
        demands = [entry.demand for entry in entries.values()]
        if moved or self._elements is None:
            own = {at: entry.own_options for at, entry in enumerate(entries.values()) if entry.own_options is not None}
            self._elements = elements_of(tree, len(cut.pools.preorder), self._options, own)
        return UpdateInput(
            elements=self._elements,
            tree=tree,
            pending=np.fromiter((demand.is_pending for demand in demands), np.bool_, count),
            running=np.fromiter((not entry.known.waits for entry in entries.values()), np.bool_, count),
            demands=demands,
        )

    def _take_pools(self, cut: Cut) -> None:
        configured = cut.pools
        used = dict.fromkeys(map(attrgetter("pool"), cut.operations.values()))
        unconfigured = [name for name in used if name not in configured.pools]
        ephemeral = ephemeral_pools_of(unconfigured, cut.ephemeral_pools, configured)
        if configured is not self._configured or ephemeral != self._ephemeral:
            pools = [*(configured.pools[name] for name in configured.preorder), *ephemeral]
            self._configured, self._ephemeral = configured, ephemeral
            self._place = {ROOT_POOL: -1, **{pool.name: place for place, pool in enumerate(pools)}}
            self._pools = [pool_input(pool, self._place[pool.parent], configured) for pool in pools]
            self._options = effective_options_of(configured, pools)
            self._averages, self._entries, self._elements = {}, {}, None
        averages = {key: average for key, average in cut.usage_averages.items() if key.startswith("/")}
        if averages != self._averages:
            self._averages = averages
            self._pools = [
                _with_average(pool, averages.get(pool_key(PoolName(pool.name)), 0.0)) for pool in self._pools
            ]

    def _entry(
        self, tree: TreeOptions, known: KnownOperation, usage: UsageItem | None, was_named: bool, average: float
    ) -> _Entry:
        demand = demand_of(known, usage, was_named=was_named)
        pool, wishes = self._place[known.pool], known.wishes
        given = OperationInput(
            name=known.operation,
            pool=pool,
            weight=known.weight,
            demand=demand.demand,
            usage=demand.usage,
            limits=known.limits.as_tuple(),
            gang=known.is_gang,
            start_time_ms=known.started_at_ms,
            pending_job_count=usage.pending_jobs if usage is not None else known.initial_jobs,
            historic_usage_average=average,
        )
        own = None if wishes is None else of_operation(self._options[pool + 1], wishes, tree)
        return _Entry(known, usage, was_named, given, demand, own)


def _with_average(pool: PoolInput, average: float) -> PoolInput:
    return pool if pool.historic_usage_average == average else replace(pool, historic_usage_average=average)


def _volume(volume: wire.Volume) -> Volume:
    return (volume.user_slots, float(volume.cpu), volume.gpu, volume.memory, volume.network)
