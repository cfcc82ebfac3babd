"""The shell of admission: it receives a request, calls the engine, records the events, and then answers and publishes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import anyio
import msgspec
from msgspec.structs import replace

from headrace.bus import AppenderFenced, Log
from headrace.common_wakeups import until_beat
from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.obs.tracing import SpanKind, start_of_operation
from headrace.runtime.concurrent_calls import together
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.endpoints import SLOW_AT_ONCE, Caller, CallerKind
from headrace.runtime.engine import Figure, Moment, Outcome
from headrace.runtime.role import Deposed, Role, role_of
from headrace.runtime.service import Runtime
from headrace.runtime.shell import Shell
from headrace.wire import ledger as ledger_wire
from headrace.wire import operations as wire
from headrace.wire import subjects
from headrace.wire.happenings import GetOperationHistory
from headrace.wire.log import Event, OperationStateChanged, concerned
from headrace.wire.logs import AskLogReader
from headrace.wire.lost_work import GetLostWork
from headrace.wire.refusals import Busy, NotReady, NotRecorded
from headrace.wire.replay import ReadEvents
from headrace.wire.rights import GetRights
from headrace.wire.start_plans import PlanStart
from headrace_admission import disclosure, queries
from headrace_admission.consumption.keeping import ConsumptionKeeper
from headrace_admission.decisions import starts
from headrace_admission.engine import AdmissionEngine, Decision, HalfDecided
from headrace_admission.files.requests import FileRequests
from headrace_admission.gone_allocators import LeaseSilence, is_gone
from headrace_admission.groups.requests import GroupRequests
from headrace_admission.log.checkpoint import CheckpointStore
from headrace_admission.log.checkpointing import Checkpointing
from headrace_admission.log.history_pages import history_answer, log_page
from headrace_admission.log.recorder import Recorder
from headrace_admission.log.restoring import LogFollower, highest_recorded_term
from headrace_admission.nodes.keys_file import read_authority
from headrace_admission.nodes.requests import NodeRequests
from headrace_admission.pools_watch import PoolsWatch
from headrace_admission.settings import AdmissionSettings
from headrace_admission.state.rules import GlobalRules
from headrace_admission.state.state import State
from headrace_admission.views import OperationViews

Handler = Callable[[Any, Caller], Awaitable[msgspec.Struct]]
#: A kind of request that is served: its subject (or its verb, if users send it), the type of its message, and its handler.
_Served = tuple[str, Any, Handler]
_STOP_FLUSH_S: Final = 3.0
_LOOK_AT_ALLOCATORS_S: Final = 5.0
#: Seconds between two checks for due retries and time limits: a job may wait this much longer than its back-off.
_LOOK_AT_TIMES_S: Final = 0.25
#: Pause after a check for due times, as a multiple of the time that the check took. With 20,000 operations a check takes 0.1 s.
_PAUSE_OF_LOOKS: Final = 10
#: Upper bound of the pause after a check for due times, in seconds.
_LONGEST_PAUSE_OF_LOOKS_S: Final = 1.0
#: Upper bound of the requests that read the log at the same time. Each reads and decodes up to some megabytes.
_LOG_READERS: Final = 2


async def serve(runtime: Runtime[AdmissionSettings]) -> None:
    """Follow the log while another process leads. As leader, serve until asked to stop, then write a checkpoint."""
    settings = runtime.settings
    # A mistake in the authority file is reported now, not when a host joins.
    read_authority(settings)
    everywhere = GlobalRules(
        settings.max_operation_count,
        settings.require_specified_pools_existence,
        settings.pool_change_is_allowed,
        settings.administrator_names,
        settings.most_operations_of_a_user,
        settings.most_operation_bytes,
        settings.most_bytes_of_a_user,
        settings.limiting_ancestor_safe_timeout_ms,
    )
    engine = AdmissionEngine(
        everywhere, keep_finished=settings.keep_finished, keep_finished_bytes=settings.keep_finished_bytes
    )
    reader, pools = LogFollower(runtime.bus, engine, runtime.clock), PoolsWatch(runtime)
    runtime.tasks.start_soon(pools.follow)

    async def with_role(role: Role) -> None:
        service = AdmissionService(runtime, role, reader, pools)
        await service.start()
        await runtime.stopping.wait()
        with anyio.move_on_after(_STOP_FLUSH_S):
            await service.write_checkpoint()

    await runtime.lead(
        role_of("admission"),
        with_role,
        recorded=lambda: highest_recorded_term(runtime.bus),
        sequence=lambda: reader.sequence,
        follow=reader.follow,
    )


class AdmissionService:
    """Admission in one term."""

    _event_log: Log
    _store: CheckpointStore
    _recorder: Recorder
    _checkpointing: Checkpointing

    def __init__(self, runtime: Runtime[AdmissionSettings], role: Role, reader: LogFollower, pools: PoolsWatch) -> None:
        self._settings = runtime.settings
        self._runtime = runtime
        self._role = role
        self._log = logger(term=role.term)
        self._reader = reader
        self.engine = reader.engine
        self._files = FileRequests(runtime, role, lambda: self.engine.state)
        self._consumption = ConsumptionKeeper(runtime, role, lambda: self.engine.state)
        self._shell: Shell[Event] = Shell(
            *("admission", self.engine, runtime.clock, runtime.endpoints),
            figures=self.figures,
            more_checks=[self._files.check],
        )
        self._pools = pools
        self._views = OperationViews(runtime.news)
        groups = self.engine.state.configuration.groups
        self._groups = GroupRequests(runtime, groups, lambda user: self.engine.state.configuration.person(user))
        self._nodes = NodeRequests(runtime, self._groups.person)

    async def start(self) -> None:
        """Read the log to its end, fence off earlier appenders, then serve."""
        bus, tasks, clock, term = self._runtime.bus, self._runtime.tasks, self._runtime.clock, self._role.term
        await together(self._open_log, self._nodes.open, self._files.open, self._groups.open, self._keep_pools)
        log, store = self._event_log, self._store
        writer = f"admission-{term}"
        acknowledged = self._role.acknowledged
        last = await self._reader.finish(log, store, term=term, writer=writer, acknowledged=acknowledged)
        self._runtime.presence.watches(self._reader.trouble, self._reader.figures)
        await self._consumption.open(last - 1, self._reader.restored)
        self._tell_terms()
        tree = TreeName(self._settings.tree)
        self._recorder = Recorder(
            *(bus, log, tree),
            term=term,
            last=last,
            writer=writer,
            clock=clock,
            on_durable=self._on_durable,
            news=self._runtime.news,
        )
        self._role.tell_acknowledged(lambda: self._recorder.sequence)
        self._runtime.presence.watches(lambda: self._recorder.appender.trouble)
        self._checkpointing = Checkpointing(
            bus, self._settings, self.engine.state, self._recorder, log, store, self._role, self._consumption.write
        )
        tasks.start_soon(self._append)
        tasks.start_soon(self._recorder.publish)
        tasks.start_soon(self._recorder.publish_to_users)
        tasks.start_soon(self._views.publish)
        tasks.start_soon(self._tell_position)
        tasks.start_soon(self._checkpointing.run)
        tasks.start_soon(self._consumption.run)
        await self._pools.catch_up_from_start(self.engine.state.books)
        self._take_rules()
        self._abort_without_command()
        self._recorder.note(self.engine.on_takeover(self._shell.now()).effects)
        tasks.start_soon(self._keep_rules)
        tasks.start_soon(self._scan_queues)
        tasks.start_soon(self._look_at_times)
        tasks.start_soon(self._lose_gone_allocators)
        await self._serve()
        tasks.start_soon(self._shell.watch, self._runtime, self._role, self.engine.state.lost_work_picture)
        self._log.info("admission serves", operations=len(self.engine.state.operations), sequence=last)

    async def _open_log(self) -> None:
        bus = self._runtime.bus
        self._event_log = await bus.log(subjects.STREAM, subjects.LOG)
        self._store = CheckpointStore(await bus.key_value(subjects.CHECKPOINT_BUCKET), self._role.term)

    async def _keep_pools(self) -> None:
        bus = self._runtime.bus
        pools = await CopiedBucket.open(bus, subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        await pools.write_lost_again()
        self._runtime.tasks.start_soon(pools.keep)

    async def write_checkpoint(self) -> None:
        """Write the checkpoint from which a successor starts."""
        await self._checkpointing.write_last()

    def figures(self) -> list[Figure]:
        """Return the metrics of the log, the checkpoints, the archives and consumption."""
        return [
            *self._recorder.figures(),
            *self._checkpointing.figures(),
            *self._files.figures(),
            *self._consumption.figures(),
        ]

    async def _serve(self) -> None:
        endpoints, user, service = self._runtime.endpoints, CallerKind.USER, CallerKind.SERVICE
        kinds: list[tuple[list[_Served], dict[str, Any]]] = [
            (self._slow_questions(), {"concurrency": SLOW_AT_ONCE}),
            (self._questions_of_the_log(), {"concurrency": _LOG_READERS}),
            (self._requests_of_users(), {}),
        ]
        serving: list[Callable[[], Coroutine[Any, Any, object]]] = [
            partial(endpoints.serve, subjects.user("*", verb), message, user, self._knowing(handler), **more)
            for served, more in kinds
            for verb, message, handler in served
        ]
        serving += [
            partial(endpoints.serve, subject, message, service, handler)
            for subject, message, handler in self._requests_of_services()
        ]
        draw, on_draw = subjects.ledger("draw"), self._deciding(self.engine.on_draw)
        serving.append(partial(endpoints.serve, draw, ledger_wire.DrawBlock, service, on_draw, concurrency=1_000))
        log_reader = self._on_log_reader
        serving.append(partial(endpoints.serve, subjects.log_reader("*"), AskLogReader, CallerKind.NODE, log_reader))
        await together(*serving, self._nodes.serve, self._files.serve, self._groups.serve, self._consumption.serve)
        await endpoints.serve(
            subjects.user("*", "op.start"),
            wire.StartOperation,
            user,
            self._knowing(self._on_start),
            concurrency=self._settings.most_starts_at_once,
            running_bytes=self._settings.most_bytes_of_starts_at_once,
            pending=self._settings.most_waiting,
        )

    def _slow_questions(self) -> list[_Served]:
        return [
            ("op.list", wire.ListOperations, self._asking(queries.list_operations)),
            ("op.jobs", wire.GetJobs, self._asking(queries.jobs_of)),
            ("op.explain", wire.ExplainOperation, self._asking_as_user(disclosure.explain_operation)),
            ("rights", GetRights, self._asking_as_user(disclosure.rights_of)),
            ("pool.counts", wire.CountPools, self._asking(queries.count_pools)),
            ("pool.lost_work", GetLostWork, self._asking(queries.lost_work)),
        ]

    def _questions_of_the_log(self) -> list[_Served]:
        return [
            ("op.history", GetOperationHistory, self._on_history),
            ("op.log", ReadEvents, lambda request, _caller: log_page(self._event_log, request)),
        ]

    def _requests_of_users(self) -> list[_Served]:
        engine = self.engine
        return [
            ("op.get", wire.GetOperation, self._on_get),
            ("op.abort", wire.AbortOperation, self._deciding_for_user(engine.on_abort)),
            ("op.complete", wire.CompleteOperation, self._deciding_for_user(engine.on_complete)),
            ("op.suspend", wire.SuspendOperation, self._deciding_for_user(engine.on_suspend)),
            ("op.resume", wire.ResumeOperation, self._deciding_for_user(engine.on_resume)),
            ("op.scan", wire.ScanQueues, self._deciding_for_user(engine.on_scan_asked)),
            ("op.update", wire.UpdateOperation, self._on_update),
            ("op.plan_start", PlanStart, self._on_plan_start),
        ]

    def _requests_of_services(self) -> list[_Served]:
        engine = self.engine
        return [
            (subjects.ledger("attach"), ledger_wire.Attach, self._deciding(engine.on_attach)),
            (subjects.ledger("report"), ledger_wire.ReportEnds, self._on_report),
            (subjects.ledger("return"), ledger_wire.ReturnIndexes, self._deciding(engine.on_return)),
            (subjects.ledger("released"), ledger_wire.Released, self._deciding(engine.on_released)),
            (subjects.OPERATIONS_WHOLE, ledger_wire.WholeOperationsRequest, self._on_whole),
        ]

    def _knowing(self, handler: Handler) -> Handler:
        """Return a handler that waits until the groups of the user are known, and then calls `handler`."""

        async def handle(request: Any, caller: Caller) -> msgspec.Struct:
            await self._groups.know(caller.name)
            return await handler(request, caller)

        return handle

    # --- requests -------------------------------------------------------------------------------------------------

    def _asking(self, question: Callable[[State, Any], msgspec.Struct]) -> Handler:
        """Return a handler for requests that only read the state but take long.

        The handler waits for its turn among such requests. It ends the turn before it waits for the log.
        """

        async def handle(request: Any, _caller: Caller) -> msgspec.Struct:
            async with self._runtime.endpoints.slow.turn():
                answer = question(self.engine.state, request)
            return await self._if_not_missed(answer)

        return handle

    def _asking_as_user(self, question: Callable[[State, Any, str], msgspec.Struct]) -> Handler:
        """Return a handler as `_asking` does, for questions whose answers depend on the user."""

        async def handle(request: Any, caller: Caller) -> msgspec.Struct:
            return await self._asking(lambda state, asked: question(state, asked, caller.name))(request, caller)

        return handle

    def _deciding(self, on_request: Callable[[Any, Moment], Decision]) -> Handler:
        """Return a handler that passes the requests of an allocator to a decision of the engine."""

        async def handle(request: Any, _caller: Caller) -> msgspec.Struct:
            # A term that no allocator has taken must not be recorded, since allocators with a lower, real term would be refused
            # from then on.
            role, known = role_of("allocator", request.tree), self.engine.state.allocator_terms.get(request.tree, 0)
            if request.term > known and not await self._runtime.terms.believes(self._runtime.bus, role, request.term):
                return NotReady(f"no known process has taken term {request.term} of {role}")
            return await self._decide(lambda now: on_request(request, now))

        return handle

    def _deciding_for_user(self, on_request: Callable[[Any, str, Moment], Decision]) -> Handler:
        """Return a handler that passes the requests of a user to a decision of the engine."""

        async def handle(request: Any, caller: Caller) -> msgspec.Struct:
            return await self._decide(lambda now: on_request(request, caller.name, now))

        return handle

    async def _on_start(self, request: wire.StartOperation, caller: Caller) -> msgspec.Struct:
        """Start an operation. Its trace begins here, unless the request names a trace."""
        with start_of_operation(
            "StartOperation",
            request.operation,
            request.spec.trace,
            kind=SpanKind.SERVER,
            subject=subjects.user("*", "op.start"),
        ) as trace:
            if trace != request.spec.trace:
                request = replace(request, spec=replace(request.spec, trace=trace))
            return await self._start_with_known_pools(request, caller)

    async def _start_with_known_pools(self, request: wire.StartOperation, caller: Caller) -> msgspec.Struct:
        refusal = await self._pools.wait_for_start(self.engine.state.books, request, caller.name)
        if refusal is not None:
            return refusal
        answer = await self._decide(lambda now: self._start(request, caller.name, now))
        pool, kind = request.spec.pool, type(answer).__name__
        self._log.debug("start answered", operation=request.operation, user=caller.name, pool=pool, answer=kind)
        return answer

    async def _on_plan_start(self, request: PlanStart, caller: Caller) -> msgspec.Struct:
        not_ready = await self._pools.wait_for_start(self.engine.state.books, request, caller.name)
        self._take_rules()
        refusal = not_ready or self._files.refusal_of_sending(request.spec.files, caller.name)
        return refusal or await self._if_not_missed(starts.plan(self.engine.state, request, caller.name))

    def _start(self, request: wire.StartOperation, user: str, now: Moment) -> Decision:
        refusal = self._files.refusal_of(request, user)
        return self.engine.on_start(request, user, now) if refusal is None else Outcome(refusal)

    async def _on_update(self, request: wire.UpdateOperation, caller: Caller) -> msgspec.Struct:
        operation = self.engine.state.operations.get(request.operation)
        pools = {TreeName(tree): said.pool for tree, said in request.scheduling_options_per_pool_tree.items()}
        if operation is not None:
            # The groups of the owner decide in which other pools the operation may run.
            await self._groups.know(operation.user)
        if operation is not None and request.pool is not None:
            pools.setdefault(operation.spec.tree, request.pool)
        for tree, pool in pools.items():
            if pool and (
                not_ready := await self._pools.wait_for_pool(self.engine.state.books, request.min_revision, tree, pool)
            ):
                return not_ready
        return await self._decide(lambda now: self.engine.on_update(request, caller.name, now))

    async def _on_report(self, request: ledger_wire.ReportEnds, caller: Caller) -> msgspec.Struct:
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
        return await self._deciding(self.engine.on_report)(request, caller)

    async def _on_whole(self, request: ledger_wire.WholeOperationsRequest, _caller: Caller) -> msgspec.Struct:
        # The answer is sent only when all events in the state are durable, because other events may never become durable.
        await self._checkpointing.until_open()
        return await self._after_flush(queries.whole_operations(self.engine.state, request, self._role.term))

    async def _on_log_reader(self, request: AskLogReader, _caller: Caller) -> msgspec.Struct:
        await self._groups.know(request.user)
        return await self._if_not_missed(disclosure.log_reader(self.engine.state, request))

    async def _on_get(self, request: wire.GetOperation, caller: Caller) -> msgspec.Struct:
        if request.operation in self.engine.state.operations:
            return await self._if_not_missed(disclosure.get_operation(self.engine.state, request, caller.name))
        # For an unknown id, many ids are compared to find similar ones, so this request waits for its turn, as slow requests do.
        return await self._asking_as_user(disclosure.get_operation)(request, caller)

    async def _on_history(self, request: GetOperationHistory, _caller: Caller) -> msgspec.Struct:
        return await self._if_not_missed(await history_answer(self._event_log, self.engine.state, request))

    # --- from a decision to an answer -----------------------------------------------------------------------------

    async def _decide(self, decide: Callable[[Moment], Decision]) -> msgspec.Struct:
        """Decide, and return the answer when the decision and all earlier decisions are durable."""
        busy = self._busy()
        if busy is not None:
            return busy
        await self._checkpointing.until_open()
        began_s = self._runtime.clock.steady_s()
        # There must be no `await` from the decision to the recorder's queue, because the queue gives the order of the log.
        try:
            self._take_rules()
            decision = decide(self._shell.now())
        except HalfDecided as error:
            raise Deposed(f"{error} ({error.__cause__!r})") from error
        with anyio.move_on_after(self._settings.answer_deadline_ms / 1000):
            await (self._recorder.record(decision.effects) if decision.effects else self._recorder.flush())
            return decision.answer
        waited_ms = int((self._runtime.clock.steady_s() - began_s) * 1000)
        return NotRecorded(waited_ms=waited_ms, why=self._recorder.appender.why_waiting)

    async def _if_not_missed(self, answer: msgspec.Struct) -> msgspec.Struct:
        """Return the answer to a question, without operations whose start is not recorded yet.

        An answer about such an operation, or about an unknown operation, is sent only after a flush of the log. The flush fails if a
        successor, which may know more, writes the log already.
        """
        answer, is_sure = disclosure.recorded_part(answer, self._recorder.unrecorded_starts())
        return answer if is_sure else await self._after_flush(answer)

    async def _after_flush(self, answer: msgspec.Struct) -> msgspec.Struct:
        """Wait until all earlier decisions are durable, then return the answer. Return `NotReady` if that takes too long."""
        with anyio.move_on_after(self._settings.answer_deadline_ms / 1000):
            await self._recorder.flush()
            return answer
        return NotReady(self._recorder.appender.why_waiting)

    def _busy(self) -> Busy | None:
        """Return a refusal if too many requests wait for the log, or if the oldest of them has waited too long; else None."""
        appender = self._recorder.appender
        oldest_ms = int(appender.oldest_waiting_s(self._runtime.clock.steady_s()) * 1000)
        if appender.waiting > self._settings.most_waiting or oldest_ms > self._settings.longest_waiting_ms:
            why = appender.why_waiting if oldest_ms > self._settings.longest_waiting_ms else ""
            return Busy(waiting=appender.waiting, oldest_waiting_ms=oldest_ms, why=why)
        return None

    def _tell_terms(self) -> None:
        """Publish the allocator terms that the state contains, so that a process that takes a term takes a higher term.

        A lower term would always be refused.
        """
        for tree, term in self.engine.state.allocator_terms.items():
            self._runtime.terms.see(role_of("allocator", tree), term)

    def _on_durable(self, events: list[Event], sequence: int) -> None:
        self._tell_terms()
        for event in events:
            self._log.debug("recorded", operation=concerned(event), kind=type(event).__name__, sequence=sequence)
        changed = self._shell.perform(self.engine.on_recorded(events, sequence, self._shell.now()))
        self._views.note(changed)
        self._checkpointing.on_recorded()
        self._consumption.note()

    async def _append(self) -> None:
        try:
            await self._recorder.appender.run()
        except AppenderFenced as error:
            self._role.step_down(str(error))

    async def _tell_position(self) -> None:
        while True:
            await self._recorder.tell_position()
            await until_beat(self._settings.tell_period_ms / 1000)

    def _abort_without_command(self) -> None:
        count, most = (
            len(self.engine.state.without_command),
            self.engine.state.configuration.everywhere.largest_replayed_bytes,
        )
        if count:
            self._log.error("operations aborted: their commands take too much memory", count=count, most_bytes=most)
            self._recorder.note(self.engine.on_commands_dropped(self._shell.now()).effects)

    # --- configuration and time ----------------------------------------------------------------------------

    def _take_rules(self) -> None:
        """Apply the configurations that arrived, before anything else is decided."""
        for tree, rules in self._pools.take():
            self._recorder.note(self.engine.on_configuration(tree, rules, self._shell.now()).effects)
            held = self.engine.state.configuration.held_back.get(tree)
            if held is not None:
                self._log.warning("pool configuration not applied yet", tree=tree, why=held.reason)

    async def _keep_rules(self) -> None:
        while True:
            await self._pools.wait_for_change()
            await self._checkpointing.until_open()
            self._take_rules()

    async def _lose_gone_allocators(self) -> None:
        silence = LeaseSilence()
        while True:
            await anyio.sleep(_LOOK_AT_ALLOCATORS_S)
            for tree in self.engine.state.owning_trees():
                if await is_gone(self._runtime.bus, tree, silence, self._runtime.clock):
                    await self._checkpointing.until_open()
                    self._log.error(
                        "an allocator is gone; the jobs that it ran for operations in several trees are lost", tree=tree
                    )
                    self._recorder.note(self.engine.on_allocator_gone(tree, self._shell.now()).effects)

    async def _look_at_times(self) -> None:
        took_s = 0.0
        while True:
            await anyio.sleep(max(_LOOK_AT_TIMES_S, min(_PAUSE_OF_LOOKS * took_s, _LONGEST_PAUSE_OF_LOOKS_S)))
            if self.engine.state.pausing or self.engine.state.limited:
                await self._checkpointing.until_open()
            began = self._shell.now()
            if self.engine.state.pausing:
                self._recorder.note(self.engine.on_retries_due(began).effects)
            if self.engine.state.limited:
                due = self.engine.on_time_limits_due(self._shell.now()).effects
                self._note_ends(due, "operation over its time limit")
            took_s = self._shell.now().steady_s - began.steady_s

    def _note_ends(self, events: Sequence[Event], says: str) -> None:
        """Record events, and log the name and the reason of each operation that they end."""
        for event in events:
            if isinstance(event, OperationStateChanged) and event.reason:
                self._log.info(says, operation=event.operation, why=event.reason)
        self._recorder.note(events)

    async def _scan_queues(self) -> None:
        while True:
            await anyio.sleep(self._settings.pending_by_pool_operation_scan_period_ms / 1000)
            await self._checkpointing.until_open()
            self._take_rules()
            self._note_ends(self.engine.on_scan(self._shell.now()).effects, "operation never fits its pools")
