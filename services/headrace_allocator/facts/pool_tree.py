"""The tree of pools with their shares, and what the operations below each of them have in use.

A snapshot is taken as one cut: all that it changed since the one before, or none of it. A limit is the most that all jobs below a pool
may take together. A pool that no snapshot told of stands below the root.
Jobs in doubt are apart: limits keep room for them, so that nothing starts in it. Nobody loses a place for what may not run at all.
Invariant (`check`): what a pool has in use, and what is in doubt, is the sum over the operations below it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import ZERO, Resources
from headrace.satisfaction import Owed
from headrace.wire.operations import OperationSpec
from headrace.wire.snapshots import ShareItem

_DEFAULTS: Final = EffectiveOptions()


class ShareCut(msgspec.Struct, frozen=True):
    """A snapshot of shares, and what is new in it."""

    #: All items, by `ShareItem.key`.
    items: Mapping[str, ShareItem]
    changed: Collection[str]
    removed: Collection[str] = ()
    #: The cluster that the shares are parts of.
    total: Resources = ZERO
    options: AllocationOptions = AllocationOptions()


class OtherPlaces(NamedTuple):
    """Operations and pools that may have another place by a snapshot, beside the operations that it tells of."""

    #: True for all operations, and for all that stand in these pools themselves.
    everywhere: bool
    in_pools: list[PoolName]
    #: Pools of which only shares changed. There are too many to be placed at once; all others are among `PoolTree.changed`.
    of_pools: list[PoolName]


class Pool:
    """One pool, and what is in use below it."""

    __slots__ = (
        "above", "filters", "follows_own_satisfaction", "in_doubt", "item", "keeps_fifo_order", "limited", "most", "name", "owed",
        "preemption", "used",
    )  # fmt: skip

    def __init__(self, name: PoolName, above: Pool | None) -> None:
        self.name = name
        #: None for the root alone.
        self.above = above
        #: What operations hold, and the most that their jobs in doubt may hold beside.
        self.used = ZERO
        self.in_doubt = ZERO
        self.set_item(None)

    def set_item(self, item: ShareItem | None) -> None:
        """Notes what a snapshot says of it, None if none does."""
        self.item = item
        #: Its shares in the cluster of which its place was found last.
        self.owed: Owed | None = None
        #: Its limit, and whether it has any.
        self.most = item.limits if item is not None else NOTHING
        self.limited = self.most != NOTHING
        options = _options(item)
        #: True if the operations of a fifo pool get room in its order.
        self.keeps_fifo_order = options.fifo_pool_scheduling_order is FifoPoolSchedulingOrder.FIFO
        #: True if its own satisfaction counts where room is given out, not that of an operation below it.
        self.follows_own_satisfaction = options.use_pool_satisfaction_for_scheduling
        #: Whether places of its operations may be taken.
        self.preemption = options.preemption
        #: Formulas over tags of nodes, each of which a node must match to run jobs below it.
        self.filters = options.scheduling_tag_filters

    def takes_shares_of(self, item: ShareItem) -> bool:
        """Takes over what a snapshot says of it if no more than shares changed. Each snapshot says so of thousands."""
        known = self.item
        if known is None or item.parent != known.parent:
            return False
        # An item that moved has these from the one before.
        if item.options is not known.options or item.limits is not known.limits:
            return False
        self.item, self.owed = item, None
        return True

    def limit(self, policy: AllocationOptions, *, tolerant: bool) -> PartialResources:
        """The most that may be used below it. A preemptive stage, which is `tolerant`, adds its tolerance."""
        if not tolerant or self.item is None or self.item.options is None:
            return self.most
        return tolerant_limit(self.most, self.item.options.resource_limits_overcommit_tolerance, policy)

    @property
    def charged(self) -> Resources:
        """All that counts under its limit where something is to start."""
        # There is doubt only after a restart.
        return self.used if self.in_doubt is ZERO else self.used + self.in_doubt

    def add(self, used: Resources, in_doubt: Resources) -> None:
        """Operations below it hold so much more, and their jobs in doubt may, or less by negative amounts."""
        self.used = self.used + used
        if in_doubt is not ZERO:
            doubt = self.in_doubt + in_doubt
            self.in_doubt = ZERO if doubt == ZERO else doubt

    def path(self) -> Iterator[Pool]:
        """The pool and all pools above it, the lowest first, without the root."""
        pool = self
        while pool.above is not None:
            yield pool
            pool = pool.above


class PoolTree:
    """All pools of one tree, the root included."""

    def __init__(self) -> None:
        #: Each pool with its shares.
        self.pools: dict[PoolName, ShareItem] = {}
        self.total = ZERO
        self.options = AllocationOptions()
        #: Rises with each snapshot by which the cluster, the tree's policy or options of a pool are others than before.
        self.rules = 0
        #: Nothing more starts on a node with less room than this.
        self.min_spare = self.options.min_spare_allocation_resources_on_node.whole
        #: Rises with each snapshot by which some limits are others than before.
        self.limits_changes = 0
        #: True once a snapshot came that knows the cluster: before, limits are not known.
        self.limits_known = False
        self.root = Pool(ROOT_POOL, None)
        #: Pools that are above their limits.
        self.exceeded: set[Pool] = set()
        self._known: dict[PoolName, Pool] = {ROOT_POOL: self.root, PoolName(""): self.root}
        #: Pools whose use, shares or place changed; whoever follows them discards them.
        self.changed: set[PoolName] = set()
        #: True if some of them stand below another pool than before.
        self.some_moved = False

    def pool(self, name: PoolName) -> Pool:
        """The pool of this name, below the root if nothing is known of it."""
        pool = self._known.get(name)
        if pool is None:
            pool = self._known[name] = Pool(name, self.root)
        return pool

    def take(self, cut: ShareCut) -> OtherPlaces:
        """Takes over a snapshot. Returns which operations that it does not tell of may have another place by it."""
        changed: dict[PoolName, ShareItem | None] = {}
        for key in cut.removed:
            name = PoolName(key[1:])
            if key.startswith("/") and name in self.pools:
                changed[name] = None
        items = cut.items
        for key in cut.changed:
            if key[:1] == "/" and (told := items.get(key)) is not None:
                changed[PoolName(told.name)] = told
        # The tree's policy says who may pass a limit, and who is of high priority. Every share is a part of the cluster.
        everywhere = has_other_rules = cut.options != self.options or cut.total != self.total
        # Else the same stay: whoever made something of them sees by one look that they are no others.
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
        """The names of the pool and all pools above it, the lowest first, without the root."""
        return (each.name for each in self.pool(pool).path())

    def filters_of(self, spec: OperationSpec) -> tuple[str, ...]:
        """Formulas over tags of nodes, each of which a node must match to run jobs of an operation."""
        own, above = spec.scheduling_tag_filter, self.pool(spec.pool).filters
        return (*above, own) if own else above

    def above(self, pool: PoolName) -> list[Pool]:
        """Limited pools at the pool and above it, the lowest first."""
        return [each for each in self.pool(pool).path() if each.limited]

    def use(self, pool: PoolName, amount: Resources, in_doubt: Resources = ZERO) -> None:
        """Jobs in the pool take so much more than before, and those in doubt may, or less by negative amounts."""
        each = self.pool(pool)
        while each.above is not None:
            each.add(amount, in_doubt)
            self.changed.add(each.name)
            if each.limited:
                self._judge(each)
            each = each.above

    @property
    def known(self) -> list[PoolName]:
        """All pools that a snapshot told of or something was in, without the root."""
        return [pool.name for pool in self._known.values() if pool.above is not None]

    def check(
        self, name: PoolName, resource: str, held: Iterable[Resources], in_doubt: Iterable[Resources]
    ) -> list[str]:
        """Broken invariants of one resource of one pool in words. There are none if it is not known.

        Its own operations hold so much, and their jobs in doubt may.
        """
        pool, amount = self._known.get(name), attrgetter(resource)
        if pool is None:
            return []
        below = [each for each in self._known.values() if each.above is pool]
        used = sum(map(amount, held)) + sum(amount(each.used) for each in below)
        doubt = sum(map(amount, in_doubt)) + sum(amount(each.in_doubt) for each in below)
        broken = []
        if (used, doubt) != (amount(pool.used), amount(pool.in_doubt)):
            broken.append(f"pool {name}: its {resource} in use or in doubt differs from its operations")
        if (pool in self.exceeded) is not exceeds(pool.used, pool.most):
            broken.append(f"pool {name}: it is counted as what it is not, above its limit or within")
        return broken

    def _judge(self, pool: Pool) -> None:
        """Notes whether a pool is above its limit."""
        if exceeds(pool.used, pool.most):
            self.exceeded.add(pool)
        else:
            self.exceeded.discard(pool)

    def _move(self, pools: list[Pool]) -> None:
        """Gives pools their place below their parents, with all that is in use below them."""
        # All are taken out first, since one may now stand below another that stood below it.
        for pool in pools:
            for above in list(pool.path())[1:]:
                above.add(ZERO - pool.used, ZERO - pool.in_doubt)
                self._judge(above)
            pool.above = self.root
        for pool in pools:
            parent = self.pool(pool.item.parent) if pool.item is not None else self.root
            # A circle would be a defect of the sender.
            if pool not in parent.path():
                pool.above = parent
            for above in list(pool.path())[1:]:
                above.add(pool.used, pool.in_doubt)
                self._judge(above)

    def _drop_empty(self) -> None:
        """Forgets pools that no snapshot tells of and nothing is in."""
        parents = {pool.above for pool in self._known.values()}
        for pool in list(self._known.values()):
            if pool.item is None and pool.above is not None and pool.charged == ZERO and pool not in parents:
                del self._known[pool.name]
                self.exceeded.discard(pool)


def exceeds(used: Resources, limit: PartialResources) -> bool:
    """True if more is used of some resource than a limit lets."""
    return any(most is not None and has > most for has, most in zip(used.as_tuple(), limit.as_tuple(), strict=True))


def tolerant_limit(limit: PartialResources, tolerance: PartialResources, policy: AllocationOptions) -> PartialResources:
    """The limit up to which preemptive stages may start jobs."""
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


def _of_operations(item: ShareItem | None) -> tuple[FifoPoolSchedulingOrder, tuple[str, ...]]:
    """The options by which operations of a pool have their place in the order."""
    options = _options(item)
    return (options.fifo_pool_scheduling_order, options.scheduling_tag_filters)
