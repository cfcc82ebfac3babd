"""The shell of fair_share: hears operations, usage and pools, updates at once and at least every period, publishes what changed."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from headrace.bus import BusError
from headrace.ids import TreeName, tree_name
from headrace.obs.logging import logger
from headrace.runtime.border import Caller, CallerKind
from headrace.runtime.feeds import OperationsFeed, SnapshotFeed
from headrace.runtime.role import Deposed
from headrace.runtime.service import Runtime
from headrace.runtime.terms import take_term
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, MessageTooLarge, decode, encode
from headrace.wire.integral import Advance, Advanced, AdvanceGap
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import Event, concerned
from headrace.wire.parts import Applied, SnapshotPublisher, SnapshotReader
from headrace.wire.pools import GetPools
from headrace.wire.refusals import Refusal, StaleTerm
from headrace.wire.snapshots import ShareFrame, ShareItem, SharePart, UsageFrame, UsageItem, UsagePart, WholeRequest
from headrace.wire.version import Term
from headrace_fair_share.configuration.other_trees import OtherTrees
from headrace_fair_share.configuration.requests import Configuring
from headrace_fair_share.configuration.store import PoolStore, StoredTree
from headrace_fair_share.engine import FairShareEngine, UsageChange
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.history.keeping import HistoryKeeper
from headrace_fair_share.settings import FairShareSettings
from headrace_fair_share.starvation.saved_clocks import ClockStore
from headrace_fair_share.starvation.time_that_counts import Moment
from headrace_fair_share.update.broken_trees import FAULTS, keep_broken_tree
from headrace_fair_share.view import pool_list

__all__ = ["serve"]

#: Faults of which the trees are written, in one life of the service.
_MOST_FAULTS = 10
_AdvanceAnswer: Any = Advanced | AdvanceGap | Refusal


async def serve(runtime: Runtime[FairShareSettings]) -> None:
    """Runs the service until it is asked to stop. Raises `Deposed` when another process has taken over."""
    tree = tree_name(runtime.settings.tree)
    term = await take_term(runtime.bus, f"fair_share.{tree}")
    runtime.terms.see(f"fair_share.{tree}", term)
    await _Shell(runtime, tree, term).run()


class _Shell:
    def __init__(self, runtime: Runtime[FairShareSettings], tree: TreeName, term: Term) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._bus = runtime.bus
        self._clock = runtime.clock
        self._tree = tree
        self._term = term
        self._log = logger(tree=tree)
        self._options = runtime.settings.engine_options()
        self.engine = FairShareEngine(tree, term, self._options)
        self._history = HistoryKeeper(runtime.bus, tree, self.engine, runtime.settings.history_options())
        self._publisher: SnapshotPublisher[ShareItem, ShareFrame] = SnapshotPublisher(
            SharePart, tree, term, ShareFrame(), key=lambda item: item.key
        )
        self._usage: SnapshotReader[UsageItem, UsageFrame] = SnapshotReader(
            tree, UsageFrame(), key=lambda item: item.operation
        )
        #: Held by whoever works on the publisher, which nobody else may look into meanwhile.
        self._publishing = anyio.Lock()
        self._changed = anyio.Event()
        self._operations_known = anyio.Event()
        self._serves_whole = False
        self.failed_updates = 0
        self._faults: set[str] = set()
        self.old_terms = 0

    # --- life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From the first subscription to the last saved clock."""
        pools = await self._bus.key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        clocks = ClockStore(await self._bus.key_value(subjects.CLOCKS_BUCKET), self._tree)
        self._store = PoolStore(pools, self._tree, self._clock, self._on_stored)
        others = OtherTrees(pools, self._tree, self._options.bounds)
        self._configuring = Configuring(
            self.engine, self._store, others, self._settings.person, lambda: self._changed.set()
        )
        self.engine.on_ages(await clocks.load())
        async with pools.mirror(self._store.on_change), anyio.create_task_group() as tasks:
            await self._store.ensure(self._settings.tree_options())
            await self._serve_people()
            operations = OperationsFeed(self._bus, self._runtime.border, self._tree, self, self._runtime.terms)
            tasks.start_soon(operations.run, self._operations_known)
            tasks.start_soon(self._usage_feed().run)
            tasks.start_soon(self._keep_updated)
            tasks.start_soon(self._keep_clocks, clocks)
            tasks.start_soon(self._history.run)
            self._log.info("fair_share serves", term=self._term, pools=len(self.engine.book.pools.pools))
            await self._runtime.stopping.wait()
            tasks.cancel_scope.cancel()
        await self._save_clocks(clocks)

    def _usage_feed(self) -> SnapshotFeed[UsageItem, UsageFrame]:
        return SnapshotFeed(
            self._bus,
            self._runtime.border,
            self._clock,
            subjects.usage(self._tree),
            subjects.usage_whole(self._tree),
            UsagePart,
            self._usage,
            self._on_usage,
            silence_s=self._settings.usage_silence_ms / 1000,
        )

    async def _keep_clocks(self, clocks: ClockStore) -> None:
        while True:
            await anyio.sleep(self._settings.clocks_save_period_ms / 1000)
            await self._save_clocks(clocks)

    async def _save_clocks(self, clocks: ClockStore) -> None:
        try:
            await clocks.save(self.engine.ages())
        except BusError as error:
            self._log.warning("clocks not saved", error=str(error))

    # --- what becomes known -----------------------------------------------------------------------------------------

    async def on_operations(self, operations: list[LiveOperation], sequence: int) -> None:
        """Everything live, from admission."""
        if self.engine.on_operations(operations):
            self._changed.set()
        self._log.debug("operations known", sequence=sequence, operations=len(self.engine.operations))

    async def on_events(self, events: list[Event], sequence: int) -> None:
        """What the log recorded next, from admission."""
        if not self.engine.on_events(events):
            return
        self._changed.set()
        for event in events:
            self._log.debug("event", sequence=sequence, operation=concerned(event), kind=type(event).__name__)

    async def _on_usage(self, applied: Applied) -> None:
        if not self._runtime.terms.see(f"allocator.{self._tree}", applied.version.term):
            self.old_terms += 1
            return
        items = self._usage.items
        change = UsageChange(
            version=applied.version,
            frame=self._usage.frame,
            items=list(items.values()) if applied.whole else [items[n] for n in applied.changed if n in items],
            removed=applied.removed,
            whole=applied.whole,
        )
        if self.engine.on_usage(change, self._now()):
            self._changed.set()

    def _on_stored(self, stored: StoredTree) -> None:
        book = self.engine.book
        revision, tree = stored.revision, stored.tree
        different = book.on_tree(tree, revision) if tree else book.on_unusable(revision, stored.defect)
        if book.trouble:
            self._log.error("pools cannot be used", trouble=book.trouble)
        if different:
            self._log.debug("pools", revision=revision, pools=len(book.pools.pools))
            self._changed.set()

    # --- updates ----------------------------------------------------------------------------------------------------

    def _now(self) -> Moment:
        return Moment(wall_ms=self._clock.wall_ms(), steady_us=int(self._clock.steady_s() * 1_000_000))

    async def _keep_updated(self) -> None:
        await self._operations_known.wait()
        while True:
            started = self._clock.steady_s()
            self._changed = anyio.Event()
            cost_s = await self._update()
            await anyio.sleep(max(self._settings.update_spacing_ms / 1000, 2 * cost_s))
            due = started + self._settings.period_s(len(self.engine.operations))
            with anyio.move_on_after(max(0.0, due - self._clock.steady_s())):
                await self._changed.wait()

    async def _update(self) -> float:
        """One update, published; returns the seconds that took, without waiting for volumes."""
        engine = self.engine
        engine.on_update_begins(self._now())
        with anyio.move_on_after(self._settings.advance_budget_ms / 1000):
            await self._advance_volumes()
        now = self._now()
        afresh = engine.is_afresh_due(now)
        cut = engine.cut(now)
        started = self._clock.steady_s()
        try:
            update = await anyio.to_thread.run_sync(partial(engine.updater.update, cut, afresh=afresh))
        except FAULTS as error:
            # The shares of before stay in force, and everybody is told so.
            self.failed_updates += 1
            self._log.error("update failed", exc_info=error)
            told = f"an update failed, earlier shares stay: {error}"
            self._keep_broken_tree(error)
            await self._publish(msgspec.structs.replace(engine.frame, at_ms=cut.now_ms, errors=[told]), [], [])
            return self._clock.steady_s() - started
        engine.on_updated(update)
        self._history.on_updated()
        await self._publish(update.frame, update.changed, update.removed)
        return self._clock.steady_s() - started

    def _keep_broken_tree(self, fault: Exception) -> None:
        """Has the tree of a failed update written to a file, once for each kind of fault in a life of the service."""
        words, tree = repr(fault), self.engine.updater.tree
        if tree is None or words in self._faults or len(self._faults) >= _MOST_FAULTS:
            return
        self._faults.add(words)
        self._runtime.tasks.start_soon(self._write_broken_tree, tree, fault)

    async def _write_broken_tree(self, tree: TreeInput, fault: Exception) -> None:
        folder = self._settings.broken_trees_path()
        try:
            path = await anyio.to_thread.run_sync(keep_broken_tree, tree, fault, folder, self._clock.wall_ms())
        except OSError as error:
            self._log.error("the tree of a failed update cannot be written", folder=str(folder), error=str(error))
        else:
            self._log.error("the tree of a failed update was written", file=str(path))

    async def _publish(self, frame: ShareFrame, changed: list[ShareItem], removed: list[str]) -> None:
        async with self._publishing:
            # Beside the loop, as the update itself: at 10,000 operations it is tens of milliseconds.
            parts = await anyio.to_thread.run_sync(self._publisher.advance, frame, changed, removed)
        if changed or removed:
            self._log.debug(
                "shares",
                version=str(self._publisher.version),
                usage_version=str(frame.usage_version),
                changed=len(changed),
                operations=[item.name for item in changed if item.kind == "operation"][:20],
            )
        if not self._serves_whole:
            # Not before there is something to tell, and before anybody can miss it.
            subject = subjects.share_whole(self._tree)
            await self._runtime.border.serve(subject, WholeRequest, CallerKind.SERVICE, self._on_whole)
            self._serves_whole = True
        try:
            for part in parts:
                await self._bus.publish(subjects.share(self._tree), part)
        except BusError as error:
            self._log.warning("shares not published", version=str(self._publisher.version), error=str(error))

    async def _advance_volumes(self) -> None:
        advance = self.engine.chain.head()
        while advance is not None:
            advance = await self._send(advance)

    async def _send(self, advance: Advance) -> Advance | None:
        """Sends one advance; returns the next one to send."""
        subject = subjects.integral_advance(self._tree)
        try:
            data = await self._bus.request(subject, encode(advance), timeout_s=self._settings.advance_budget_ms / 1000)
            answer = decode(data, _AdvanceAnswer)
        except (BusError, BadMessage) as error:
            self._log.debug("advance not answered", version=str(advance.version), error=str(error))
            return None
        except MessageTooLarge as error:
            self._log.error("advance too large", version=str(advance.version), error=str(error))
            self.engine.chain.give_up()
            return None
        if isinstance(answer, StaleTerm):
            raise Deposed(answer.text())
        if not isinstance(answer, Advanced):
            self._log.warning("advance refused", version=str(advance.version), why=answer.text())
        return self.engine.on_advance_answer(answer)

    # --- questions --------------------------------------------------------------------------------------------------

    async def _serve_people(self) -> None:
        border = self._runtime.border
        await self._configuring.serve(border)
        await border.serve(subjects.user("*", "pool.list"), GetPools, CallerKind.USER, self._on_list)
        await self._history.serve(border, self._configuring.unknown_tree)

    async def _on_whole(self, request: WholeRequest, caller: Caller) -> bytes:
        async with self._publishing:
            return await anyio.to_thread.run_sync(self._publisher.page, request)

    async def _on_list(self, request: GetPools, caller: Caller) -> msgspec.Struct | None:
        if request.tree != self._tree:
            return self._configuring.unknown_tree(request.tree)
        return pool_list(self.engine, request, self._publisher.version)
