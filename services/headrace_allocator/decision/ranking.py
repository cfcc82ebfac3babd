"""Ranking: the order of operations is kept in line with the facts.

A change of the whole tree, such as a node that joins, only marks the operations. Their places are found anew in slices between
heartbeats, so that no heartbeat costs more for there being more operations. An operation that a pool's limit holds back is parked
there and costs nothing. When something below that limit ended, some of the parked come back at once and all others with the next
shares. Invariant (`checks`): whoever is in the order and not marked may get a job, in the place that the facts give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final

from headrace.ids import OperationId, PoolName
from headrace.runtime.engine import Check
from headrace_allocator.decision.holding_back import held_back, not_schedulable, own_limit_reached
from headrace_allocator.decision.least_satisfied import Candidate, LeastSatisfied, satisfaction
from headrace_allocator.decision.reasons import PoolLimitReached, Reason
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation

__all__ = ["Ranking"]

#: Parked operations that come back at once when something ended; all others wait for the next shares.
_MOST_WOKEN: Final = 64


class Ranking:
    """Gives operations their place in the order."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.order = LeastSatisfied()
        #: Operations whose place is to be found anew, and whether that is so for all of them.
        self._marked: dict[OperationId, None] = {}
        self._all_marked = False
        #: Operations that a pool's limit holds back, by that pool; pools where something ended and not all came back.
        self._parked: dict[PoolName, dict[OperationId, None]] = {}
        self._left_parked: set[PoolName] = set()

    def refresh(self, operation: Operation) -> None:
        """Gives an operation its place in the order, or takes it out if no job of it may start."""
        held = operation.held
        why_not = held_back(operation, operation.slots.ready_count, held, self._facts.pools)
        if why_not is None:
            self.order.put(operation, satisfaction(operation, held, self._facts.total))
            return
        self.order.remove(operation.id)
        if isinstance(why_not, PoolLimitReached):
            self._park(operation.id, why_not.pool)

    def refresh_all(self, operations: Iterable[OperationId]) -> None:
        """The same for those of them that are known."""
        for name in operations:
            operation = self._facts.operations.get(name)
            if operation is not None:
                self.refresh(operation)

    def apply(self, moved: Mapping[OperationId, Candidate | Reason]) -> None:
        """The decision was applied to the facts: whoever moved in its overlay has moved."""
        for name, place in moved.items():
            if isinstance(place, tuple):
                self.order.put(self._facts.operations[name], place[0])
                continue
            self.order.remove(name)
            if isinstance(place, PoolLimitReached):
                self._park(name, place.pool)

    def forget(self, operation: OperationId) -> None:
        """The operation is over."""
        self.order.remove(operation)
        self._marked.pop(operation, None)

    def mark(self, operation: OperationId) -> None:
        """Its place is to be found anew, by `refresh_marked`."""
        self._marked[operation] = None

    def mark_all(self) -> None:
        """The room of the tree changed, and with it what every share of it means."""
        self._all_marked = True

    def refresh_marked(self, most: int) -> bool:
        """Gives up to `most` marked operations their place. True while there are more."""
        if self._all_marked:
            self._all_marked = False
            self._facts.note_shapes()
            # Those that waited already stay in front, so that the room may change for ever and each still gets its turn.
            self._marked.update(dict.fromkeys(self._facts.operations))
        for _ in range(min(most, len(self._marked))):
            name = next(iter(self._marked))
            del self._marked[name]
            operation = self._facts.operations.get(name)
            if operation is not None:
                self.refresh(operation)
                self._facts.judge_size(operation)
        return bool(self._marked)

    def wake_some(self) -> None:
        """Lets a few operations back into the order for which something ended below a full limit."""
        left = _MOST_WOKEN
        for pool in self._facts.pools.freed:
            parked = self._parked.get(pool, {})
            woken = list(islice(parked, left))
            left -= len(woken)
            for name in woken:
                del parked[name]
            if parked:
                self._left_parked.add(pool)
            self.refresh_all(woken)
        self._facts.pools.freed.clear()

    def mark_freed(self) -> None:
        """Marks all operations that are parked where something ended."""
        self._mark_parked(self._left_parked | self._facts.pools.freed)

    def mark_parked(self) -> None:
        """Marks all parked operations: limits changed."""
        self._mark_parked(list(self._parked))

    def checks(self) -> Iterator[Check]:
        """The order, and the place of each operation."""
        yield from self.order.checks()
        for name in list(self.order):
            yield partial(self._check_place, name)

    def _check_place(self, name: OperationId) -> list[str]:
        operation, place = self._facts.operations.get(name), self.order.place(name)
        if place is None or self._all_marked or name in self._marked:
            return []
        if operation is None:
            return [f"{name}: in the order and not known"]
        # A limit of a pool may have been reached by others: whoever is picked then is parked.
        ready, held = operation.slots.ready_count, operation.held
        broken = []
        if not_schedulable(operation) or ready <= 0 or own_limit_reached(operation, held):
            broken.append(f"{name}: in the order, and no job of it may start")
        if place != (satisfaction(operation, held, self._facts.total), operation.arrival, name):
            broken.append(f"{name}: its place in the order is not that of its satisfaction")
        return broken

    def _mark_parked(self, pools: Iterable[PoolName]) -> None:
        for pool in pools:
            self._marked.update(self._parked.pop(pool, {}))
        self._left_parked.clear()
        self._facts.pools.freed.clear()

    def _park(self, operation: OperationId, pool: PoolName) -> None:
        self._parked.setdefault(pool, {})[operation] = None
