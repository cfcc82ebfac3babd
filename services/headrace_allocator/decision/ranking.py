"""Ranking: keeps the order of operations in line with the facts.

A change of the whole tree, such as a node that joins, only marks the operations. Their positions are computed again in slices between
heartbeats, so that a heartbeat does not cost more when there are more operations.

Invariant (`checks`): an operation in the order that is not marked may get a job, unless a pool's limit holds it back, and its position is
the one that the facts give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final

from headrace.ids import OperationId, PoolName
from headrace.runtime.engine import Check, Figure, by_label, gauge
from headrace.wire.snapshots import PreemptionPriority, ShareItem
from headrace_allocator.decision.least_satisfied import LeastSatisfied, entry_of
from headrace_allocator.decision.pool_order import Entry
from headrace_allocator.decision.scheduling_order import Batches
from headrace_allocator.decision.start_limits import held_back
from headrace_allocator.decision.view import Overlay
from headrace_allocator.explain import reasons
from headrace_allocator.explain.reasons import Reason
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation, has_other_jobs_ready, take_usage, wants_node
from headrace_allocator.facts.pool_tree import OtherPlaces
from headrace_allocator.gangs.fitting import bounds_of_gangs, fitting_sizes, jobs_at_once, judge_size

#: Names of the reasons by which an operation's own state or limits may hold it back.
_HELD_BACK: Final = {
    why: str(why.__struct_config__.tag)
    for why in (
        reasons.OperationNotRunning,
        reasons.OperationIsSuspended,
        reasons.JobSizeRefused,
        reasons.NoJobReady,
        reasons.GangWaits,
        reasons.GangNeverFits,
        reasons.NoShareYet,
        reasons.FairShareReached,
        reasons.DemandCovered,
        reasons.FifoCountReached,
        reasons.OperationLimitReached,
    )
}


class Ranking:
    """Gives operations their position in the order."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.order = LeastSatisfied(facts.pools)
        self.batches = Batches(facts, self.order)
        #: Operations to be repositioned; the value is True if more than the operation's shares changed.
        self._marked: dict[OperationId, bool] = {}
        #: True if `mark_all` was called and the operations are not marked yet.
        self._all_marked = False
        #: The newest shares. An operation takes over its share when its position is computed.
        self._shares: Mapping[str, ShareItem] = {}
        #: Operations that are owed nothing so far.
        self._shareless: set[OperationId] = set()
        #: Pools to be repositioned.
        self._marked_pools: dict[PoolName, None] = {}
        #: The reason for which each operation is out of the order.
        self._held_back: dict[OperationId, type[Reason]] = {}
        #: Number of operations that are out of the order, by reason.
        self._count_of: Counter[type[Reason]] = Counter()

    def refresh(self, operation: Operation, entry: Entry | None = None) -> None:
        """Reposition an operation by its newest share, or take it out of the order if none of its jobs may start.

        A caller that has already computed the position from the share that the operation holds passes it as `entry`.
        """
        why = None
        if entry is None or not self._has_newest_share(operation):
            self._take_share(operation)
            why = self._why_held_back(operation)
            entry = self._entry(operation) if why is None else None
        self._note_held_back(operation.id, why)
        self._facts.reservations.note(operation.id, wants_node=entry is not None and wants_node(operation))
        if entry is None:
            self.order.remove(operation.id)
        else:
            self.order.put(operation, entry)

    def refresh_all(self, operations: Iterable[OperationId]) -> None:
        """Refresh the operations that are known, and ignore all others."""
        for name in operations:
            operation = self._facts.operations.get(name)
            if operation is not None:
                self.refresh(operation)

    def apply(self, overlay: Overlay) -> None:
        """Refresh the operations that a decision touched, after the decision was applied."""
        for operation in overlay.touched.values():
            self.refresh(operation, overlay.entry_applied(operation))

    def bring_in(self, operations: Iterable[OperationId]) -> list[Operation]:
        """Enter the operations that are not in the order yet. Operations that are in the order already, and whose class and share have not
        changed, keep their old position until they are refreshed; these operations are returned.
        """
        left = []
        for name in operations:
            operation = self._facts.operations.get(name)
            if operation is None:
                continue
            # If an operation has limits of its own or several kinds of jobs, its pending jobs may belong to another class now.
            reclassed = operation.limited or operation.kinds
            if name in self.order and not reclassed and self._has_newest_share(operation):
                left.append(operation)
            else:
                self.refresh(operation)
        return left

    def forget(self, operation: OperationId) -> None:
        """Remove an operation that is over."""
        self.order.remove(operation)
        self._note_held_back(operation, None)
        self._marked.pop(operation, None)
        self._shareless.discard(operation)

    def on_shares(self, shares: Mapping[str, ShareItem], changed: Collection[str]) -> None:
        """Take over the newest shares. `refresh_marked` then repositions the operations, first the operations that were owed nothing
        before.
        """
        self._shares = shares
        if first := sorted(self._shareless.intersection(changed)):
            self._marked = dict.fromkeys(first, False) | self._marked
        # The keys of pools are skipped: a marked pool would take an operation's turn in `refresh_marked`.
        for key in changed:
            if key[:1] != "/":
                self._marked.setdefault(OperationId(key), False)
        self.batches.renew()

    def on_other_places(self, other: OtherPlaces) -> None:
        """Mark the operations and pools that must be repositioned because pools, the cluster total or options changed."""
        if other.everywhere:
            self.mark_all()
        for pool in other.in_pools:
            self.mark(self._facts.in_pool.get(pool, ()))
        self._marked_pools.update(dict.fromkeys(other.of_pools))

    def mark(self, operations: Iterable[OperationId]) -> None:
        """Mark operations. For a marked operation, `refresh_marked` computes again the position, and whether the jobs fit on any node."""
        self._marked.update(dict.fromkeys(operations, True))

    def mark_all(self) -> None:
        """Mark all operations, because the cluster total, the tree's policy or the nodes changed."""
        self._all_marked = True

    @property
    def some_marked(self) -> bool:
        """True if pools or operations are marked, or batches are being made."""
        return bool(self._all_marked or self._marked or self._marked_pools or self.batches.are_being_made)

    def refresh_marked(self, most: int) -> list[Operation]:
        """Reposition up to `most` marked pools and up to `most` marked operations. Returns the operations that entered the order."""
        came_in = []
        if self._all_marked and not self._marked and not self._marked_pools:
            # A request to mark all operations waits until nothing else is marked. So each operation gets its turn, even if the nodes
            # change all the time.
            self._all_marked = False
            self._marked = dict.fromkeys(self._facts.operations, True)
            self._marked_pools = dict.fromkeys(self.order.pools())
        for pool in list(islice(self._marked_pools, most)):
            del self._marked_pools[pool]
            self._facts.pools.changed.add(pool)
        self.order.settle()
        some_starve = self.order.some_starve
        for name in list(islice(self._marked, most)):
            is_more = self._marked.pop(name)
            operation = self._facts.operations.get(name)
            # Nothing is done if only the usage changed, which is the case for many of the operations that a snapshot names.
            if operation is not None and (is_more or not self._has_newest_share(operation)):
                was_out = name in self._shareless or name not in self.order
                if is_more:
                    judge_size(self._facts, operation)
                self.refresh(operation)
                if some_starve and operation.allocations:
                    # The preemption groups are computed here. Otherwise the next heartbeat that looks for victims among these allocations
                    # would compute them.
                    operation.cut_groups(self._facts.pools).first_preemptible()
                if was_out and name in self.order:
                    came_in.append(operation)
        if not self._marked and not self._marked_pools:
            self.batches.advance(most)
        return came_in

    def checks(self) -> Iterator[Check]:
        """Yield the checks of the order, of each operation's position, and of whether a node could run its jobs."""
        yield from self.order.checks()
        for known in list(self._facts.operations):
            yield partial(self._check_size, known)
        for name in list(self.order):
            yield partial(self._check_place, name)
        for pool in self.order.pools():
            yield partial(self._check_pool, pool)

    def figures(self) -> list[Figure]:
        """Return metrics of the operations in the order, and of the operations that are held back, by reason."""
        says = "Operations that want more and may not start jobs, by reason."
        counts = {name: self._count_of[why] for why, name in _HELD_BACK.items()}
        held_back = by_label(gauge("held_back", "operations", 0, says), "held_back", "reason", counts)
        return [
            gauge(
                "operations_in_order", "operations", len(self.order), "Operations that want more and may start jobs."
            ),
            gauge(
                "job_classes_in_order",
                "classes",
                len(self.order.classes),
                "Job classes of the operations in order: jobs of one size, priority and set of tag filters.",
            ),
            *held_back,
        ]

    def _has_newest_share(self, operation: Operation) -> bool:
        """True if the operation's position follows from the newest snapshot already. If only the usage differs in the newest snapshot, this
        call gives the operation its new usage.
        """
        item = self._shares.get(operation.id)
        if item is operation.share:
            return True
        # If guarantees give priority, the operation's priority depends on the usage in the snapshot too.
        of_usage = self._facts.pools.options.enable_guarantee_priority_scheduling
        return item is not None and not of_usage and take_usage(operation, item)

    def _take_share(self, operation: Operation) -> None:
        item = self._shares.get(operation.id)
        if item is None:
            self._shareless.add(operation.id)
        elif item is not operation.share or operation.total != self._facts.pools.total:
            operation.set_share(item, self._facts.pools.total)
            (self._shareless.discard if max(operation.fair_share) > 0.0 else self._shareless.add)(operation.id)
        if operation.gang is not None and operation.share is not None:
            wanted, none = operation.share.preemption_priority, PreemptionPriority.NONE
            whole = self._facts.pools.options.preempt_gangs_whole
            of_others = wanted if not whole or has_other_jobs_ready(operation) else none
            operation.gang.priority, operation.preemption_priority = (wanted if whole else none), of_others

    def _entry(self, operation: Operation) -> Entry:
        return entry_of(operation, self._facts.pools, operation.held)

    def _why_held_back(self, operation: Operation) -> Reason | None:
        return held_back(operation, operation.slots.ready_count, operation.held, tolerant_in=self._facts.pools)

    def _note_held_back(self, operation: OperationId, why: Reason | None) -> None:
        before = self._held_back.pop(operation, None)
        if before is not None:
            self._count_of[before] -= 1
        if why is not None:
            self._held_back[operation] = type(why)
            self._count_of[type(why)] += 1

    def _check_pool(self, name: PoolName) -> list[str]:
        marked = self._all_marked or name in self._marked_pools
        return [] if marked else self.order.check_place(name)

    def _check_size(self, name: OperationId) -> list[str]:
        operation, facts = self._facts.operations.get(name), self._facts
        if operation is None or self._all_marked or name in self._marked:
            return []
        fits = fitting_sizes(facts, operation)
        told = "is marked as fitting on some node" if operation.fits_somewhere else "is marked as fitting on no node"
        broken = [] if fits == operation.fitting else [f"{name}: a job {told}, which is wrong"]
        if operation.refused_size != facts.pools.refused_size(operation.spec):
            broken.append(f"{name}: the stored bound that its job size breaks is wrong")
        if operation.gang is not None and facts.gangs.judged_by == bounds_of_gangs(facts):
            at_once = jobs_at_once(facts, operation.spec, operation.gang.judged_for)
            broken += (
                []
                if at_once == operation.gang.at_once
                else [f"{name}: the stored number of jobs that can run at once is wrong"]
            )
        return broken

    def _check_place(self, name: OperationId) -> list[str]:
        operation, entry = self._facts.operations.get(name), self.order.entry(name)
        if entry is None or self._all_marked or name in self._marked:
            return []
        if operation is None:
            return [f"{name}: is in the order and is not known"]
        if self._why_held_back(operation) is not None or entry != self._entry(operation):
            return [f"{name}: its position in the order does not follow from the facts"]
        if not self.order.has_owed_right(operation):
            return [f"{name}: whether it is listed as owed a job does not follow from the facts"]
        return (
            [] if self.order.is_in_its_class(operation) else [f"{name}: its job class does not follow from the facts"]
        )
