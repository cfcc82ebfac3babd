"""The engine against any order of events: its own invariants, and those that a watcher can see from outside."""

import signal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.runtime.engine import NS_PER_MS, Moment, Outcome
from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.effects import About, JobExit, Keep, Launch, RunnerEffect, SendToAgent, Signal
from headrace_agent.runner.engine import RunnerEngine
from headrace_agent.runner.protocol import EndAll, FullReport, Interrupt, NodeLease, Recall, RunAhead
from tests.unit.runner.builders import a_job, a_run, at

JOBS = st.integers(0, 4)
TIMEOUTS_MS = st.integers(0, 3_000)
GRACE_MS = 1_000


class RunnerMachine(RuleBasedStateMachine):
    """Plays host and agent at once, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = RunnerEngine(most_jobs=3)
        self.passed_ms = 0
        #: Jobs whose program runs.
        self.alive: set[JobKey] = set()
        #: Jobs whose process is on its way to its program.
        self.launched: set[JobKey] = set()
        self.due_ms: dict[JobKey, int] = {}
        #: Time limits of jobs, from their start; and when the limits of running jobs are reached.
        self.limits: dict[JobKey, int] = {}
        self.limits_at_ms: dict[JobKey, int] = {}
        self.killed: set[JobKey] = set()
        self.unacknowledged: set[JobKey] = set()
        self.ending = False
        self.leased = False

    @property
    def now(self) -> Moment:
        return at(self.passed_ms)

    def perform(self, outcome: Outcome[None, RunnerEffect]) -> None:
        for effect in outcome.effects:
            match effect:
                case Launch(run):
                    assert run.job not in self.alive | self.unacknowledged, "started twice"
                    assert not self.ending, "started although everything ends"
                    assert self.leased, "started without a lease"
                    self.launched.add(run.job)
                    self.limits.pop(run.job, None)
                    if run.time_limit_ms is not None:
                        self.limits[run.job] = run.time_limit_ms
                case Signal(job, number):
                    assert job in self.alive or (job in self.launched and number == signal.SIGKILL)
                    if number == signal.SIGKILL:
                        self.killed.add(job)
                case Keep(end):
                    assert end.key not in self.alive
                    self.unacknowledged.add(end.key)
                case _:
                    pass

    @rule(index=JOBS, limit_ms=st.none() | TIMEOUTS_MS)
    def run(self, index: int, limit_ms: int | None) -> None:
        run = a_run(index, time_limit_ms=limit_ms, interruption_timeout_ms=GRACE_MS)
        self.perform(self.engine.on_run(run, self.now))

    @rule(index=JOBS, limit_ms=st.none() | TIMEOUTS_MS)
    def run_ahead(self, index: int, limit_ms: int | None) -> None:
        run = a_run(index, time_limit_ms=limit_ms, interruption_timeout_ms=GRACE_MS)
        self.perform(self.engine.on_run_ahead(RunAhead(run), self.now))

    @rule()
    def recall(self) -> None:
        self.perform(self.engine.on_recall(Recall("alloc-1"), self.now))

    @rule(index=JOBS, works=st.booleans())
    def start(self, index: int, works: bool) -> None:
        job = a_job(index)
        if job in self.launched:
            self.launched.discard(job)
            if works:
                self.alive.add(job)
                self.killed.discard(job)
                self.perform(self.engine.on_started(job, 100 + index, self.now))
                if job in self.limits:
                    self.limits_at_ms[job] = self.passed_ms + self.limits[job]
            else:
                self.due_ms.pop(job, None)
                self.killed.discard(job)
                self.perform(self.engine.on_not_started(job, "no", 127, self.now))

    @rule(index=JOBS, code=st.integers(0, 2))
    def exit(self, index: int, code: int) -> None:
        job = a_job(index)
        if job in self.alive:
            self.alive.discard(job)
            self.due_ms.pop(job, None)
            self.limits_at_ms.pop(job, None)
            self.killed.discard(job)
            self.perform(self.engine.on_exited(job, JobExit(exit_code=code), self.now))

    @rule(index=JOBS, timeout_ms=TIMEOUTS_MS)
    def interrupt(self, index: int, timeout_ms: int) -> None:
        job = a_job(index)
        outcome = self.engine.on_interrupt(Interrupt(job, timeout_ms, "why"), self.now)
        if job in self.alive | self.launched:
            due_ms = self.passed_ms + timeout_ms
            self.due_ms[job] = min(due_ms, self.due_ms.get(job, due_ms))
        self.perform(outcome)

    @rule(timeout_ms=TIMEOUTS_MS)
    def end_all(self, timeout_ms: int) -> None:
        self.ending = True
        self.perform(self.engine.on_end_all(EndAll(timeout_ms, "all"), self.now))

    @rule(length_ms=st.integers(-500, 3_000) | st.just(100_000))
    def lease(self, length_ms: int) -> None:
        self.leased = True
        until = self.now.steady_ns + length_ms * NS_PER_MS
        self.perform(self.engine.on_lease(NodeLease(until), self.now))

    @rule(indexes=st.lists(JOBS))
    def acknowledge(self, indexes: list[int]) -> None:
        self.unacknowledged -= {a_job(index) for index in indexes}
        self.perform(self.engine.on_acknowledge([a_job(index) for index in indexes], self.now))

    @rule(length_ms=st.integers(0, 4_000))
    def wait(self, length_ms: int) -> None:
        self.passed_ms += length_ms
        self.perform(self.engine.on_time(self.now))
        for job in [job for job, at_ms in self.limits_at_ms.items() if at_ms <= self.passed_ms]:
            del self.limits_at_ms[job]
            due_ms = self.passed_ms + GRACE_MS
            self.due_ms[job] = min(due_ms, self.due_ms.get(job, due_ms))
        late = [job for job, due_ms in self.due_ms.items() if due_ms <= self.passed_ms and job not in self.killed]
        assert not late, f"not killed in time: {late}"

    @invariant()
    def holds(self) -> None:
        assert not self.engine.check()
        [told] = self.engine.on_hello(About("none", "", 1), self.now).effects
        assert isinstance(told, SendToAgent)
        assert isinstance(told.message, FullReport)
        assert {kept.run.job for kept in told.message.running} == self.alive | self.launched
        assert {end.key for end in told.message.ended} == self.unacknowledged


TestRunnerMachine = RunnerMachine.TestCase
