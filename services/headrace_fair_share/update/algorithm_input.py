"""The algorithm's input, made from the frozen input of an update. Pure.

The input made from an operation is reused if the operation did not change since the previous update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import Pool, PoolTree, TreeOptions
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.effective_options import EffectiveOptions, of_operation
from headrace.resources import LARGEST_SUM, ZERO, Resources
from headrace.wire import integral as wire
from headrace.wire.placements import EphemeralPool
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.facts.ephemeral_pools import ephemeral_pools_of
from headrace_fair_share.facts.operations import Demand, KnownOperation, demand_of
from headrace_fair_share.facts.pool_inputs import effective_options_of, filters_of_all_below, pool_input, tree_options
from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, Ints
from headrace_fair_share.hdrf.model import (
    GuaranteeError,
    IntegralState,
    OperationInput,
    PoolInput,
    TreeInput,
    VolumeAmounts,
)
from headrace_fair_share.update.elements import Elements, elements_of, pool_key
from headrace_fair_share.update.matching_nodes import Divided, MatchingNodes, lowered
from headrace_fair_share.update.node_guarantees import node_overcommits, promises_of
from headrace_fair_share.update.update_facts import UpdateFacts


@dataclass(frozen=True)
class UpdateInput:
    """The elements of one update, and the tree that the algorithm works on."""

    elements: Elements
    tree: TreeInput
    #: Demands, by position among the operations.
    demands: Sequence[Demand]
    #: True for normal operations that have a running slot, by position among the operations.
    runs: Sequence[bool]
    #: True for lightweight operations that have a running slot.
    runs_lightweight: Sequence[bool]
    #: Resources of the nodes that match each element's tag filters; None for elements without filters.
    most: Sequence[Resources | None]
    #: Errors about guarantees that exceed what the nodes matching the pools' filters have.
    node_overcommits: Sequence[GuaranteeError] = ()

    @cached_property
    def pending(self) -> Bools:
        """True for operations with pending jobs, by position among the operations."""
        return np.fromiter((demand.is_pending for demand in self.demands), np.bool_, len(self.demands))

    @cached_property
    def running(self) -> Bools:
        """True for normal operations that have a running slot: an array by position among the operations."""
        return np.array(self.runs, np.bool_)

    @cached_property
    def running_lightweight(self) -> Bools:
        """True for lightweight operations that have a running slot: an array by position among the operations."""
        return np.array(self.runs_lightweight, np.bool_)

    @cached_property
    def tag_filter_limits(self) -> Ints:
        """Resources of the nodes that match each element's tag filters, as an array; `LARGEST_SUM` for elements without filters."""
        return _as_column(self.most)


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """An operation as it was in the last input, and the algorithm's input that was made from it."""

    known: KnownOperation
    usage: UsageItem | None
    was_named: bool
    input: OperationInput
    demand: Demand
    runs: bool
    own_options: EffectiveOptions | None
    #: Formulas over node tags that nodes must match.
    filters: tuple[str, ...]
    most: Resources | None


class OperationsOfCut(NamedTuple):
    """All or some operations of an update's input, and all pools that have an operation in the input; both in the input's order."""

    operations: Mapping[OperationId, KnownOperation]
    pools: Sequence[PoolName]


class InputMaker:
    """Makes the algorithm's input for one update after another."""

    def __init__(self) -> None:
        self._configured: PoolTree | None = None
        #: The ephemeral pools. They are derived from the next two attributes: the names of pools that are in use but not configured, and
        #: the ephemeral pools that admission reported.
        self._ephemeral: list[Pool] = []
        self._unconfigured: list[PoolName] = []
        self._told: Mapping[PoolName, EphemeralPool] = {}
        self._averages: dict[str, float] = {}
        self._nodes = MatchingNodes(None)
        #: Pools as configured.
        self._as_configured: list[PoolInput] = []
        #: The pools in `_as_configured`, with limits and averages applied.
        self._pools: list[PoolInput] = []
        #: Resources of the nodes that match each pool's filters; None for a pool without filters.
        self._most: list[Resources | None] = []
        self._options: list[EffectiveOptions] = []
        self._limits: list[PartialResources] = []
        #: `max_share_ratio` of each pool that has this option, by position of the pool.
        self._share_ratios: dict[int, float] = {}
        #: Total resources of the cluster from which `_pools` was made.
        self._total = ZERO
        self._place: dict[PoolName, int] = {}
        #: Positions of the pools in which vanilla operations are lightweight.
        self._for_lightweight: set[int] = set()
        self._entries: dict[OperationId, _Entry] = {}
        #: The operations that have tag filters; some of them may have finished.
        self._filtered: set[OperationId] = set()
        self._pool_filters: dict[int, tuple[str, ...]] = {}
        self._broken_promises: list[GuaranteeError] = []
        self._elements: Elements | None = None

    def make(self, cut: UpdateFacts, part: OperationsOfCut | None = None) -> UpdateInput:
        """Make the algorithm's input from an update's input: all its pools, and all its operations or only `part` of them."""
        if part is None:
            part = OperationsOfCut(
                cut.operations, list(dict.fromkeys(map(attrgetter("pool"), cut.operations.values())))
            )
        operations = part.operations
        same_nodes = cut.rooms is self._nodes.rooms
        # `_elements` is set to None first: if this method fails half way, the next call must not reuse the elements.
        kept, self._elements = self._elements, None
        anew = self._take_pools(cut, part.pools)
        before, entries = self._entries, {}
        moved = list(operations) != list(before)
        for known in operations.values():
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
                and (same_nodes or not old.filters)
            ):
                entries[operation] = old
                continue
            entry = self._entry(cut.pools.options, known, usage, was_named, average)
            moved = moved or old is None or old.input.pool != entry.input.pool
            entries[operation] = entry
        self._entries = entries
        divided = self._divided() if self._filtered else Divided()
        tree = TreeInput(
            total=cut.total,
            options=tree_options(cut.pools.options),
            pools=self._pools,
            operations=[entry.input for entry in entries.values()],
            integral={
                name: IntegralState(_volume(volume.volume), cut.grants.get(name, 0.0))
                for name, volume in cut.volumes.items()
            },
            node_classes=divided.classes,
            node_sets=divided.sets,
        )
        if moved or anew or kept is None:
            own = {at: entry.own_options for at, entry in enumerate(entries.values()) if entry.own_options is not None}
            made = elements_of(tree, len(cut.pools.preorder), self._options, self._limits, own)
            kept = kept if kept is not None and kept == made else made
        self._elements = kept
        lightweight = self._lightweight()
        return UpdateInput(
            elements=kept,
            tree=tree,
            demands=[entry.demand for entry in entries.values()],
            runs=[entry.runs and not light for entry, light in zip(entries.values(), lightweight, strict=True)],
            runs_lightweight=[entry.runs and light for entry, light in zip(entries.values(), lightweight, strict=True)],
            most=[None, *self._most, *(entry.most for entry in entries.values())],
            node_overcommits=self._broken_promises,
        )

    def _lightweight(self) -> list[bool]:
        """Return for each operation whether it is lightweight."""
        if not self._for_lightweight:
            return [False] * len(self._entries)
        places = self._for_lightweight
        return [entry.known.is_vanilla and entry.input.pool in places for entry in self._entries.values()]

    def _divided(self) -> Divided:
        """Return the sets of nodes that several operations of this input share."""
        self._filtered = {name for name in self._filtered if name in self._entries and self._entries[name].filters}
        places = {
            place: entry.filters for place, (name, entry) in enumerate(self._entries.items()) if name in self._filtered
        }
        return self._nodes.divided(places, self._pool_filters)

    def _take_pools(self, cut: UpdateFacts, used: Sequence[PoolName]) -> bool:
        """Take over the pools of an update's input. Return True if they differ from the previous pools."""
        configured = cut.pools
        unconfigured = [name for name in used if name not in configured.pools]
        told, ephemeral, anew = cut.ephemeral_pools, self._ephemeral, configured is not self._configured
        if anew or told is not self._told or unconfigured != self._unconfigured:
            ephemeral = ephemeral_pools_of(unconfigured, told, configured)
            self._told, self._unconfigured = told, unconfigured
        anew = anew or ephemeral != self._ephemeral
        if anew:
            self._list_pools(configured, ephemeral)
        averages = {key: average for key, average in cut.usage_averages.items() if key.startswith("/")}
        other_total = bool(self._share_ratios) and cut.total != self._total
        if anew or averages != self._averages or cut.rooms is not self._nodes.rooms or other_total:
            self._total = cut.total
            self._averages = averages
            same_nodes = cut.rooms is self._nodes.rooms
            if not same_nodes:
                self._nodes = MatchingNodes(cut.rooms)
            if anew or not same_nodes:
                self._broken_promises = list(node_overcommits(promises_of(configured), self._nodes))
            filters = filters_of_all_below(self._as_configured, self._options)
            self._most = [self._nodes.resources(formulas) for formulas in filters[1:]]
            self._pool_filters = {place: formulas for place, formulas in enumerate(filters[1:]) if formulas}
            self._pools = [
                _with_average(
                    _limited(_limited(pool, most), self._most_by_ratio(place)),
                    averages.get(pool_key(PoolName(pool.name)), 0.0),
                )
                for place, (pool, most) in enumerate(zip(self._as_configured, self._most, strict=True))
            ]
        return anew

    def _most_by_ratio(self, place: int) -> Resources | None:
        """Return the largest amount that `max_share_ratio` lets a pool be owed. None if the pool does not have this option."""
        ratio = self._share_ratios.get(place)
        return None if ratio is None else self._total.part((ratio, ratio, ratio, ratio, ratio))

    def _list_pools(self, configured: PoolTree, ephemeral: list[Pool]) -> None:
        """Compute everything that is derived from the pools.

        If the configured pools are unchanged, the results of all pools before the first changed ephemeral pool are reused.
        """
        known: list[EffectiveOptions] = []
        if configured is self._configured:
            pairs = takewhile(lambda pair: pair[0] == pair[1], zip(ephemeral, self._ephemeral, strict=False))
            known = self._options[: 1 + len(configured.preorder) + sum(1 for _ in pairs)]
        same = max(0, len(known) - 1)
        pools = [*(configured.pools[name] for name in configured.preorder), *ephemeral]
        places = {ROOT_POOL: -1, **{pool.name: place for place, pool in enumerate(pools)}}
        options = effective_options_of(configured, pools, known)
        self._forget_entries(configured, places, options)
        self._configured, self._ephemeral, self._place, self._options = configured, ephemeral, places, options
        made = [
            pool_input(pool, places[pool.parent], configured, memory_only=options.yarn_memory_only)
            for pool, options in zip(pools[same:], options[1 + same :], strict=True)
        ]
        self._as_configured = [*self._as_configured[:same], *made]
        configs = [configured.settings(pool.name) for pool in pools]
        self._for_lightweight = {place for place, each in enumerate(configs) if each.for_lightweight_operations}
        ratios = {place: each.max_share_ratio for place, each in enumerate(configs)}
        self._share_ratios = {place: ratio for place, ratio in ratios.items() if ratio is not None}
        self._limits = [NOTHING, *self._limits[1 : 1 + same], *(PartialResources(*pool.limits) for pool in made)]

    def _forget_entries(
        self, configured: PoolTree, places: dict[PoolName, int], options: list[EffectiveOptions]
    ) -> None:
        """Forget the kept input of operations, except of operations in pools whose position and options stay the same.

        Other changes of a pool, such as a new weight, do not affect the input of its operations.
        """
        if self._configured is None or configured.options != self._configured.options:
            self._entries = {}
            return
        stay = {
            name
            for name, place in places.items()
            if self._place.get(name) == place and self._options[place + 1] == options[place + 1]
        }
        self._entries = {key: entry for key, entry in self._entries.items() if entry.known.pool in stay}

    def _entry(
        self, tree: TreeOptions, known: KnownOperation, usage: UsageItem | None, was_named: bool, average: float
    ) -> _Entry:
        demand = demand_of(known, usage, was_named=was_named)
        pool, wishes = self._place[known.pool], known.wishes
        filters = self._options[pool + 1].scheduling_tag_filters + known.node_filters
        if filters:
            self._filtered.add(known.operation)
        most = self._nodes.resources(filters)
        given = OperationInput(
            name=known.operation,
            pool=pool,
            weight=known.weight,
            demand=demand.demand,
            usage=demand.usage,
            limits=lowered(known.limits.as_tuple(), most),
            gang=known.is_gang,
            start_time_ms=known.started_at_ms,
            pending_job_count=usage.pending_jobs if usage is not None else known.initial_jobs,
            historic_usage_average=average,
            takes_part=known.takes_part,
        )
        own = None if wishes is None else of_operation(self._options[pool + 1], wishes, tree)
        return _Entry(known, usage, was_named, given, demand, not known.waits, own, filters, most)


def _limited(pool: PoolInput, most: Resources | None) -> PoolInput:
    return pool if most is None else replace(pool, limits=lowered(pool.limits, most))


def _as_column(amounts: Sequence[Resources | None]) -> Ints:
    column = np.full((RESOURCES, len(amounts)), LARGEST_SUM)
    for place, amount in enumerate(amounts):
        if amount is not None:
            column[:, place] = amount.as_tuple()
    return column


def _with_average(pool: PoolInput, average: float) -> PoolInput:
    return pool if pool.historic_usage_average == average else replace(pool, historic_usage_average=average)


def _volume(volume: wire.Volume) -> VolumeAmounts:
    return (volume.user_slots, float(volume.cpu), volume.gpu, volume.memory, volume.network)
