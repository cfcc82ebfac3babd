"""Four GPU devices, twelve jobs of one and three of two, while the agent and the runner are killed at any moment."""

from __future__ import annotations

from collections import deque
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationState, Forget, JobResult, JobSlot, Start
from headrace_agent.effects import SendToRunner, Trouble
from tests.support.agent_desk import Desk, RunnerBehindAWire, fake_gpus, start

_ONES, _TWOS = 12, 3
_NAMES = fake_gpus()
#: One step: a job ends, or the agent or the runner is killed. Which job ends is drawn beside it.
_STEPS = st.lists(st.tuples(st.sampled_from("eeeeeeeear"), st.integers(0, 7)), min_size=30, max_size=80)


class Host:
    """A host with four devices, and an allocator that gives it jobs as its GPUs get free and runs lost jobs again."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.runner = RunnerBehindAWire()
        self.lives = count(1)
        self.allocations = count(1)
        self.pending = deque((index, 1) for index in range(len(sizes)))
        self.done: set[int] = set()
        self.used: set[str] = set()
        self.desk = self._agent()

    def end_a_job(self, which: int) -> None:
        keys = list(self.runner.live)
        if keys:
            self.runner.end(keys[which % len(keys)], JobResult.COMPLETED, self.desk.now())

    def kill_agent(self) -> None:
        now_ns = self.desk.now_ns
        self.desk = self._agent()
        self.desk.now_ns = now_ns

    def kill_runner(self) -> None:
        self.desk.do(self.desk.engine.on_trouble(Trouble.RUNNER_AWAY, "killed", self.desk.now()))
        for key in list(self.runner.live):
            self.runner.end(key, JobResult.LOST, self.desk.now())
        self.runner.pid += 1
        self._connect()

    def turn(self) -> None:
        """Deliver all messages, then answer one heartbeat with starts for the GPUs that it shows as free."""
        self._deliver()
        beat = self.desk.next_beat()
        for end in beat.ends:
            if end.result is JobResult.COMPLETED:
                self.done.add(end.index)
            else:
                self.pending.append((end.index, end.attempt + 1))
        over = [found.id for found in beat.allocations if found.state is AllocationState.ENDED]
        used = Resources.sum(found.resources for found in beat.allocations if found.id not in over)
        self.desk.answer(*self._starts(len(_NAMES.offered) - used.gpu), forget=Forget([e.key for e in beat.ends], over))
        self._deliver()

    def check(self) -> None:
        held = [name for job in self.runner.live.values() for name in job.run.gpus]
        assert len(held) == len(set(held)), f"two jobs have one device: {self.runner.live}"
        assert set(held) <= set(_NAMES.offered)
        for key, job in self.runner.live.items():
            assert len(job.run.gpus) == self.sizes[key.index]
            assert job.run.environment["HEADRACE_GPUS"] == ",".join(job.run.gpus)
        self.used |= set(held)

    def _starts(self, free: int) -> list[Start]:
        starts = []
        for _ in range(len(self.pending)):
            index, attempt = self.pending.popleft()
            if self.sizes[index] > free:
                self.pending.append((index, attempt))
                continue
            free -= self.sizes[index]
            order = start(f"a{next(self.allocations)}", [index], cpu=10, gpu=self.sizes[index])
            order.slots[0] = JobSlot(index, attempt)
            starts.append(order)
        return starts

    def _agent(self) -> Desk:
        desk = self.desk = Desk(gpus=_NAMES, incarnation=f"life-{next(self.lives):06}", picture=False)
        self._connect()
        desk.enrolled()
        return desk

    def _connect(self) -> None:
        self.runner.drop()
        self.seen = len(self.desk.effects)
        self.desk.picture(
            list(self.runner.live.values()), [told.end for told in self.runner.over.values()], self.runner.pid
        )

    def _deliver(self) -> None:
        while True:
            told = [effect.message for effect in self.desk.effects[self.seen :] if isinstance(effect, SendToRunner)]
            self.seen = len(self.desk.effects)
            for message in told:
                self.runner.obey(message, self.desk)
            if not self.runner.to_agent:
                return
            while self.runner.to_agent:
                self.desk.do(self.desk.engine.on_runner(self.runner.to_agent.popleft(), self.desk.now()))


@settings(deadline=None)
@given(sizes=st.permutations([1] * _ONES + [2] * _TWOS), steps=_STEPS)
def test_running_jobs_have_disjoint_devices_as_many_as_asked_and_all_devices_are_used(
    sizes: list[int], steps: list[tuple[str, int]]
) -> None:
    host = Host(sizes)
    for step, which in steps:
        if step == "e":
            host.end_a_job(which)
        elif step == "a":
            host.kill_agent()
        else:
            host.kill_runner()
        host.check()
        host.turn()
        host.check()
    for _ in range(200):
        if len(host.done) == len(sizes):
            break
        host.end_a_job(0)
        host.turn()
        host.check()

    assert host.done == set(range(len(sizes)))
    assert host.used == set(_NAMES.offered)
