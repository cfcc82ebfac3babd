"""Simulated hosts: the truth of which processes run, the runner's real engine over it, and the agent's real shell.

Processes and kept files survive the agent and the runner. A job is `work SECONDS [EXIT [STDERR_BYTES]]`, which ends by a signal;
`stubborn SECONDS`, which ignores all but SIGKILL; `saver SECONDS`, which ends with 75 at a signal, or `hasty SECONDS`, with 0.
"""

from __future__ import annotations

import math
import signal
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import msgspec

from headrace.ids import Incarnation, OperationId, TreeName
from headrace.runtime.engine import Moment, Outcome
from headrace.runtime.service import Runtime
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult
from headrace_agent.effects import Trouble
from headrace_agent.runner.effects import (
    About,
    Drop,
    EndRunner,
    JobExit,
    Keep,
    Launch,
    RunnerEffect,
    SendToAgent,
    Signal,
)
from headrace_agent.runner.engine import RunnerEngine
from headrace_agent.runner.protocol import (
    Acknowledge,
    EndAll,
    Hello,
    Interrupt,
    NodeLease,
    Recall,
    Run,
    RunAhead,
    ToAgent,
    ToRunner,
)
from headrace_agent.service import Agent
from headrace_agent.settings import AgentSettings
from tests.simulation.clock import LoopClock
from tests.simulation.loop import VirtualLoop
from tests.simulation.recorded import Recorded

__all__ = ["Host", "JobProcess", "SimulatedAgent", "Truth"]

#: EndRunner status after a signal, by the program.
_EXIT_AFTER_SIGNAL: Final = {"saver": 75, "hasty": 0}
_DEFAULT_TREE: Final = TreeName("default")
#: From a signal to the end of who obeys it, and from an order to the process.
_MOMENT_S: Final = 0.02


class JobProcess(msgspec.Struct, eq=False):
    """One process of a job, as it really is."""

    key: JobKey
    host: str
    started_s: float
    run: Run
    tree: TreeName
    ended_s: float | None = None
    exit_code: int | None = None
    was_told_to_end: bool = False


class Truth:
    """Every process of every job on every host: what nobody's books can change."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.processes: list[JobProcess] = []
        self.violations: list[str] = []
        self._living: dict[tuple[str, int], JobProcess] = {}
        #: Jobs of which a process ended well, by operation and index.
        self.done: dict[tuple[str, int], int] = {}
        #: Jobs of one core that may run at a time, by tree and pool.
        self.job_limits: dict[tuple[TreeName, str], int] = {}
        #: Hosts on which alone jobs of a pool may start, by tree and pool.
        self.hosts_of: dict[tuple[TreeName, str], set[str]] = {}
        #: Jobs that start from now on take no longer, whatever was asked for.
        self.longest_s = math.inf

    def on_start(self, process: JobProcess) -> None:
        """A process starts; of one job there may be one."""
        job = (process.key.operation, process.key.index)
        other = self._living.get(job)
        if other is not None:
            self.violations.append(
                f"job {job} runs twice: attempt {other.key.attempt} on {other.host} since {other.started_s:.2f} s, "
                f"attempt {process.key.attempt} on {process.host} since {process.started_s:.2f} s"
            )
        self._living[job] = process
        self.processes.append(process)
        defect = (
            self.recorded.defect_of_start(process.key, process.tree)
            or self._defect_of_pools()
            or self._defect_of_host(process)
        )
        if defect:
            self.violations.append(f"{process.host}: {defect}")

    def on_forget(self, host: str, job: JobKey) -> None:
        """A runner forgets an end that it kept."""
        defect = self.recorded.defect_of_forgetting(job)
        if defect:
            self.violations.append(f"{host}: {defect}")

    def _defect_of_pools(self) -> str:
        # A preempted allocation does not count as used from the decision on, and its job has time to end, as upstream.
        counted = [(job, each) for job, each in self._living.items() if not each.was_told_to_end]
        for (tree, pool), most in self.job_limits.items():
            in_tree = (operation for (operation, _), each in counted if each.tree == tree)
            count = sum(1 for operation in in_tree if self._pool_of(operation) == pool)
            if count > most:
                return f"{count} jobs run in pool {pool}, where {most} may"
        return ""

    def _defect_of_host(self, process: JobProcess) -> str:
        pool = self._pool_of(process.key.operation)
        hosts = self.hosts_of.get((process.tree, str(pool)))
        return (
            "" if hosts is None or process.host in hosts else f"a job of pool {pool} runs, whose filter does not match"
        )

    def _pool_of(self, operation: str) -> str:
        known = self.recorded.operations.get(OperationId(operation))
        return known.spec.pool if known is not None else ""

    def on_end(self, process: JobProcess) -> None:
        """A process is over."""
        job = (process.key.operation, process.key.index)
        if self._living.get(job) is process:
            del self._living[job]
        if process.exit_code == 0:
            self.done[job] = self.done.get(job, 0) + 1


class Host:
    """One machine: processes, what its runner keeps in files, and the runner while it lives."""

    def __init__(self, name: str, cores: int, loop: VirtualLoop, truth: Truth, tree: TreeName = _DEFAULT_TREE) -> None:
        self.name = name
        self.tree = tree
        self.tags: Sequence[str] = ()
        self.cores = cores
        self.loop = loop
        self.truth = truth
        self.clock = LoopClock(loop)
        self.living: dict[JobKey, JobProcess] = {}
        #: In files: ends that are not acknowledged, and jobs that perhaps run.
        self.kept: dict[JobKey, JobEnd] = {}
        self.perhaps_running: dict[JobKey, Run] = {}
        self.is_on = True
        #: Why no process can be started at the moment; empty: one can.
        self.fault = ""
        self.agent: SimulatedAgent | None = None
        self.agent_lives = 0
        self.runner: RunnerEngine | None = None
        self.to_agent: Callable[[ToAgent], None] | None = None
        #: On its way to an agent, oldest first.
        self._wire: deque[tuple[ToAgent, Callable[[ToAgent], None]]] = deque()
        self._wake: Any = None
        self._pid = 100

    # --- the runner -----------------------------------------------------------------------------------------------

    def start_runner(self) -> None:
        """Starts a runner where none lives: it ends what a former one left running, and tells its ends as lost."""
        if self.runner is not None:
            return
        self.runner = RunnerEngine()
        for process in list(self.living.values()):
            self._end(process, None, tell=False)
        for key, run in self.perhaps_running.items():
            end = JobEnd(
                operation=key.operation,
                index=key.index,
                attempt=key.attempt,
                allocation=run.allocation,  # type: ignore[arg-type]
                result=JobResult.LOST,
                reason="the runner died",
                started_at_ms=0,
                ended_at_ms=self.clock.wall_ms(),
            )
            self.kept[key] = end
        self.perhaps_running.clear()
        self._take(self.runner.on_recovered(list(self.kept.values()), self._now()))

    def kill_runner(self) -> None:
        """The runner dies; its jobs live on until another one finds them."""
        self.runner = None
        self.to_agent = None
        if self.agent is not None:
            self.agent.runner.reconnect()

    def lose_power(self) -> None:
        """Everything that runs is gone at once; files stay."""
        self.is_on = False
        self.kill_runner()
        for process in list(self.living.values()):
            self._end(process, None, tell=False)

    def tell(self, message: ToRunner) -> None:
        """The agent says something to the runner."""
        runner = self.runner
        if runner is None:
            return
        now = self._now()
        match message:
            case Hello():
                about = About("none", "simulated", 1)
                self._take(runner.on_hello(about, now))
            case Run():
                self._take(runner.on_run(message, now))
            case RunAhead():
                self._take(runner.on_run_ahead(message, now))
            case Recall():
                self._take(runner.on_recall(message, now))
            case Interrupt():
                self._take(runner.on_interrupt(message, now))
            case EndAll():
                self._take(runner.on_end_all(message, now))
            case NodeLease():
                self._take(runner.on_lease(message, now))
            case Acknowledge():
                self._take(runner.on_acknowledge(message.jobs, now))

    def _now(self) -> Moment:
        return self.clock.now()

    def _take(self, outcome: Outcome[None, RunnerEffect]) -> None:
        for effect in outcome.effects:
            match effect:
                case Launch(run):
                    self.perhaps_running[run.job] = run
                    self._later(_MOMENT_S, self._launch, run, self.runner)
                case Signal(job, number):
                    self._signal(job, number)
                case Keep(end):
                    self.kept[end.key] = end
                    self.perhaps_running.pop(end.key, None)
                case Drop(job):
                    self.kept.pop(job, None)
                    self.truth.on_forget(self.name, job)
                case SendToAgent(message):
                    if self.to_agent is not None:
                        self._wire.append((message, self.to_agent))
                        self._later(0.001, self._deliver)
                case EndRunner():
                    self.kill_runner()
        self._wake_when_due()

    def _deliver(self) -> None:
        """Gives the agent the oldest message: on a socket none overtakes another, however late both are read."""
        message, to_agent = self._wire.popleft()
        if self.to_agent is to_agent:
            to_agent(message)

    def _wake_when_due(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        due_ns = self.runner.next_wake_ns() if self.runner is not None else None
        if due_ns is not None:
            self._wake = self._later(max(0.0, due_ns / 1e9 - self.loop.time()), self._on_time)

    def _on_time(self) -> None:
        if self.runner is not None:
            self._take(self.runner.on_time(self._now()))

    # --- processes ------------------------------------------------------------------------------------------------

    def _launch(self, run: Run, runner: RunnerEngine | None) -> None:
        if runner is None or self.runner is not runner:
            return
        if self.fault:
            self._take(runner.on_not_started(run.job, self.fault, None, self._now()))
            return
        self._pid += 1
        process = JobProcess(run.job, self.name, self.loop.time(), run, self.tree)
        self.living[run.job] = process
        self.truth.on_start(process)
        self._later(min(float(run.argv[1]), self.truth.longest_s), self._finish, process)
        self._take(runner.on_started(run.job, self._pid, self._now()))

    def _finish(self, process: JobProcess) -> None:
        if process.ended_s is None:
            self._end(process, int(process.run.argv[2]) if len(process.run.argv) > 2 else 0)

    def _signal(self, key: JobKey, number: int) -> None:
        process = self.living.get(key)
        if process is None:
            return
        process.was_told_to_end = True
        if number == signal.SIGKILL or process.run.argv[0] != "stubborn":
            self._later(_MOMENT_S, self._obey, process, number)

    def _obey(self, process: JobProcess, number: int) -> None:
        if process.ended_s is not None:
            return
        exit_code = _EXIT_AFTER_SIGNAL.get(process.run.argv[0]) if number != signal.SIGKILL else None
        self._end(process, exit_code, signal_number=number if exit_code is None else None)

    def _end(
        self, process: JobProcess, exit_code: int | None, *, signal_number: int | None = None, tell: bool = True
    ) -> None:
        process.ended_s, process.exit_code = self.loop.time(), exit_code
        del self.living[process.key]
        self.truth.on_end(process)
        if tell and self.runner is not None:
            words = process.run.argv
            tail = "x" * int(words[3]) if len(words) > 3 else ""
            exit = JobExit(exit_code=exit_code, signal=signal_number, stderr_tail=tail)
            self._take(self.runner.on_exited(process.key, exit, self._now()))

    def _later(self, seconds: float, do: Callable[..., object], *args: Any) -> Any:
        return self.loop.call_later(seconds, do, *args, context=self.loop.world_context)


class SimulatedAgent(Agent):
    """The agent's real shell and engine, with a simulated host in place of sockets, signals and folders."""

    def __init__(self, runtime: Runtime[AgentSettings], host: Host) -> None:
        super().__init__(runtime, incarnation_of(host))
        self._host = host
        host.agent = self
        self.runner = _HostLink(host, runtime.clock, self._on_runner, self._on_trouble)  # type: ignore[assignment]

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._do(self.engine.on_start(self._shell.now()))
            for job in (self._watch_stop, self._keep_time, self.runner.run):
                tasks.start_soon(job)
            tasks.start_soon(self._speak, tasks)
            await self._leave.wait()
            tasks.cancel_scope.cancel()


class _HostLink:
    """What `RunnerLink` is to the agent, without a socket."""

    def __init__(
        self,
        host: Host,
        clock: Any,
        on_message: Callable[[ToAgent], None],
        on_trouble: Callable[[Trouble, str], None],
    ) -> None:
        self._host = host
        self._on_message = on_message
        self._on_trouble = on_trouble
        self._again = anyio.Event()

    async def run(self) -> None:
        """Speaks with the runner of the host, and starts one where none lives."""
        while True:
            self._again = anyio.Event()
            runner = self._host.runner
            if runner is None:
                await anyio.sleep(0.3)
                self._host.start_runner()
                runner = self._host.runner
            self._host.to_agent = self._in_process(self._on_message)
            self._host.tell(Hello("agent"))
            await self._again.wait()
            self._host.to_agent = None
            self._on_trouble(Trouble.RUNNER_AWAY, "the runner is gone and is being restarted")

    def send(self, message: ToRunner) -> None:
        """Says something to the runner, if it lives."""
        if self._host.to_agent is not None:
            self._host.tell(message)

    def flush(self) -> None:
        """What was told is on its way."""

    def reconnect(self) -> None:
        """Asks for the picture anew, of another runner if this one is gone."""
        self._again.set()

    def _in_process(self, on_message: Callable[[ToAgent], None]) -> Callable[[ToAgent], None]:
        loop, context = self._host.loop, self._host.loop.context_of_this_process()

        unread: deque[ToAgent] = deque()

        def read() -> None:
            on_message(unread.popleft())

        def hand_over(message: ToAgent) -> None:
            unread.append(message)
            loop.call_soon(read, context=context)

        return hand_over


def incarnation_of(host: Host) -> Incarnation:
    """Names of lives of the agent of one host, in their order."""
    host.agent_lives += 1
    return Incarnation(f"{host.agent_lives:016}-{zlib.crc32(host.name.encode()):08x}")
