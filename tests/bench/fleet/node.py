"""One simulated node: the real engine of the agent, and a process port whose jobs only take time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.ids import Incarnation, NodeName, TreeName
from headrace.resources import Resources
from headrace.runtime.engine import NS_PER_MS, Moment, Outcome
from headrace.wire.heartbeat import Heartbeat, HeartbeatReason, JobEnd, JobKey, JobResult, Nudge, Orders
from headrace_agent.effects import AgentEffect, Beat, EnrolNode, Identity, LogRecord, SendToRunner
from headrace_agent.engine import AgentEngine
from headrace_agent.heartbeat_timing import Pulse
from headrace_agent.runner.protocol import Ended, FullReport, Interrupt, Run, Started, ToRunner

__all__ = ["FleetNode", "Surroundings"]

_STOP_TIMEOUT_MS = 8_000
#: From a signal to the end of a job.
_OBEYS_NS = 20 * NS_PER_MS


class _WatchedPulse(Pulse):
    """The pulse of the agent, with the moment at which its newest heartbeat was due."""

    def __init__(self) -> None:
        super().__init__()
        #: When the event was to happen that the engine is being told of, however late it is told.
        self.event_ns = 0
        self.due_ns = 0
        self._wanted_ns = 0
        #: Since when none is in flight: one that waits for the answer to another is not due.
        self._free_ns = 0

    def want(self, reason: HeartbeatReason, *, may_wait: bool = False, is_last: bool = False) -> None:
        if self._wanted is None:
            self._wanted_ns = self.event_ns
        super().want(reason, may_wait=may_wait, is_last=is_last)

    def begin_heartbeat(self, now_ns: int) -> HeartbeatReason | None:
        next_ns, wanted_ns = self.next_ns(), self._wanted_ns if self._wanted is not None else 0
        reason = super().begin_heartbeat(now_ns)
        if reason is not None and next_ns is not None:
            self.due_ns = min(now_ns, max(next_ns, wanted_ns, self._free_ns))
        return reason

    def answered(self, next_ms: int, now_ns: int) -> int:
        self._free_ns = now_ns
        return super().answered(next_ms, now_ns)

    def lost(self, unit: float, now_ns: int, *, stopping: bool) -> None:
        self._free_ns = now_ns
        super().lost(unit, now_ns, stopping=stopping)


class Surroundings(Protocol):
    """Everything that a node stands in: the wire, and a clock that wakes it."""

    def send_heartbeat(self, node: FleetNode, heartbeat: Heartbeat, due_ns: int) -> None: ...
    def send_enrolment(self, node: FleetNode, at_ns: int) -> None: ...
    def wake_at(self, node: FleetNode, at_ns: int) -> None: ...
    def end_at(self, node: FleetNode, job: JobKey, at_ns: int) -> None: ...
    def end_after(self, node: FleetNode, job: JobKey, left_ns: int) -> None: ...
    def job_ns(self) -> tuple[int, int]: ...


class FleetNode:
    """A life of an agent. Its jobs are figures in a table, everything else is real."""

    def __init__(self, name: str, tree: TreeName, total: Resources, surroundings: Surroundings) -> None:
        self.name = NodeName(name)
        self.engine = AgentEngine(
            Identity(self.name, tree, Incarnation(f"{name}-000001"), total, {}, stop_timeout_ms=_STOP_TIMEOUT_MS)
        )
        self._pulse = self.engine.pulse = _WatchedPulse()
        self._surroundings = surroundings
        self._running: dict[JobKey, tuple[Run, Started]] = {}
        self._interrupted: set[JobKey] = set()
        self._pid = 0
        self.jobs_ended = 0
        self.jobs_interrupted = 0
        #: The newest that was sent.
        self.heartbeat: Heartbeat | None = None

    @property
    def running_jobs(self) -> int:
        return len(self._running)

    def start(self, now: Moment) -> None:
        """Starts the agent, beside a runner without jobs."""
        self._do(self.engine.on_start, now, now.steady_ns)
        picture = FullReport([], [], "none", "simulated", pid=1)
        self._do(lambda at: self.engine.on_runner(picture, at), now, now.steady_ns)

    def on_enrolled(self, now: Moment) -> None:
        self._do(self.engine.on_enrolled, now, now.steady_ns)

    def on_time(self, now: Moment, due_ns: int) -> None:
        """Something was due at `due_ns`."""
        self._do(self.engine.on_tick, now, due_ns)

    def on_orders(self, orders: Orders, now: Moment) -> None:
        self._do(lambda at: self.engine.on_orders(orders, at), now, now.steady_ns)

    def on_lost(self, seq: int, unit: float, now: Moment) -> None:
        """A heartbeat was not answered."""
        self._do(lambda at: self.engine.on_heartbeat_lost(seq, unit, at), now, now.steady_ns)

    def on_nudge(self, nudge: Nudge, now: Moment) -> None:
        self._do(lambda at: self.engine.on_nudge(nudge, at), now, now.steady_ns)

    def on_job_over(self, job: JobKey, now: Moment, due_ns: int) -> None:
        """The time of a job is over. One that was interrupted before has ended already."""
        if job not in self._running:
            return
        run, started = self._running.pop(job)
        result = JobResult.ABORTED if job in self._interrupted else JobResult.COMPLETED
        self._interrupted.discard(job)
        self.jobs_ended += 1
        end = JobEnd(
            job.operation,
            job.index,
            job.attempt,
            run.allocation,  # type: ignore[arg-type]
            result,
            exit_code=0 if result is JobResult.COMPLETED else None,
            started_at_ms=started.started_at_ms,
            ended_at_ms=now.wall_ms,
        )
        self._do(lambda at: self.engine.on_runner(Ended(end), at), now, due_ns)

    def _do(self, tell: Callable[[Moment], Outcome[None, AgentEffect]], now: Moment, event_ns: int) -> None:
        """Tells the engine of an event, and does what it asks."""
        self._pulse.event_ns = event_ns
        for effect in tell(now).effects:
            self._perform(effect, now)
        due_ns = self.engine.due_ns()
        if due_ns is not None:
            self._surroundings.wake_at(self, due_ns)

    def _perform(self, effect: AgentEffect, now: Moment) -> None:
        # The commonest first: each class that it is not costs time.
        match effect:
            case LogRecord():
                pass
            case SendToRunner(message):
                self._obey(message, now)
            case Beat(heartbeat):
                self.heartbeat = heartbeat
                self._surroundings.send_heartbeat(self, heartbeat, self._pulse.due_ns)
            case EnrolNode(after_ms):
                self._surroundings.send_enrolment(self, now.steady_ns + after_ms * NS_PER_MS)
            case _:
                raise AssertionError(f"{self.name} does what nothing here calls for: {effect}")

    def _obey(self, message: ToRunner, now: Moment) -> None:
        """Does what a runner would do. The leases do not matter here."""
        if isinstance(message, Run):
            self._launch(message, now)
        elif isinstance(message, Interrupt) and message.job in self._running:
            self._interrupted.add(message.job)
            self.jobs_interrupted += 1
            self._surroundings.end_at(self, message.job, now.steady_ns + _OBEYS_NS)

    def _launch(self, run: Run, now: Moment) -> None:
        """Starts a job: it runs at once, and for as long as the surroundings say, of which a part may be over already."""
        self._pid += 1
        over_ns, left_ns = self._surroundings.job_ns()
        started = Started(run.job, self._pid, now.wall_ms - over_ns // NS_PER_MS, now.steady_ns - over_ns)
        self._running[run.job] = (run, started)
        self._do(lambda at: self.engine.on_runner(started, at), now, now.steady_ns)
        self._surroundings.end_after(self, run.job, left_ns)
