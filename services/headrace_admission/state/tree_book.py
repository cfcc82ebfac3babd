"""One tree as the log describes it: operations by pool, queues of waiting operations, and ephemeral pools.

Each event updates the counts, so that an answer takes no longer with many operations than with few. Invariants (`book_checks`):

* The sums are those of the members.
* A waiting operation is in the queue of the pool that blocks it, and in no other queue. It is in no queue while it waits for other
  operations to end.
* Queues are in the order of the tickets.
* An ephemeral pool has operations, pools below it, or a queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.suggestions import near
from headrace.wire.placements import UPSTREAM, EphemeralPool, TreePlacement
from headrace_admission.state.counts import Counts, CountsOfTree
from headrace_admission.state.ephemeral_pools import EphemeralPools
from headrace_admission.state.rules import PoolRules, TreeRules

_NO_RULES: Final = PoolRules()
#: Upper bound of the steps from a pool to the root, larger than the depth of any configured tree, so that the walk ends even in a broken
#: tree.
_DEEPEST: Final = 64
#: Upper bound of the pool names for which the configured pools with similar names are cached.
_MOST_COMPARED: Final = 1_000


class Member(msgspec.Struct):
    """A live operation in this tree."""

    operation: OperationId
    user: str
    vanilla: bool
    pool: PoolName
    ticket: int
    #: The pool in whose queue the operation waits; `UPSTREAM`: it waits for other operations, and is in no queue; None: it holds a slot.
    blocked_by: PoolName | None
    slot_index: int

    @property
    def holds_slot(self) -> bool:
        return self.blocked_by is None

    @property
    def queue(self) -> PoolName | None:
        """The pool in whose queue the operation is, or None if it is in no queue."""
        return None if self.blocked_by == UPSTREAM else self.blocked_by


class SlotIndexes:
    """The slot indexes of one pool: small numbers, unique among the operations of the pool. Free indexes are reused, lowest first."""

    def __init__(self) -> None:
        self._next = 0
        self._free: list[int] = []

    def take(self) -> int:
        """Take and return the lowest free index."""
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def claim(self, index: int) -> None:
        """Take this index, which must be free."""
        for skipped in range(self._next, index):
            heapq.heappush(self._free, skipped)
        if index >= self._next:
            self._next = index + 1
        else:
            self._free.remove(index)
            heapq.heapify(self._free)

    def give_back(self, index: int) -> None:
        """Give an index back, so that it can be taken again."""
        heapq.heappush(self._free, index)


class TreeBook:
    """Members, counts, queues and ephemeral pools of one tree. Changed only by `State`."""

    def __init__(self, rules: TreeRules | None = None) -> None:
        self._take_rules(rules or TreeRules())
        self.members: dict[OperationId, Member] = {}
        self.in_pool: dict[PoolName, dict[OperationId, None]] = {}
        self.ephemeral = EphemeralPools()
        #: Waiting operations by the pool that blocks them, in the order of the tickets. No queue is empty.
        self.queues: dict[PoolName, dict[OperationId, Member]] = {}
        self.last_ticket = 0
        self._counts = CountsOfTree()
        self._slot_indexes: dict[PoolName, SlotIndexes] = {}

    # --- changed by events and by the configuration ----------------------------------------------------------------

    def configure(self, rules: TreeRules) -> None:
        """Set other rules. This moves, starts and stops no operation."""
        self._take_rules(rules)
        self._recount()
        for pool in list(self.ephemeral.by_name):
            # The pool may be unused, because the log may have lost the operation for which the pool was made.
            self._sweep(pool)

    def _take_rules(self, rules: TreeRules) -> None:
        self.rules = rules
        self._configured_below = _by_parent(rules)
        #: Function that returns the configured pools with names similar to a name. Results are cached, because every start in an
        #: unconfigured pool needs them and comparing all names takes long.
        self.similar_pools = lru_cache(_MOST_COMPARED)(lambda pool: tuple(near(pool, rules.pools)))

    def place(self, operation: OperationId, user: str, vanilla: bool, placement: TreePlacement) -> None:
        """Set the placement of an operation. A placement with an older ticket than that of the present placement changes nothing."""
        known = self.members.get(operation)
        if known is not None and placement.ticket < known.ticket:
            return
        self.last_ticket = max(self.last_ticket, placement.ticket)
        slot_index = self._slot_index(known, placement)
        member = Member(operation, user, vanilla, placement.pool, placement.ticket, placement.blocked_by, slot_index)
        keeps_place = (
            known is not None and known.ticket == member.ticket and known.blocked_by == member.blocked_by is not None
        )
        if known is not None:
            self._take_out(known, leaves_queue=not keeps_place)
        self.members[operation] = member
        self.in_pool.setdefault(member.pool, {})[operation] = None
        if member.queue is not None:
            self.queues.setdefault(member.queue, {})[operation] = member
        self._count(member, 1)
        if known is not None:
            if known.pool != member.pool:
                self._give_slot_index_back(known)
            self._sweep_after(known)

    def remove(self, operation: OperationId) -> None:
        """Remove an operation that has ended or left the tree, and the ephemeral pools that are not in use any more."""
        member = self.members.pop(operation, None)
        if member is None:
            return
        self._take_out(member)
        self._give_slot_index_back(member)
        self._sweep_after(member)

    def set_ephemeral(self, pool: EphemeralPool) -> None:
        """Add an ephemeral pool, or change the pool with the same name."""
        before = self.ephemeral.by_name.get(pool.name)
        self.ephemeral.put(pool)
        if (before is None or before.parent != pool.parent) and self._is_in_use(pool.name):
            self._recount()
        if before is not None and before.parent != pool.parent:
            self._sweep(before.parent)

    def adopt(self, pool: PoolName) -> None:
        """Turn an ephemeral pool into a configured pool."""
        known = self.ephemeral.by_name.get(pool)
        if known is not None:
            self.ephemeral.drop(pool)
            self._recount()
            self._sweep(known.parent)

    # --- questions -------------------------------------------------------------------------------------------------

    def exists(self, pool: PoolName) -> bool:
        """True if the pool is the root, a configured pool or an ephemeral pool."""
        return pool == ROOT_POOL or pool in self.rules.pools or pool in self.ephemeral.by_name

    def is_ephemeral(self, pool: PoolName) -> bool:
        return pool in self.ephemeral.by_name and pool not in self.rules.pools

    def parent(self, pool: PoolName) -> PoolName:
        """Return the parent of a pool. The parent of the root and of an unknown pool is the root."""
        rules = self.rules.pools.get(pool)
        if rules is not None:
            return rules.parent
        ephemeral = self.ephemeral.by_name.get(pool)
        return ephemeral.parent if ephemeral is not None else ROOT_POOL

    def upwards(self, pool: PoolName) -> Iterator[PoolName]:
        """Yield the pool, its parent, and so on up to the root."""
        for _ in range(_DEEPEST):
            if pool == ROOT_POOL:
                break
            yield pool
            pool = self.parent(pool)
        yield ROOT_POOL

    def rules_of(self, pool: PoolName) -> PoolRules:
        """Return the rules of a configured pool. Any other pool has default rules."""
        return self.rules.pools.get(pool, _NO_RULES)

    def is_fifo(self, pool: PoolName) -> bool:
        ephemeral = self.ephemeral.by_name.get(pool) if pool not in self.rules.pools else None
        return ephemeral.mode == "fifo" if ephemeral is not None else self.rules_of(pool).fifo

    def is_lightweight(self, pool: PoolName, vanilla: bool) -> bool:
        """True if operations are lightweight in this pool, so that no running limit applies to them. Only vanilla operations can be."""
        return vanilla and self.rules_of(pool).for_lightweight_operations

    def max_operation_count(self, pool: PoolName) -> int:
        if pool == ROOT_POOL:
            return self.rules.max_operation_count
        own = self._settings(pool).max_operation_count
        return self.rules.max_operation_count_per_pool if own is None else own

    def max_running_operation_count(self, pool: PoolName) -> int:
        if pool == ROOT_POOL:
            return self.rules.max_running_operation_count
        own = self._settings(pool).max_running_operation_count
        return self.rules.max_running_operation_count_per_pool if own is None else own

    def counts(self, pool: PoolName) -> Counts:
        return self._counts.of(pool)

    def free_slots(self, pool: PoolName) -> int:
        """Return the number of free running slots of this pool by its own limit, whatever the pools above allow; 0 if the pool is full."""
        free = self.max_running_operation_count(pool) - self._counts.of(pool).running
        return free if free > 0 else 0

    def next_ticket(self) -> int:
        return self.last_ticket + 1

    def below(self, pool: PoolName) -> Iterator[PoolName]:
        """Yield the pools directly below a pool. A pool that does not exist any more, but has operations, counts as below the root."""
        yield from self._configured_below.get(pool, ())
        yield from (each for each in self.ephemeral.below.get(pool, ()) if each not in self.rules.pools)
        if pool == ROOT_POOL:
            yield from (each for each in self.in_pool if not self.exists(each))

    def slots_below(self, pool: PoolName) -> Iterator[Member]:
        """Yield the members that hold a slot in this pool or below it, in no particular order."""
        for name in self.with_all_below(pool):
            yield from (self.members[each] for each in self.in_pool.get(name, ()) if self.members[each].holds_slot)

    def with_all_below(self, pool: PoolName) -> Iterator[PoolName]:
        """Yield the pool and all pools below it, in no particular order."""
        pools = [pool]
        while pools:
            name = pools.pop()
            yield name
            pools += self.below(name)

    # --- within ----------------------------------------------------------------------------------------------------

    def _is_in_use(self, pool: PoolName) -> bool:
        """True if the pool has operations, ephemeral pools directly below it, or a queue."""
        return pool in self.in_pool or pool in self.ephemeral.below or pool in self.queues

    def _slot_index(self, known: Member | None, placement: TreePlacement) -> int:
        """Return the slot index of an operation after a new placement.

        In the same pool the index stays. In another pool it is the index in the placement (from a checkpoint), or else a free index.
        """
        if known is not None and known.pool == placement.pool:
            return known.slot_index
        indexes = self._slot_indexes.setdefault(placement.pool, SlotIndexes())
        if placement.slot_index is None:
            return indexes.take()
        indexes.claim(placement.slot_index)
        return placement.slot_index

    def _give_slot_index_back(self, member: Member) -> None:
        if member.pool in self.in_pool:
            self._slot_indexes[member.pool].give_back(member.slot_index)
        else:
            del self._slot_indexes[member.pool]

    def _settings(self, pool: PoolName) -> PoolRules | EphemeralPool:
        rules = self.rules.pools.get(pool)
        return rules or self.ephemeral.by_name.get(pool) or _NO_RULES

    def _count(self, member: Member, sign: int) -> None:
        self._counts.change(
            self.upwards(member.pool),
            member.pool,
            vanilla=member.vanilla,
            total=sign,
            slots=sign if member.holds_slot else 0,
            lightweight=self.is_lightweight(member.pool, member.vanilla),
        )

    def _recount(self) -> None:
        self._counts.recount(self.upwards, self.is_lightweight)

    def _take_out(self, member: Member, *, leaves_queue: bool = True) -> None:
        self._count(member, -1)
        members = self.in_pool[member.pool]
        del members[member.operation]
        if not members:
            del self.in_pool[member.pool]
        if member.queue is not None and leaves_queue:
            queue = self.queues[member.queue]
            del queue[member.operation]
            if not queue:
                del self.queues[member.queue]

    def _sweep_after(self, member: Member) -> None:
        self._sweep(member.pool)
        if member.queue is not None:
            self._sweep(member.queue)

    def _sweep(self, pool: PoolName) -> None:
        """Drop an ephemeral pool that is not in use, and then its parent if the parent is not in use either."""
        while pool in self.ephemeral.by_name and not self._is_in_use(pool):
            parent = self.ephemeral.by_name[pool].parent
            self.ephemeral.drop(pool)
            pool = parent


def _by_parent(rules: TreeRules) -> dict[PoolName, list[PoolName]]:
    below: dict[PoolName, list[PoolName]] = {}
    for name, pool in rules.pools.items():
        below.setdefault(pool.parent, []).append(name)
    return below
