"""One tree as the log tells it: who is in which pool, holds a slot or waits, and which pools live by their operations.

Changed only by recorded events and by the configuration. Everything is counted as it comes, so that asking costs by the depth of a
pool and not by the number of operations.

Invariants (`check`): the sums of the counts are those of the members; who waits is in the queue of the pool that blocks it and in
no other, and the queues are in the order of the tickets; an ephemeral pool has operations, or pools below it, or a queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.wire.placements import EphemeralPool, TreePlacement
from headrace_admission.state.counts import Counts, PoolCounts
from headrace_admission.state.rules import PoolRules, TreeRules

__all__ = ["Member", "TreeBook"]

_NO_RULES: Final = PoolRules()
#: Deeper than any tree that may be configured; the way up ends here whatever was recorded.
_DEEPEST: Final = 64


class Member(msgspec.Struct):
    """An operation that is not over, in this tree."""

    operation: OperationId
    user: str
    vanilla: bool
    pool: PoolName
    ticket: int
    #: In whose queue it waits; None: it holds a slot.
    blocked_by: PoolName | None

    @property
    def holds_slot(self) -> bool:
        return self.blocked_by is None


class TreeBook:
    """Members, counts, queues and ephemeral pools of one tree."""

    def __init__(self, rules: TreeRules | None = None) -> None:
        self.rules = rules or TreeRules()
        self.members: dict[OperationId, Member] = {}
        self.in_pool: dict[PoolName, dict[OperationId, None]] = {}
        self.ephemeral: dict[PoolName, EphemeralPool] = {}
        #: Ephemeral pools right below a pool.
        self.ephemeral_below: dict[PoolName, set[PoolName]] = {}
        #: Ephemeral pools that count for a user.
        self.pools_of_user: dict[str, set[PoolName]] = {}
        #: Who waits, by the pool that blocks; in the order of the tickets. No entry is empty.
        self.queues: dict[PoolName, dict[OperationId, Member]] = {}
        self.last_ticket = 0
        self._counts = PoolCounts()

    # --- what comes of events and configuration --------------------------------------------------------------------

    def configure(self, rules: TreeRules) -> None:
        """Other rules hold from now on; nobody is moved, promoted or stopped by it."""
        self.rules = rules
        self._recount()
        for pool in list(self.ephemeral):
            # One whose first operation was not recorded any more when the process ended.
            self._sweep(pool)

    def place(self, operation: OperationId, user: str, vanilla: bool, placement: TreePlacement) -> None:
        """Puts an operation where an event says. A word that is older than one that was heard changes nothing."""
        known = self.members.get(operation)
        if known is not None and placement.ticket < known.ticket:
            return
        self.last_ticket = max(self.last_ticket, placement.ticket)
        member = Member(operation, user, vanilla, placement.pool, placement.ticket, placement.blocked_by)
        keeps_place = (
            known is not None and known.ticket == member.ticket and known.blocked_by == member.blocked_by is not None
        )
        if known is not None:
            self._take_out(known, leaves_queue=not keeps_place)
        self.members[operation] = member
        self.in_pool.setdefault(member.pool, {})[operation] = None
        if member.blocked_by is not None:
            self.queues.setdefault(member.blocked_by, {})[operation] = member
        self._count(member, 1)
        if known is not None:
            self._sweep_after(known)

    def remove(self, operation: OperationId) -> None:
        """An operation is over, or no longer in this tree; ephemeral pools that lived by it are gone."""
        member = self.members.pop(operation, None)
        if member is None:
            return
        self._take_out(member)
        self._sweep_after(member)

    def set_ephemeral(self, pool: EphemeralPool) -> None:
        """An ephemeral pool begins, or is another than before."""
        before = self.ephemeral.get(pool.name)
        self._forget_ephemeral(pool.name)
        self.ephemeral[pool.name] = pool
        self.ephemeral_below.setdefault(pool.parent, set()).add(pool.name)
        if pool.user:
            self.pools_of_user.setdefault(pool.user, set()).add(pool.name)
        if (before is None or before.parent != pool.parent) and self.is_in_use(pool.name):
            self._recount()
        if before is not None and before.parent != pool.parent:
            self._sweep(before.parent)

    def adopt(self, pool: PoolName) -> None:
        """An ephemeral pool lives by its configuration from now on."""
        if pool in self.ephemeral:
            parent = self.ephemeral[pool].parent
            self._forget_ephemeral(pool)
            self._recount()
            self._sweep(parent)

    # --- what can be asked -----------------------------------------------------------------------------------------

    def exists(self, pool: PoolName) -> bool:
        """True for the root, a configured pool and an ephemeral one."""
        return pool == ROOT_POOL or pool in self.rules.pools or pool in self.ephemeral

    def is_ephemeral(self, pool: PoolName) -> bool:
        return pool in self.ephemeral and pool not in self.rules.pools

    def is_in_use(self, pool: PoolName) -> bool:
        """Whether there are operations in it, ephemeral pools below it, or a queue at it."""
        return pool in self.in_pool or pool in self.ephemeral_below or pool in self.queues

    def parent(self, pool: PoolName) -> PoolName:
        """The root's parent, and that of a pool nobody knows, is the root."""
        rules = self.rules.pools.get(pool)
        if rules is not None:
            return rules.parent
        ephemeral = self.ephemeral.get(pool)
        return ephemeral.parent if ephemeral is not None else ROOT_POOL

    def upwards(self, pool: PoolName) -> Iterator[PoolName]:
        """The pool, its parent, and so on up to the root."""
        for _ in range(_DEEPEST):
            if pool == ROOT_POOL:
                break
            yield pool
            pool = self.parent(pool)
        yield ROOT_POOL

    def rules_of(self, pool: PoolName) -> PoolRules:
        """Of a configured pool; those of a pool without settings where it is not configured."""
        return self.rules.pools.get(pool, _NO_RULES)

    def is_fifo(self, pool: PoolName) -> bool:
        ephemeral = self.ephemeral.get(pool) if pool not in self.rules.pools else None
        return ephemeral.mode == "fifo" if ephemeral is not None else self.rules_of(pool).fifo

    def is_lightweight(self, pool: PoolName, *, vanilla: bool) -> bool:
        """Whether an operation passes the running limits in this pool."""
        return vanilla and self.rules_of(pool).lightweight

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
        """Running slots that are free by this pool's own limit; 0 also where more run than the limit allows."""
        return max(0, self.max_running_operation_count(pool) - self._counts.of(pool).running)

    def full_pool(self, pool: PoolName) -> PoolName | None:
        """The first pool on the way up in which no running slot is free."""
        for each in self.upwards(pool):
            if self._counts.of(each).running >= self.max_running_operation_count(each):
                return each
        return None

    def blocking_pool(self, pool: PoolName, *, vanilla: bool) -> PoolName | None:
        """Where an operation of this pool would have to wait; None: it may run."""
        return None if self.is_lightweight(pool, vanilla=vanilla) else self.full_pool(pool)

    def next_ticket(self) -> int:
        return self.last_ticket + 1

    def slots_below(self, pool: PoolName) -> Iterator[Member]:
        """Members that hold a slot in this pool or below it, in no order."""
        for name, operations in self.in_pool.items():
            if pool in self.upwards(name):
                yield from (self.members[each] for each in operations if self.members[each].holds_slot)

    def check(self) -> list[str]:
        """Broken invariants, in words; empty when all hold."""
        return [*self._check_counts(), *self._check_queues(), *self._check_pools()]

    # --- within ----------------------------------------------------------------------------------------------------

    def _settings(self, pool: PoolName) -> PoolRules | EphemeralPool:
        rules = self.rules.pools.get(pool)
        return rules or self.ephemeral.get(pool) or _NO_RULES

    def _count(self, member: Member, sign: int) -> None:
        self._counts.change(
            self.upwards(member.pool),
            member.pool,
            total=sign,
            slots=sign if member.holds_slot else 0,
            vanilla=member.vanilla,
            lightweight=self.rules_of(member.pool).lightweight,
        )

    def _recount(self) -> None:
        self._counts.recount(
            (pool, self.upwards(pool), self.rules_of(pool).lightweight) for pool in self._counts.direct
        )

    def _take_out(self, member: Member, *, leaves_queue: bool = True) -> None:
        self._count(member, -1)
        members = self.in_pool[member.pool]
        del members[member.operation]
        if not members:
            del self.in_pool[member.pool]
        if member.blocked_by is not None and leaves_queue:
            queue = self.queues[member.blocked_by]
            del queue[member.operation]
            if not queue:
                del self.queues[member.blocked_by]

    def _sweep_after(self, member: Member) -> None:
        self._sweep(member.pool)
        if member.blocked_by is not None:
            self._sweep(member.blocked_by)

    def _sweep(self, pool: PoolName) -> None:
        """An ephemeral pool that nothing lives in is gone, and then perhaps the one above it."""
        while pool in self.ephemeral and not self.is_in_use(pool):
            parent = self.ephemeral[pool].parent
            self._forget_ephemeral(pool)
            pool = parent

    def _forget_ephemeral(self, pool: PoolName) -> None:
        known = self.ephemeral.pop(pool, None)
        if known is None:
            return
        siblings = self.ephemeral_below[known.parent]
        siblings.discard(pool)
        if not siblings:
            del self.ephemeral_below[known.parent]
        if known.user:
            pools = self.pools_of_user[known.user]
            pools.discard(pool)
            if not pools:
                del self.pools_of_user[known.user]

    def _check_counts(self) -> list[str]:
        expected: dict[PoolName, list[int]] = {}
        for member in self.members.values():
            light = self.is_lightweight(member.pool, vanilla=member.vanilla)
            slot = (0, 1) if light else (1, 0)
            for pool in self.upwards(member.pool):
                counts = expected.setdefault(pool, [0, 0, 0])
                counts[0] += 1
                if member.holds_slot:
                    counts[1] += slot[0]
                    counts[2] += slot[1]
        names = {*expected, *self.rules.pools, *self.ephemeral, ROOT_POOL}
        return [
            f"{pool} counts {self.counts(pool).as_tuple()}, its members are {tuple(expected.get(pool, (0, 0, 0)))}"
            for pool in sorted(names)
            if self.counts(pool).as_tuple() != tuple(expected.get(pool, (0, 0, 0)))
        ]

    def _check_queues(self) -> list[str]:
        broken = []
        queued: dict[OperationId, PoolName] = {}
        for pool, queue in self.queues.items():
            tickets = [member.ticket for member in queue.values()]
            if not queue or tickets != sorted(tickets):
                broken.append(f"queue of {pool} is empty or not in the order of the tickets: {tickets}")
            for name in queue:
                if name in queued:
                    broken.append(f"{name} is in the queues of {queued[name]} and {pool}")
                queued[name] = pool
        waiting = {name: member.blocked_by for name, member in self.members.items() if not member.holds_slot}
        if waiting != queued:
            broken.append(f"waiting are {waiting}, queued are {queued}")
        return broken

    def _check_pools(self) -> list[str]:
        broken = [f"ephemeral pool {pool} has nothing in it" for pool in self.ephemeral if not self.is_in_use(pool)]
        listed = {name: pool for pool, names in self.in_pool.items() for name in names}
        if listed != {name: member.pool for name, member in self.members.items()}:
            broken.append("the lists of pools differ from the members")
        return broken
