"""The shell of the allocator: it receives messages, calls the engine, and performs its effects in order. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from headrace.bus import Bus, BusError, Entry, Message, Mirror, Newest, Subscription, YieldBudget
from headrace.common_wakeups import until_beat
from headrace.errors import BadInput
from headrace.ids import NodeName, TreeName
from headrace.obs.logging import logger
from headrace.pools import read_tree
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.engine import Outcome
from headrace.runtime.feeds import OperationsFeed, SnapshotFeed, slices
from headrace.runtime.fenced_writes import KeyFenced
from headrace.runtime.role import Role, role_of
from headrace.runtime.service import Runtime
from headrace.runtime.shell import Shell
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE, encode
from headrace.wire.explanations import ExplainWaiting
from headrace.wire.heartbeat import Heartbeat, Nudge
from headrace.wire.ledger import LiveOperation, Wanted
from headrace.wire.log import Event, concerned
from headrace.wire.nodes import GiveUpNode, ListNodes, ListProgress, NodeRecord, WhereRequest
from headrace.wire.preemption import ListObserved
from headrace.wire.refusals import BadRequest
from headrace.wire.snapshot_parts import Applied, SnapshotReader
from headrace.wire.snapshots import ShareFrame, ShareItem, SharePart, WholeRequest
from headrace.wire.start_plans import FitOperation
from headrace.wire.version import Term
from headrace_allocator.effects import (
    Alarm,
    Draw,
    Effect,
    ForeignClaim,
    HeldTwice,
    LowerLease,
    NudgeNode,
    RecordEmptyNodes,
    Release,
    Report,
    Return,
    StepDown,
    Superseded,
    SuspectNode,
    UnknownOperation,
    Want,
)
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.explain.answers import Question
from headrace_allocator.facts.nodes import refused_incarnation
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_allocator.links.enrolled_nodes import EnrolledNodes
from headrace_allocator.links.garbage_collection import YoungObjects
from headrace_allocator.links.heartbeat_log import HeartbeatLog
from headrace_allocator.links.ledger_link import LedgerLink
from headrace_allocator.links.node_reports import PictureReader
from headrace_allocator.links.successor_record import LongestLease, term_of_longest_lease
from headrace_allocator.links.usage_publisher import UsagePublisher
from headrace_allocator.pool_metrics import pool_figures
from headrace_allocator.preemption_passes import PreemptionPasses
from headrace_allocator.settings import AllocatorSettings

A = TypeVar("A")
#: Function that is given all entries of a bucket, and the keys of the changed entries.
Reader = Callable[[Mapping[str, Entry], frozenset[str]], None]

_TICK_S: Final = 1.0
#: Longest time in seconds in which a stopping allocator tells the next allocator which jobs were never given out.
_HAND_OVER_S: Final = 2.0
#: Number of operations whose position in the order is updated between two turns of the event loop; 50 take some 3 ms.
_REFRESH_SLICE: Final = 50
#: Number of operations or events that are processed between two turns of the event loop; 16 take some 3 ms.
_LEARNT_SLICE: Final = 16
#: Seconds without shares until they are requested again: three of the periods (1 s) in which fair_share updates a large tree.
_SILENCE_S: Final = 3.0
#: Index of the node's name among the parts of a heartbeat's subject.
_NODE_AT: Final = 4
#: Upper bound of the heartbeats that wait; each node has at most one.
_MOST_HEARTBEATS: Final = 100_000
#: Half of the time that an agent waits for its answer, in seconds. A heartbeat that waited longer is not decided: its late answer would
#: be void, and would take time from other heartbeats.
_HEARTBEAT_WAIT_S: Final = 1.0


async def serve(runtime: Runtime[AllocatorSettings]) -> None:
    """Follow a tree as a standby until this process has the lease. Then be the tree's allocator until the process is asked to stop."""
    tree = TreeName(runtime.settings.tree)
    service = AllocatorService(runtime, tree)
    service.follow()

    async def with_role(role: Role) -> None:
        await service.lead(role)
        await runtime.stopping.wait()
        with anyio.move_on_after(_HAND_OVER_S):
            await service.hand_over()

    async def recorded() -> Term:
        return await term_of_longest_lease(runtime.bus, tree)

    await runtime.lead(
        role_of("allocator", tree), with_role, recorded=recorded, sequence=lambda: service.operations.sequence
    )


class AllocatorService:
    """The allocator of one tree: it learns what it must know before it leads, and answers nothing until then."""

    _role: Role
    _longest_lease: LongestLease
    _ledger: LedgerLink
    _heartbeats: Subscription

    def __init__(self, runtime: Runtime[AllocatorSettings], tree: TreeName) -> None:
        self._runtime = runtime
        self._tree = tree
        self._log = logger(tree=tree)
        self.engine = AllocatorEngine(tree, 0, runtime.settings.timing(longest_lease_ms=0))
        self._heartbeat_log = HeartbeatLog(
            self._log, lambda operation: self.engine.facts.operations[operation].spec.trace
        )
        self._shell: Shell[Effect] = Shell(
            "allocator",
            self.engine,
            runtime.clock,
            runtime.endpoints,
            perform=self._perform,
            figures=lambda: [*self._heartbeat_log.figures(), *self._passes.figures()],
        )
        self._passes = PreemptionPasses(self.engine.yarn, runtime.clock, self._take)
        self.operations = OperationsFeed(runtime.bus, runtime.endpoints, tree, self, terms=runtime.terms)
        self._nodes = EnrolledNodes(tree, runtime.endpoints)
        self._pictures = PictureReader(self._nodes.records)
        self._mirrors: dict[str, Mirror] = {}
        self._nodes_known, self._options_known = anyio.Event(), anyio.Event()
        self._shares: SnapshotReader[ShareItem, ShareFrame] = SnapshotReader(
            tree, ShareFrame(), key=lambda item: item.key
        )
        self._usage = UsagePublisher(runtime, tree, self.engine, self._shell)
        self._places_changed = anyio.Event()
        #: True once this allocator hands over and no longer answers heartbeats.
        self._is_over = False
        self._young = YoungObjects()

    def follow(self) -> None:
        """Start to follow operations, nodes, pools and shares."""
        runtime, tasks = self._runtime, self._runtime.tasks
        self._snapshots = SnapshotFeed(
            runtime.bus,
            runtime.endpoints,
            runtime.clock,
            subjects.share(self._tree),
            subjects.share_whole(self._tree),
            SharePart,
            self._shares,
            self._on_shares,
            silence_s=_SILENCE_S,
            terms=runtime.terms,
            publisher=role_of("fair_share", self._tree),
        )
        tasks.start_soon(self.operations.run)
        tasks.start_soon(self._follow, subjects.NODES_BUCKET, 1, self._on_nodes, self._nodes_known)
        pools, history = subjects.POOLS_BUCKET, subjects.POOLS_HISTORY
        tasks.start_soon(self._follow, pools, history, self._on_options, self._options_known)
        tasks.start_soon(self._snapshots.run)

    async def lead(self, role: Role) -> None:
        """Attach to the ledger, read what it recorded before, and only then answer heartbeats."""
        runtime, tasks = self._runtime, self._runtime.tasks
        self._role = role
        self._log = logger(tree=self._tree, term=role.term)
        self._longest_lease = LongestLease(runtime.bus, self._tree, role.term)
        # The lease must be durable before the first node learns it. The record also keeps the term, in case the bucket of terms is lost.
        left = await self._longest_lease.claim(runtime.settings.node_lease_ms)
        self._ledger = LedgerLink(runtime.bus, self.engine, role, self._take, self._shell.now)
        self._usage.lead(role.term)
        runtime.terms.see("admission", await self._ledger.attach())
        tasks.start_soon(self._ledger.keep_reporting, self._tell_decisions)
        await self._know_nodes_and_options()
        await self.operations.catch_up()
        timing = runtime.settings.timing(longest_lease_ms=left.lease_ms)
        self._take(self.engine.on_leading(role.term, timing, self._shell.now()))
        self._take(self.engine.on_left(left, self._shell.now()))
        self._take(self.engine.on_nodes(self._nodes.records, self._shell.now()))
        tasks.start_soon(self._usage.run)
        runtime.presence.watches(lambda: self.engine.watchdog.trouble)
        runtime.presence.watches(lambda: self.engine.pace.trouble)
        tasks.start_soon(self._shell.watch, runtime, role, lambda: pool_figures(self.engine))
        await self._serve()
        tasks.start_soon(self._refresh)
        tasks.start_soon(self._tick)
        self._log.info("allocator serves", operations=len(self.engine.facts.operations))

    async def hand_over(self) -> None:
        """Stop giving out jobs, and tell the next allocator which jobs no node has."""
        self._is_over = True
        try:
            not_given_out = self._shell.perform(self.engine.on_stopping(self._shell.now()))
            await self._longest_lease.hand_over(not_given_out)
        except BusError as error:
            self._log.info("jobs that were not given out could not be reported to the next allocator", error=str(error))

    async def _serve(self) -> None:
        endpoints, tree = self._runtime.endpoints, self._tree
        await endpoints.serve(subjects.usage_whole(tree), WholeRequest, CallerKind.SERVICE, self._usage.on_whole)
        questions: dict[str, Any] = {"node.list": ListNodes, "op.where": WhereRequest}
        questions |= {"op.why": ExplainWaiting, "op.fit": FitOperation, "op.progress": ListProgress}
        for verb, question in questions.items():
            subject = subjects.user("*", subjects.of_tree(verb, tree))
            await endpoints.serve(subject, question, CallerKind.USER, self._on_question, slow=True)
        observed = subjects.user("*", subjects.of_tree("preemption.observed", tree))
        await endpoints.serve(observed, ListObserved, CallerKind.USER, self._on_observed, slow=True)
        await endpoints.serve(subjects.give_up_node(tree), GiveUpNode, CallerKind.SERVICE, self._on_give_up_node)
        await endpoints.serve(subjects.WANTED, Wanted, CallerKind.SERVICE, self._on_wanted)
        self._heartbeats = await endpoints.serve(
            subjects.heartbeat(tree, "*"),
            Heartbeat,
            CallerKind.NODE,
            self._on_heartbeat,
            name_at=_NODE_AT,
            pending=_MOST_HEARTBEATS,
            read=self._pictures.read,
            # The subject contains the node, so the newest heartbeat of each node is kept.
            newest=Newest(attrgetter("subject"), _HEARTBEAT_WAIT_S, self._on_late_heartbeat),
        )
        self._snapshots.way = YieldBudget(self._heartbeats)

    # --- heartbeats -----------------------------------------------------------------------------------------------

    async def _on_heartbeat(self, heartbeat: Heartbeat, caller: Caller) -> msgspec.Struct | None:
        if self._is_over:
            # The next allocator answers the node's next heartbeat.
            return None
        if heartbeat.node != caller.name:
            self._runtime.endpoints.report_forged(caller.name, caller.subject, f"speaks for node {heartbeat.node}")
            return BadRequest("node", heartbeat.node, f"the node of the subject, {caller.name}")
        if heartbeat.tree != self._tree:
            return BadRequest("tree", heartbeat.tree, f"this allocator's tree, {self._tree}")
        now = self._shell.now()
        refusal = refused_incarnation(heartbeat.incarnation, now)
        if refusal is not None:
            self._runtime.endpoints.report_malformed(caller.name, caller.subject, refusal.text())
            return refusal
        orders = self._take(self.engine.on_heartbeat(heartbeat, now))
        self._young.note()
        self._heartbeat_log.note(heartbeat, orders, (self._shell.now().steady_ns - now.steady_ns) / 1e6)
        return orders

    def _on_late_heartbeat(self, message: Message) -> None:
        node = NodeName(subjects.nth(message.subject, _NODE_AT))
        self._take(self.engine.pace.on_late(node, self._shell.now()))

    # --- feeds ----------------------------------------------------------------------------------------------------

    async def on_operations(self, operations: list[LiveOperation], sequence: int) -> None:
        self._log.info("operations received", operations=len(operations), sequence=sequence)
        *pages, last = slices(operations, _LEARNT_SLICE)
        for page in pages:
            self._take(self.engine.on_more_operations(page, self._shell.now()))
            await anyio.lowlevel.checkpoint()
        self._take(self.engine.on_operations(last, self._shell.now()))

    async def on_events(self, events: list[Event], sequence: int) -> None:
        for event in events:
            self._log.debug("event", operation=concerned(event), kind=type(event).__name__, sequence=sequence)
        for some in slices(events, _LEARNT_SLICE):
            self._take(self.engine.on_events(some, self._shell.now()))
            await anyio.lowlevel.checkpoint()

    async def _on_shares(self, applied: Applied) -> None:
        frame = self._shares.frame
        cut = ShareSnapshot(self._shares.items, applied.changed, applied.removed, frame.total, frame.options)
        self._take(self.engine.on_shares(cut, self._shell.now()))
        self._places_changed.set()

    async def _know_nodes_and_options(self) -> None:
        """Wait until all enrolled nodes and all options are known. An allocator that did not know a node would not wait for its report."""
        nodes = await CopiedBucket.open(self._runtime.bus, subjects.NODES_BUCKET, kind=NodeRecord)
        await nodes.write_lost_again()
        await self._nodes_known.wait()
        await self._options_known.wait()
        for name, mirror in self._mirrors.items():
            while not await mirror.catch_up(timeout_s=_TICK_S):
                self._log.info("entries are still missing", bucket=name)

    async def _follow(self, name: str, history: int, reader: Reader, known: anyio.Event) -> None:
        bucket = await self._runtime.bus.key_value(name, history=history)
        async with bucket.mirror(reader) as mirror:
            self._mirrors[name] = mirror
            reader(mirror.entries, frozenset())
            known.set()
            await anyio.sleep_forever()

    def _on_options(self, entries: Mapping[str, Entry], _changed: frozenset[str]) -> None:
        entry = entries.get(self._tree)
        if entry is None:
            return
        try:
            options = read_tree(entry.value).options
            self._take(self.engine.on_options(options, self._shell.now()))
        except (*UNREADABLE, BadInput) as error:
            # The previous options stay in force, as in fair_share.
            self._runtime.endpoints.report_malformed(f"bucket {subjects.POOLS_BUCKET}", self._tree, str(error))

    def _on_nodes(self, entries: Mapping[str, Entry], changed: frozenset[str]) -> None:
        read = self._nodes.read(entries, changed or entries.keys())
        for name, record in read.items():
            if record is None:
                self._pictures.forget(name)
        self._take(self.engine.on_nodes(read, self._shell.now()))

    # --- effects --------------------------------------------------------------------------------------------------

    def _take(self, outcome: Outcome[A, Effect]) -> A:
        """Perform the effects of a message that may have changed usage. Return the answer."""
        answer = self._shell.perform(outcome)
        self._usage.wake_if_changed()
        if self.engine.facts.unsettled.some_due:
            self._places_changed.set()
        return answer

    def _perform(self, effect: Effect) -> None:
        """Start what the engine asked for. Nothing here waits, so heartbeats are not delayed."""
        tasks = self._runtime.tasks
        match effect:
            case Report():
                self._ledger.report(effect.ends, effect.sessions)
            case Draw():
                tasks.start_soon(self._ledger.draw, effect)
            case Return():
                tasks.start_soon(self._ledger.give_back, effect)
            case Want():
                tasks.start_soon(self._tell, subjects.WANTED, Wanted(self._tree, effect.operations))
            case Release():
                tasks.start_soon(self._ledger.release, effect)
            case NudgeNode():
                nudge = Nudge(node=effect.node, term=self._role.term)
                tasks.start_soon(self._tell, subjects.nudge(effect.node), nudge)
            case HeldTwice(node=node, allocation=allocation, job=job):
                where = {"node": node, "allocation": allocation}
                self._log.error(
                    "two nodes hold the same job",
                    operation=job.operation,
                    index=job.index,
                    attempt=job.attempt,
                    **where,
                )
            case ForeignClaim(node=node, claims=claims, first=first):
                more = f", and {claims - 1} more" if claims > 1 else ""
                self._runtime.endpoints.report_forged(node, subjects.heartbeat(self._tree, node), first + more)
            case UnknownOperation(node=node, allocation=allocation, operation=operation):
                self._log.warning(
                    "allocation of an unknown operation is taken back",
                    operation=operation,
                    node=node,
                    allocation=allocation,
                )
            case Alarm():
                self._log.error(effect.what, **effect.about)
            case SuspectNode(node=node, is_suspect=is_suspect, words=words, operations=operations):
                if is_suspect:
                    self._log.warning("node is suspect", node=node, why=words, operations=operations)
                else:
                    self._log.info("node is suspect no more", node=node)
            case LowerLease():
                tasks.start_soon(self._lower_lease, effect.lease_ms)
            case RecordEmptyNodes():
                tasks.start_soon(self._record_empty_nodes, effect.nodes)
            case StepDown():
                self._role.on_term(effect.term, "a node")
            case Superseded():
                self._role.step_down(
                    f"the ledger leased jobs to term {effect.term}, and this allocator has term {self._role.term}"
                )

    async def _lower_lease(self, lease_ms: int) -> None:
        try:
            await self._longest_lease.lower_to(lease_ms)
        except KeyFenced as error:
            self._role.step_down(str(error))
        except BusError as error:
            # An error does no harm: the next leader only waits longer than necessary.
            self._log.info("the shorter node lease was not recorded", error=str(error))

    async def _record_empty_nodes(self, nodes: list[NodeName]) -> None:
        is_durable = False
        try:
            # A process that was frozen meanwhile waits here until it is sure that it still leads.
            await self._role.until_sure()
            await self._longest_lease.keep_empty(nodes)
            is_durable = True
        except KeyFenced as error:
            self._role.step_down(str(error))
        except BusError as error:
            self._log.info("empty nodes were not recorded", nodes=len(nodes), error=str(error))
        self._take(self.engine.on_empty_nodes_recorded(durable=is_durable, now=self._shell.now()))

    async def _tell(self, subject: str, message: msgspec.Struct, bus: Bus | None = None) -> None:
        """Publish a message. A failure is only logged, because the message is repeated later, or nothing depends on it."""
        try:
            await (bus or self._runtime.bus).publish(subject, encode(message))
        except BusError as error:
            self._log.debug("message not published", subject=subject, error=str(error))

    # --- periods --------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        before = self._heartbeats.statistics()
        while True:
            await until_beat(_TICK_S)
            now = self._heartbeats.statistics()
            waited_ms = (now["waited_ms"] - before["waited_ms"]) / max(1, now["received"] - before["received"])
            before = now
            self._take(self.engine.pace.on_load(waited_ms, self._shell.now()))
            self._take(self.engine.on_tick(self._shell.now()))
            self._places_changed.set()
            await self._tell_decisions()

    async def _tell_decisions(self) -> None:
        while message := self._shell.perform(self.engine.answers.on_decisions_due(self._shell.now())):
            await self._tell(subjects.decisions(self._tree), message, self._runtime.news)

    async def _refresh(self) -> None:
        while True:
            await self._places_changed.wait()
            self._places_changed = anyio.Event()
            way = YieldBudget(
                self._heartbeats
            )  # so that an operation that changes again before its turn is settled once
            while self._shell.perform(self.engine.on_refresh_due(_REFRESH_SLICE, self._shell.now())):
                await way.give()
            await self._passes.run()
            self._usage.wake_if_changed()

    # --- questions ------------------------------------------------------------------------------------------------

    async def _on_question(self, question: Question, _caller: Caller) -> msgspec.Struct:
        return self._shell.perform(self.engine.on_question(question, self._shell.now()))

    async def _on_give_up_node(self, request: GiveUpNode, _caller: Caller) -> msgspec.Struct:
        return self._take(self.engine.on_give_up_node(request, self._shell.now()))

    async def _on_wanted(self, wanted: Wanted, _caller: Caller) -> None:
        self._take(self.engine.on_wanted(wanted, self._shell.now()))

    async def _on_observed(self, request: ListObserved, _caller: Caller) -> msgspec.Struct:
        facts, answers = self.engine.facts, self.engine.answers
        page, taken = answers.observed.page(facts, request), answers.preemptions.below(facts.pools, request.pool)
        return msgspec.structs.replace(page, taken=taken)
