"""Counts of preemptions by reason and by group, for the tree and for each pool that lost allocations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.resources import ZERO
from headrace.runtime.engine import Figure, by_label, counter
from headrace.wire.preemption import PreemptionCount, PreemptionReason
from headrace_allocator.facts.pool_tree import PoolStates
from headrace_allocator.facts.preemption_groups import Group

#: Upper bound of the pools with counts, because ephemeral pools come and go. At this bound, a new pool replaces the pool that was counted
#: first.
_MOST_POOLS: Final = 10_000
_NAMES: Final = {group: group.name.lower() for group in Group}
_UNUSED: Final = "{} that preemption freed beyond what the started jobs needed."
#: Resources, each with the unit of its metric and the first word of the metric's description.
_UNUSED_OF: Final = (
    ("user_slots", "slots", "Slots"),
    ("cpu", "hundredths of a core", "Cores"),
    ("gpu", "gpus", "GPUs"),
    ("memory", "bytes", "Memory"),
    ("network", "network", "Network"),
)


class PreemptionCounts:
    """The preemptions of this allocator's term."""

    def __init__(self) -> None:
        self._all: Counter[tuple[PreemptionReason, Group]] = Counter()
        self._of_pools: dict[PoolName, Counter[tuple[PreemptionReason, Group]]] = {}
        #: Number of preemptions that did not happen because the node never obeyed the order.
        self.undone = 0
        #: Resources that preemption freed in excess of what the starts needed.
        self.unused = ZERO

    def note(self, pool: PoolName, reason: PreemptionReason, group: Group) -> None:
        """Count the preemption of an allocation whose operation is in this pool."""
        self._all[reason, group] += 1
        if pool not in self._of_pools and len(self._of_pools) >= _MOST_POOLS:
            del self._of_pools[next(iter(self._of_pools))]
        self._of_pools.setdefault(pool, Counter())[reason, group] += 1

    def total(self) -> int:
        """Return the number of all preemptions."""
        return self._all.total()

    def below(self, pools: PoolStates, pool: PoolName) -> list[PreemptionCount]:
        """Return the counts of a pool and all pools below it, the largest first. The root and an empty name stand for the whole tree."""
        counts: Counter[tuple[PreemptionReason, Group]] = Counter()
        for name, of_pool in self._of_pools.items():
            if pool in pools.path(name):
                counts += of_pool
        found = self._all if pool in ("", pools.root.name) else counts
        return [PreemptionCount(reason, _NAMES[group], count) for (reason, group), count in found.most_common()]

    def figures(self) -> list[Figure]:
        """Return the metrics of preemptions by reason and by group, and of the resources that were freed and not used."""
        by_reason = {each.value: 0 for each in PreemptionReason}
        by_group = dict.fromkeys(_NAMES.values(), 0)
        for (reason, group), count in self._all.items():
            by_reason[reason.value] += count
            by_group[_NAMES[group]] += count
        preempted = counter("preempted", "allocations", 0, "Allocations that were preempted, by reason.")
        of_groups = counter(
            "preempted_of_group", "allocations", 0, "Allocations that were preempted, by the group that they were in."
        )
        return [
            *by_label(preempted, "preempted_by", "reason", by_reason),
            *by_label(of_groups, "preempted_of", "group", by_group),
            counter(
                "preemptions_undone",
                "allocations",
                self.undone,
                "Counted preemptions that did not happen, since the order never reached the node.",
            ),
            *(
                counter(f"preempted_unused_{name}", unit, getattr(self.unused, name), _UNUSED.format(what))
                for name, unit, what in _UNUSED_OF
            ),
        ]

    def of_pools(self) -> Callable[[], Iterator[Figure]]:
        """Copy the counts by pool and reason. Return a function that makes metrics of the copy and may be called in any thread."""
        # The root is always included, so that the metric exists before the first preemption.
        lost = Counter({(ROOT_POOL, each): 0 for each in PreemptionReason})
        for pool, of_pool in self._of_pools.items():
            for (reason, _), count in of_pool.items():
                lost[pool, reason] += count
        return lambda: _figures_of_pools(lost)


def _figures_of_pools(lost: Counter[tuple[PoolName, PreemptionReason]]) -> Iterator[Figure]:
    says = "Allocations that this pool's operations lost by preemption, by reason. Child pools have their own counts."
    family = counter("pool_preempted", "allocations", 0, says)
    for (pool, reason), count in lost.items():
        labels = {"pool": pool, "reason": reason.value}
        name = f"{family.name}_{reason.value}_{pool}"
        yield msgspec.structs.replace(family, name=name, value=count, family=family.name, labels=labels)
