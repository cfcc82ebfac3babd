"""The engine of fair_share: everything known about one tree, and its updates. Pure.

Facts come from four sources: the configuration, operations from admission, usage from the allocator, volumes from integral. An update is a
chain of calls and effects, in which each call reports the result of the previous effect:

    on_update_due -> SendAdvance -> on_advance_answer (again and again) -> Compute -> on_updated -> Publish -> on_published

The input of an update is frozen. An update that takes long is computed in a thread beside the event loop. Its results come into force all
at once. If it fails, the previous shares stay in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.pools import Person, Pool, PoolTree
from headrace.runtime.engine import Check, Figure, Moment, Outcome, counter, gauge, run_checks
from headrace.wire.integral import Advance
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import EphemeralPoolAdopted, EphemeralPoolSet, Event
from headrace.wire.pool_changes import ChangePools, PoolPlan
from headrace.wire.refusals import NotReady, Refusal, StaleTerm
from headrace.wire.snapshots import ShareFrame, ShareItem
from headrace.wire.version import Term
from headrace.wire.what_if import WhatIf
from headrace_fair_share.configuration.change_decisions import Change, StoredTree, TreeConfiguration, takes_away
from headrace_fair_share.configuration.rules import TreeBounds
from headrace_fair_share.effects import (
    Compute,
    Effect,
    KeepBrokenTree,
    OfferSample,
    Publish,
    SendAdvance,
    StepDown,
    UpdateSooner,
    WriteTree,
)
from headrace_fair_share.facts.changed_operations import News
from headrace_fair_share.facts.ephemeral_pools import ReportedEphemeralPools, ephemeral_pools_of, misplaced
from headrace_fair_share.facts.known_volumes import AdvanceAnswer, KnownVolumes
from headrace_fair_share.facts.operations import KnownOperations
from headrace_fair_share.facts.pool_inputs import sharing_of
from headrace_fair_share.facts.usage import KnownUsage, SeenTo, UsageChange
from headrace_fair_share.facts.usage_averages import UsageAverages
from headrace_fair_share.hdrf.model import Sharing
from headrace_fair_share.starvation.clocks import NO_TIME, Age, Ages, Clocks, CountedTime, clocks_of
from headrace_fair_share.update.node_guarantees import promise_warnings
from headrace_fair_share.update.results import PoolResults, check_shares
from headrace_fair_share.update.schedule import UpdateSchedule
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.update.updater import FailedUpdate, Update, WrongTree
from headrace_fair_share.what_if.supposing import Supposed, supposed
from headrace_fair_share.yarn.shortage import YarnState

#: Additional time that an update waits for volumes, in microseconds per thousand pools.
_ADVANCE_US_PER_THOUSAND = 50_000
#: Largest number of different faults of updates for which the tree is written to a file, in one run of the service.
_MOST_FAULTS = 10
#: Largest length of an error message in characters. It is bounded because every part of a snapshot repeats the message.
_LONGEST_FAULT = 2_000


class EngineOptions(msgspec.Struct, frozen=True):
    """The settings that the engine reads."""

    #: Largest age in microseconds at which usage counts. While the newest usage is older, time does not count for starvation.
    usage_counts_within_us: int = 2_000_000
    most_missed_advances: int = 10_000
    #: Longest time in microseconds that an update waits for volumes.
    advance_budget_us: int = 20_000
    #: Shortest time between two updates, in microseconds.
    update_spacing_us: int = 5_000
    #: Longest time between two updates, in microseconds; 0: it depends on the number of operations.
    update_period_us: int = 0
    #: Microseconds between two updates that are computed from scratch, without results kept from previous updates.
    full_update_period_us: int = 5_000_000
    bounds: TreeBounds = TreeBounds()


class FairShareEngine:
    """The engine of one tree in one run of the service. While its term is 0 (on a standby), it only collects facts."""

    def __init__(self, tree: TreeName, term: Term, options: EngineOptions) -> None:
        self._tree = tree
        self._options = options
        self.configuration = TreeConfiguration(tree, options.bounds)
        self._news = News()
        self.operations = KnownOperations(tree, self._news)
        self.usage = KnownUsage(options.usage_counts_within_us, self._news)
        self.volumes = KnownVolumes(tree, term, options.most_missed_advances)
        #: The outcome of the last update.
        self.frame = ShareFrame()
        self.items: dict[str, ShareItem] = {}
        self.pool_results: dict[PoolName, PoolResults] = {}
        self.clocks, self.yarn = Clocks.none(), YarnState()
        self._seen_to = SeenTo()
        self.updates = self.failed_updates = 0
        #: Number of incremental updates whose shares differed from those of an update from scratch.
        self.wrong_updates = 0
        #: Number of resting operations (`update.unsaturated.resting`) that the last update skipped.
        self._resting = 0
        self._ephemeral_pools = ReportedEphemeralPools(tree)
        #: The configuration in force, and the ephemeral pools that exist under it. None until they are requested, because finding ten
        #: thousand ephemeral pools takes 50 ms.
        self._standing: tuple[PoolTree, Sequence[Pool]] | None = None
        self.time = CountedTime()
        self._averages = UsageAverages()
        self._schedule = UpdateSchedule(
            options.update_spacing_us, options.update_period_us, options.full_update_period_us
        )
        #: True if the last update was computed from scratch and did not fail.
        self._last_update_holds = False
        self._wait_for_volumes_until_us = 0
        self._faults: set[str] = set()

    # --- incoming facts ---------------------------------------------------------------------------------------------

    def on_more_operations(self, page: Iterable[LiveOperation], now: Moment) -> Outcome[None, Effect]:
        """Take a page of live operations. It takes effect with the last page."""
        self.operations.gather(page)
        return Outcome(None)

    def on_operations(self, operations: Iterable[LiveOperation], now: Moment) -> Outcome[None, Effect]:
        """Take the last page of live operations. All pages together replace all operations known before.

        The known ephemeral pools are forgotten too: admission reports them again after this page.
        """
        self._ephemeral_pools.clear()
        self._standing = None
        return self._changed(self.operations.replace(operations) | self._try_held_back())

    def on_events(self, events: Iterable[Event], now: Moment) -> Outcome[None, Effect]:
        """Apply events of the log in their order. Applying the same event again changes nothing."""
        changed = False
        for event in events:
            if isinstance(event, EphemeralPoolSet | EphemeralPoolAdopted):
                changed = self._ephemeral_pools.apply(event, self.operations.in_use) or changed
            else:
                changed = self.operations.apply(event) or changed
        if changed:
            self._standing = None
        return self._changed(self._try_held_back() or changed)

    def on_usage(self, usage: UsageChange, now: Moment) -> Outcome[None, Effect]:
        """Apply a usage snapshot of the allocator."""
        self._seen_to.note(usage, self.time.now_ms)
        return self._changed(self.usage.apply(usage, now))

    def on_leading(self, term: Term, saved: Iterable[Ages], now: Moment) -> Outcome[None, Effect]:
        """Start to make updates with this term. Clocks of starvation that an earlier term saved continue from their saved ages."""
        self.volumes = KnownVolumes(self._tree, term, self._options.most_missed_advances)
        ages = [age for each in saved for age in each.ages]
        self.clocks = clocks_of(ages, self.time.now_ms)
        self.yarn = YarnState.saved(ages, self.time.now_ms)
        return Outcome(None)

    def on_stored_tree(self, stored: StoredTree, now: Moment) -> Outcome[None, Effect]:
        """Apply the configuration stored in the bucket, whichever process wrote it."""
        different = self.configuration.on_stored(stored)
        return self._changed(self._put_in_force() or different)

    # --- changes of the configuration -------------------------------------------------------------------------------

    def on_change_request(
        self, request: ChangePools, person: Person, base: PoolTree | None, now: Moment
    ) -> Outcome[PoolPlan | Refusal | None, Effect]:
        """Decide on a change of the configuration: return an answer, or a `WriteTree` effect.

        `base` is the result of other changes, if these will be written together with this change; None: change the newest known pools. The
        engine itself changes only at `on_tree_written`.
        """
        if takes_away(request) and not self.operations.are_known:
            return Outcome(NotReady("the operations are not known yet"))
        warn = promise_warnings(self.usage.rooms)
        decision = self.configuration.decide(request, self.operations.in_use(), person, self.usage.total, warn, base)
        if isinstance(decision, Change):
            return Outcome(None, [WriteTree(decision)])
        return Outcome(decision)

    def on_tree_written(self, changes: Sequence[Change], revision: int, now: Moment) -> Outcome[list[PoolPlan], Effect]:
        """Take over changes that are durable now, and put them in force or hold them back. Return the plan of each change."""
        plans = self.configuration.on_written(changes, revision)
        self._put_in_force()
        if self.configuration.held_back:
            alerts = self.configuration.alerts()
            plans = [msgspec.structs.replace(plan, warnings=[*plan.warnings, *alerts]) for plan in plans]
        return Outcome(plans, self._changed(True).effects)

    def on_what_if(self, request: WhatIf, person: Person, now: Moment) -> Outcome[Supposed | Refusal, Effect]:
        """Return the input of an update as it is now, and as it would be after the requested changes. The engine itself does not change."""
        if not self.operations.are_known or not self.configuration.is_known:
            return Outcome(NotReady("the operations and pools are not known yet"))
        held_back = partial(self.configuration.holds_back, ephemeral=self._ephemeral_by_parent())
        return Outcome(supposed(request, person, self._cut(now), self.configuration, held_back))

    # --- an update --------------------------------------------------------------------------------------------------

    def seconds_until_update(self, now: Moment) -> float:
        """Return the seconds until `on_update_due` must be called, 0 if it is due."""
        period_ms, at_rest = self.configuration.pools.options.fair_share_update_period, self._is_at_rest()
        return self._schedule.seconds_until_due(now, len(self.operations.by_id), at_rest=at_rest, period_ms=period_ms)

    def on_update_due(self, now: Moment) -> Outcome[None, Effect]:
        """Start an update by advancing the volumes. If nothing can have changed since the last update, only publish that the last snapshot
        still holds.
        """
        nothing_new = not self._schedule.is_wanted and self._is_at_rest()
        self._schedule.on_begin(now)
        counts, complete = self._usage_counts(now), self.usage.frame.complete
        dt_us = self.time.on_update(now, usage_counts=counts, complete=complete)
        if nothing_new:
            version, at_ms = self.usage.version, now.wall_ms
            self.frame = msgspec.structs.replace(self.frame, usage_version=version, at_ms=at_ms)
            return Outcome(None, [OfferSample(), Publish(self.frame, [], [])])
        self._averages.add(dt_us)
        if self.configuration.is_known:
            # Before the configuration is known, no advance may be sent: an advance without pools would delete the volumes of all pools.
            pools = self.configuration.in_force
            self.volumes.advance(dt_us, self.usage.total, pools, self._grants(), now.wall_ms)
        advance = self.volumes.chain.head()
        longer_us = _ADVANCE_US_PER_THOUSAND * (len(advance.pools) // 1_000 if advance else 0)
        self._wait_for_volumes_until_us = now.steady_us + self._options.advance_budget_us + longer_us
        return self._advanced(advance, now)

    def on_advance_answer(self, answer: AdvanceAnswer | None, now: Moment) -> Outcome[None, Effect]:
        """Take integral's answer to the oldest unconfirmed advance. None: integral did not answer in time, so the update uses the previous
        volumes.
        """
        if answer is None:
            return self._advanced(None, now)
        if isinstance(answer, StaleTerm):
            # The shell ends this process if another process leads. If not, the update continues as if there were no answer.
            return Outcome(None, [StepDown(answer.known, "integral"), *self._advanced(None, now).effects])
        return self._advanced(self.volumes.on_answer(answer), now)

    def on_updated(self, update: Update, now: Moment) -> Outcome[None, Effect]:
        """Put the results of an update in force as a whole."""
        self.updates += 1
        self.frame, self.clocks, self.yarn, self._resting = update.frame, update.clocks, update.yarn, update.resting
        self.items.update((item.key, item) for item in update.changed)
        self.pool_results.update(update.pool_results)
        for key in update.removed:
            del self.items[key]
            if key.startswith("/"):
                self.pool_results.pop(PoolName(key[1:]), None)
        kept = self._kept(update.wrong) if update.wrong is not None else []
        self.wrong_updates += update.wrong is not None
        return Outcome(None, [*kept, OfferSample(), Publish(update.frame, update.changed, update.removed)])

    def on_update_failed(self, failure: FailedUpdate, now: Moment) -> Outcome[None, Effect]:
        """Keep the previous shares in force after the algorithm failed, and publish the error.

        For debugging, the tree is written to a file, at most once for each different fault in one run of the service.
        """
        self.failed_updates += 1
        self._last_update_holds, self._resting = False, 0
        effects = self._kept(WrongTree(failure.tree, failure.fault)) if failure.tree is not None else []
        told = f"an update failed, and the previous shares stay in force: {failure.fault}"[:_LONGEST_FAULT]
        frame = msgspec.structs.replace(self.frame, at_ms=failure.at_ms, errors=[told])
        return Outcome(None, [*effects, Publish(frame, [], [])])

    def on_published(self, now: Moment) -> Outcome[None, Effect]:
        """End the update: its shares are published, so readers have them or will request them."""
        self._schedule.on_end(now)
        return Outcome(None)

    # --- queries ----------------------------------------------------------------------------------------------------

    def ephemeral_pools(self) -> Sequence[Pool]:
        """Return the existing ephemeral pools, parents first."""
        configured = self.configuration.in_force
        if self._standing is None or self._standing[0] is not configured:
            used = (name for name in self.operations.in_use() if name not in configured.pools)
            self._standing = configured, ephemeral_pools_of(used, self._ephemeral_pools.pools, configured)
        return self._standing[1]

    def ages(self) -> list[Age]:
        """Return the ages of all clocks of starvation, the oldest first. They are saved, so that the clocks continue after a restart."""
        ages = self.yarn.with_ages(self.clocks.ages(self.time.now_ms), self.time.now_ms)
        return sorted(ages, key=lambda age: (-(age.below_ms or age.short_ms or 0), age.key))

    def checks(self) -> Iterator[Check]:
        """Yield checks of the configuration, operations, usage, advances, pool results, clocks and ephemeral pools."""
        yield self.configuration.check
        yield self.operations.check
        yield self.usage.check
        yield self.volumes.chain.check
        if sharing_of(self.configuration.in_force.options) is Sharing.VECTOR:
            # Shares under YARN's rules are not checked: they are rounded up, and minimums are granted even if there is not enough for all
            # of them.
            yield lambda: check_shares(self.items, self.pool_results)
        # Check the clocks only after the first update: before it there are no share items to which saved clocks could belong.
        yield lambda: self.clocks.check(self.items.keys()) if self.updates else []
        yield lambda: misplaced(self.ephemeral_pools(), self.configuration.in_force)

    def check(self) -> list[str]:
        """Return the broken invariants as texts, empty if all hold."""
        return run_checks(self.checks())

    def figures(self) -> list[Figure]:
        """Return metrics: sizes of the tree, updates by outcome, and advances to integral."""
        return [
            gauge("pools", "pools", len(self.configuration.pools.pools), "Configured pools."),
            gauge("operations", "operations", len(self.operations.by_id), "Operations that are running or waiting."),
            gauge(
                "below_fair_share",
                "elements",
                int((self.clocks.below_since != NO_TIME).sum()),
                "Pools and operations below their fair share.",
            ),
            counter("updates", "updates", self.updates, "Updates of fair share."),
            counter(
                "failed_updates",
                "updates",
                self.failed_updates,
                "Updates that failed, after which the previous shares stayed in force.",
            ),
            counter(
                "wrong_updates",
                "updates",
                self.wrong_updates,
                "Incremental updates that an update from scratch did not confirm.",
            ),
            *self.volumes.figures(),
        ]

    # --- parts ------------------------------------------------------------------------------------------------------

    def _changed(self, changed: bool) -> Outcome[None, Effect]:
        if not changed:
            return Outcome(None)
        self._schedule.on_change()
        return Outcome(None, [UpdateSooner()])

    def _advanced(self, next_advance: Advance | None, now: Moment) -> Outcome[None, Effect]:
        """Send the next advance if there is one and time for it is left, else compute the update."""
        left_us = self._wait_for_volumes_until_us - now.steady_us
        if next_advance is not None and left_us > 0:
            return Outcome(None, [SendAdvance(next_advance, left_us / 1_000_000)])
        afresh = self._last_update_holds = self._is_afresh_due(now)
        elements = len(self.operations.by_id) + len(self.configuration.in_force.pools) - self._resting
        is_brief = self._schedule.on_compute(now, elements, afresh=afresh)
        return Outcome(None, [Compute(self._cut(now, self._news.take(), is_brief=is_brief), afresh, is_brief)])

    def _kept(self, wrong: WrongTree) -> list[Effect]:
        """Return the effect that writes a tree to a file for debugging. Empty if a tree was written for the same fault before, or for too
        many faults.
        """
        words = repr(wrong.fault)
        if words in self._faults or len(self._faults) >= _MOST_FAULTS:
            return []
        self._faults.add(words)
        return [KeepBrokenTree(wrong.tree, wrong.fault)]

    def _put_in_force(self) -> bool:
        """Put the stored configuration in force unless ephemeral pools prevent it. Return True if anything changed."""
        return self.configuration.put_in_force(self._ephemeral_by_parent())

    def _ephemeral_by_parent(self) -> dict[PoolName, list[PoolName]]:
        ephemeral: dict[PoolName, list[PoolName]] = {}
        for pool in self.ephemeral_pools():
            ephemeral.setdefault(pool.parent, []).append(pool.name)
        return ephemeral

    def _try_held_back(self) -> bool:
        return bool(self.configuration.held_back) and self._put_in_force()

    def _usage_counts(self, now: Moment) -> bool:
        """Return True if usage counts for starvation. It does not count while the tree's option `pause_starts` is set."""
        return self.usage.counts(now) and not self.configuration.pools.options.pause_starts

    def _is_at_rest(self) -> bool:
        """Return True if another update would give the same results until a fact changes: no clock, volume or average changes with time."""
        moves = len(self.clocks.running) or self.yarn.had_share_ms or self.volumes.chain.has_pools or self._averages.of
        return self._last_update_holds and not moves

    def _is_afresh_due(self, now: Moment) -> bool:
        """Return True if the update must be computed from scratch, which is due every few seconds."""
        if not self._schedule.begins_afresh(now):
            return False
        # Averages are updated rarely, because an update in which a weight changes costs as much as an update from scratch.
        self._averages.bring_up_to_date(self.configuration.in_force, self.items.values())
        return True

    def _cut(
        self, now: Moment, news: Mapping[OperationId, bool] | None = None, *, is_brief: bool = False
    ) -> UpdateFacts:
        """Return everything known now as the input of an update.

        Later changes of the engine do not affect the input. The input of a brief update shares data with the engine, which is safe because
        such an update ends before anything can change.
        """
        operations, usage, named = self.operations.by_id, self.usage.items, self.usage.named
        return UpdateFacts(
            pools=self.configuration.in_force,
            operations=operations if is_brief else dict(operations),
            usage=usage if is_brief else dict(usage),
            news=news,
            named=named if is_brief else frozenset(named),
            volumes=self.volumes.of,
            grants=self._grants(),
            downtime=self.volumes.downtime,
            total=self.usage.total,
            rooms=self.usage.rooms,
            usage_version=self.usage.version,
            pools_revision=self.configuration.revision,
            stale_volumes=len(self.volumes.chain) > 0,
            troubles=self.configuration.alerts(),
            now_ms=now.wall_ms,
            clock_ms=self.time.now_ms,
            clock_offset_ms=self.time.offset_ms,
            usage_counts=self._usage_counts(now),
            clocks=self.clocks,
            yarn=self.yarn,
            seen_to_ms=self._seen_to.at_ms,
            usage_averages=self._averages.of,
            ephemeral_pools=self._ephemeral_pools.pools,
        )

    def _grants(self) -> Mapping[PoolName, float]:
        """Return the integral shares that the last update granted to pools; the volumes of these pools are charged for them."""
        return {name: each.grant_ratio for name, each in self.pool_results.items() if each.grant_ratio}
