"""The shell of the agent: connects the engine with the bus, the runner, signals and clocks.

The engine handles one input at a time, on the thread of one event loop. The shell performs the engine's effects in their order. Slow
effects, such as a heartbeat or an enrolment, are only handed to a task that performs them.
"""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from typing import TypeVar, assert_never

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from headrace.bus import BusError
from headrace.ids import Incarnation, OperationId, TreeName, tree_name
from headrace.obs import tracing
from headrace.obs.logging import logger
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.engine import Outcome
from headrace.runtime.service import Runtime
from headrace.runtime.shell import Shell
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, MessageTooLarge, encode
from headrace.wire.heartbeat import Heartbeat, JobKey, JobResult, Nudge, Orders, short_text
from headrace.wire.joining import Renew, Renewed
from headrace.wire.logs import ReadLog
from headrace.wire.nodes import LONGEST_ISOLATION_DETAIL, Enrol, Enrolled, StopMode
from headrace.wire.refusals import Refusal, decode_answer
from headrace.wire.sessions import SessionTurn
from headrace.wire.trace import TraceHeartbeat
from headrace_agent.effects import (
    AgentEffect,
    Beat,
    EnrolNode,
    Identity,
    Leave,
    LogRecord,
    Reconnect,
    SendToRunner,
    Trouble,
)
from headrace_agent.engine import AgentEngine
from headrace_agent.files.fetching import FilesFetcher
from headrace_agent.files.folders import OperationFolders
from headrace_agent.files.operation_files import FetchFiles, FilesFault, RemoveFiles
from headrace_agent.heartbeat_traces import HeartbeatTraces
from headrace_agent.host import facts
from headrace_agent.host.container_runtime import find_runtime
from headrace_agent.host.credential_renewal import CredentialRenewal
from headrace_agent.host.health import HealthCommand
from headrace_agent.host.incarnation import next_incarnation
from headrace_agent.host.job_exchange import JobExchange
from headrace_agent.host.state_folder import claim
from headrace_agent.job_logs.requests import AnswerRate, JobLogs, Readers
from headrace_agent.job_spans import JobSpans
from headrace_agent.runner.protocol import Ended, Run, RunAhead, ToAgent
from headrace_agent.session_spans import AnsweredTurn
from headrace_agent.sessions import TURNS_AT_ONCE, JobSessions
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner.link import RunnerLink

T = TypeVar("T", bound=msgspec.Struct)

#: Seconds for which the agent, when it ends, waits until a runner that must end too has written its last records and has ended.
_RUNNER_END_S = 5.0
_LOOK_AT_FOLDERS_S = 10.0
_LOOK_AT_EXCHANGE_S = 2.0
_LOOK_AGAIN_S = 0.1
_FIRST_ENROL_PAUSE_S = 0.25
_LONGEST_ENROL_PAUSE_S = 10.0
_SIGNALS = {
    signal.SIGUSR1: StopMode.WAIT,
    signal.SIGUSR2: StopMode.LEAVE,
    signal.SIGQUIT: StopMode.KILL,
}


async def serve(runtime: Runtime[AgentSettings]) -> None:
    """Run the agent until it was asked to stop and has stopped. Raises `StateInUse`, `ForeignState`."""
    state = runtime.settings.state()
    try:
        lock: int | None = claim(state, "agent")
    except OSError:
        # The folder cannot be used. The agent runs without a lock, so that it can report what is wrong with the folder.
        lock = None
    try:
        await Agent(runtime, next_incarnation(state, runtime.clock.wall_ms())).run()
    finally:
        if lock is not None:
            os.close(lock)


def _tree(settings: AgentSettings) -> TreeName:
    return tree_name(settings.tree)


class Agent:
    """The agent of one host, from its start to its end."""

    def __init__(self, runtime: Runtime[AgentSettings], incarnation: Incarnation) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._settings = settings
        self._bus = runtime.bus
        self.node = settings.node_name()
        containers, why_none = find_runtime(settings.containers)
        self._tags = settings.tag_list(containers)
        self._machine = settings.machine_name()
        self._log = logger(node=self.node)
        self._random = random.Random()
        self._job_spans = JobSpans(self.node)
        self._heartbeat_traces = HeartbeatTraces(settings.person, self._beat_now)
        gpus = settings.host_gpus()
        identity = Identity(
            node=self.node,
            tree=_tree(settings),
            incarnation=incarnation,
            total=settings.total(len(gpus.offered)),
            environment=facts.jobs_environment(settings.path),
            stop_timeout_ms=settings.stop_timeout_ms,
            machine=self._machine,
            accounts=settings.accounts(),
            largest_log_cap_bytes=settings.largest_log_cap_bytes,
            exchange_folder=settings.exchange(),
            gpus=gpus,
            containers=containers,
            is_root=facts.is_root(),
            session_grace_ms=settings.session_grace_ms,
        )
        if why_none:
            self._log.warning("no container runtime", containers=settings.containers, why=why_none)
        if warning := settings.warning_of_accounts():
            self._log.warning("accounts of jobs", users=settings.users, why=warning)
        folders = OperationFolders(settings.files())
        identity = msgspec.structs.replace(identity, files_folder=folders.folder)
        self._fetcher = FilesFetcher(self._bus, runtime.clock, self.node, folders, identity.accounts)
        self.engine = AgentEngine(identity, folders.found())
        self._shell = Shell("agent", self.engine, runtime.clock, runtime.endpoints, perform=self._perform)
        self.runner = RunnerLink(settings, incarnation, self._on_runner, self._on_trouble)
        buses = self._bus, runtime.users
        self._renewal = CredentialRenewal(settings.credential_file, buses, runtime.clock, self._ask_for_word)
        self._heartbeat: Heartbeat | None = None
        self._enrol_after_ms = 0
        #: These three events are set when there is new work for the tasks that wait for them: a heartbeat, an enrolment, an earlier tick.
        self._beat = anyio.Event()
        self._enrol = anyio.Event()
        self._changed = anyio.Event()
        #: CLOCK_BOOTTIME in nanoseconds of the next `on_tick`; None: no tick is due until something changes.
        self._awaited_ns: int | None = None
        self._leave = anyio.Event()
        self._look = anyio.Event()
        self._with_runner = False

    async def run(self) -> None:
        """Run until the agent has stopped."""
        gpus = ",".join(self.engine.held.gpus)
        self._log.info("agent started", tree=self._settings.tree, total=self.engine.held.total.as_tuple(), gpus=gpus)
        async with anyio.create_task_group() as tasks:
            # The engine starts before any input can arrive, and does not wait for the bus. So a request to stop can end the runner and its
            # jobs even if there is no connection to the bus.
            self._do(self.engine.on_start(self._shell.now()))
            if self._settings.health_command:
                self._on_trouble(Trouble.HEALTH, "health_command has not ended yet for the first time")
            for job in (
                self._watch_signals,
                self._watch_stop,
                self._keep_time,
                self._look_at_folders,
                self._look_at_exchange,
                self._look_at_health,
                self.runner.run,
            ):
                tasks.start_soon(job)
            tasks.start_soon(self._speak, tasks)
            await self._leave.wait()
            gone = await self.runner.end(_RUNNER_END_S, with_runner=self._with_runner)
            tasks.cancel_scope.cancel()
        figures = {figure.name: figure.value for figure in self.engine.figures()}
        self._log.info("agent stopped", with_runner=self._with_runner, runner_gone=gone, **figures)

    async def _speak(self, tasks: TaskGroup) -> None:
        """Subscribe first, then start the tasks that send, so that no answer or nudge is missed."""
        # The credential is renewed first: this release may subscribe to a subject that a credential of an older release does not allow.
        self._runtime.readiness.waits("renews the credential of the node")
        await self._renewal.renew()
        await self.listen()
        self._runtime.readiness.ready(f"serves node {self.node} of tree {self._settings.tree}")
        tasks.start_soon(self._renewal.keep)
        tasks.start_soon(self._send_heartbeats)
        tasks.start_soon(self._send_enrolments)
        tasks.start_soon(self._fetcher.remove_unused, self.engine.unused_files, self._on_over)
        tasks.start_soon(partial(self._shell.watch, self._runtime, instance=self.node))

    def _do(self, outcome: Outcome[None, AgentEffect]) -> None:
        self._shell.perform(outcome)
        self.runner.flush()
        due_ns = self.engine.due_ns()
        if due_ns is not None and (self._awaited_ns is None or due_ns < self._awaited_ns):
            self._changed.set()

    def _perform(self, effect: AgentEffect) -> None:
        # The most frequent effects come first, since each `case` that does not match costs time.
        match effect:
            case LogRecord():
                getattr(self._log, effect.level)(effect.event, **effect.fields)
            case Beat(heartbeat):
                self._heartbeat = heartbeat
                self._beat.set()
            case SendToRunner(message):
                if isinstance(message, Run):
                    self._job_spans.on_told(message)
                elif isinstance(message, RunAhead):
                    self._job_spans.on_told(message.run)
                self.runner.send(message)
            case EnrolNode(after_ms):
                self._enrol_after_ms = after_ms
                self._enrol.set()
            case Reconnect():
                self.runner.reconnect()
            case Leave(with_runner):
                self._with_runner = with_runner
                self._leave.set()
            case FetchFiles():
                self._runtime.tasks.start_soon(self._fetch, effect)
            case RemoveFiles(folder):
                self._runtime.tasks.start_soon(self._fetcher.remove, folder)
            case _:
                assert_never(effect)

    def _on_runner(self, message: ToAgent) -> None:
        if isinstance(message, Ended):
            has_failed = message.end.result is JobResult.FAILED and bool(message.end.reason)
            if has_failed or message.is_host_fault:
                # A full disk may be the cause, and then every further job would fail too. So the folders are checked now.
                self._look.set()
        self._job_spans.on_runner(message)
        self._do(self.engine.on_runner(message, self._shell.now()))

    async def _fetch(self, order: FetchFiles) -> None:
        failure = await self._fetcher.fetch(order)
        if failure is not None and failure.fault is FilesFault.HOST:
            self._look.set()
        self._do(self.engine.on_files(order.folder, failure, self._shell.now()))

    def _on_over(self, operations: list[OperationId]) -> None:
        self._do(self.engine.on_over(operations, self._shell.now()))

    def _on_trouble(self, kind: Trouble, words: str) -> None:
        self._do(self.engine.on_trouble(kind, words, self._shell.now()))

    async def listen(self) -> None:
        """Subscribe to all requests. All subscriptions are in force on return."""
        endpoints = self._runtime.endpoints
        readers = Readers(self._bus, self._runtime.clock, subjects.log_reader(self.node))
        rate = AnswerRate(self._runtime.clock)
        runs, is_apart = self.engine.held.by_job.__contains__, lambda: self.runner.tells_starts_apart
        logs = JobLogs(self._settings.logs(), readers, rate, self._known_attempt, runs, is_apart)
        await endpoints.serve(subjects.user("*", f"job.logs.{self.node}"), ReadLog, CallerKind.USER, logs.on_read)
        refusal_of = self.engine.refusal_of_session
        sessions = JobSessions(readers, rate, self.runner, _tree(self._settings), refusal_of, self._on_session)
        asked = subjects.user("*", f"job.session.{self.node}")
        await endpoints.serve(asked, SessionTurn, CallerKind.USER, sessions.on_turn, concurrency=TURNS_AT_ONCE)
        asked = subjects.user("*", f"debug.heartbeat.{self.node}")
        await endpoints.serve(asked, TraceHeartbeat, CallerKind.USER, self._heartbeat_traces.on_asked)
        await endpoints.serve(subjects.nudge(self.node), Nudge, CallerKind.SERVICE, self._on_nudge)

    def _beat_now(self) -> None:
        self._do(self.engine.on_nudge(Nudge(self.node, self.engine.term), self._shell.now()))

    def _known_attempt(self, operation: str, index: int) -> int | None:
        return self.engine.held.newest_attempt(operation, index)

    def _on_session(self, answered: AnsweredTurn) -> None:
        self._do(self.engine.on_session(answered, self._shell.now()))

    async def _on_nudge(self, nudge: Nudge, _caller: Caller) -> None:
        self._do(self.engine.on_nudge(nudge, self._shell.now()))

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(*_SIGNALS) as numbers:
            async for number in numbers:
                self._log.info("asked to stop", signal=number.name)
                self._do(self.engine.on_stop(_SIGNALS[number], self._shell.now()))

    async def _watch_stop(self) -> None:
        await self._runtime.stopping.wait()
        self._do(self.engine.on_stop(self._settings.stop_mode, self._shell.now()))

    async def _keep_time(self) -> None:
        while True:
            self._changed = anyio.Event()
            self._awaited_ns = due_ns = self.engine.due_ns()
            wait_s = (due_ns - self._shell.now().steady_ns) / 1e9 if due_ns is not None else float("inf")
            with anyio.move_on_after(max(0.0, wait_s)) as scope:
                await self._changed.wait()
            if scope.cancelled_caught:
                self._do(self.engine.on_tick(self._shell.now()))

    async def _look_at_folders(self) -> None:
        folders = (self._settings.logs(), f"{self._settings.state()}/jobs")
        while True:
            self._look = anyio.Event()
            defects = [await anyio.to_thread.run_sync(facts.defect_of_folder, folder) for folder in folders]
            self._on_trouble(Trouble.LOGS, "; ".join(filter(None, defects)))
            with anyio.move_on_after(_LOOK_AT_FOLDERS_S):
                await self._look.wait()
                # Many jobs may fail together. After this pause, one check covers all of them.
                await anyio.sleep(_LOOK_AGAIN_S)

    async def _look_at_health(self) -> None:
        settings = self._settings
        if not settings.health_command:
            return
        environment = facts.jobs_environment(settings.path)
        command = HealthCommand(settings.health_command, settings.health_timeout_ms, environment)
        while True:
            self._on_trouble(Trouble.HEALTH, await command.failure())
            await anyio.sleep(settings.health_interval_ms / 1000)

    async def _look_at_exchange(self) -> None:
        folder = self._settings.exchange()
        while True:
            try:
                exchange = await anyio.to_thread.run_sync(JobExchange, folder)
                # The folder is read only after the runner's first full report: before it, the agent does not know which jobs run, and could
                # remove entries of running jobs.
                while self.engine.pulse.is_open:
                    names = await anyio.to_thread.run_sync(exchange.names)
                    if names:
                        # The jobs are looked up after the names: a file that is listed belongs to a job that is known by now,
                        # or to a job that has ended.
                        jobs = {key: self._account_of(key) for key in self.engine.held.by_job}
                        progress = await anyio.to_thread.run_sync(exchange.read_progress, names, jobs)
                        self._do(self.engine.on_progress(progress, self._shell.now()))
                    await anyio.sleep(_LOOK_AT_EXCHANGE_S)
            except OSError as error:
                self._log.warning(
                    "folder of progress and deadline files cannot be used", folder=folder, why=error.strerror
                )
            await anyio.sleep(_LOOK_AT_EXCHANGE_S)

    def _account_of(self, key: JobKey) -> str:
        job = self.engine.held.by_job[key].job
        return job.started.account if job is not None and job.started is not None else ""

    async def _send_heartbeats(self) -> None:
        while True:
            await self._beat.wait()
            self._beat = anyio.Event()
            heartbeat, self._heartbeat = self._heartbeat, None
            if heartbeat is None:
                continue
            with self._heartbeat_traces.span(heartbeat):
                orders = await self.ask(heartbeat)
                if orders is not None:
                    with tracing.child("obey orders"):
                        self._do(self.engine.on_orders(orders, self._shell.now()))
            if orders is not None and self.engine.pulse.applied == heartbeat.seq:
                self._runtime.terms.see(f"allocator.{self._settings.tree}", orders.term)
            if self.engine.pulse.settled < heartbeat.seq:
                self._do(self.engine.on_heartbeat_lost(heartbeat.seq, self._random.random(), self._shell.now()))

    async def ask(self, heartbeat: Heartbeat) -> Orders | None:
        subject, timeout_ms = subjects.heartbeat(self._settings.tree, self.node), self._settings.heartbeat_timeout_ms
        level = "debug" if self.engine.pulse.lost_in_a_row else "warning"
        return await self._request(subject, heartbeat, Orders, timeout_ms, unanswered=level)

    async def _request(
        self, subject: str, request: msgspec.Struct, kind: type[T], timeout_ms: int, *, unanswered: str
    ) -> T | None:
        """Return the answer to a request. If no answer arrives, or the answer is a refusal or unreadable, log that and return None."""
        about = {"request": type(request).__name__}
        try:
            data = await self._bus.request(subject, encode(request), timeout_s=timeout_ms / 1000)
            answer = decode_answer(data, kind)
        except MessageTooLarge as error:
            self._log.error("request too large", size_bytes=error.size_bytes, **about)
        except BadMessage as error:
            self._runtime.endpoints.report_malformed("the answer", subject, str(error))
        except BusError as error:
            getattr(self._log, unanswered)("not answered", why=str(error), **about)
        else:
            if not isinstance(answer, Refusal):
                return answer
            self._log.warning("refused", why=answer.text(), **about)
        return None

    async def _send_enrolments(self) -> None:
        pause_s = _FIRST_ENROL_PAUSE_S
        while True:
            await self._enrol.wait()
            await anyio.sleep(self._enrol_after_ms / 1000)
            self._enrol_after_ms = 0
            if await self.enrol_once():
                pause_s = _FIRST_ENROL_PAUSE_S
                self._enrol = anyio.Event()
                self._do(self.engine.on_enrolled(self._shell.now()))
            else:
                await anyio.sleep(pause_s * (0.5 + self._random.random()))
                pause_s = min(_LONGEST_ENROL_PAUSE_S, pause_s * 2)

    async def _ask_for_word(self, key: str) -> str | None:
        timeout_ms = self._settings.enrol_timeout_ms
        answer = await self._request(
            subjects.renew(self.node), Renew(self.node, key), Renewed, timeout_ms, unanswered="warning"
        )
        return answer.jwt if answer is not None else None

    async def enrol_once(self) -> bool:
        isolation = await anyio.to_thread.run_sync(self._settings.agent_isolation)
        request = Enrol(
            node=self.node,
            tree=_tree(self._settings),
            tags=self._tags,
            machine=self._machine,
            isolated=isolation.is_full,
            isolation_detail=short_text(isolation.detail, LONGEST_ISOLATION_DETAIL),
        )
        timeout_ms = self._settings.enrol_timeout_ms
        answer = await self._request(subjects.enrol(self.node), request, Enrolled, timeout_ms, unanswered="info")
        if answer is None:
            return False
        about = {"isolation": isolation.word, "why": isolation.detail}
        self._log.info("enrolled", tree=answer.tree, revision=answer.revision, **about)
        return True
