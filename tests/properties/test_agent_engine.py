"""An agent between an allocator that loses, repeats and delays, a runner that is killed, and restarts of its own."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.ids import AllocationId, Incarnation
from headrace.resources import Resources
from headrace.wire.heartbeat import (
    AllocationState,
    Extend,
    Forget,
    JobKey,
    JobResult,
    JobSlot,
    Nudge,
    Orders,
    Start,
)
from headrace.wire.nodes import StopMode
from headrace_agent.effects import Leave, SendToRunner, Trouble
from tests.support.agent_desk import NODE, Desk, RunnerBehindAWire, fake_gpus, job, start, take_back

_LIVING = (AllocationState.WAITING, AllocationState.RUNNING)
_OPERATIONS = ("operation-1", "operation-2")
_small = st.integers(0, 7)
_GPUS = fake_gpus()


class AgentBetween(RuleBasedStateMachine):
    """The machine of all that can happen."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(cpu=400, gpus=_GPUS)
        self.runner = RunnerBehindAWire()
        self.desk.picture(runs_ahead=True)
        self.seen = 0
        self.lives = 1
        self.indexes = 0
        self.allocations = 0
        #: Slots of orders that were obeyed.
        self.given: set[JobKey] = set()
        #: Of those: forgotten as the allocator wished, or not in the picture of a later life.
        self.gone: set[JobKey] = set()
        self.old: list[Orders] = []
        self._collect()

    # The allocator.

    @rule(
        starts=st.lists(st.tuples(st.sampled_from([50, 100, 200, 300, 500]), st.integers(1, 4), _small), max_size=3),
        extends=st.lists(st.tuples(_small, st.integers(1, 40)), max_size=2),
        take_backs=st.lists(st.tuples(_small, st.sampled_from([None, 0, 3_000])), max_size=2),
        forgets=st.booleans(),
        again=st.booleans(),
        higher=st.booleans(),
    )
    def answer(
        self,
        starts: list[tuple[int, int, int]],
        extends: list[tuple[int, int]],
        take_backs: list[tuple[int, int | None]],
        forgets: bool,
        again: bool,
        higher: bool,
    ) -> None:
        if not self._in_flight():
            return
        self.desk.term += higher
        told = self._orders(starts, extends, take_backs, self._forget() if forgets else Forget())
        self._send(told)
        if again:
            self._refused(told)

    @rule(unit=st.floats(0, 1, exclude_max=True))
    def answer_is_lost(self, unit: float) -> None:
        if self._in_flight():
            self.old.append(self._orders([(100, 1, 0)], [], [], Forget()))
            self.desk.lose(unit)
            self._collect()

    @precondition(lambda self: self.old and self.desk.beats)
    @rule(which=_small, how=st.sampled_from(["late", "term", "life", "node"]))
    def orders_of_another_time_come(self, which: int, how: str) -> None:
        told = self.old[which % len(self.old)]
        if how == "term" and self.desk.engine.term > 1:
            told = msgspec.structs.replace(told, seq=self.desk.beat.seq, term=self.desk.engine.term - 1)
        elif how == "life":
            told = msgspec.structs.replace(told, seq=self.desk.beat.seq, incarnation=Incarnation("nobody"))
        elif how == "node":
            told = msgspec.structs.replace(told, seq=self.desk.beat.seq, node="node-2")
        elif (
            told.incarnation == self.desk.identity.incarnation and told.seq == self.desk.beat.seq and self._in_flight()
        ):
            return  # that one is not late
        self._refused(told)

    @rule(term=st.integers(0, 3))
    def nudge(self, term: int) -> None:
        self.desk.do(self.desk.engine.on_nudge(Nudge(NODE, term), self.desk.now()))
        self._collect()

    # The runner.

    @rule(most=st.integers(1, 5))
    def messages_arrive_at_the_runner(self, most: int) -> None:
        for _ in range(min(most, len(self.runner.to_runner))):
            self.runner.obey(self.runner.to_runner.popleft(), self.desk)

    @rule(most=st.integers(1, 5))
    def messages_arrive_at_the_agent(self, most: int) -> None:
        for _ in range(min(most, len(self.runner.to_agent))):
            self.desk.do(self.desk.engine.on_runner(self.runner.to_agent.popleft(), self.desk.now()))
            self._collect()

    @precondition(lambda self: self.runner.live)
    @rule(which=_small, result=st.sampled_from([JobResult.COMPLETED, JobResult.FAILED]))
    def a_job_ends(self, which: int, result: JobResult) -> None:
        keys = list(self.runner.live)
        self.runner.end(keys[which % len(keys)], result, self.desk.now())

    @rule()
    def the_connection_breaks(self) -> None:
        self.desk.do(self.desk.engine.on_trouble(Trouble.RUNNER_AWAY, "gone", self.desk.now()))
        self._collect()
        self._connect()

    @rule()
    def the_runner_is_killed(self) -> None:
        self.desk.do(self.desk.engine.on_trouble(Trouble.RUNNER_AWAY, "killed", self.desk.now()))
        self._collect()
        for key in list(self.runner.live):
            self.runner.end(key, JobResult.LOST, self.desk.now())
        self.runner.pid += 1
        self._connect()

    # The agent.

    @rule(ms=st.integers(1, 3_000))
    def time_passes(self, ms: int) -> None:
        self.desk.advance(ms)
        self._collect()

    @rule(words=st.sampled_from(["", "disk full"]))
    def trouble_comes_and_goes(self, words: str) -> None:
        self.desk.do(self.desk.engine.on_trouble(Trouble.LOGS, words, self.desk.now()))
        self._collect()

    @rule(mode=st.sampled_from([StopMode.WAIT, StopMode.INTERRUPT, StopMode.LEAVE, StopMode.KILL]), soon=st.booleans())
    def the_agent_stops_or_is_killed_and_another_comes(self, mode: StopMode, soon: bool) -> None:
        if not soon:
            self.desk.do(self.desk.engine.on_stop(mode, self.desk.now()))
            self._collect()
        self.lives += 1
        term, now_ns = self.desk.term, self.desk.now_ns
        self.desk = Desk(cpu=400, gpus=_GPUS, incarnation=f"life-{self.lives:06}", picture=False)
        self.desk.term, self.desk.now_ns = term, now_ns
        self.seen = 0
        self._connect()
        present = self._present()
        self.gone |= self.given - present.keys()

    # Invariants.

    @invariant()
    def the_allocations_are_in_order(self) -> None:
        assert not self.desk.engine.check()

    @invariant()
    def never_more_than_the_host_has(self) -> None:
        booked = Resources.sum(
            found.resources for found in self.desk.engine.held.by_id.values() if found.job is not None
        )
        running = Resources.sum(self.runner.room[key] for key in self.runner.live)

        assert self.desk.engine.held.total.dominates(booked)
        assert self.desk.engine.held.total.dominates(running)

    @invariant()
    def every_running_job_has_devices_of_its_own_as_many_as_it_asked_for(self) -> None:
        held = [name for kept in self.runner.live.values() for name in kept.run.gpus]
        booked = self.desk.engine.held.by_job

        assert len(held) == len(set(held))
        assert set(held) <= set(_GPUS.offered)
        assert all(
            len(kept.run.gpus) == booked[key].resources.gpu for key, kept in self.runner.live.items() if key in booked
        )

    @invariant()
    def never_a_job_twice(self) -> None:
        assert all(count == 1 for count in self.runner.starts.values())
        assert self.runner.starts.keys() <= self.given, "a job runs that no obeyed order named"

    @invariant()
    def every_slot_is_in_one_place(self) -> None:
        present = self._present()
        for key in self.given:
            places = present.get(key, [])
            firm = [place for place in places if place != "given back"]
            assert len(firm) <= 1, f"{key} is {places}"
            assert places or key in self.gone, f"{key} is nowhere"

    @invariant()
    def never_two_heartbeats_in_flight_nor_a_number_twice(self) -> None:
        numbers = [beat.seq for beat in self.desk.beats]

        assert numbers == list(range(1, len(numbers) + 1))

    def teardown(self) -> None:
        """Eventually, when all goes well again, nothing is left over."""
        self.desk.do(self.desk.engine.on_trouble(Trouble.LOGS, "", self.desk.now()))
        for _ in range(400):
            self._collect()
            while self.runner.to_runner or self.runner.to_agent:
                self.messages_arrive_at_the_runner(1_000)
                self.messages_arrive_at_the_agent(1_000)
            for key in list(self.runner.live):
                self.runner.end(key, JobResult.COMPLETED, self.desk.now())
            self.messages_arrive_at_the_agent(1_000)
            if self._in_flight():
                self._send(self._orders([], [], [], self._forget()))
            else:
                self.time_passes(500)
            held = self.desk.engine.held
            if not held.by_id and not held.ends and not self.runner.live and not self.runner.over:
                return
            if self.desk.left:
                return
        raise AssertionError(f"left over: {self.desk.engine.figures()}, {self.runner.live}, {self.runner.over}")

    # Means.

    def _in_flight(self) -> bool:
        return self.desk.engine.pulse.in_flight and not self.desk.left

    def _present(self) -> dict[JobKey, list[str]]:
        places: dict[JobKey, list[str]] = {}
        held = self.desk.engine.held
        for found in held.by_id.values():
            if found.job is not None:
                places.setdefault(found.job.key, []).append("running")
            for slot in found.unstarted:
                place = "unstarted" if found.state in _LIVING else "given back"
                places.setdefault(JobKey(found.operation, slot.index, slot.attempt), []).append(place)
        for key in self.given:
            if key in held.ends:
                places.setdefault(key, []).append("ended")
        return places

    def _fresh(self, count: int) -> list[int]:
        self.indexes += count
        return list(range(self.indexes - count, self.indexes))

    def _returned(self, operation: str) -> list[int]:
        """Slots that an allocator may hand out again: the newest heartbeat gave them back."""
        return [
            slot.index
            for found in self.desk.beat.allocations
            if found.operation == operation and found.state in (AllocationState.CLOSING, AllocationState.ENDED)
            for slot in found.unstarted
        ]

    def _orders(
        self,
        starts: list[tuple[int, int, int]],
        extends: list[tuple[int, int]],
        take_backs: list[tuple[int, int | None]],
        forget: Forget,
    ) -> Orders:
        told: list[Start] = []
        for cpu, count, kind in starts:
            operation = _OPERATIONS[kind % 2]
            returned = self._returned(operation) if kind & 4 else []
            self.allocations += 1
            indexes = [*returned[:10], *self._fresh(count)]
            known = operation in self.desk.engine.held.specs and kind & 2
            gpu = self.allocations % 3
            name = f"a{self.allocations}"
            told.append(start(name, indexes, cpu=cpu, gpu=gpu, operation=operation, with_spec=not known))
        names = [found.id for found in self.desk.beat.allocations] or [AllocationId("nobody")]
        living = [found.id for found in self.desk.beat.allocations if found.state is not AllocationState.ENDED] or names
        return Orders(
            node=NODE,
            incarnation=self.desk.identity.incarnation,
            seq=self.desk.beat.seq,
            term=self.desk.term,
            next_heartbeat_ms=500,
            start=told,
            extend=[
                Extend(living[which % len(living)], [JobSlot(index) for index in self._fresh(count)])
                for which, count in extends
            ],
            take_back=[take_back(names[which % len(names)], timeout_ms) for which, timeout_ms in take_backs],
            forget=forget,
        )

    def _forget(self) -> Forget:
        """As a good allocator does: only what the heartbeat showed."""
        ended = [found.id for found in self.desk.beat.allocations if found.state is AllocationState.ENDED]
        return Forget([end.key for end in self.desk.beat.ends], ended)

    def _send(self, told: Orders) -> None:
        held = self.desk.engine.held
        before = self.desk.engine.void
        # An allocation that is given back when the answer comes, and that the answer forgets, is gone from the node.
        returned = {
            JobKey(held.by_id[name].operation, slot.index, slot.attempt)
            for name in told.forget.allocations
            if name in held.by_id
            for slot in held.by_id[name].unstarted
        }
        operations = {found.id: found.operation for found in held.by_id.values()}
        self.desk.do(self.desk.engine.on_orders(told, self.desk.now()))
        self.old.append(told)
        if self.desk.engine.void > before:
            self.desk.lose()
            self._collect()
            return
        named = {JobKey(order.operation, slot.index, slot.attempt) for order in told.start for slot in order.slots}
        named |= {
            job(slot.index, operations[order.allocation])
            for order in told.extend
            if order.allocation in operations
            for slot in order.slots
        }
        self.given |= named
        self.gone |= {key for key in returned | set(told.forget.ends) if key not in self._present()}
        self._collect()

    def _refused(self, told: Orders) -> None:
        before = self._everything()
        effects = self.desk.do(self.desk.engine.on_orders(told, self.desk.now()))

        assert not [effect for effect in effects if isinstance(effect, (SendToRunner, Leave))]
        assert before == self._everything()
        self._collect()

    def _everything(self) -> object:
        engine = self.desk.engine
        return (engine.held.report(), list(engine.held.ends.within(10**9)), engine.pulse.applied, engine.term)

    def _connect(self) -> None:
        self.runner.drop()
        self.desk.picture(
            list(self.runner.live.values()),
            [told.end for told in self.runner.over.values()],
            self.runner.pid,
            runs_ahead=True,
        )
        self._collect()

    def _collect(self) -> None:
        """What the engine told the runner since the last time is on its way."""
        for effect in self.desk.effects[self.seen :]:
            if isinstance(effect, SendToRunner):
                self.runner.to_runner.append(effect.message)
        self.seen = len(self.desk.effects)


TestAgentBetween = AgentBetween.TestCase
TestAgentBetween.settings = settings(stateful_step_count=60, deadline=None)
