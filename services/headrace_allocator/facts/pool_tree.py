"""The tree of pools with their shares, and what the operations below each pool use.

A snapshot is taken over as a whole: all its changes since the last snapshot, or none of them. A pool's limit bounds what all jobs below
the pool may use together. A pool that no snapshot has named stands below the root.

Unconfirmed jobs are counted apart, because it is not known whether they run. They count towards limits, so that no other job starts in the
resources that they may use. But no allocation is preempted because of unconfirmed jobs.

Invariant (`check`): a pool's usage, and what its unconfirmed jobs may use, are sums over the operations below it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.amounts import NOTHING, OutOfBounds, PartialResources, out_of_bounds
from headrace.pools.effective_options import EffectiveOptions, of_tree
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import ZERO, Resources
from headrace.satisfaction import Owed
from headrace.wire.operations import OperationSpec
from headrace.wire.snapshots import ShareItem

_DEFAULTS: Final = EffectiveOptions()


class ShareSnapshot(msgspec.Struct, frozen=True):
    """A snapshot of shares, with the keys of the items that changed since the snapshot before."""

    #: All items of the snapshot, by `ShareItem.key`.
    items: Mapping[str, ShareItem]
    changed: Collection[str]
    removed: Collection[str] = ()
    #: Cluster total that the shares are fractions of.
    total: Resources = ZERO
    options: AllocationOptions = AllocationOptions()


class RefusedSize(NamedTuple):
    """The reason why no job of an operation starts: the size of its jobs breaks a bound that a pool or the tree sets."""

    #: The pool that sets the bound, or the root.
    pool: PoolName
    broken: OutOfBounds


class OtherPlaces(NamedTuple):
    """Operations and pools whose position in the scheduling order a snapshot may change, except for operations that the snapshot names."""

    #: True if any operation may have another position.
    everywhere: bool
    #: Pools whose own operations may have another position, because options of the pool changed.
    in_pools: list[PoolName]
    #: Pools of which only the shares changed. They are too many to be repositioned at once. All other changed pools are
    #: in `PoolStates.changed`.
    of_pools: list[PoolName]


class PoolState:
    """One pool, and what is used below it."""

    __slots__ = (
        "above", "filters", "follows_own_satisfaction", "in_doubt", "item", "keeps_fifo_order", "limited", "most", "name", "owed",
        "preemption", "used",
    )  # fmt: skip

    def __init__(self, name: PoolName, above: PoolState | None) -> None:
        self.name = name
        #: The parent pool; None for the root.
        self.above = above
        #: Resources that the operations below the pool hold.
        self.used = ZERO
        #: The largest amount that unconfirmed jobs of the operations below the pool may hold in addition.
        self.in_doubt = ZERO
        self.set_item(None)

    def set_item(self, item: ShareItem | None) -> None:
        """Take over the item of the pool in a snapshot; None if no snapshot names the pool."""
        self.item = item
        #: The pool's shares with the cluster total, prepared when the pool's position in the scheduling order was last computed.
        self.owed: Owed | None = None
        #: The pool's limit.
        self.most = item.limits if item is not None else NOTHING
        #: True if the pool has a limit.
        self.limited = self.most != NOTHING
        options = _options(item)
        #: True if the operations of a fifo pool get resources in the pool's order.
        self.keeps_fifo_order = options.fifo_pool_scheduling_order is FifoPoolSchedulingOrder.FIFO
        #: True if the pool's own satisfaction counts in scheduling, not the satisfaction of the operation that would be chosen below it.
        self.follows_own_satisfaction = options.use_pool_satisfaction_for_scheduling
        #: The option that says whether allocations of the pool's operations may be preempted.
        self.preemption = options.preemption
        #: Formulas over tags. A node must match each of them to run jobs below the pool.
        self.filters = options.scheduling_tag_filters

    def takes_shares_of(self, item: ShareItem) -> bool:
        """Take over a snapshot's item if only the pool's shares changed. Returns False if anything else changed.

        Each snapshot changes the shares of thousands of pools, and most of these pools do not change in anything else.
        """
        known = self.item
        if known is None or item.parent != known.parent:
            return False
        # In an item made from a `MovedShare`, options and limits are the same objects as before.
        if item.options is not known.options or item.limits is not known.limits:
            return False
        self.item, self.owed = item, None
        return True

    def limit(self, policy: AllocationOptions, *, tolerant: bool) -> PartialResources:
        """Return the most that may be used below the pool. A preemptive stage passes `tolerant`, which adds the pool's tolerance."""
        if not tolerant or self.item is None or self.item.options is None:
            return self.most
        return tolerant_limit(self.most, self.item.options.resource_limits_overcommit_tolerance, policy)

    @property
    def charged(self) -> Resources:
        """All that counts towards the pool's limit when a job is to start."""
        # The sum is computed only if there are unconfirmed jobs, which exist only after a restart.
        return self.used if self.in_doubt is ZERO else self.used + self.in_doubt

    def add(self, used: Resources, in_doubt: Resources) -> None:
        """Add to what operations below the pool hold, and to what their unconfirmed jobs may hold. Negative amounts subtract."""
        self.used = self.used + used
        if in_doubt is not ZERO:
            doubt = self.in_doubt + in_doubt
            self.in_doubt = ZERO if doubt == ZERO else doubt

    def path(self) -> Iterator[PoolState]:
        """Yield the pool and all pools above it, from the lowest up, without the root."""
        pool = self
        while pool.above is not None:
            yield pool
            pool = pool.above


class PoolStates:
    """All pools of one tree, the root included."""

    def __init__(self) -> None:
        #: The newest share item of each pool that a snapshot names.
        self.pools: dict[PoolName, ShareItem] = {}
        self.total = ZERO
        self.options = AllocationOptions()
        #: Number of snapshots that changed the cluster total, the tree's policy or the options of a pool.
        self.rules = 0
        #: A job starts on a node only if at least these resources are free there.
        self.min_spare = self.options.min_spare_allocation_resources_on_node.whole
        #: Number of snapshots that changed a limit or the parent of a pool.
        self.limits_changes = 0
        #: True once a snapshot with a cluster total was taken over. Limits are unknown until then.
        self.limits_known = False
        self.root = PoolState(ROOT_POOL, None)
        #: Pools whose usage exceeds their limit.
        self.exceeded: set[PoolState] = set()
        self._known: dict[PoolName, PoolState] = {ROOT_POOL: self.root, PoolName(""): self.root}
        #: Pools whose usage, shares or parent changed. The reader of the changes removes them.
        self.changed: set[PoolName] = set()
        #: True if some of the changed pools have another parent than before.
        self.some_moved = False

    def pool(self, name: PoolName) -> PoolState:
        """Return the pool of this name. A pool of which nothing is known is created below the root."""
        pool = self._known.get(name)
        if pool is None:
            pool = self._known[name] = PoolState(name, self.root)
        return pool

    def apply(self, cut: ShareSnapshot) -> OtherPlaces:
        """Take over a snapshot. Returns the operations and pools whose position it may change, except for operations that it names."""
        changed: dict[PoolName, ShareItem | None] = {}
        for key in cut.removed:
            name = PoolName(key[1:])
            if key.startswith("/") and name in self.pools:
                changed[name] = None
        items = cut.items
        for key in cut.changed:
            if key[:1] == "/" and (told := items.get(key)) is not None:
                changed[PoolName(told.name)] = told
        # A new policy or a new total may change every position: the policy says which operations may pass a limit and which have high
        # priority, and every share is a fraction of the total.
        everywhere = has_other_rules = cut.options != self.options or cut.total != self.total
        # If the total and the options did not change, the objects stay the same, so that results computed from them can be reused after
        # an identity check.
        if cut.total != self.total:
            self.total = cut.total
        if cut.options != self.options:
            self.options = cut.options
        self.min_spare = cut.options.min_spare_allocation_resources_on_node.whole
        self.limits_known |= cut.total != ZERO
        moved, resorted, judged, has_other_limits = [], [], [], False
        of_pools: list[PoolName] = []
        for name, item in changed.items():
            pool = self.pool(name)
            if item is not None and pool.takes_shares_of(item):
                self.pools[name] = item
                of_pools.append(name)
                continue
            judged.append(pool)
            self.changed.add(name)
            if _parent(item) != _parent(pool.item) and pool is not self.root:
                moved.append(pool)
            if _of_operations(item) != _of_operations(pool.item):
                resorted.append(name)
            has_other_rules |= _told_options(item) != _told_options(pool.item)
            has_other_limits |= (item.limits if item is not None else NOTHING) != pool.most
            pool.set_item(item)
            if item is None:
                del self.pools[name]
            else:
                self.pools[name] = item
        self.rules += has_other_rules
        self.limits_changes += has_other_limits or bool(moved)
        self._move(moved)
        for pool in judged:
            self._judge(pool)
        if moved:
            self.some_moved = True
            self._drop_empty()
        return OtherPlaces(everywhere, resorted, of_pools)

    def path(self, pool: PoolName) -> Iterator[PoolName]:
        """Return the names of the pool and all pools above it, from the lowest up, without the root."""
        return (each.name for each in self.pool(pool).path())

    def filters_of(self, spec: OperationSpec) -> tuple[str, ...]:
        """Return the formulas over tags that a node must match to run jobs of an operation: those of the operation and of its pools."""
        own, above = spec.node_filters, self.pool(spec.pool).filters
        return (*above, *own) if own else above

    def refused_size(self, spec: OperationSpec) -> RefusedSize | None:
        """Return the bound of job size that the jobs of an operation break, with the pool that sets it; None if they break none.

        The search goes from the operation's pool up to the root and stops at the first pool whose bounds the size keeps. The last pool
        before it is returned. If the operation has tasks, the first task whose jobs break a bound counts.
        """
        return next((refused for size in spec.sizes if (refused := self._refused(spec.pool, size)) is not None), None)

    def most_of_one_job(self, pool: PoolName) -> Iterator[PartialResources]:
        """Yield the upper bound of the size of one job on each level, from the pool up to the root."""
        for level in (*self.pool(pool).path(), self.root):
            told = _told_options(level.item)
            yield (of_tree(self.options) if told is None else told).max_job_resource_limits

    def _refused(self, pool: PoolName, size: Resources) -> RefusedSize | None:
        found = None
        for level in (*self.pool(pool).path(), self.root):
            options = of_tree(self.options) if (told := _told_options(level.item)) is None else told
            broken = out_of_bounds(size, options.min_job_resource_limits, options.max_job_resource_limits)
            if broken is None:
                break
            found = RefusedSize(level.name, broken)
        return found

    def above(self, pool: PoolName) -> list[PoolState]:
        """Return the pools that have a limit, from this pool up to the root."""
        return [each for each in self.pool(pool).path() if each.limited]

    def use(self, pool: PoolName, amount: Resources, in_doubt: Resources = ZERO) -> None:
        """Add to what a pool and all pools above it use, and to what unconfirmed jobs below these pools may use.

        Negative amounts subtract.
        """
        each = self.pool(pool)
        while each.above is not None:
            each.add(amount, in_doubt)
            self.changed.add(each.name)
            if each.limited:
                self._judge(each)
            each = each.above

    @property
    def known(self) -> list[PoolName]:
        """All pools that a snapshot named or that an operation was in, without the root."""
        return [pool.name for pool in self._known.values() if pool.above is not None]

    def check(
        self, name: PoolName, resource: str, held: Iterable[Resources], in_doubt: Iterable[Resources]
    ) -> list[str]:
        """Return a text for each broken invariant of one resource of one pool; empty if the pool is unknown.

        `held` are the amounts that the pool's own operations hold, and `in_doubt` the amounts that unconfirmed jobs of these operations may
        hold.
        """
        pool, amount = self._known.get(name), attrgetter(resource)
        if pool is None:
            return []
        below = [each for each in self._known.values() if each.above is pool]
        used = sum(map(amount, held)) + sum(amount(each.used) for each in below)
        doubt = sum(map(amount, in_doubt)) + sum(amount(each.in_doubt) for each in below)
        broken = []
        if (used, doubt) != (amount(pool.used), amount(pool.in_doubt)):
            broken.append(f"pool {name}: its {resource} in use or in doubt differs from the sum of its operations")
        if (pool in self.exceeded) is not exceeds(pool.used, pool.most):
            broken.append(f"pool {name}: it is wrongly marked as above or within its limit")
        return broken

    def _judge(self, pool: PoolState) -> None:
        """Record whether the pool's usage exceeds its limit."""
        if exceeds(pool.used, pool.most):
            self.exceeded.add(pool)
        else:
            self.exceeded.discard(pool)

    def _move(self, pools: list[PoolState]) -> None:
        """Move pools below their parents, with all that is used below them."""
        # All pools are taken out first, since a pool may now be below its former child.
        for pool in pools:
            for above in list(pool.path())[1:]:
                above.add(ZERO - pool.used, ZERO - pool.in_doubt)
                self._judge(above)
            pool.above = self.root
        for pool in pools:
            parent = self.pool(pool.item.parent) if pool.item is not None else self.root
            # A parent that is the pool itself or below the pool shows a defect in the sender of the snapshot. The pool then stays below the
            # root.
            if pool not in parent.path():
                pool.above = parent
            for above in list(pool.path())[1:]:
                above.add(pool.used, pool.in_doubt)
                self._judge(above)

    def _drop_empty(self) -> None:
        """Forget pools that no snapshot names, that have no child, and below which nothing is used."""
        parents = {pool.above for pool in self._known.values()}
        for pool in list(self._known.values()):
            if pool.item is None and pool.above is not None and pool.charged == ZERO and pool not in parents:
                del self._known[pool.name]
                self.exceeded.discard(pool)


def exceeds(used: Resources, limit: PartialResources) -> bool:
    """True if more of any resource is used than the limit allows."""
    return any(most is not None and has > most for has, most in zip(used.as_tuple(), limit.as_tuple(), strict=True))


def tolerant_limit(limit: PartialResources, tolerance: PartialResources, policy: AllocationOptions) -> PartialResources:
    """Return the limit up to which preemptive stages may start jobs."""
    if policy.enable_infinite_resource_limits_overcommit:
        return NOTHING
    if tolerance == NOTHING:
        return limit
    pairs = zip(limit.as_tuple(), tolerance.whole.as_tuple(), strict=True)
    return PartialResources(*(None if most is None else most + extra for most, extra in pairs))


def _parent(item: ShareItem | None) -> PoolName | None:
    return None if item is None else item.parent


def _told_options(item: ShareItem | None) -> EffectiveOptions | None:
    return None if item is None else item.options


def _options(item: ShareItem | None) -> EffectiveOptions:
    return _told_options(item) or _DEFAULTS


def _of_operations(item: ShareItem | None) -> tuple[object, ...]:
    """Return the options that decide whether a pool's operations may start jobs, and in which order."""
    options = _options(item)
    return (
        options.fifo_pool_scheduling_order,
        options.scheduling_tag_filters,
        options.min_job_resource_limits,
        options.max_job_resource_limits,
    )
