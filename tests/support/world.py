"""A small world of the three real engines (admission, allocator, agents) with a model of a runner, and a network that loses, repeats
and delays. One seeded source of chance drives everything; no clock, no socket, no process.

What is true on the hosts is kept apart from what any engine believes, so that «never twice at once» is judged by the truth.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from headrace.ids import Incarnation, NodeName, OperationId, PoolName, TreeName
from headrace.job_tasks import with_tasks
from headrace.pools.amounts import PartialResources
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import Resources
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.engine import Moment, Outcome
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import Heartbeat, JobEnd, JobKey, JobResult, Nudge, Orders
from headrace.wire.ledger import (
    Attach,
    DrawAnswer,
    DrawBlock,
    LiveOperation,
    Released,
    ReleasedAnswer,
    ReportAnswer,
    ReportEnds,
)
from headrace.wire.log import Event, LogBatch
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import (
    FINAL_STATES,
    AbortOperation,
    OperationSpec,
    ResumeOperation,
    StartOperation,
    SuspendOperation,
)
from headrace.wire.tasks import Task
from headrace_admission import queries
from headrace_admission.engine import AdmissionEngine, Decision
from headrace_admission.state.rules import TreeRules
from headrace_agent.effects import AgentEffect, Beat, EnrolNode, Identity, Reconnect, SendToRunner, Trouble
from headrace_agent.engine import AgentEngine
from headrace_agent.runner.protocol import Acknowledge, Ended, FullReport, Hello, Interrupt, KeptJob, Run, Started
from headrace_allocator.effects import Draw, NudgeNode, Release, Report, StepDown, Superseded
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.nodes import Timing
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_allocator.links.node_reports import PictureReader
from tests.support.allocating import nothing_owed

__all__ = ["World"]

TREE = TreeName("default")
_NS = 1_000_000_000
#: Hosts of these worlds have no memory, of which a node must have some to spare otherwise.
_OPTIONS = AllocationOptions(min_spare_allocation_resources_on_node=PartialResources(user_slots=1))


class Host:
    """The truth of one host: its processes and the files of its runner, which outlive the agent."""

    def __init__(self, total: Resources) -> None:
        self.total = total
        self.running: dict[JobKey, Run] = {}
        self.interrupted: set[JobKey] = set()
        self.ended: dict[JobKey, JobEnd] = {}
        self.to_agent: deque[Any] = deque()
        self.pid = 1
        #: Whether the agent's connection to the runner stands.
        self.connected = True

    def room_used(self) -> int:
        return sum(run.cpu for run in self.running.values())


class World:
    """Steps of chance; `settle` ends all faults and runs until nothing moves."""

    def __init__(self, random: Random, nodes: dict[str, Resources], rules: TreeRules | None = None) -> None:
        self.random = random
        self.rules = rules or TreeRules()
        self.faults = True
        #: The chance that a job goes on where it might end; one that was interrupted does not.
        self.stays = 0.0
        #: The chance that a job of an operation with a time limit reaches it.
        self.slow = 0.0
        self.now_s = 1_000.0
        #: How far the wall clock is set ahead.
        self.clock_ahead_s = 0
        self.log: list[list[Event]] = []
        self.hosts = {name: Host(total) for name, total in nodes.items()}
        #: Every start of a process there ever was, and what completed by the truth.
        self.starts: list[JobKey] = []
        self.completed: set[tuple[str, int]] = set()
        self.failures: Counter[tuple[str, int]] = Counter()
        self.timed_out: set[tuple[str, int]] = set()
        self.problems: list[str] = []
        self.lives = 0
        self.admission = self._new_admission()
        self.term = 0
        self.allocator: AllocatorEngine
        self.pending: list[Any] = []
        self.fed = 0
        self.restart_allocator()
        self.agents: dict[str, AgentEngine] = {}
        self.beats: dict[str, deque[Heartbeat]] = {name: deque() for name in nodes}
        self.pictures = PictureReader(nodes)
        self.answers: dict[str, deque[Orders]] = {name: deque() for name in nodes}
        for name in nodes:
            self.restart_agent(name)

    # --- people ---------------------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        jobs: int,
        cpu: int = 100,
        max_failed: int = 1_000_000,
        *,
        is_gang: bool = False,
        tries: int = 0,
        tasks: Sequence[Task] = (),
        **limits: Any,
    ) -> None:
        spec = OperationSpec(
            pool=PoolName("research"),
            argv=["true"],
            job_count=jobs,
            resources=Resources(user_slots=1, cpu=cpu),
            max_failed_job_count=max_failed,
            is_gang=is_gang,
            tries=tries,
            keep_going=True,
            **limits,
        )
        spec = with_tasks(spec, tasks) if tasks else spec
        self._record(self.admission.on_start(StartOperation(OperationId(name), spec), "anna", self.now))

    def abort(self, name: str) -> None:
        self._record(self.admission.on_abort(AbortOperation(OperationId(name)), "anna", self.now))

    def suspend(self, name: str, *, abort_running_jobs: bool = False) -> None:
        request = SuspendOperation(OperationId(name), abort_running_jobs)
        self._record(self.admission.on_suspend(request, "anna", self.now))

    def resume(self, name: str) -> None:
        self._record(self.admission.on_resume(ResumeOperation(OperationId(name)), "anna", self.now))

    def set_clock(self, ahead_s: int) -> None:
        """Set the wall clock of admission, which looks at time limits before and after, as it does many times a second."""
        self._look_at_times()
        self.clock_ahead_s = ahead_s
        self._look_at_times()

    # --- chance ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens."""
        self.now_s += self.random.choice([0.0, 0.001, 0.05, 0.3])
        actions = [self._agent_tick] * 4 + [self._beat] * 6 + [self._answer] * 6 + [self._runner] * 6
        actions += [self._job_ends] * 5 + [self._feed] * 5 + [self._ledger] * 5 + [self._allocator_tick]
        actions += [self._look_at_times] if self.admission.state.limited else []
        self.random.choice(actions)()
        self._judge()

    def settle(self, most: int = 20_000) -> bool:
        """No more faults; true when every operation came to its end."""
        self.faults = False
        for _ in range(most):
            if all(operation.state in FINAL_STATES for operation in self.admission.state.operations.values()):
                return True
            self.step()
        return False

    def restart_allocator(self) -> None:
        self.term += 1
        self.allocator = AllocatorEngine(TREE, self.term, Timing())
        self.pending = []
        self._record(self.admission.on_attach(Attach(TREE, self.term), self.now))
        self.fed = len(self.log)
        self._perform(self.allocator.on_operations(self._live(), self.now).effects)
        records = {NodeName(name): NodeRecord(NodeName(name)) for name in self.hosts}
        self._perform(self.allocator.on_nodes(records, self.now).effects)
        self._tell_shares()

    def restart_admission(self) -> None:
        self.admission = self._new_admission()
        for number, events in enumerate(self.log, 1):
            self.admission.on_entry(decode(encode(LogBatch(1, events)), LogBatch).events, number, 1, self.now)

    def restart_agent(self, name: str) -> None:
        self.lives += 1
        host = self.hosts[name]
        identity = Identity(
            node=NodeName(name),
            tree=TREE,
            incarnation=Incarnation(f"life-{self.lives:06}"),
            total=host.total,
            environment={},
            stop_timeout_ms=8_000,
        )
        self.agents[name] = AgentEngine(identity)
        self._connect(host)
        self._agent(name, self.agents[name].on_start(self.now))

    def kill_runner(self, name: str) -> None:
        """Its processes go with it; the new one finds their files."""
        host = self.hosts[name]
        for key, run in host.running.items():
            host.ended[key] = self._end(key, run, JobResult.LOST)
        host.running.clear()
        host.interrupted.clear()
        host.pid += 1
        host.to_agent.clear()
        host.connected = False

    @property
    def now_ms(self) -> int:
        return int(self.now_s * 1000) + 1000 * self.clock_ahead_s

    @property
    def now(self) -> Moment:
        return Moment(int(self.now_s * _NS), self.now_ms)

    # --- one thing ------------------------------------------------------------------------------------------------

    def _agent_tick(self) -> None:
        name = self._some(self.agents)
        agent = self.agents[name]
        if agent.pulse.in_flight and not self.beats[name] and not self.answers[name]:
            self._agent(name, agent.on_heartbeat_lost(agent.pulse.seq, 0.5, self.now))
        self.now_s += 0.2
        self._agent(name, agent.on_tick(self.now))

    def _beat(self) -> None:
        """A heartbeat comes to the allocator, or is lost, or comes twice."""
        name = self._some(self.beats)
        if not self.beats[name]:
            return
        heartbeat = self.pictures.read(encode(self.beats[name].popleft()), Caller(CallerKind.NODE, name, ""))
        fate = self.random.random() if self.faults else 1.0
        if fate < 0.15:
            return
        if fate < 0.25:
            self.beats[name].append(heartbeat)
        outcome = self.allocator.on_heartbeat(heartbeat, self.now)
        if any(isinstance(effect, StepDown | Superseded) for effect in outcome.effects):
            self.problems.append("stepped down for a term nobody took")
        if outcome.answer is not None:
            self.answers[name].append(outcome.answer)
        self._perform(outcome.effects)

    def _answer(self) -> None:
        name = self._some(self.answers)
        if not self.answers[name]:
            return
        orders = decode(encode(self.answers[name].popleft()), Orders)
        fate = self.random.random() if self.faults else 1.0
        if fate < 0.15:
            return
        if fate < 0.25:
            self.answers[name].append(orders)
        self._agent(name, self.agents[name].on_orders(orders, self.now))

    def _runner(self) -> None:
        name = self._some(self.hosts)
        host = self.hosts[name]
        if not host.connected:
            self._agent(name, self.agents[name].on_trouble(Trouble.RUNNER_AWAY, "the connection broke", self.now))
            self._connect(host)
        elif host.to_agent:
            self._agent(name, self.agents[name].on_runner(host.to_agent.popleft(), self.now))

    def _job_ends(self) -> None:
        name = self._some(self.hosts)
        host = self.hosts[name]
        if not host.running:
            return
        key = self._some(host.running)
        if self.stays and key not in host.interrupted and self.random.random() < self.stays:
            return
        run = host.running.pop(key)
        result = JobResult.COMPLETED
        if key in host.interrupted:
            host.interrupted.discard(key)
            result = JobResult.ABORTED
        elif self.faults and self.random.random() < 0.1:
            result = JobResult.FAILED
            self.failures[key.operation, key.index] += 1
        elif run.time_limit_ms is not None and self.random.random() < self.slow:
            result = JobResult.TIMED_OUT
            self.timed_out.add((key.operation, key.index))
        if result is JobResult.COMPLETED:
            self.completed.add((key.operation, key.index))
        host.ended[key] = self._end(key, run, result)
        host.to_agent.append(Ended(host.ended[key]))

    def _feed(self) -> None:
        """The allocator hears of what the log recorded, sometimes twice."""
        if self.fed < len(self.log):
            events = self.log[self.fed]
            self.fed += 1
            self._perform(self.allocator.on_events(events, self.now).effects)
            if self.faults and self.random.random() < 0.1:
                self._perform(self.allocator.on_events(events, self.now).effects)

    def _ledger(self) -> None:
        """One question to the ledger: it may fail before or after it was recorded."""
        if not self.pending:
            return
        effect = self.pending.pop(self.random.randrange(len(self.pending)))
        fate = self.random.random() if self.faults else 1.0
        lost_before, lost_after = fate < 0.1, 0.1 <= fate < 0.2
        match effect:
            case Draw():
                answer = None
                if not lost_before:
                    answer = self._record(
                        self.admission.on_draw(DrawBlock(TREE, self.term, effect.operation, effect.below), self.now)
                    )
                drawn = answer if isinstance(answer, DrawAnswer) and not lost_after else None
                self._perform(self.allocator.on_drawn(effect.operation, drawn, self.now).effects)
            case Report():
                confirmed = None
                if not lost_before:
                    confirmed = self._record(
                        self.admission.on_report(ReportEnds(TREE, self.term, effect.ends), self.now)
                    )
                if isinstance(confirmed, ReportAnswer) and not lost_after:
                    self._perform(self.allocator.on_recorded(effect.ends, self.now).effects)
                else:
                    self.pending.append(effect)
            case Release():
                told = None
                if not lost_before:
                    told = self._record(
                        self.admission.on_released(Released(TREE, self.term, effect.operations), self.now)
                    )
                if not isinstance(told, ReleasedAnswer) or lost_after:
                    self.allocator.on_release_failed(effect.operations, self.now)

    def _look_at_times(self) -> None:
        ended = self.admission.on_time_limits_due(self.now).effects
        if ended:
            self.log.append(list(ended))

    def _live(self) -> list[LiveOperation]:
        return [queries.live_operation(operation, TREE) for operation in self.admission.state.live.values()]

    def _tell_shares(self) -> None:
        """A snapshot that names all operations and owes nothing to any."""
        items = {item.key: item for item in map(nothing_owed, self._live())}
        total = Resources.sum(host.total for host in self.hosts.values())
        self.allocator.on_shares(ShareSnapshot(items, items.keys(), total=total, options=_OPTIONS), self.now)

    def _allocator_tick(self) -> None:
        self._tell_shares()
        self._perform(self.allocator.on_tick(self.now).effects)
        self._perform(self.allocator.on_refresh_due(10, self.now).effects)
        self.allocator.on_usage_due(10, self.now)

    # --- carrying -------------------------------------------------------------------------------------------------

    def _agent(self, name: str, outcome: Outcome[None, AgentEffect]) -> None:
        for effect in outcome.effects:
            match effect:
                case Beat():
                    self.beats[name].append(effect.heartbeat)
                case SendToRunner():
                    self._tell(name, effect.message)
                case EnrolNode():
                    self._agent(name, self.agents[name].on_enrolled(self.now))
                case Reconnect():
                    self._connect(self.hosts[name])

    def _tell(self, name: str, message: Any) -> None:
        host = self.hosts[name]
        if not host.connected:
            return
        match message:
            case Run():
                self._run(host, message)
            case Interrupt():
                if message.job in host.running:
                    host.interrupted.add(message.job)
            case Acknowledge():
                for key in message.jobs:
                    host.ended.pop(key, None)
            case Hello():
                host.to_agent.append(self._picture(host))

    def _connect(self, host: Host) -> None:
        host.connected = True
        host.to_agent.clear()
        host.to_agent.append(self._picture(host))

    def _run(self, host: Host, run: Run) -> None:
        if run.job in host.running or run.job in host.ended:
            return
        elsewhere = [
            key
            for other in self.hosts.values()
            for key in other.running
            if (key.operation, key.index) == (run.job.operation, run.job.index)
        ]
        if elsewhere:
            self.problems.append(f"{run.job} starts while {elsewhere} runs")
        if run.job in self.starts:
            self.problems.append(f"{run.job} is started a second time")
        if (run.job.operation, run.job.index) in self.completed:
            self.problems.append(f"{run.job} is started after the job was completed")
        if (run.job.operation, run.job.index) in self.timed_out:
            self.problems.append(f"{run.job} is started after the job timed out")
        self.starts.append(run.job)
        host.running[run.job] = run
        host.to_agent.append(Started(run.job, len(self.starts), self.now_ms, self.now.steady_ns))

    def _picture(self, host: Host) -> FullReport:
        kept = [KeptJob(run, Started(key, 1, self.now_ms, self.now.steady_ns)) for key, run in host.running.items()]
        return FullReport(kept, list(host.ended.values()), "none", "", host.pid)

    def _perform(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            match effect:
                case Draw() | Report() | Release():
                    self.pending.append(effect)
                case NudgeNode():
                    if not self.faults or self.random.random() < 0.8:
                        agent = self.agents.get(effect.node) if hasattr(self, "agents") else None
                        if agent is not None:
                            nudge = Nudge(effect.node, self.term)
                            self._agent(effect.node, agent.on_nudge(nudge, self.now))

    def _record(self, decision: Decision) -> msgspec.Struct:
        if decision.effects:
            self.log.append(list(decision.effects))
        return decision.answer

    def _new_admission(self) -> AdmissionEngine:
        engine = AdmissionEngine()
        engine.on_configuration(TREE, self.rules, self.now)
        return engine

    def _end(self, key: JobKey, run: Run, result: JobResult) -> JobEnd:
        return JobEnd(
            operation=key.operation,
            index=key.index,
            attempt=key.attempt,
            allocation=run.allocation,  # type: ignore[arg-type]
            result=result,
            exit_code={JobResult.COMPLETED: 0, JobResult.FAILED: 1}.get(result),
            started_at_ms=max(1, self.now_ms - 100),
            ended_at_ms=self.now_ms,
        )

    def _judge(self) -> None:
        self.problems += self.allocator.check()
        self.problems += self.admission.check()
        for name, host in self.hosts.items():
            if host.room_used() > host.total.cpu:
                self.problems.append(f"{name} runs {host.room_used()} of {host.total.cpu}")
        for agent in self.agents.values():
            self.problems += agent.check()

    def _some(self, things: Any) -> Any:
        return self.random.choice(list(things))
