"""The input of one tree as arrays that are kept between updates, and the attributes of elements that do not depend on demand.

From one update to the next, mostly the demand of a few operations changes, so only what differs from the previous input is read.
Guarantees, limits, weights and the order of operations change only with the configuration, the size of the cluster or a weight. These fixed
attributes are computed again only if something that they depend on changed.

Sections: docs/reference/fair-share-algorithm.md#3-one-update, docs/reference/fair-share-algorithm.md#13-what-is-kept-between-updates
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import attrgetter, is_not
from typing import Final

import numpy as np

from headrace_fair_share.hdrf.arrays import (
    RESOURCES,
    Bools,
    BrokenInvariant,
    Floats,
    Ints,
    column,
    fits_into,
    shares_of,
)
from headrace_fair_share.hdrf.fifo import fifo_indices
from headrace_fair_share.hdrf.input_arrays import (
    Layout,
    OperationArrays,
    PoolArrays,
    laid_out,
    operations_as_arrays,
    pools_as_arrays,
)
from headrace_fair_share.hdrf.model import ErrorKind, GuaranteeError, TreeInput
from headrace_fair_share.hdrf.strong_guarantees import (
    FittedGuarantees,
    Ratios,
    estimated_guarantees,
    fitted_into_cluster,
    fitted_into_parents,
    flow_and_burst,
    has_donor_above,
    inferred_guarantees,
    no_guarantees,
    promises_anything,
    shortage_in_words,
)
from headrace_fair_share.hdrf.weights import Offers, offers_of, weights_in_force

#: Number of unchanged operations up to which reading all operations is as fast as copying the unchanged ones from the previous arrays.
_FEW: Final = 50
_PARENT: Final = attrgetter("parent")
#: Columns of pools that affect only weights.
_OF_WEIGHTS: Final = ("weight", "historic_weights", "usage_average")


@dataclass(frozen=True, slots=True)
class IntegralPools:
    """The pools that have integral guarantees, and the pools whose functions depend on integral grants.

    A pool whose flow and burst are both 0 never gets a grant, whatever the type of its guarantee. It counts as a pool without integral
    guarantee.
    """

    #: Burst pools, in the order in which they get their grants.
    burst: Ints
    #: Relaxed pools, in the order in which they get their grants.
    relaxed: Ints
    #: Integral pools and all pools above them, without the root: their functions depend on grants.
    touched: Ints
    #: All pools that are not in `touched`: their functions do not depend on grants.
    untouched: Ints
    #: For each integral pool: the pool itself and all pools above it, without the root.
    paths: dict[int, Ints]

    @property
    def all(self) -> Ints:
        return np.concatenate((self.burst, self.relaxed))


@dataclass(frozen=True, slots=True)
class FixedAttributes:
    """Attributes by element that depend only on the configuration, the cluster and the weights."""

    #: Total resources of the cluster, as one column.
    total: Ints
    #: Strong guarantees as shares, after missing figures were inferred, and after guarantees that do not all fit were reduced.
    strong: Floats
    #: Estimated guarantees, which are shown to people but not used for shares.
    estimated: Floats
    #: Limits of pools; 1 for operations.
    limits: Floats
    ratios: Ratios
    #: Burst ratios, scaled down if the cluster cannot keep them.
    burst: Floats
    weight: Floats
    #: Position of an operation in the order of its fifo pool; -1 for all other elements.
    fifo_index: Ints
    #: Offers to children. The operations of a fifo pool get their offers in the order of `fifo_index`.
    offers: Offers
    integral: IntegralPools
    #: Pools that ask for promised guarantee shares and are below no other pool that asks for them.
    promised: Ints
    errors: list[GuaranteeError]


class IncrementalInput:
    """The input arrays of one tree. An operation that is the same object as in the previous update is not read again."""

    layout: Layout
    pools: PoolArrays
    operations: OperationArrays
    fixed: FixedAttributes

    def __init__(self) -> None:
        self._last: TreeInput | None = None

    def read(self, tree: TreeInput) -> bool:
        """Read an input. Return True if functions that were built from the previous input cannot be reused. If only weights changed, they
        can be reused.

        If this raises an error, the next call reads its whole input.
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
        """Return all operations as arrays. If many of them were in the previous input, their columns are copied from the previous arrays,
        and only the other operations are read.
        """
        before = {id(each): place for place, each in enumerate(last.operations)} if last is not None else {}
        count = len(tree.operations)
        places = np.fromiter((before.get(id(each), -1) for each in tree.operations), np.int64, count)
        new = np.flatnonzero(places < 0)
        if count - len(new) <= _FEW:
            return operations_as_arrays(tree.operations)
        read = operations_as_arrays([tree.operations[place] for place in new.tolist()])
        columns = {field.name: getattr(self.operations, field.name)[..., places] for field in fields(OperationArrays)}
        for name, row in columns.items():
            row[..., new] = getattr(read, name)
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
        """Read the changed operations. Return two flags: True if their weights are unchanged, and True if their other fifo sort keys are
        unchanged.
        """
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
    """Return True if the pools differ in weights only.

    Then the functions can be reused: weights affect functions only through the offers, and each function whose offers changed is built
    again.
    """
    others = (field.name for field in fields(PoolArrays) if field.name not in _OF_WEIGHTS)
    return all((getattr(before, name) == getattr(now, name)).all() for name in others)


def _same(before: OperationArrays, now: OperationArrays, changed: Ints, *names: str) -> bool:
    """Return True if the columns `names` are unchanged in the changed operations."""
    return all((getattr(before, name)[changed] == getattr(now, name)).all() for name in names)


def fixed_attributes_of(
    tree: TreeInput, layout: Layout, pools: PoolArrays, operations: OperationArrays
) -> FixedAttributes:
    """Compute the fixed attributes of all elements."""
    total = column(tree.total)
    limits = limits_of(pools.limits, total)
    limits[:, layout.of_operation] = 1.0
    donated = has_donor_above(layout, pools)
    ratios, fitted = no_guarantees(layout.size)
    if promises_anything(pools):
        ratios = flow_and_burst(layout, pools, tree)
        fitted = fitted_into_cluster(layout, pools, tree, inferred_guarantees(layout, pools, tree), ratios)
    strong = fitted_into_parents(layout, pools, fitted.strong, limits, donated)
    weight = weights_in_force(
        layout, pools, operations, strong, ratios.total_flow, tree.options.infer_weight_multiplier
    )
    ranks = fifo_indices(layout, pools, tree.pools, operations)
    opted = _with_above(layout, pools.promised)
    return FixedAttributes(
        total=total,
        strong=strong,
        estimated=estimated_guarantees(layout, strong, weight),
        limits=limits,
        ratios=ratios,
        burst=fitted.burst,
        weight=weight,
        fifo_index=ranks,
        offers=offers_of(layout, pools, weight, ranks),
        integral=_integral(tree, layout, pools, ratios),
        promised=np.flatnonzero(pools.promised & ~opted),
        errors=_errors(tree, layout, fitted, ratios, pools.promised & opted, pools.priority & ~donated),
    )


def limits_of(limits: Ints, total: Ints) -> Floats:
    """Convert limits to shares: min(limits, total) / total."""
    return shares_of(np.minimum(limits, total), total)


def _with_above(layout: Layout, marked: Bools) -> Bools:
    """Return True for pools below a marked pool."""
    below = np.zeros(layout.size, np.bool_)
    for family in layout.pool_families:
        below[family.children] = (marked | below)[family.parents][family.owner]
    return below


def _integral(tree: TreeInput, layout: Layout, pools: PoolArrays, ratios: Ratios) -> IntegralPools:
    own = (ratios.flow > 0.0) | (ratios.burst > 0.0)
    nested = _with_above(layout, own) & own
    if nested.any():
        names = ", ".join(_names(tree, layout, nested))
        raise BrokenInvariant(f"pools with integral guarantees are below other pools that have them: {names}")
    touched = own.copy()
    for family in reversed(layout.pool_families):
        touched[family.parents] |= np.bincount(family.owner, touched[family.children], len(family.parents)) > 0
    touched[0] = False
    order = layout.preorder
    others = np.flatnonzero(layout.is_pool & ~touched)
    return IntegralPools(
        burst=order[(own & pools.burst)[order]],
        relaxed=order[(own & pools.relaxed)[order]],
        touched=np.flatnonzero(touched),
        untouched=others[others > 0],
        paths={pool: layout.path(pool) for pool in np.flatnonzero(own).tolist()},
    )


def _errors(
    tree: TreeInput, layout: Layout, fitted: FittedGuarantees, ratios: Ratios, nested: Bools, orphaned: Bools
) -> list[GuaranteeError]:
    """Return all errors of guarantees, in the order of the steps that find them."""
    errors: list[GuaranteeError] = []
    if orphaned.any():
        names = _names(tree, layout, orphaned)
        text = f"pools with priority for their strong guarantees, but without a donor above them: {', '.join(names)}"
        errors.append(GuaranteeError(ErrorKind.PRIORITY_WITHOUT_DONOR, text, names))
    if nested.any():
        names = _names(tree, layout, nested)
        text = f"pools that ask for their promised share below other pools that do so: {', '.join(names)}"
        errors.append(GuaranteeError(ErrorKind.NESTED_PROMISED_GUARANTEE, text, names))
    promising = ~fits_into(fitted.strong, np.zeros((RESOURCES, 1)))
    if fitted.short_for_flow.any():
        top = _top(layout, promising | (ratios.total_flow > 0.0))
        short = shortage_in_words(fitted.short_for_flow, tree)
        text = f"the cluster is too small for all strong guarantees and resource flows together: they promise {short}"
        errors.append(GuaranteeError(ErrorKind.OVERCOMMIT_FLOW, text, _names(tree, layout, top)))
    if fitted.short_for_burst.any():
        top = _top(layout, promising | (ratios.total_burst > 0.0))
        short = shortage_in_words(fitted.short_for_burst, tree)
        text = (
            f"the cluster is too small for all strong guarantees and burst guarantees together: they promise {short}; "
            f"all of them were scaled to {fitted.scaled_by:.6g} of their configured size"
        )
        errors.append(GuaranteeError(ErrorKind.OVERCOMMIT_BURST, text, _names(tree, layout, top)))
    return errors


def _top(layout: Layout, marked: Bools) -> Bools:
    return np.asarray(marked & layout.is_pool & (layout.parent == 0))


def _names(tree: TreeInput, layout: Layout, marked: Bools) -> list[str]:
    return [pool.name for pool, yes in zip(tree.pools, marked[layout.of_pool].tolist(), strict=True) if yes]
