"""The shell of the allocator: receives, calls the engine, performs its effects in their order. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import anyio
import anyio.lowlevel
import msgspec

from headrace.bus import BusError, Entry
from headrace.errors import BadInput
from headrace.ids import NodeName, OperationId, TreeName
from headrace.obs.logging import logger
from headrace.pools import read_tree
from headrace.runtime.border import Caller, CallerKind
from headrace.runtime.feeds import OperationsFeed, SnapshotFeed
from headrace.runtime.role import Deposed
from headrace.runtime.service import Runtime
from headrace.runtime.terms import take_term
from headrace.wire import ledger as ledger_wire
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, encode
from headrace.wire.heartbeat import Heartbeat, Nudge, Orders
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import Event, concerned
from headrace.wire.nodes import ListNodes, NodeRecord, WhereRequest
from headrace.wire.parts import Applied, SnapshotPublisher, SnapshotReader
from headrace.wire.refusals import BadRequest, NotFound, Refusal, StaleTerm, decode_answer
from headrace.wire.snapshots import ShareFrame, ShareItem, SharePart, UsageFrame, UsageItem, UsagePart, WholeRequest
from headrace_allocator.effects import Answer, Draw, Effect, NudgeNode, Release, Report, StepDown
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.explain import list_nodes, operation_places
from headrace_allocator.heartbeat_answer import Timing
from headrace_allocator.settings import AllocatorSettings

__all__ = ["AllocatorService", "serve"]

A = TypeVar("A", bound=msgspec.Struct)

_TICK_S = 1.0
_LEDGER_TIMEOUT_S = 3.0
_RETRY_S = 0.25
#: Operations whose place in the order is found anew between two turns of the loop; some 2 ms.
_REFRESH_SLICE = 500
#: Ends in one report to the ledger.
_ENDS_PER_REPORT = 500
#: Of shares: three periods.
_SILENCE_S = 3.0


async def serve(runtime: Runtime[AllocatorSettings]) -> None:
    """Runs the allocator of one tree until the process is asked to stop."""
    tree = TreeName(runtime.settings.tree)
    term = await take_term(runtime.bus, f"allocator.{tree}")
    service = AllocatorService(runtime, tree, term)
    await service.start()
    await runtime.stopping.wait()


class AllocatorService:
    """One term of one tree's allocator."""

    def __init__(self, runtime: Runtime[AllocatorSettings], tree: TreeName, term: int) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._tree = tree
        self._log = logger(tree=tree, term=term)
        self.engine = AllocatorEngine(
            tree,
            term,
            Timing(
                node_heartbeat_timeout_s=settings.node_heartbeat_timeout_ms / 1000,
                node_lease_s=settings.node_lease_ms / 1000,
                shortest_pace_ms=settings.shortest_pace_ms,
            ),
        )
        self._publisher: SnapshotPublisher[UsageItem, UsageFrame] = SnapshotPublisher(
            UsagePart, tree, term, UsageFrame(), key=lambda item: item.operation
        )
        self._shares: SnapshotReader[ShareItem, ShareFrame] = SnapshotReader(
            tree, ShareFrame(), key=lambda item: item.key
        )
        runtime.terms.see(f"allocator.{tree}", term)
        self._changed = anyio.Event()
        self._shares_changed = anyio.Event()
        self._to_report: list[ledger_wire.ReportedEnd] = []
        self._report_wanted = anyio.Event()

    async def start(self) -> None:
        """Attaches to the ledger, learns operations and nodes, and only then answers heartbeats."""
        runtime = self._runtime
        tasks = runtime.tasks
        await self._attach()
        operations_known = anyio.Event()
        feed = OperationsFeed(runtime.bus, runtime.border, self._tree, self, terms=runtime.terms)
        tasks.start_soon(feed.run, operations_known)
        nodes_known = anyio.Event()
        tasks.start_soon(self._follow_nodes, nodes_known)
        tasks.start_soon(self._follow_options)
        tasks.start_soon(self._report_ends)
        await operations_known.wait()
        await nodes_known.wait()
        shares = SnapshotFeed(
            runtime.bus,
            runtime.border,
            runtime.clock,
            subjects.share(self._tree),
            subjects.share_whole(self._tree),
            SharePart,
            self._shares,
            self._on_shares,
            silence_s=_SILENCE_S,
        )
        tasks.start_soon(shares.run)
        tasks.start_soon(self._refresh)
        tasks.start_soon(self._publish_usage)
        tasks.start_soon(self._tick)
        await self._serve()
        self._log.info("allocator serves", operations=len(self.engine.books.operations))

    async def _serve(self) -> None:
        border, tree = self._runtime.border, self._tree
        user = CallerKind.USER
        await border.serve(subjects.usage_whole(tree), WholeRequest, CallerKind.SERVICE, self._on_usage_whole)
        await border.serve(subjects.user("*", "node.list"), ListNodes, user, self._on_list_nodes)
        await border.serve(subjects.user("*", "op.where"), WhereRequest, user, self._on_where)
        await border.serve(subjects.heartbeat("*"), Heartbeat, CallerKind.NODE, self._on_heartbeat, concurrency=256)

    # --- heartbeats -----------------------------------------------------------------------------------------------

    async def _on_heartbeat(self, heartbeat: Heartbeat, caller: Caller) -> msgspec.Struct | None:
        if heartbeat.node != caller.name:
            self._runtime.border.report_forged(caller.name, caller.subject, f"speaks for node {heartbeat.node}")
            return BadRequest("node", heartbeat.node, f"the node of the subject, {caller.name}")
        if heartbeat.tree != self._tree:
            return BadRequest("tree", heartbeat.tree, f"this allocator's tree, {self._tree}")
        clock = self._runtime.clock
        effects = self.engine.on_heartbeat(heartbeat, clock.steady_s(), clock.wall_ms())
        answer = next((effect.orders for effect in effects if isinstance(effect, Answer)), None)
        self._perform(effects)
        if answer is not None:
            self._log_orders(answer)
        return answer

    def _log_orders(self, orders: Orders) -> None:
        for start in orders.start:
            self._log.debug(
                "allocation ordered",
                operation=start.operation,
                allocation=start.allocation,
                node=orders.node,
                jobs=[slot.index for slot in start.slots],
            )
        for extend in orders.extend:
            self._log.debug(
                "allocation extended", allocation=extend.allocation, node=orders.node, jobs=len(extend.slots)
            )
        for take_back in orders.take_back:
            allocation = take_back.allocation
            self._log.debug("allocation taken back", allocation=allocation, node=orders.node, reason=take_back.reason)

    # --- feeds ----------------------------------------------------------------------------------------------------

    async def on_operations(self, operations: list[LiveOperation], sequence: int) -> None:
        self._log.info("operations learnt", operations=len(operations), sequence=sequence)
        self._perform(self.engine.on_operations(operations))

    async def on_events(self, events: list[Event], sequence: int) -> None:
        for event in events:
            self._log.debug("event", operation=concerned(event), kind=type(event).__name__, sequence=sequence)
        self._perform(self.engine.on_events(events))

    async def _on_shares(self, applied: Applied) -> None:
        self._runtime.terms.see(f"fair_share.{self._tree}", applied.version.term)
        self._perform(self.engine.on_shares(self._shares.items, applied.changed, self._shares.frame.total))
        self._shares_changed.set()

    async def _follow_nodes(self, known: anyio.Event) -> None:
        bucket = await self._runtime.bus.key_value(subjects.NODES_BUCKET)
        async with bucket.mirror(self._on_nodes) as mirror:
            self._on_nodes(mirror.entries, frozenset())
            known.set()
            await anyio.sleep_forever()

    async def _follow_options(self) -> None:
        bucket = await self._runtime.bus.key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        async with bucket.mirror(self._on_options) as mirror:
            self._on_options(mirror.entries, frozenset())
            await anyio.sleep_forever()

    def _on_options(self, entries: Mapping[str, Entry], _changed: frozenset[str]) -> None:
        entry = entries.get(self._tree)
        if entry is None:
            return
        try:
            self.engine.on_node_filter(read_tree(entry.value).options.node_filter)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadInput) as error:
            # What was known before stays in force, as in fair_share.
            self._runtime.border.report_malformed(f"bucket {subjects.POOLS_BUCKET}", self._tree, str(error))

    def _on_nodes(self, entries: Mapping[str, Entry], _changed: frozenset[str]) -> None:
        records: dict[NodeName, NodeRecord] = {}
        for key, entry in entries.items():
            try:
                record = msgspec.json.decode(entry.value, type=NodeRecord)
            except msgspec.DecodeError as error:
                self._runtime.border.report_malformed(f"bucket {subjects.NODES_BUCKET}", key, str(error))
                continue
            if record.tree == self._tree:
                records[record.node] = record
        self._perform(self.engine.on_nodes(records, self._runtime.clock.steady_s()))

    # --- effects --------------------------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        """Starts what the engine asked for; nothing here waits, so that a heartbeat never does."""
        tasks = self._runtime.tasks
        for effect in effects:
            match effect:
                case Answer():
                    pass  # let out by the handler that asked
                case Report():
                    self._to_report.extend(effect.ends)
                    self._report_wanted.set()
                case Draw():
                    tasks.start_soon(self._draw, effect)
                case Release():
                    tasks.start_soon(self._release, effect)
                case NudgeNode():
                    tasks.start_soon(self._nudge, effect.node)
                case StepDown():
                    raise Deposed(f"a node obeys term {effect.term}, ours is {self.engine.term}")
        self._changed.set()

    async def _nudge(self, node: NodeName) -> None:
        try:
            await self._runtime.bus.publish(
                subjects.command(node, "nudge"), encode(Nudge(node=node, term=self.engine.term))
            )
        except BusError as error:
            self._log.debug("nudge not sent", node=node, error=str(error))

    async def _draw(self, effect: Draw) -> None:
        below: int | None = None
        request = ledger_wire.DrawBlock(self._tree, self.engine.term, effect.operation, effect.below)
        try:
            answer = await self._ask_ledger("draw", request, ledger_wire.DrawAnswer)
            if isinstance(answer, ledger_wire.DrawAnswer):
                below = answer.below
            else:
                self._log.info("block refused", operation=effect.operation, why=answer.text())
        except (BusError, BadMessage) as error:
            self._log.info("block not drawn", operation=effect.operation, error=str(error))
        self._perform(self.engine.on_drawn(effect.operation, below))

    async def _release(self, effect: Release) -> None:
        request = ledger_wire.Released(self._tree, self.engine.term, effect.operations)
        try:
            answer = await self._ask_ledger("released", request, ledger_wire.ReleasedAnswer)
            if isinstance(answer, ledger_wire.ReleasedAnswer):
                return
            self._log.info("release refused", why=answer.text())
        except (BusError, BadMessage) as error:
            self._log.info("release not told", error=str(error))
        self.engine.on_release_failed(effect.operations)

    async def _report_ends(self) -> None:
        """Tells the ledger of ends, in order and again until it confirms; what comes meanwhile goes together."""
        while True:
            await self._report_wanted.wait()
            self._report_wanted = anyio.Event()
            while self._to_report:
                batch = self._to_report[:_ENDS_PER_REPORT]
                request = ledger_wire.ReportEnds(self._tree, self.engine.term, batch)
                if await self._until_told(request):
                    del self._to_report[: len(batch)]
                    self._perform(self.engine.on_recorded(batch))

    async def _until_told(self, request: ledger_wire.ReportEnds) -> bool:
        try:
            answer = await self._ask_ledger("report", request, ledger_wire.ReportAnswer)
        except (BusError, BadMessage) as error:
            self._log.info("ends not recorded yet", ends=len(request.ends), error=str(error))
        else:
            if isinstance(answer, ledger_wire.ReportAnswer):
                return True
            self._log.info("ends not recorded yet", ends=len(request.ends), why=answer.text())
        await anyio.sleep(_RETRY_S)
        return False

    async def _attach(self) -> None:
        while True:
            request = ledger_wire.Attach(self._tree, self.engine.term)
            try:
                answer = await self._ask_ledger("attach", request, ledger_wire.Attached)
            except (BusError, BadMessage) as error:
                self._log.info("ledger not there yet", error=str(error))
            else:
                if isinstance(answer, ledger_wire.Attached):
                    self._runtime.terms.see("admission", answer.admission_term)
                    return
                self._log.info("ledger not ready", why=answer.text())
            await anyio.sleep(_RETRY_S)

    async def _ask_ledger(self, verb: str, request: msgspec.Struct, kind: type[A]) -> A | Refusal:
        data = await self._runtime.bus.request(subjects.ledger(verb), encode(request), timeout_s=_LEDGER_TIMEOUT_S)
        answer = decode_answer(data, kind)
        if isinstance(answer, StaleTerm):
            raise Deposed(answer.text())
        return answer

    # --- periods --------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        clock = self._runtime.clock
        while True:
            await anyio.sleep(_TICK_S)
            self._perform(self.engine.on_tick(clock.steady_s(), clock.wall_ms()))
            self._shares_changed.set()

    async def _refresh(self) -> None:
        while True:
            await self._shares_changed.wait()
            self._shares_changed = anyio.Event()
            while self.engine.refresh(_REFRESH_SLICE):
                await anyio.lowlevel.checkpoint()
            self._changed.set()

    async def _publish_usage(self) -> None:
        settings = self._runtime.settings
        while True:
            with anyio.move_on_after(settings.usage_period_ms / 1000):
                await self._changed.wait()
            self._changed = anyio.Event()
            frame, items, gone = self.engine.cut_usage(self._runtime.clock.wall_ms())
            for part in self._publisher.advance(frame, items, gone):
                await self._try_publish(part)
            await anyio.sleep(settings.usage_interval_ms / 1000)

    async def _try_publish(self, part: bytes) -> None:
        try:
            await self._runtime.bus.publish(subjects.usage(self._tree), part)
        except BusError as error:
            # A reader that misses a part asks for the whole.
            self._log.debug("usage not published", error=str(error))

    # --- questions ------------------------------------------------------------------------------------------------

    async def _on_usage_whole(self, request: WholeRequest, _caller: Caller) -> bytes:
        return self._publisher.page(request)

    async def _on_list_nodes(self, request: ListNodes, _caller: Caller) -> msgspec.Struct:
        if request.tree != self._tree:
            return NotFound("tree", request.tree, near=[self._tree])
        return list_nodes(self.engine, request.first, request.limit, self._runtime.clock.steady_s())

    async def _on_where(self, request: WhereRequest, _caller: Caller) -> msgspec.Struct:
        operation = self.engine.books.operations.get(OperationId(request.operation))
        if operation is None:
            return NotFound("operation", request.operation)
        return operation_places(self.engine, operation, self._runtime.clock.steady_s())
