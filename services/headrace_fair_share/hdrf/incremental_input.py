"""Keeps the input arrays of one tree between updates, and reads only what differs from the previous input.

Most updates differ in the demand of a few operations. Fixed attributes are computed again only if something that they depend on changed.

Section: docs/reference/fair-share-algorithm.md#13-what-is-kept-between-updates
"""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter, is_not
from typing import Final

import numpy as np

from headrace_fair_share.hdrf.arrays import Ints
from headrace_fair_share.hdrf.fifo import fifo_indices
from headrace_fair_share.hdrf.fixed_attributes import FixedAttributes, fixed_attributes_of
from headrace_fair_share.hdrf.input_arrays import OperationArrays, PoolArrays, operations_as_arrays, pools_as_arrays
from headrace_fair_share.hdrf.layout import Layout, laid_out
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.weights import offers_of

#: Number of unchanged operations up to which reading all of them is as fast as reusing arrays.
_FEW: Final = 50
_PARENT: Final = attrgetter("parent")
#: Columns of pools that affect only weights.
_OF_WEIGHTS: Final = ("weight", "historic_weights", "usage_average")


class IncrementalInput:
    """The input arrays of one tree. An operation that is the same object as in the previous update is not read again."""

    layout: Layout
    pools: PoolArrays
    operations: OperationArrays
    fixed: FixedAttributes

    def __init__(self) -> None:
        self._last: TreeInput | None = None

    def take(self, tree: TreeInput) -> bool:
        """Read an input. Return True if functions of the previous input cannot be reused. Changed weights alone do not prevent reuse.

        After an error the whole next input is read.
        """
        last, self._last = self._last, None
        changed = self._changed_operations(tree, last) if last is not None else None
        before = None
        if last is None or changed is None or not _stand_as_before(tree, last):
            self.layout = laid_out(tree.pools, tree.operations)
            self.operations = self._read(tree, last)
            same_pools, weighted, ordered = False, False, False
        else:
            same_options, same_cluster = tree.options == last.options, tree.total == last.total
            before = self.pools if same_options and same_cluster else None
            same_pools = same_options and tree.pools == last.pools
            weighted, ordered = self._take_operations(tree, changed)
            weighted = weighted and same_cluster
        if not same_pools:
            self.pools = pools_as_arrays(self.layout, tree.pools, tree.options)
        if not (same_pools and weighted):
            self.fixed = fixed_attributes_of(tree, self.layout, self.pools, self.operations)
        elif not ordered:
            ranks = fifo_indices(self.layout, self.pools, tree.pools, self.operations)
            offers = offers_of(self.layout, self.pools, self.fixed.weight, ranks)
            self.fixed = replace(self.fixed, fifo_index=ranks, offers=offers)
        self._last = tree
        return before is None or not _differ_in_weights_alone(before, self.pools)

    def names(self, tree: TreeInput, pools: Ints) -> list[str]:
        """Return the names of pools, by their numbers."""
        place = np.zeros(self.layout.size, np.int64)
        place[self.layout.of_pool] = np.arange(len(tree.pools))
        return [tree.pools[at].name for at in place[pools].tolist()]

    def _read(self, tree: TreeInput, last: TreeInput | None) -> OperationArrays:
        """Read all operations. If many of them were in the previous input, those are copied from its arrays."""
        before = {id(each): place for place, each in enumerate(last.operations)} if last is not None else {}
        count = len(tree.operations)
        places = np.fromiter((before.get(id(each), -1) for each in tree.operations), np.int64, count)
        new = np.flatnonzero(places < 0)
        if count - len(new) <= _FEW:
            return operations_as_arrays(tree.operations)
        read = operations_as_arrays([tree.operations[place] for place in new.tolist()])
        columns = {field.name: getattr(self.operations, field.name)[..., places] for field in fields(OperationArrays)}
        for name, column in columns.items():
            column[..., new] = getattr(read, name)
        return OperationArrays(**columns)

    def _changed_operations(self, tree: TreeInput, last: TreeInput) -> Ints | None:
        """Return the positions of the operations that changed. None if operations were added, removed or moved."""
        if len(tree.operations) != len(last.operations):
            return None
        count = len(tree.operations)
        others = np.flatnonzero(np.fromiter(map(is_not, tree.operations, last.operations), np.bool_, count))
        changed = [place for place in others.tolist() if tree.operations[place] != last.operations[place]]
        if any(tree.operations[place].pool != last.operations[place].pool for place in changed):
            return None
        return np.array(changed, np.int64)

    def _take_operations(self, tree: TreeInput, changed: Ints) -> tuple[bool, bool]:
        """Read the changed operations. Return whether their weights are unchanged, and whether their other fifo sort keys are."""
        if not len(changed):
            return True, True
        now = operations_as_arrays([tree.operations[place] for place in changed.tolist()])
        before = self.operations
        weighted = _same(before, now, changed, "weight", "usage_average")
        ordered = _same(before, now, changed, "start_time_ms", "pending_jobs")
        for field in fields(OperationArrays):
            getattr(before, field.name)[..., changed] = getattr(now, field.name)
        return weighted, ordered


def _stand_as_before(tree: TreeInput, last: TreeInput) -> bool:
    """Return True if the parents of all pools are unchanged; other attributes of pools may differ."""
    return list(map(_PARENT, tree.pools)) == list(map(_PARENT, last.pools))


def _differ_in_weights_alone(before: PoolArrays, now: PoolArrays) -> bool:
    """Return True if the pools differ in weights only. Weights affect functions through the offers, whose changes are tracked."""
    others = (field.name for field in fields(PoolArrays) if field.name not in _OF_WEIGHTS)
    return all((getattr(before, name) == getattr(now, name)).all() for name in others)


def _same(before: OperationArrays, now: OperationArrays, changed: Ints, *names: str) -> bool:
    """Return True if these columns of the changed operations are unchanged."""
    return all((getattr(before, name)[changed] == getattr(now, name)).all() for name in names)
