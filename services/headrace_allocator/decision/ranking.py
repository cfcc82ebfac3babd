"""Ranking: the order of operations is kept in line with the facts.

A change of the whole tree, such as a node that joins, only marks the operations. Their places are found anew in slices between
heartbeats, so that no heartbeat costs more for there being more operations. Invariant (`checks`): whoever is in the order and not
marked may get a job, in the place that the facts give, unless a pool's limit holds it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from headrace.ids import OperationId
from headrace.runtime.engine import Check
from headrace_allocator.decision.holding_back import held_back
from headrace_allocator.decision.least_satisfied import Entry, LeastSatisfied, entry_of
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation

__all__ = ["Ranking"]


class Ranking:
    """Gives operations their place in the order."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.order = LeastSatisfied(facts.pools)
        #: Operations whose place is to be found anew, and whether that is so for all of them.
        self._marked: dict[OperationId, None] = {}
        self._all_marked = False

    def refresh(self, operation: Operation) -> None:
        """Gives an operation its place in the order, or takes it out if no job of it may start."""
        entry = self._entry(operation)
        if entry is None:
            self.order.remove(operation.id)
        else:
            self.order.put(operation, entry)

    def refresh_all(self, operations: Iterable[OperationId]) -> None:
        """The same for those of them that are known."""
        for name in operations:
            operation = self._facts.operations.get(name)
            if operation is not None:
                self.refresh(operation)

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

    def checks(self) -> Iterator[Check]:
        """The order, and the place of each operation."""
        yield from self.order.checks()
        for name in list(self.order):
            yield partial(self._check_place, name)

    def _entry(self, operation: Operation) -> Entry | None:
        facts, held = self._facts, operation.held
        if held_back(operation, operation.slots.ready_count, held) is not None:
            return None
        return entry_of(operation, facts.pools.pool(operation.spec.pool), held, facts.total)

    def _check_place(self, name: OperationId) -> list[str]:
        operation, entry = self._facts.operations.get(name), self.order.entry(name)
        if entry is None or self._all_marked or name in self._marked:
            return []
        if operation is None:
            return [f"{name}: in the order and not known"]
        if entry != self._entry(operation):
            return [f"{name}: its place in the order is not what the facts give"]
        return []
