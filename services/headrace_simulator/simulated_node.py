"""A simulated node: the real engine of the agent, and a process port whose jobs only take time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from headrace.errors import HeadraceError
from headrace.ids import AllocationId, Incarnation, TreeName
from headrace.images import RUNTIME_TAGS
from headrace.runtime.engine import NS_PER_MS, Moment, Outcome
from headrace.wire.heartbeat import Heartbeat, JobEnd, JobKey, JobResult, Nudge, Orders, TakeBackReason
from headrace.wire.replay import ReplayNode
from headrace_agent.container_command import ContainerRuntime
from headrace_agent.effects import AgentEffect, Beat, EnrolNode, Identity, Reconnect, SendToRunner
from headrace_agent.engine import AgentEngine
from headrace_agent.heartbeat_timing import Pulse
from headrace_agent.host.gpus import HostGpus
from headrace_agent.runner.protocol import Ended, FullReport, Interrupt, KeptJob, Run, Started

#: Milliseconds from the signal to the end of an interrupted job.
_OBEYS_MS: Final = 20
_PID: Final = 1
#: Milliseconds between two heartbeats of a node, as the allocator asks for them.
PACE_MS: Final = 1_000
#: If the allocator asks for the next heartbeat within at most this many milliseconds, it waits for the confirmation of a start, and the
#: heartbeat is not delayed.
_SOON_MS: Final = PACE_MS // 2 - 1
#: Reasons of a take-back after which the jobs run again.
_REPEATED: Final = (TakeBackReason.PREEMPTED, TakeBackReason.GANG, TakeBackReason.LIMITS)


class BrokenReplay(HeadraceError):
    """An engine asked for something that replays do not provide. This is a defect of Headrace."""


class Surroundings(Protocol):
    """The world around a simulated node."""

    @property
    def now(self) -> Moment:
        """The current simulated time."""
        ...

    def at(self, at_ns: int, do: Callable[[], None]) -> None:
        """Call a function when the steady clock reaches this time."""
        ...

    def on_heartbeat(self, node: SimulatedNode, heartbeat: Heartbeat) -> None:
        """Hand a heartbeat to the allocator."""
        ...

    def on_job_begun(self, run: Run, started_at_ms: int) -> tuple[int, JobResult]:
        """Return for how many milliseconds from its start the job runs if it is not interrupted, and its result then."""
        ...

    def on_job_over(self, run: Run, end: JobEnd, *, repeats: bool) -> None:
        """Record the end of a run. `repeats`: the job runs again because of preemption, its gang or a failure of the node."""
        ...

    def on_preempted(self, allocation: AllocationId) -> None:
        """Count an allocation that was preempted."""
        ...


class _QuietPulse(Pulse):
    """The pulse of an agent that sends fewer heartbeats than the allocator asks for while nothing happens on its node."""

    def __init__(self, quiet_ms: int) -> None:
        super().__init__()
        self._quiet_ms = quiet_ms

    def answered(self, next_ms: int, now_ns: int) -> int:
        sent_ns = super().answered(next_ms, now_ns)
        if next_ms > _SOON_MS:
            self._due_ns = max(self._due_ns, now_ns + self._quiet_ms * NS_PER_MS)
        return sent_ns

    def hasten(self, at_ns: int) -> None:
        """Send the next heartbeat at this time at the latest. This is used after events that do not cause a heartbeat by themselves."""
        self._due_ns = min(self._due_ns, at_ns)


class SimulatedNode:
    """One run of an agent. Its jobs are only entries in a table; the engine of the agent is the real one."""

    def __init__(self, node: ReplayNode, tree: TreeName, world: Surroundings, quiet_ms: int, run: int = 1) -> None:
        """A node on which nothing happens sends a heartbeat every `quiet_ms` milliseconds. `run` counts the runs of the node's agent."""
        self._world = world
        incarnation = Incarnation(f"{node.node}-{run:06}")
        # Jobs get GPUs and start in images only where the agent knows devices and a runtime.
        gpus = HostGpus(offered=tuple(str(number) for number in range(node.total.gpu)))
        runtime = next((ContainerRuntime(name, "-") for name, tag in RUNTIME_TAGS.items() if tag in node.tags), None)
        identity = Identity(
            node.node, tree, incarnation, node.total, {}, stop_timeout_ms=0, gpus=gpus, containers=runtime
        )
        self.engine = AgentEngine(identity)
        self._pulse = self.engine.pulse = _QuietPulse(quiet_ms)
        self._running: dict[JobKey, tuple[Run, int]] = {}
        self._results: dict[JobKey, JobResult] = {}
        self._preempted: set[str] = set()
        #: Allocations that were taken back although their jobs must run again.
        self._repeated: set[str] = set()
        self._is_down = False
        self._wake_ns: int | None = None

    def start(self, kept: Sequence[tuple[Run, int]]) -> None:
        """Start the agent beside a runner that has been running these jobs since the given times."""
        self._do(self.engine.on_start)
        steady_ns, wall_ms = self._world.now.steady_ns, self._world.now.wall_ms
        jobs = []
        for run, started_at_ms in kept:
            boottime_ns = max(1, steady_ns - (wall_ms - started_at_ms) * NS_PER_MS)
            jobs.append(KeptJob(run, Started(run.job, _PID, started_at_ms, boottime_ns)))
            self._begin(run, started_at_ms)
        picture = FullReport(jobs, [], "none", "simulated", pid=_PID)
        self._do(lambda now: self.engine.on_runner(picture, now))

    def on_orders(self, orders: Orders) -> None:
        """Process the allocator's answer to a heartbeat."""
        for each in orders.take_back:
            if each.reason is TakeBackReason.PREEMPTED and each.allocation not in self._preempted:
                self._preempted.add(each.allocation)
                self._world.on_preempted(each.allocation)
            if each.reason in _REPEATED:
                self._repeated.add(each.allocation)
        self._do(lambda now: self.engine.on_orders(orders, now))

    def fail(self) -> None:
        """Lose all jobs and do nothing any more, as a host that lost its power."""
        self._is_down = True
        for job in list(self._running):
            self._results[job] = JobResult.LOST
            self._end(job)

    def on_nudge(self, nudge: Nudge) -> None:
        """Process the allocator's request for a heartbeat."""
        self._do(lambda now: self.engine.on_nudge(nudge, now))

    def _do(self, tell: Callable[[Moment], Outcome[None, AgentEffect]]) -> None:
        """Pass an event to the engine, and perform its effects. Nothing happens on a node that has failed."""
        if self._is_down:
            return
        for effect in tell(self._world.now).effects:
            self._perform(effect)
        due_ns = self.engine.due_ns()
        if due_ns is not None and (self._wake_ns is None or due_ns < self._wake_ns):
            self._wake_ns = due_ns
            self._world.at(due_ns, lambda: self._wake(due_ns))

    def _wake(self, due_ns: int) -> None:
        if self._wake_ns == due_ns:
            self._wake_ns = None
            self._do(self.engine.on_tick)

    def _perform(self, effect: AgentEffect) -> None:
        now_ns = self._world.now.steady_ns
        match effect:
            case Beat(heartbeat):
                self._world.at(now_ns, lambda: self._world.on_heartbeat(self, heartbeat))
            case SendToRunner(Run() as run):
                self._launch(run)
            case SendToRunner(Interrupt() as interrupt) if interrupt.job in self._running:
                self._results[interrupt.job] = JobResult.ABORTED
                self._world.at(now_ns + _OBEYS_MS * NS_PER_MS, lambda: self._end(interrupt.job))
            case EnrolNode(after_ms):
                at_ns = now_ns + after_ms * NS_PER_MS
                self._world.at(at_ns, lambda: self._do(self.engine.on_enrolled))
            case Reconnect():
                raise BrokenReplay(f"an agent does not know its runner: {effect}")

    def _launch(self, run: Run) -> None:
        now = self._world.now
        self._begin(run, now.wall_ms)
        started = Started(run.job, _PID, now.wall_ms, now.steady_ns)
        # The runner's answer is not passed on at once, since the agent is still processing the order that starts the job.
        self._world.at(now.steady_ns, lambda: self._do(lambda at: self.engine.on_runner(started, at)))

    def _begin(self, run: Run, started_at_ms: int) -> None:
        length_ms, result = self._world.on_job_begun(run, started_at_ms)
        self._running[run.job] = (run, started_at_ms)
        self._results[run.job] = result
        now = self._world.now
        left_ms = max(0, started_at_ms + length_ms - now.wall_ms)
        self._world.at(now.steady_ns + left_ms * NS_PER_MS, lambda: self._end(run.job))

    def _end(self, job: JobKey) -> None:
        """End a job, unless it has already ended."""
        if job not in self._running:
            return
        run, started_at_ms = self._running.pop(job)
        result = self._results.pop(job)
        exit_codes = {JobResult.COMPLETED: 0, JobResult.FAILED: 1}
        end = JobEnd(
            job.operation,
            job.index,
            job.attempt,
            AllocationId(run.allocation),
            result,
            exit_code=exit_codes.get(result),
            started_at_ms=started_at_ms,
            ended_at_ms=self._world.now.wall_ms,
        )
        repeats = result is JobResult.LOST or (result is JobResult.ABORTED and run.allocation in self._repeated)
        self._world.on_job_over(run, end, repeats=repeats)
        self._pulse.hasten(self._world.now.steady_ns + PACE_MS * NS_PER_MS)
        self._do(lambda now: self.engine.on_runner(Ended(end), now))


def kept_run(job: JobKey, allocation: str, note: msgspec.Struct, cpu: int, memory_bytes: int) -> Run:
    """Return a run order for a job that already runs, as if this order had started the job."""
    return Run(job, allocation, ["-"], {}, "", cpu, memory_bytes, note=msgspec.msgpack.encode(note))
