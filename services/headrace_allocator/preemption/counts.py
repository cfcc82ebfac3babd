"""Counts of preemptions by reason and by group, for the tree and for each pool that lost something."""

from __future__ import annotations

from collections import Counter
from typing import Final

from headrace.ids import PoolName
from headrace.runtime.engine import Figure, counter
from headrace.wire.preemption import PreemptionCount, PreemptionReason
from headrace_allocator.facts.groups import Group
from headrace_allocator.facts.pool_tree import PoolTree

__all__ = ["PreemptionCounts"]

#: Pools that live by their operations come and go: the one that lost something first is forgotten first.
_MOST_POOLS: Final = 10_000
_NAMES: Final = {group: group.name.lower() for group in Group}


class PreemptionCounts:
    """Allocations that were preempted in this term."""

    def __init__(self) -> None:
        self._all: Counter[tuple[PreemptionReason, Group]] = Counter()
        self._of_pools: dict[PoolName, Counter[tuple[PreemptionReason, Group]]] = {}

    def note(self, pool: PoolName, reason: PreemptionReason, group: Group) -> None:
        """An operation of a pool lost an allocation."""
        self._all[reason, group] += 1
        if pool not in self._of_pools and len(self._of_pools) >= _MOST_POOLS:
            del self._of_pools[next(iter(self._of_pools))]
        self._of_pools.setdefault(pool, Counter())[reason, group] += 1

    def total(self) -> int:
        """All of them."""
        return self._all.total()

    def below(self, pools: PoolTree, pool: PoolName) -> list[PreemptionCount]:
        """Counts of a pool with all below it, the greatest first. The root and an empty name stand for the whole tree."""
        counts: Counter[tuple[PreemptionReason, Group]] = Counter()
        for name, of_pool in self._of_pools.items():
            if pool in pools.path(name):
                counts += of_pool
        found = self._all if pool in ("", pools.root.name) else counts
        return [PreemptionCount(reason, _NAMES[group], count) for (reason, group), count in found.most_common()]

    def figures(self) -> list[Figure]:
        """Counts by reason, and by group."""
        by_reason, by_group = (Counter[PreemptionReason](), Counter[Group]())
        for (reason, group), count in self._all.items():
            by_reason[reason] += count
            by_group[group] += count
        return [
            *(
                counter(
                    f"preempted_by_{each.value}",
                    "allocations",
                    by_reason[each],
                    f"Allocations that were preempted, by the reason {each.value}.",
                )
                for each in PreemptionReason
            ),
            *(
                counter(
                    f"preempted_of_{name}",
                    "allocations",
                    by_group[each],
                    f"Allocations that were preempted out of the group {name}.",
                )
                for each, name in _NAMES.items()
            ),
        ]
