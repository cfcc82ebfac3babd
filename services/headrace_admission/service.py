"""The shell of admission: receives, calls the engine, records its events, and only then answers and tells others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import anyio
import msgspec

from headrace.bus import AppenderFenced, BusError, Entry, KeyValue, Log, Mirror
from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName, user_name
from headrace.obs.logging import logger
from headrace.pools import read_tree
from headrace.runtime.border import Caller, CallerKind
from headrace.runtime.role import Deposed
from headrace.runtime.service import Runtime
from headrace.runtime.terms import take_term
from headrace.wire import ledger as ledger_wire
from headrace.wire import operations as wire
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.log import Event, LogBatch, concerned
from headrace.wire.nodes import Enrol
from headrace.wire.refusals import BadRequest, Busy, NotReady, NotRecorded, Refusal
from headrace_admission.engine import AdmissionEngine, Caps, Decision
from headrace_admission.enrolment import enrol
from headrace_admission.log import checkpoint
from headrace_admission.log.recorder import Recorder, encode_batch
from headrace_admission.settings import AdmissionSettings
from headrace_admission.state.rules import TreeRules
from headrace_admission.state.rules_of_tree import rules_of

__all__ = ["AdmissionService", "serve"]

#: Entries that may be appended between reading the log's end and announcing a term, before something is wrong.
_ANNOUNCE_TRIES: Final = 100
_STOP_FLUSH_S: Final = 3.0


async def serve(runtime: Runtime[AdmissionSettings]) -> None:
    """Runs admission until the process is asked to stop; then writes a checkpoint."""
    term = await take_term(runtime.bus, "admission")
    runtime.terms.see("admission", term)
    service = AdmissionService(runtime, term)
    await service.start()
    await runtime.stopping.wait()
    with anyio.move_on_after(_STOP_FLUSH_S):
        await service.write_checkpoint()


class AdmissionService:
    """One term of admission."""

    def __init__(self, runtime: Runtime[AdmissionSettings], term: int) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._tree = TreeName(runtime.settings.tree)
        self._term = term
        self._log = logger(term=term)
        settings = runtime.settings
        caps = Caps(
            settings.max_operation_count,
            settings.require_specified_pools_existence,
            settings.pool_change_is_allowed,
            settings.administrator_names,
        )
        self.engine = AdmissionEngine(keep_finished=settings.keep_finished, caps=caps)
        #: Configurations that came and are not taken yet; None for a tree that is gone.
        self._rules: dict[TreeName, TreeRules | None] = {}
        self._rules_came = anyio.Event()
        self._pools: Mirror | None = None
        self._recorder: Recorder | None = None
        self._checkpoints: KeyValue | None = None
        self._stream: Log | None = None
        self._nodes: KeyValue | None = None
        self._events_since_checkpoint = 0
        self._checkpoint_wanted = anyio.Event()
        #: Set while requests may be decided; a checkpoint is cut while it is not.
        self._open = anyio.Event()
        self._open.set()

    async def start(self) -> None:
        """Restores the state from the checkpoint and the log, fences former appenders off, then serves."""
        bus, tasks = self._runtime.bus, self._runtime.tasks
        self._stream = await bus.log(subjects.STREAM, subjects.LOG)
        self._checkpoints = await bus.key_value(subjects.CHECKPOINT_BUCKET)
        self._nodes = await bus.key_value(subjects.NODES_BUCKET)
        last = await self._restore(self._stream, self._checkpoints)
        self._recorder = Recorder(
            bus,
            self._stream,
            self._tree,
            term=self._term,
            last=last,
            writer=f"admission-{self._term}",
            on_durable=self._on_durable,
        )
        tasks.start_soon(self._append)
        tasks.start_soon(self._recorder.publish)
        tasks.start_soon(self._tell_position)
        tasks.start_soon(self._keep_checkpoints)
        known = anyio.Event()
        tasks.start_soon(self._follow_pools, known)
        await known.wait()
        tasks.start_soon(self._keep_rules)
        tasks.start_soon(self._scan_queues)
        await self._serve()
        self._log.info("admission serves", operations=len(self.engine.operations), sequence=last)

    async def _restore(self, log: Log, checkpoints: KeyValue) -> int:
        restored = await checkpoint.load(checkpoints)
        covered = restored.sequence
        self.engine.restore(restored.operations, restored.pools, sequence=covered)
        first, last = await log.bounds()
        if last < covered or first > covered + 1:
            raise Deposed(
                f"the log holds entries {first} to {last}, the checkpoint covers up to {covered}: entries are missing"
            )
        last = covered
        for attempt in range(_ANNOUNCE_TRIES):
            async for entry in log.read(last):
                batch = decode(entry.data, LogBatch)
                if batch.term > self._term:
                    raise Deposed(f"entry {entry.sequence} of the log is of term {batch.term}")
                self.engine.take_entry(batch.events, entry.sequence)
                last = entry.sequence
            # An empty entry of this term: whoever appended before is refused from here on.
            try:
                announced = encode_batch(self._term, [], f"admission-{self._term}", -attempt)
                return await log.append(announced, expected_last=last, timeout_s=5.0)
            except BusError as error:
                self._log.info("term not announced yet", error=str(error))
                await anyio.sleep(0.05)
        raise Deposed("another process appends to the log faster than this one can read it")

    async def _serve(self) -> None:
        border = self._runtime.border
        user, service, node = CallerKind.USER, CallerKind.SERVICE, CallerKind.NODE
        await border.serve(subjects.user("*", "op.get"), wire.GetOperation, user, self._on_get)
        await border.serve(subjects.user("*", "op.list"), wire.ListOperations, user, self._on_list)
        await border.serve(subjects.user("*", "op.jobs"), wire.GetJobs, user, self._on_jobs)
        await border.serve(subjects.user("*", "op.abort"), wire.AbortOperation, user, self._on_abort)
        await border.serve(subjects.user("*", "op.explain"), wire.ExplainOperation, user, self._on_explain)
        await border.serve(subjects.user("*", "op.update"), wire.UpdateOperation, user, self._on_update)
        await border.serve(subjects.user("*", "op.suspend"), wire.SuspendOperation, user, self._on_suspend)
        await border.serve(subjects.user("*", "op.resume"), wire.ResumeOperation, user, self._on_resume)
        await border.serve(subjects.user("*", "op.complete"), wire.CompleteOperation, user, self._on_complete)
        await border.serve(subjects.user("*", "pool.counts"), wire.CountPools, user, self._on_counts)
        await border.serve(subjects.user("*", "op.scan"), wire.ScanQueues, user, self._on_scan)
        await border.serve(subjects.enrol("*"), Enrol, node, self._on_enrol)
        await border.serve(subjects.ledger("attach"), ledger_wire.Attach, service, self._on_attach)
        await border.serve(subjects.ledger("draw"), ledger_wire.DrawBlock, service, self._on_draw, concurrency=1_000)
        await border.serve(subjects.ledger("report"), ledger_wire.ReportEnds, service, self._on_report)
        await border.serve(subjects.ledger("released"), ledger_wire.Released, service, self._on_released)
        await border.serve(subjects.OPERATIONS_WHOLE, ledger_wire.WholeOperationsRequest, service, self._on_whole)
        most = self._settings.most_waiting
        start = subjects.user("*", "op.start")
        await border.serve(start, wire.StartOperation, user, self._on_start, concurrency=most, pending=2 * most)

    # --- requests -------------------------------------------------------------------------------------------------

    async def _on_start(self, request: wire.StartOperation, caller: Caller) -> msgspec.Struct:
        try:
            user = user_name(caller.name)
        except BadInput as error:
            return BadRequest("user", caller.name, error.expected)
        spec = request.spec
        tree = spec.pool_trees[0] if spec.pool_trees else spec.tree
        not_ready = await self._await_pools(request.min_revision, tree, spec.pool or PoolName(user))
        if not_ready is not None:
            return not_ready
        answer = await self._decide(lambda: self.engine.on_start(request, user, self._runtime.clock.wall_ms()))
        kind = type(answer).__name__
        self._log.debug("start answered", operation=request.operation, user=user, pool=request.spec.pool, answer=kind)
        return answer

    async def _await_pools(self, revision: int, tree: TreeName, pool: PoolName) -> NotReady | None:
        """So that `pool create && run` finds the pool, whatever the watch has brought so far."""
        assert self._pools is not None
        wait_s = self._settings.revision_wait_ms / 1000
        if revision > self._pools.revision and not await self._pools.wait_for(revision, timeout_s=wait_s):
            return NotReady(f"revision {revision} of the pool configuration has not come within {wait_s:g} s")
        if not self.engine.knows_pool(tree, pool):
            try:
                await self._pools.refresh()
            except BusError as error:
                self._log.info("pools not read", error=str(error))
        return None

    async def _on_get(self, request: wire.GetOperation, _caller: Caller) -> msgspec.Struct:
        return self.engine.on_get(request)

    async def _on_list(self, request: wire.ListOperations, _caller: Caller) -> msgspec.Struct:
        return self.engine.on_list(request)

    async def _on_jobs(self, request: wire.GetJobs, _caller: Caller) -> msgspec.Struct:
        return self.engine.on_jobs(request)

    async def _on_abort(self, request: wire.AbortOperation, caller: Caller) -> msgspec.Struct:
        self._log.debug("abort asked", operation=request.operation, user=caller.name)
        return await self._decide(lambda: self.engine.on_abort(request, caller.name, self._runtime.clock.wall_ms()))

    async def _on_explain(self, request: wire.ExplainOperation, _caller: Caller) -> msgspec.Struct:
        return self.engine.on_explain(request)

    async def _on_update(self, request: wire.UpdateOperation, caller: Caller) -> msgspec.Struct:
        operation = self.engine.operations.get(request.operation)
        pools = {TreeName(tree): said.pool for tree, said in request.scheduling_options_per_pool_tree.items()}
        if operation is not None and request.pool is not None:
            pools.setdefault(operation.spec.tree, request.pool)
        for tree, pool in pools.items():
            not_ready = await self._await_pools(request.min_revision, tree, pool) if pool else None
            if not_ready is not None:
                return not_ready
        return await self._decide(lambda: self.engine.on_update(request, caller.name, self._runtime.clock.wall_ms()))

    async def _on_suspend(self, request: wire.SuspendOperation, caller: Caller) -> msgspec.Struct:
        return await self._decide(lambda: self.engine.on_suspend(request, caller.name, self._runtime.clock.wall_ms()))

    async def _on_resume(self, request: wire.ResumeOperation, caller: Caller) -> msgspec.Struct:
        return await self._decide(lambda: self.engine.on_resume(request, caller.name, self._runtime.clock.wall_ms()))

    async def _on_complete(self, request: wire.CompleteOperation, caller: Caller) -> msgspec.Struct:
        return await self._decide(lambda: self.engine.on_complete(request, caller.name, self._runtime.clock.wall_ms()))

    async def _on_scan(self, _request: wire.ScanQueues, caller: Caller) -> msgspec.Struct:
        return await self._decide(lambda: self.engine.on_scan_asked(caller.name, self._runtime.clock.wall_ms()))

    async def _on_counts(self, request: wire.CountPools, _caller: Caller) -> msgspec.Struct:
        return self.engine.on_counts(request)

    async def _on_attach(self, request: ledger_wire.Attach, _caller: Caller) -> msgspec.Struct:
        await self._open.wait()
        answer = self.engine.on_attach(request, self._recorded.sequence, self._term)
        return answer if isinstance(answer, Refusal) else await self._after_flush(answer)

    async def _on_draw(self, request: ledger_wire.DrawBlock, _caller: Caller) -> msgspec.Struct:
        return await self._decide(lambda: self.engine.on_draw(request))

    async def _on_report(self, request: ledger_wire.ReportEnds, _caller: Caller) -> msgspec.Struct:
        for one in request.ends:
            end = one.end
            self._log.debug(
                "end reported",
                operation=end.operation,
                job=end.index,
                attempt=end.attempt,
                node=one.node,
                allocation=end.allocation,
                result=end.result,
            )
        return await self._decide(lambda: self.engine.on_report(request, self._runtime.clock.wall_ms()))

    async def _on_released(self, request: ledger_wire.Released, _caller: Caller) -> msgspec.Struct:
        return await self._decide(lambda: self.engine.on_released(request, self._runtime.clock.wall_ms()))

    async def _on_whole(self, request: ledger_wire.WholeOperationsRequest, _caller: Caller) -> msgspec.Struct:
        # The state runs ahead of the log by what is in flight; the page must not tell what may never have happened.
        await self._open.wait()
        sequence = self._recorded.sequence
        return await self._after_flush(self.engine.on_whole(request, sequence, self._term))

    async def _on_enrol(self, request: Enrol, caller: Caller) -> msgspec.Struct:
        if request.node != caller.name:
            self._runtime.border.report_forged(caller.name, caller.subject, f"enrols node {request.node}")
            return BadRequest("node", request.node, f"the node of the subject, {caller.name}")
        assert self._nodes is not None
        try:
            return await enrol(self.engine, self._nodes, request, self._runtime.clock.wall_ms())
        except BusError as error:
            return NotReady(f"the bucket of nodes cannot be written: {error}")

    # --- from a decision to an answer -----------------------------------------------------------------------------

    @property
    def _recorded(self) -> Recorder:
        assert self._recorder is not None
        return self._recorder

    async def _decide(self, decide: Callable[[], Decision]) -> msgspec.Struct:
        busy = self._busy()
        if busy is not None:
            return busy
        await self._open.wait()
        began_s = self._runtime.clock.steady_s()
        deadline_s = self._settings.answer_deadline_ms / 1000
        # From the decision to the recorder's queue nothing may wait: that is the order of the log.
        self._take_rules()
        decision = decide()
        with anyio.move_on_after(deadline_s):
            if decision.events:
                await self._recorded.record(decision.events)
            else:
                await self._recorded.flush()
            return decision.answer
        waited_ms = int((self._runtime.clock.steady_s() - began_s) * 1000)
        return NotRecorded(waited_ms=waited_ms)

    async def _after_flush(self, answer: msgspec.Struct) -> msgspec.Struct:
        with anyio.move_on_after(self._settings.answer_deadline_ms / 1000):
            await self._recorded.flush()
            return answer
        return NotReady("the log does not answer")

    def _busy(self) -> Busy | None:
        appender = self._recorded.appender
        oldest_ms = int(appender.oldest_waiting_s(self._runtime.clock.steady_s()) * 1000)
        if appender.waiting > self._settings.most_waiting or oldest_ms > self._settings.longest_waiting_ms:
            return Busy(waiting=appender.waiting, oldest_waiting_ms=oldest_ms)
        return None

    def _on_durable(self, events: list[Event], sequence: int) -> None:
        self.engine.sequence = sequence
        touched = dict.fromkeys(concerned(event) for event in events)
        for event in events:
            self._log.debug("recorded", operation=concerned(event), kind=type(event).__name__, sequence=sequence)
        for name in touched:
            operation = self.engine.operations.get(name) if name is not None else None
            if operation is not None:
                operation.sequence = sequence
                view = encode(operation.view())
                self._runtime.tasks.start_soon(self._publish_view, subjects.operation_view(operation.id), view)
        self._events_since_checkpoint += len(events)
        if self._events_since_checkpoint >= self._settings.checkpoint_events:
            self._checkpoint_wanted.set()

    async def _publish_view(self, subject: str, view: bytes) -> None:
        try:
            await self._runtime.bus.publish(subject, view)
        except BusError as error:
            self._log.debug("view not published", subject=subject, error=str(error))

    async def _append(self) -> None:
        try:
            await self._recorded.appender.run()
        except AppenderFenced as error:
            raise Deposed(str(error)) from error

    async def _tell_position(self) -> None:
        while True:
            await self._recorded.tell_position()
            await anyio.sleep(self._settings.tell_period_ms / 1000)

    # --- configuration and checkpoints ----------------------------------------------------------------------------

    async def _follow_pools(self, known: anyio.Event) -> None:
        bucket = await self._runtime.bus.key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        async with bucket.mirror(self._on_pools) as mirror:
            self._pools = mirror
            self._rules[self._tree] = TreeRules()
            self._on_pools(mirror.entries, frozenset(mirror.entries))
            self._take_rules()
            known.set()
            await anyio.sleep_forever()

    def _on_pools(self, entries: Mapping[str, Entry], changed: frozenset[str]) -> None:
        for key in changed:
            if key not in entries:
                self._rules[TreeName(key)] = None
                continue
            try:
                tree = read_tree(entries[key].value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self._runtime.border.report_malformed(f"bucket {subjects.POOLS_BUCKET}", key, str(error))
                continue
            self._rules[tree.tree] = rules_of(tree)
        self._rules_came.set()

    def _take_rules(self) -> None:
        """Takes the configurations that came, before anything else is decided."""
        while self._rules:
            tree, rules = self._rules.popitem()
            events = self._changed(tree, rules)
            self._recorded.note(events)
            held = self.engine.held_back.get(tree)
            if held is not None:
                self._log.warning("configuration of pools not taken yet", tree=tree, why=held[1])

    def _changed(self, tree: TreeName, rules: TreeRules | None) -> list[Event]:
        now_ms = self._runtime.clock.wall_ms()
        return (
            self.engine.on_pools(tree, rules, now_ms)
            if rules is not None
            else self.engine.on_tree_removed(tree, now_ms)
        )

    async def _keep_rules(self) -> None:
        while True:
            await self._rules_came.wait()
            self._rules_came = anyio.Event()
            await self._open.wait()
            self._take_rules()

    async def _scan_queues(self) -> None:
        while True:
            await anyio.sleep(self._settings.pending_by_pool_operation_scan_period_ms / 1000)
            await self._open.wait()
            self._take_rules()
            self._recorded.note(self.engine.on_scan(self._runtime.clock.wall_ms()))

    async def _keep_checkpoints(self) -> None:
        while True:
            await self._checkpoint_wanted.wait()
            self._checkpoint_wanted = anyio.Event()
            await self.write_checkpoint()

    async def write_checkpoint(self) -> None:
        """Cuts and saves the state, then lets the log forget what is both covered and old."""
        assert self._checkpoints is not None
        assert self._stream is not None
        self._open = anyio.Event()
        try:
            await self._recorded.flush()
            operations, pools = list(self.engine.operations.values()), self.engine.ephemeral_pools()
            cut = checkpoint.cut(operations, pools, self._recorded.sequence)
            self._events_since_checkpoint = 0
        finally:
            self._open.set()
        try:
            await checkpoint.save(self._checkpoints, cut, self._term)
            await self._stream.forget(max(0, cut.sequence - self._settings.keep_entries))
        except BusError as error:
            self._log.warning("checkpoint not written", sequence=cut.sequence, error=str(error))
            return
        self._log.info("checkpoint written", sequence=cut.sequence, pages=len(cut.pages))
