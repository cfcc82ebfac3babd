"""The shell of fair_share: receives operations, usage and pools, computes updates, publishes what changed."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from headrace.bus import BusError
from headrace.ids import TreeName, tree_name
from headrace.obs.logging import logger
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.engine import Figure, Outcome, counter
from headrace.runtime.feeds import OperationsFeed, SnapshotFeed, slices
from headrace.runtime.fenced_writes import KeyFenced
from headrace.runtime.role import Role, role_of
from headrace.runtime.service import Runtime
from headrace.runtime.shell import LengthsOfTime, Shell
from headrace.wire import subjects
from headrace.wire.codec import BadMessage
from headrace.wire.integral import Advanced
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import Event, concerned
from headrace.wire.pool_changes import PoolPlan
from headrace.wire.pool_explanations import ExplainPool
from headrace.wire.pools import GetPools
from headrace.wire.refusals import StaleTerm
from headrace.wire.snapshot_parts import Applied, SnapshotPublisher, SnapshotReader
from headrace.wire.snapshots import (
    MovedShare,
    ShareFrame,
    ShareItem,
    SharePart,
    UsageFrame,
    UsageItem,
    UsagePart,
    WholeRequest,
)
from headrace.wire.version import Term
from headrace_fair_share.configuration.change_decisions import Change, StoredTree
from headrace_fair_share.configuration.node_filters import NodeFilters
from headrace_fair_share.configuration.other_trees import OtherTrees
from headrace_fair_share.configuration.persons import Persons
from headrace_fair_share.configuration.requests import ConfigurationRequests
from headrace_fair_share.configuration.store import PoolStore
from headrace_fair_share.effects import (
    Compute,
    Effect,
    KeepBrokenTree,
    OfferSample,
    Publish,
    SendAdvance,
    StepDown,
    UpdateSooner,
)
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.exchange_with_integral import answer_to
from headrace_fair_share.explain import Shares, explain_pool
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.first_snapshots import FirstSnapshots
from headrace_fair_share.history.recording import HistoryKeeper, term_of_history
from headrace_fair_share.pool_figures import pool_figures
from headrace_fair_share.settings import FairShareSettings
from headrace_fair_share.starvation.saved_clocks import ClockStore, term_of_clocks
from headrace_fair_share.update.broken_trees import keep_broken_tree
from headrace_fair_share.update.updater import Update, Updater
from headrace_fair_share.view import pool_list
from headrace_fair_share.what_if.requests import WhatIfRequests

_Next = Outcome[None, Effect]
#: Number of operations that are processed between two turns of the event loop; 256 take some 3 ms.
_LEARNT_SLICE = 256
#: Largest number of share items that are encoded on the event loop. Encoding so few takes well below a millisecond.
_TOLD_AT_ONCE = 32


async def serve(runtime: Runtime[FairShareSettings]) -> None:
    """Follow a tree, and compute its shares from the time the lease is acquired until the process is asked to stop."""
    tree = tree_name(runtime.settings.tree)
    pools = await CopiedBucket.open(runtime.bus, subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
    service = FairShareService(runtime, tree, pools)

    async def recorded() -> Term:
        clocks = await term_of_clocks(await runtime.bus.key_value(subjects.CLOCKS_BUCKET), tree)
        return max(clocks, await term_of_history(runtime.bus, tree, runtime.settings.history_options()))

    async with service.followed():
        await runtime.lead(
            role_of("fair_share", tree), service.lead, recorded=recorded, sequence=lambda: service.operations.sequence
        )


class FairShareService:
    """The fair share service of one tree. As a standby it only collects facts and publishes nothing."""

    _role: Role
    _clocks: ClockStore
    _publisher: SnapshotPublisher[ShareItem, ShareFrame]
    _history: HistoryKeeper

    def __init__(self, runtime: Runtime[FairShareSettings], tree: TreeName, pools: CopiedBucket) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._bus = runtime.bus
        self._tree = tree
        self._log = logger(tree=tree)
        options = runtime.settings.engine_options()
        self.engine = FairShareEngine(tree, 0, options)
        self._shell: Shell[Effect] = Shell(
            "fair_share",
            self.engine,
            runtime.clock,
            runtime.endpoints,
            perform=self._perform_at_once,
            figures=self.figures,
        )
        self._pools = pools
        judge = NodeFilters(pools, lambda: runtime.bus.key_value(subjects.NODES_BUCKET)).refusal
        self._store = PoolStore(pools, tree, runtime.clock, self._on_stored, self._on_written, judge)
        others = OtherTrees(pools, tree, options.bounds, runtime.clock, judge)
        person = Persons(runtime.bus, runtime.settings)
        self._requests = ConfigurationRequests(self.engine, self._shell, self._store, others, person)
        self._what_if = WhatIfRequests(tree, self.engine, self._shell, person, self._requests.unknown_tree)
        self._update_times = LengthsOfTime(
            "share_updates", "Durations of updates, in a worker thread or on the event loop."
        )
        #: The updater, which only one thread at a time may use.
        self._updater = Updater()
        #: Held while the publisher is in use, possibly by a worker thread.
        self._publishing = anyio.Lock(fast_acquire=True)
        self._usage: SnapshotReader[UsageItem, UsageFrame] = SnapshotReader(
            tree, UsageFrame(), key=lambda item: item.operation
        )
        self._usage_feed: SnapshotFeed[UsageItem, UsageFrame] = SnapshotFeed(
            runtime.bus,
            runtime.endpoints,
            runtime.clock,
            subjects.usage(tree),
            subjects.usage_whole(tree),
            UsagePart,
            self._usage,
            self._on_usage,
            silence_s=runtime.settings.usage_silence_ms / 1000,
            terms=runtime.terms,
            publisher=role_of("allocator", tree),
        )
        self.operations = OperationsFeed(runtime.bus, runtime.endpoints, tree, self, runtime.terms)
        self._sooner = anyio.Event()
        self._serves_whole = False
        self._first_snapshots = FirstSnapshots(tree)

    # --- life cycle -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Follow pools, operations and usage while the context is open."""
        async with self._pools.mirror(self._store.on_change), anyio.create_task_group() as tasks:
            tasks.start_soon(self.operations.run)
            tasks.start_soon(self._usage_feed.run)
            yield
            tasks.cancel_scope.cancel()

    async def _make_bucket(self) -> None:
        await self._bus.key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)

    async def lead(self, role: Role) -> None:
        """Serve as the leader, from the first subscription to the last saved clocks."""
        self._role = role
        self._history = HistoryKeeper(self._bus, self._tree, self.engine, self._settings.history_options(), role)
        self._clocks = ClockStore(await self._bus.key_value(subjects.CLOCKS_BUCKET), self._tree, role.term)
        saved = await self._clocks.load()
        self._shell.perform(self.engine.on_leading(role.term, saved, self._shell.now()))
        self._publisher = SnapshotPublisher(
            SharePart, self._tree, role.term, ShareFrame(), key=lambda item: item.key, moved=MovedShare.between
        )
        async with anyio.create_task_group() as tasks:
            await self._pools.write_lost_again()
            await self._store.ensure(self._settings.tree_options())
            await self._serve_people()
            tasks.start_soon(self._requests.keep_stored, self._make_bucket)
            tasks.start_soon(self._keep_updated)
            tasks.start_soon(self._keep_clocks)
            tasks.start_soon(self._history.run)
            tasks.start_soon(self._shell.watch, self._runtime, role, partial(pool_figures, self.engine))
            pools = len(self.engine.configuration.pools.pools)
            self._log.info("fair_share serves", term=self._role.term, pools=pools)
            await self._runtime.stopping.wait()
            tasks.cancel_scope.cancel()
        await self._save_clocks()

    def figures(self) -> list[Figure]:
        """Return the metrics of this service: messages from deposed allocators, samples of the history, and lengths of updates."""
        return [
            counter("old_terms", "snapshots", self._usage_feed.refused, "Messages of a term that is over."),
            *self._history.figures(),
            *self._update_times.figures(),
        ]

    async def _keep_clocks(self) -> None:
        while True:
            await anyio.sleep(self._settings.clocks_save_period_ms / 1000)
            await self._save_clocks()

    async def _save_clocks(self) -> None:
        try:
            await self._clocks.save(self.engine.ages())
        except KeyFenced as error:
            self._role.step_down(str(error))
        except BusError as error:
            self._log.warning("clocks not saved", error=str(error))

    # --- incoming facts ---------------------------------------------------------------------------------------------

    async def on_operations(self, operations: list[LiveOperation], sequence: int) -> None:
        """Replace the known operations by all live operations, which admission reported."""
        self._first_snapshots.note_known(operations)
        *pages, last = slices(operations, _LEARNT_SLICE)
        for page in pages:
            self._shell.perform(self.engine.on_more_operations(page, self._shell.now()))
            await anyio.lowlevel.checkpoint()
        self._shell.perform(self.engine.on_operations(last, self._shell.now()))
        self._log.debug("operations known", sequence=sequence, operations=len(self.engine.operations.by_id))

    async def on_events(self, events: list[Event], sequence: int) -> None:
        """Process the next events of the log, which admission published."""
        self._first_snapshots.note(events)
        outcome = self.engine.on_events(events, self._shell.now())
        self._shell.perform(outcome)
        if outcome.effects:
            for event in events:
                self._log.debug("event", sequence=sequence, operation=concerned(event), kind=type(event).__name__)

    async def _on_usage(self, applied: Applied) -> None:
        items = self._usage.items
        change = UsageChange(
            version=applied.version,
            frame=self._usage.frame,
            items=list(items.values()) if applied.whole else [items[n] for n in applied.changed if n in items],
            removed=applied.removed,
            whole=applied.whole,
        )
        self._shell.perform(self.engine.on_usage(change, self._shell.now()))

    def _on_stored(self, stored: StoredTree) -> None:
        outcome = self.engine.on_stored_tree(stored, self._shell.now())
        self._shell.perform(outcome)
        configuration = self.engine.configuration
        if configuration.trouble:
            self._log.error("pools cannot be used", trouble=configuration.trouble)
        if outcome.effects:
            self._log.debug("pools", revision=stored.revision, pools=len(configuration.pools.pools))

    def _on_written(self, changes: Sequence[Change], revision: int) -> list[PoolPlan]:
        return self._shell.perform(self.engine.on_tree_written(changes, revision, self._shell.now()))

    def _perform_at_once(self, effect: Effect) -> None:
        assert isinstance(effect, UpdateSooner), f"{effect} is performed by the update that it is a part of"
        self._sooner.set()

    # --- updates ----------------------------------------------------------------------------------------------------

    async def _keep_updated(self) -> None:
        await self.operations.catch_up()
        while True:
            await self._wait_for_update()
            effects = deque(self.engine.on_update_due(self._shell.now()).effects)
            while effects:
                effects.extend((await self._perform(effects.popleft())).effects)

    async def _wait_for_update(self) -> None:
        while True:
            self._sooner = anyio.Event()
            wait_s = self.engine.seconds_until_update(self._shell.now())
            if not wait_s:
                return
            with anyio.move_on_after(wait_s):
                await self._sooner.wait()

    async def _perform(self, effect: Effect) -> _Next:
        """Perform an effect of an update and pass the result to the engine. Return the engine's outcome."""
        match effect:
            case SendAdvance():
                return await self._send(effect)
            case Compute():
                return await self._compute(effect)
            case Publish():
                await self._publish(effect)
                return self.engine.on_published(self._shell.now())
            case OfferSample():
                self._history.on_updated()
            case KeepBrokenTree():
                self._runtime.tasks.start_soon(self._keep_broken_tree, effect)
            case StepDown():
                self._role.on_term(effect.term, effect.told_by)
        return Outcome(None)

    async def _send(self, effect: SendAdvance) -> _Next:
        engine, advance = self.engine, effect.advance
        try:
            with anyio.fail_after(effect.timeout_s):
                answer = await answer_to(advance, self._bus, effect.timeout_s)
        except (BusError, BadMessage, TimeoutError) as error:
            self._log.debug("advance not answered", version=str(advance.version), error=str(error))
            return engine.on_advance_answer(None, self._shell.now())
        if not isinstance(answer, Advanced | StaleTerm):
            self._log.warning("advance refused", version=str(advance.version), why=answer.text())
        return engine.on_advance_answer(answer, self._shell.now())

    async def _compute(self, effect: Compute) -> _Next:
        compute = partial(self._updater.compute, effect.cut, afresh=effect.afresh)
        began = self._shell.now()
        result = compute() if effect.is_brief else await anyio.to_thread.run_sync(compute)
        self._update_times.note((self._shell.now().steady_ns - began.steady_ns) / 1e6)
        if isinstance(result, Update):
            return self.engine.on_updated(result, self._shell.now())
        self._log.error("update failed", exception=result.fault)
        return self.engine.on_update_failed(result, self._shell.now())

    async def _keep_broken_tree(self, effect: KeepBrokenTree) -> None:
        folder, at_ms = self._settings.broken_trees_path(), self._runtime.clock.wall_ms()
        try:
            path = await anyio.to_thread.run_sync(keep_broken_tree, effect.tree, effect.fault, folder, at_ms)
        except OSError as error:
            self._log.error("the tree of a failed update cannot be written", folder=str(folder), error=str(error))
        else:
            self._log.error("the tree of a failed update was written", file=str(path))

    async def _publish(self, effect: Publish) -> None:
        frame, changed, removed = effect.frame, effect.changed, effect.removed
        async with self._publishing:
            if len(changed) + len(removed) > _TOLD_AT_ONCE:
                # The parts are encoded in a worker thread, like the update itself: with 10,000 operations it takes tens of milliseconds.
                parts = await anyio.to_thread.run_sync(self._publisher.advance, frame, changed, removed)
            else:
                parts = self._publisher.advance(frame, changed, removed)
        if not self._serves_whole:
            # Requests for a whole snapshot are answered from now on. There was nothing to answer earlier: this is the first snapshot that
            # the process publishes.
            subject = subjects.share_whole(self._tree)
            await self._runtime.endpoints.serve(subject, WholeRequest, CallerKind.SERVICE, self._on_whole)
            self._serves_whole = True
        try:
            with self._first_snapshots.published(changed, str(self._publisher.version)):
                for part in parts:
                    await self._runtime.news.publish(subjects.share(self._tree), part)
        except BusError as error:
            self._log.warning("shares not published", version=str(self._publisher.version), error=str(error))
        if changed or removed:
            # The line is logged after the snapshot is published, because readers wait for the snapshot.
            self._log.debug(
                "shares",
                version=str(self._publisher.version),
                usage_version=str(frame.usage_version),
                changed=len(changed),
                operations=[item.name for item in changed if item.kind == "operation"][:20],
            )

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _serve_people(self) -> None:
        endpoints = self._runtime.endpoints
        await self._requests.serve(endpoints)
        await self._what_if.serve(endpoints)
        await endpoints.serve(subjects.user("*", "pool.list"), GetPools, CallerKind.USER, self._on_list, slow=True)
        await endpoints.serve(
            subjects.user("*", "pool.explain"), ExplainPool, CallerKind.USER, self._on_explain, slow=True
        )
        await self._history.serve(endpoints, self._requests.unknown_tree)

    async def _on_whole(self, request: WholeRequest, caller: Caller) -> bytes:
        async with self._publishing:
            return await anyio.to_thread.run_sync(self._publisher.page, request)

    async def _on_list(self, request: GetPools, caller: Caller) -> msgspec.Struct | None:
        if request.tree != self._tree:
            return self._requests.unknown_tree(request.tree)
        return pool_list(self.engine, request, self._publisher.version)

    async def _on_explain(self, request: ExplainPool, caller: Caller) -> msgspec.Struct | None:
        if request.tree != self._tree:
            return self._requests.unknown_tree(request.tree)
        # The explanation is made in a worker thread, because it looks at every element of the tree.
        return await anyio.to_thread.run_sync(explain_pool, Shares.of(self.engine), request)
