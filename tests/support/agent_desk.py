"""An agent's engine at a desk: time stands still until it is moved, the runner and the allocator are played by hand."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from headrace.ids import AllocationId, Incarnation, NodeName, OperationId, TreeName
from headrace.resources import Resources
from headrace.runtime.engine import NS_PER_MS, Moment, Outcome
from headrace.wire.heartbeat import (
    AllocationReport,
    Extend,
    Forget,
    Heartbeat,
    JobEnd,
    JobKey,
    JobResult,
    JobSlot,
    JobSpec,
    Orders,
    Start,
    TakeBack,
    TakeBackReason,
)
from headrace.wire.preemption import PreemptionRecord
from headrace_agent.effects import AgentEffect, Beat, EnrolNode, Identity, Leave, LogRecord, SendToRunner
from headrace_agent.engine import AgentEngine
from headrace_agent.host.gpus import HostGpus, offered_gpus
from headrace_agent.runner.protocol import (
    Acknowledge,
    EndAll,
    Ended,
    FullReport,
    Interrupt,
    KeptJob,
    NodeLease,
    Recall,
    Recalled,
    Run,
    RunAhead,
    Started,
    ToAgent,
    ToRunner,
)

__all__ = [
    "NODE",
    "OPERATION",
    "Desk",
    "RunnerBehindAWire",
    "end_of",
    "extend",
    "fake_gpus",
    "job",
    "kept",
    "spec",
    "start",
    "take_back",
]

NODE = NodeName("node-1")
OPERATION = OperationId("operation-1")
E = TypeVar("E")
_NO_GPUS = HostGpus()
_MINUTE_NS = 60_000 * NS_PER_MS


def spec(operation: str = OPERATION, *, timeout_ms: int = 5_000, **environment: str) -> JobSpec:
    return JobSpec(
        operation=OperationId(operation),
        argv=["work"],
        environment=environment,
        job_count=1_000,
        pool="research",
        interruption_timeout_ms=timeout_ms,
    )


def fake_gpus(names: str = "0,1,2,3") -> HostGpus:
    """The devices of a host on which the agent finds none, with these names in its settings."""
    return offered_gpus(HostGpus(), names.split(","), None)


def job(index: int, operation: str = OPERATION, attempt: int = 1) -> JobKey:
    return JobKey(OperationId(operation), index, attempt)


def start(
    allocation: str = "a",
    indexes: Sequence[int] = (0,),
    *,
    cpu: int = 100,
    gpu: int = 0,
    operation: str = OPERATION,
    told: JobSpec | None = None,
    with_spec: bool = True,
    waiting_ms: int | None = None,
) -> Start:
    return Start(
        allocation=AllocationId(allocation),
        operation=OperationId(operation),
        resources=Resources(user_slots=1, cpu=cpu, gpu=gpu),
        slots=[JobSlot(index) for index in indexes],
        spec=(told or spec(operation)) if with_spec else None,
        waiting_timeout_ms=waiting_ms,
    )


def extend(allocation: str, indexes: Sequence[int]) -> Extend:
    return Extend(AllocationId(allocation), [JobSlot(index) for index in indexes])


def take_back(
    allocation: str, timeout_ms: int | None = 3_000, record: PreemptionRecord | None = None, detail: str = ""
) -> TakeBack:
    return TakeBack(AllocationId(allocation), TakeBackReason.PREEMPTED, timeout_ms, detail, record)


def end_of(key: JobKey, allocation: str = "a", result: JobResult = JobResult.COMPLETED, tail: str = "") -> JobEnd:
    return JobEnd(
        operation=key.operation,
        index=key.index,
        attempt=key.attempt,
        allocation=AllocationId(allocation),
        result=result,
        stderr_tail=tail,
    )


class Desk:
    """`cpu` is what the host has, in hundredths of cores. With `picture=False` the runner has not spoken yet."""

    def __init__(
        self,
        *,
        cpu: int = 400,
        incarnation: str = "life-1",
        picture: bool = True,
        now_ms: int = 0,
        with_files: Sequence[str] = (),
        largest_log_cap_bytes: int = 2**60,
        exchange_folder: str = "",
        gpus: HostGpus = _NO_GPUS,
    ) -> None:
        self.identity = Identity(
            node=NODE,
            tree=TreeName("default"),
            incarnation=Incarnation(incarnation),
            total=Resources(user_slots=100, cpu=cpu, gpu=len(gpus.offered)),
            environment={"PATH": "/bin", "HOME": "/home/someone"},
            stop_timeout_ms=8_000,
            largest_log_cap_bytes=largest_log_cap_bytes,
            exchange_folder=exchange_folder,
            gpus=gpus,
        )
        self.engine = AgentEngine(self.identity, with_files)
        self.now_ns = _MINUTE_NS + now_ms * NS_PER_MS
        self.effects: list[AgentEffect] = []
        self.term = 1
        self._do(self.engine.on_start(self.now()))
        if picture:
            self.picture()
            self.enrolled()

    def now(self) -> Moment:
        return Moment(self.now_ns, 1_700_000_000_000 + self.now_ns // NS_PER_MS)

    # Events.

    def advance(self, ms: int) -> None:
        """Time passes, and the engine is woken whenever it wants to be."""
        until_ns = self.now_ns + ms * NS_PER_MS
        while (due_ns := self.engine.due_ns()) is not None and due_ns <= until_ns:
            self.now_ns = max(self.now_ns, due_ns)
            before = len(self.effects)
            self._do(self.engine.on_tick(self.now()))
            again_ns = self.engine.due_ns()
            assert len(self.effects) > before or again_ns is None or again_ns > due_ns, (
                "woken for nothing, again and again"
            )
        self.now_ns = until_ns

    def picture(
        self,
        running: Sequence[KeptJob] = (),
        ended: Sequence[JobEnd] = (),
        pid: int = 77,
        *,
        runs_ahead: bool = False,
        makes_folders: bool = False,
    ) -> None:
        told = FullReport(
            list(running), list(ended), "rlimit", "", pid, runs_ahead=runs_ahead, makes_folders=makes_folders
        )
        self._do(self.engine.on_runner(told, self.now()))

    def started(self, key: JobKey, pid: int = 500) -> Started:
        told = Started(key, pid, self.now().wall_ms, self.now_ns)
        self._do(self.engine.on_runner(told, self.now()))
        return told

    def ended(self, end: JobEnd, followed_by: JobKey | None = None) -> None:
        self._do(self.engine.on_runner(Ended(end, followed_by=followed_by), self.now()))

    def recalled(self, allocation: str = "a") -> None:
        self._do(self.engine.on_runner(Recalled(allocation), self.now()))

    def enrolled(self) -> None:
        self._do(self.engine.on_enrolled(self.now()))

    def answer(
        self,
        *orders: Start | Extend | TakeBack,
        forget: Forget | None = None,
        seq: int | None = None,
        node: str = NODE,
        incarnation: str | None = None,
        next_ms: int = 1_000,
        lease_ms: int = 600_000,
        enrolled: bool = True,
        left_out: str = "",
    ) -> list[AgentEffect]:
        """Answers the newest heartbeat; returns what was done by that."""
        told = Orders(
            node=NodeName(node),
            incarnation=Incarnation(incarnation or self.identity.incarnation),
            seq=self.beat.seq if seq is None else seq,
            term=self.term,
            next_heartbeat_ms=next_ms,
            start=[order for order in orders if isinstance(order, Start)],
            extend=[order for order in orders if isinstance(order, Extend)],
            take_back=[order for order in orders if isinstance(order, TakeBack)],
            forget=forget or Forget(),
            lease_ms=lease_ms,
            enrolled=enrolled,
            left_out=left_out,
        )
        return self._do(self.engine.on_orders(told, self.now()))

    def turn(self, *orders: Start | Extend | TakeBack, forget: Forget | None = None) -> Heartbeat:
        """Answers the heartbeat in flight, or the next one, and brings the one after."""
        self.next_beat()
        self.answer(*orders, forget=forget)
        return self.next_beat()

    def next_beat(self) -> Heartbeat:
        """The heartbeat in flight. Without one, time passes until one goes."""
        if self.engine.pulse.in_flight:
            return self.beat
        due_ns = self.engine.due_ns()
        assert due_ns is not None, "no heartbeat goes"
        before = len(self.effects)
        self.advance(-(-max(0, due_ns - self.now_ns) // NS_PER_MS))
        assert any(isinstance(effect, Beat) for effect in self.effects[before:]), "no heartbeat goes"
        return self.beat

    def lose(self, unit: float = 0.5) -> None:
        """The heartbeat in flight is not answered."""
        self._do(self.engine.on_heartbeat_lost(self.beat.seq, unit, self.now()))

    def do(self, outcome: Outcome[None, AgentEffect]) -> list[AgentEffect]:
        """Keeps the effects of a call that has no method here."""
        return self._do(outcome)

    # Results.

    def all(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def told(self, kind: type[E]) -> list[E]:
        """What the runner was told, of one kind."""
        return [effect.message for effect in self.all(SendToRunner) if isinstance(effect.message, kind)]

    @property
    def beats(self) -> list[Heartbeat]:
        return [effect.heartbeat for effect in self.all(Beat)]

    @property
    def beat(self) -> Heartbeat:
        """The newest heartbeat."""
        return self.beats[-1]

    @property
    def runs(self) -> list[JobKey]:
        """Jobs that were handed to the runner, in order."""
        return [run.job for run in self.told(Run)]

    @property
    def ahead(self) -> list[JobKey]:
        """Jobs that were handed to the runner ahead, in order."""
        return [order.run.job for order in self.told(RunAhead)]

    @property
    def enrolments(self) -> list[int]:
        return [effect.after_ms for effect in self.all(EnrolNode)]

    @property
    def left(self) -> bool:
        return bool(self.all(Leave))

    @property
    def notes(self) -> list[str]:
        return [note.event for note in self.all(LogRecord)]

    def report(self, allocation: str = "a") -> AllocationReport | None:
        """The allocation in the newest heartbeat."""
        return next((found for found in self.beat.allocations if found.id == allocation), None)

    def _do(self, outcome: Outcome[None, AgentEffect]) -> list[AgentEffect]:
        assert not self.engine.check()
        self.effects += outcome.effects
        return list(outcome.effects)


def kept(desk: Desk, key: JobKey, pid: int = 500) -> KeptJob:
    """A job that the desk's agent handed out, as the runner has it in its picture."""
    run = next(run for run in desk.told(Run) if run.job == key)
    interrupted = next((order for order in desk.told(Interrupt) if order.job == key), None)
    return KeptJob(run, Started(key, pid, desk.now().wall_ms, desk.now_ns), interrupted)


class RunnerBehindAWire:
    """The runner of the host: what it has outlives everything, what is on the way to or from it does not."""

    def __init__(self) -> None:
        self.pid = 77
        #: The runner that was told a lease last; a new one starts without.
        self.leased_pid = 0
        self.live: dict[JobKey, KeptJob] = {}
        self.over: dict[JobKey, Ended] = {}
        self.starts: Counter[JobKey] = Counter()
        self.room: dict[JobKey, Resources] = {}
        #: By allocation.
        self.ahead: dict[str, deque[Run]] = {}
        self.to_runner: deque[ToRunner] = deque()
        self.to_agent: deque[ToAgent] = deque()

    def obey(self, message: ToRunner, desk: Desk) -> None:
        match message:
            case Run():
                self._run(message, desk)
            case RunAhead(run):
                if any(kept.run.allocation == run.allocation for kept in self.live.values()):
                    self.ahead.setdefault(run.allocation, deque()).append(run)
            case Recall(allocation):
                self.ahead.pop(allocation, None)
                self.to_agent.append(Recalled(allocation))
            case Interrupt():
                if message.job in self.live:
                    self.end(message.job, JobResult.ABORTED, desk.now())
            case EndAll():
                for key in list(self.live):
                    self.end(key, JobResult.ABORTED, desk.now())
                self.pid += 1
            case Acknowledge():
                for key in message.jobs:
                    self.over.pop(key, None)
            case NodeLease():
                self.leased_pid = self.pid
            case _:
                pass

    def end(self, key: JobKey, result: JobResult, at: Moment) -> None:
        run = self.live.pop(key).run
        ahead = self.ahead.pop(run.allocation, deque())
        following = ahead.popleft() if ahead and result in (JobResult.COMPLETED, JobResult.FAILED) else None
        self.over[key] = Ended(end_of(key, run.allocation, result))
        followed_by = following.job if following is not None else None
        self.to_agent.append(msgspec.structs.replace(self.over[key], followed_by=followed_by))
        if following is not None:
            self._start(following, at)
            if ahead:
                self.ahead[run.allocation] = ahead

    def drop(self) -> None:
        self.ahead.clear()
        self.to_runner.clear()
        self.to_agent.clear()

    def _run(self, run: Run, desk: Desk) -> None:
        if run.job in self.over:
            self.to_agent.append(self.over[run.job])
            return
        if run.job not in self.live:
            assert self.leased_pid == self.pid, "told to start a job without a lease"
            self._start(run, desk.now())
        else:
            self.to_agent.append(self.live[run.job].started)

    def _start(self, run: Run, at: Moment) -> None:
        self.starts[run.job] += 1
        self.room[run.job] = Resources(user_slots=1, cpu=run.cpu)
        self.live[run.job] = KeptJob(run, Started(run.job, 500, at.wall_ms, at.steady_ns))
        self.to_agent.append(self.live[run.job].started)
