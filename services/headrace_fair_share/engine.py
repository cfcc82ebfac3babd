"""What fair_share knows of one tree, and the updates it makes of it; pure.

What is known comes from four sides: the configuration (`book`), operations from admission, usage from the allocator (the only source
of demand, but for operations that it has not named yet), volumes from integral. An update is cut from all of it at one moment, may be
computed anywhere (`updater`), and takes effect as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import Pool, PoolTree
from headrace.resources import ZERO, Resources
from headrace.wire.integral import Advance, Advanced, AdvanceGap, Downtime, PoolFlow, PoolVolume
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import (
    EphemeralPoolAdopted,
    EphemeralPoolSet,
    Event,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
)
from headrace.wire.operations import FINAL_STATES
from headrace.wire.placements import EphemeralPool
from headrace.wire.refusals import NotReady, Refusal
from headrace.wire.snapshots import ShareFrame, ShareItem, UsageFrame, UsageItem
from headrace.wire.version import NEVER, Term, Version
from headrace_fair_share.configuration.rules import Bounds
from headrace_fair_share.configuration.tree_book import PoolBook
from headrace_fair_share.starvation.clocks import Age, Ages, Clock, aged, clocks_of
from headrace_fair_share.starvation.time_that_counts import JudgingClock, Moment
from headrace_fair_share.update.advances import AdvanceChain
from headrace_fair_share.update.cut import Cut, KnownOperation
from headrace_fair_share.update.ephemeral_pools import guests_of
from headrace_fair_share.update.figures import PoolFigures
from headrace_fair_share.update.flows_to_integral import flows_of, with_grants
from headrace_fair_share.update.pool_inputs import pool_input
from headrace_fair_share.update.run import Update, Updater
from headrace_fair_share.update.usage_averages import UsageAverages

__all__ = ["EngineOptions", "FairShareEngine", "UsageChange"]

#: Ephemeral pools that may be known without a look whether they are over.
_GUESTS_AT_LEAST = 1_000


class EngineOptions(msgspec.Struct, frozen=True):
    """What is set for the service."""

    #: Older usage judges nobody.
    usage_judged_within_us: int = 2_000_000
    most_missed_advances: int = 10_000
    #: Nothing that an update kept of those before is trusted for longer.
    full_update_period_us: int = 5_000_000
    bounds: Bounds = Bounds()


class UsageChange(msgspec.Struct, frozen=True):
    """What a usage snapshot changed; `whole` replaces everything."""

    version: Version
    frame: UsageFrame
    items: list[UsageItem]
    removed: frozenset[str] = frozenset()
    whole: bool = False


class FairShareEngine:
    """One tree, in one life of the service."""

    def __init__(self, tree: TreeName, term: Term, options: EngineOptions) -> None:
        self._tree = tree
        self._options = options
        self.book = PoolBook(tree, options.bounds)
        self.chain = AdvanceChain(tree, term, options.most_missed_advances)
        self.operations: dict[OperationId, KnownOperation] = {}
        self.operations_known = False
        self.volumes: dict[PoolName, PoolVolume] = {}
        #: Time that no volume was credited or charged for, as integral told last.
        self.downtime = Downtime()
        self.total = ZERO
        self.frame = ShareFrame()
        self.items: dict[str, ShareItem] = {}
        self.figures: dict[PoolName, PoolFigures] = {}
        self.clocks: dict[str, Clock] = {}
        self.updates = 0
        self._time = JudgingClock()
        self._averages = UsageAverages()
        #: Replaced, never changed; pools that are over stay until the next whole.
        self._guests: dict[PoolName, EphemeralPool] = {}
        #: With more it is looked which are over.
        self._most_guests = _GUESTS_AT_LEAST
        #: Used by one thread at a time, which need not be the one that all else here belongs to.
        self.updater = Updater()
        self._afresh_us = 0
        self._usage: dict[OperationId, UsageItem] = {}
        self._named: set[OperationId] = set()
        self._usage_version = NEVER
        self._usage_frame = UsageFrame()
        self._heard_us: int | None = None
        self._had_complete = False
        #: The flows of a configuration and a total, as long as these stay.
        self._flowing: tuple[PoolTree, Resources, list[PoolFlow]] | None = None

    # --- what becomes known -----------------------------------------------------------------------------------------

    def on_operations(self, operations: Iterable[LiveOperation]) -> bool:
        """Everything live, replacing what was known."""
        before = self.operations
        self.operations_known = True
        self._guests = {}
        self.operations = {each.operation: _known(each) for each in operations if each.spec.tree == self._tree}
        return before != self.operations

    def on_events(self, events: Iterable[Event]) -> bool:
        """What the log recorded next; true when it matters here. Applying an event again changes nothing."""
        changed = False
        for event in events:
            changed = self._on_event(event) or changed
        return changed

    def on_usage(self, usage: UsageChange, now: Moment) -> bool:
        """A snapshot of the allocator; true when it says anything new."""
        if usage.version.term != self._usage_version.term:
            self._named.clear()
        if usage.whole:
            changed = len(usage.items) != len(self._usage)
            changed = changed or any(self._usage.get(item.operation) != item for item in usage.items)
            self._usage = {item.operation: item for item in usage.items}
        else:
            changed = bool(usage.items or usage.removed)
            self._usage.update((item.operation, item) for item in usage.items)
            for name in usage.removed:
                self._usage.pop(OperationId(name), None)
        self._named.update(item.operation for item in usage.items)
        frame = usage.frame
        changed = changed or frame.total != self._usage_frame.total or frame.complete != self._usage_frame.complete
        if frame.complete or not self._had_complete:
            self.total = frame.total
        self._had_complete = self._had_complete or frame.complete
        self._usage_version, self._usage_frame, self._heard_us = usage.version, frame, now.steady_us
        return changed

    def on_ages(self, saved: Iterable[Ages]) -> None:
        """Clocks that were saved by an earlier life; they go on from where they stood."""
        for ages in saved:
            self.clocks.update(clocks_of(ages.ages, self._time.now_ms))

    # --- an update --------------------------------------------------------------------------------------------------

    def on_update_begins(self, now: Moment) -> None:
        """Time passes: volumes are to be advanced (`chain`) before the update is cut."""
        dt_us = self._time.on_update(now, judged=self._judged(now), complete=self._usage_frame.complete)
        self._averages.add(dt_us)
        if self.book.known:
            # Before that nobody knows which pools have savings; naming none would cost them.
            self.chain.add(dt_us, self.total, self._flows(), self.saturation_period_s, now.wall_ms)

    def on_advance_answer(self, answer: Advanced | AdvanceGap | Refusal) -> Advance | None:
        """What integral answered to the head of the chain; returns what to send next."""
        match answer:
            case Advanced():
                if not self.chain.on_confirmed(answer):
                    return None
                self.volumes = {volume.pool: volume for volume in answer.pools}
                self.downtime = answer.downtime
            case AdvanceGap():
                self.chain.on_gap(answer)
            case NotReady():
                return None
            case _:
                self.chain.give_up()
        return self.chain.head()

    def is_afresh_due(self, now: Moment) -> bool:
        """True every few seconds: then an update works everything out anew. To be asked before the update is cut."""
        if now.steady_us - self._afresh_us < self._options.full_update_period_us:
            return False
        self._afresh_us = now.steady_us
        # Seldom, for every update in which a weight changes costs as much as a whole one.
        self._averages.bring_up_to_date(self.book.pools, self.items.values())
        return True

    def cut(self, now: Moment) -> Cut:
        """Everything that is known, as it is now; later changes do not reach it."""
        return Cut(
            pools=self.book.pools,
            operations=dict(self.operations),
            usage=dict(self._usage),
            named=frozenset(self._named),
            volumes=self.volumes,
            grants=self._grants(),
            downtime=self.downtime,
            total=self.total,
            usage_version=self._usage_version,
            pools_revision=self.book.revision,
            stale_volumes=len(self.chain) > 0,
            troubles=self.book.alerts(),
            now_ms=now.wall_ms,
            clock_ms=self._time.now_ms,
            clock_offset_ms=self._time.offset_ms,
            judged=self._judged(now),
            clocks=self.clocks,
            usage_averages=self._averages.of,
            guests=self._guests,
        )

    def on_updated(self, update: Update) -> None:
        """The figures of a cut are there: they take effect as a whole."""
        self.updates += 1
        self.frame, self.clocks = update.frame, update.clocks
        self.items.update((item.key, item) for item in update.changed)
        self.figures.update(update.figures)
        for key in update.removed:
            del self.items[key]
            if key.startswith("/"):
                self.figures.pop(PoolName(key[1:]), None)

    def on_update(self, now: Moment) -> Update:
        """A whole update without asking integral: what a single process would do at `now`."""
        self.on_update_begins(now)
        afresh = self.is_afresh_due(now)
        update = self.updater.update(self.cut(now), afresh=afresh)
        self.on_updated(update)
        return update

    # --- questions --------------------------------------------------------------------------------------------------

    def guests(self) -> list[Pool]:
        """The ephemeral pools that there are, parents first."""
        pools = self.book.pools
        return guests_of((name for name in self.in_use() if name not in pools.pools), self._guests, pools)

    def guest(self, name: PoolName) -> Pool | None:
        """One of them."""
        if name in self.book.pools.pools:
            return None
        return next((pool for pool in guests_of([name], self._guests, self.book.pools) if pool.name == name), None)

    def in_use(self) -> Mapping[PoolName, int]:
        """How many operations name each pool."""
        return Counter(operation.pool for operation in self.operations.values())

    def ages(self) -> list[Age]:
        """What must survive of the clocks, the longest first."""
        return sorted(aged(self.clocks, self._time.now_ms), key=lambda age: (-age.below_ms, age.key))

    def statistics(self) -> dict[str, int]:
        return {
            "pools": len(self.book.pools.pools),
            "operations": len(self.operations),
            "updates": self.updates,
            "below_fair_share": len(self.clocks),
            **{f"advances_{name}": figure for name, figure in self.chain.statistics().items()},
            "downtime_gaps": self.downtime.gaps,
            "downtime_ms": self.downtime.together_ms,
        }

    def _judged(self, now: Moment) -> bool:
        heard = self._heard_us
        fresh = heard is not None and now.steady_us - heard <= self._options.usage_judged_within_us
        return fresh and self._usage_frame.complete

    @property
    def saturation_period_s(self) -> float:
        """Savings end at this long a time of the flow."""
        return self.book.pools.options.integral_guarantees.pool_capacity_saturation_period / 1000

    def _grants(self) -> dict[PoolName, float]:
        return {name: each.grant_ratio for name, each in self.figures.items() if each.grant_ratio}

    def _flows(self) -> list[PoolFlow]:
        if self._flowing is None or self._flowing[0] is not self.book.pools or self._flowing[1] != self.total:
            pools = self.book.pools
            places = {ROOT_POOL: -1, **{name: place for place, name in enumerate(pools.preorder)}}
            inputs = [
                pool_input(pool, places[pool.parent], pools) for pool in map(pools.pools.__getitem__, pools.preorder)
            ]
            distribute = pools.options.should_distribute_free_volume_among_children
            self._flowing = (pools, self.total, flows_of(inputs, self.total, distribute=distribute))
        return with_grants(self._flowing[2], self._grants())

    def _on_guest(self, event: EphemeralPoolSet | EphemeralPoolAdopted) -> bool:
        if event.tree != self._tree:
            return False
        before = self._guests
        if isinstance(event, EphemeralPoolSet):
            self._guests = {**self._guests_in_use(), event.pool.name: event.pool}
        else:
            self._guests = {name: pool for name, pool in before.items() if name != event.pool}
        return before != self._guests

    def _guests_in_use(self) -> dict[PoolName, EphemeralPool]:
        """Without those that are over: an ephemeral pool goes with its last operation and nothing more is said of it."""
        if len(self._guests) <= self._most_guests:
            return self._guests
        kept: dict[PoolName, EphemeralPool] = {}
        for name in self.in_use():
            while name in self._guests and name not in kept:
                kept[name] = self._guests[name]
                name = kept[name].parent
        self._most_guests = _GUESTS_AT_LEAST + 2 * len(kept)
        return kept

    def _on_event(self, event: Event) -> bool:
        if isinstance(event, EphemeralPoolSet | EphemeralPoolAdopted):
            return self._on_guest(event)
        if isinstance(event, OperationStarted):
            if event.spec.tree != self._tree:
                # Pending so far, it is to run in another of its trees.
                return self.operations.pop(event.operation, None) is not None
            if event.operation in self.operations:
                return False
            self.operations[event.operation] = KnownOperation.of(
                event.spec,
                event.spec.job_count,
                operation=event.operation,
                state=event.state,
                suspended=False,
                started_at_ms=event.at_ms,
            )
            return True
        known = self.operations.get(event.operation)
        if known is None:
            return False
        match event:
            case OperationStateChanged() if event.state in FINAL_STATES:
                del self.operations[event.operation]
                return True
            case OperationStateChanged():
                after = msgspec.structs.replace(known, state=event.state)
            case OperationSuspended():
                after = msgspec.structs.replace(known, suspended=event.suspended)
            case ParametersChanged():
                after = msgspec.structs.replace(known, pool=event.pool, weight=event.weight)
            case _:
                return False
        self.operations[event.operation] = after
        return after != known


def _known(live: LiveOperation) -> KnownOperation:
    open_jobs = max(0, live.spec.job_count - sum(byte.bit_count() for byte in live.done))
    return KnownOperation.of(
        live.spec,
        open_jobs,
        operation=live.operation,
        state=live.state,
        suspended=live.suspended,
        started_at_ms=live.started_at_ms,
    )
