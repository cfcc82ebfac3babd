"""Scheduling order: the order in which the operations would get an allocation if each got exactly one.

If the tree has the option `batch_operation_scheduling`, this order is divided into batches: regular stages consider one batch of
operations after another. Each snapshot of shares makes the order anew.

Source: sections 8.2 to 8.4 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice

import msgspec

from headrace.ids import OperationId, PoolName
from headrace_allocator.decision.least_satisfied import LeastSatisfied, entry_of_pool, satisfaction
from headrace_allocator.decision.pool_order import Entry, PoolOrder
from headrace_allocator.facts.facts import Facts


class Batch(msgspec.Struct, frozen=True):
    """Operations that are considered together, and all pools above them, the root included."""

    operations: frozenset[OperationId]
    pools: frozenset[PoolName]

    @staticmethod
    def of(facts: Facts, operations: list[OperationId]) -> Batch:
        """Return the batch of some operations, without operations that are over by now."""
        known = [facts.operations[name] for name in operations if name in facts.operations]
        pools = {pool for each in known for pool in facts.pools.path(each.spec.pool)}
        root = {facts.pools.root.name} if known else set()
        return Batch(frozenset(each.id for each in known), frozenset(pools | root))


def in_scheduling_order(facts: Facts, order: LeastSatisfied) -> Iterator[OperationId]:
    """Yield the operations in the order in which they would be served. The sorted lists of all pools are copied when the caller takes the
    first operation.
    """
    for _, operation in _leaves(facts, order.root):
        yield operation


def _leaves(facts: Facts, pool: PoolOrder) -> Iterator[tuple[Entry, OperationId]]:
    own = sorted(entry for entries in pool.buckets.values() for entry in entries)
    streams = [_below(facts, child) for child in pool.below]
    return merge(((entry, OperationId(entry[-1])) for entry in own), *streams)


def _below(facts: Facts, order: PoolOrder) -> Iterator[tuple[Entry, OperationId]]:
    """Yield the operations below a pool, each with the position that the pool would have if this operation came first in it."""
    pool = facts.pools.pool(order.name)
    entry = entry_of_pool(pool, pool.used, facts.pools.total)
    for leaf, name in _leaves(facts, order):
        satisfied = entry[0] if pool.follows_own_satisfaction else leaf[0]
        operation = facts.operations.get(name)
        if not pool.follows_own_satisfaction and operation is not None and operation.in_fifo_pool:
            satisfied = satisfaction(operation, operation.held)
        yield (satisfied, *entry[1:]), name


class Batches:
    """The batches of a tree. They are made anew after each snapshot of shares, in slices."""

    def __init__(self, facts: Facts, order: LeastSatisfied) -> None:
        self._facts = facts
        self._order = order
        #: The batches in force. Key True: batches of the operations of high priority; key False: batches of all other operations.
        self.of_priority: dict[bool, list[Batch]] = {}
        self._left: Iterator[OperationId] | None = None
        self._made: dict[bool, list[OperationId]] = {}

    def renew(self) -> None:
        """Begin to make the batches anew, if the tree has batches."""
        self._left, self._made = None, {True: [], False: []}
        if self._facts.pools.options.batch_operation_scheduling is None:
            self.of_priority = {}
        else:
            self._left = in_scheduling_order(self._facts, self._order)

    @property
    def are_being_made(self) -> bool:
        """True while batches are being made, so that `advance` must be called again."""
        return self._left is not None

    def advance(self, most: int) -> None:
        """Put up to `most` further operations into batches."""
        options = self._facts.pools.options.batch_operation_scheduling
        if self._left is None or options is None:
            return
        taken = list(islice(self._left, most))
        for name in taken:
            self._made[self._order.is_high(name)].append(name)
        if len(taken) < most:
            size, self._left = options.batch_size, None
            self.of_priority = {
                high: [Batch.of(self._facts, names[at : at + size]) for at in range(0, len(names), size)]
                for high, names in self._made.items()
            }
