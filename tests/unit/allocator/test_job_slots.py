"""Where each job of an operation is: the allocator's slots, alone and against chance."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.ids import OperationId, PoolName
from headrace.job_tasks import with_tasks
from headrace.wire.heartbeat import MOST_MEMORY_STEPS, JobSlot, Retry
from headrace.wire.ledger import LiveOperation
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.tasks import Task
from headrace_allocator.facts.job_slots import JobSlots


def live(
    jobs: int,
    block: int,
    term: int,
    done: bytes | None = None,
    attempts: list[Retry] | None = None,
    tasks: Sequence[int] = (),
    memory_on_oom: str = "",
) -> LiveOperation:
    spec = OperationSpec(PoolName("p"), ["true"], jobs, memory_on_oom=memory_on_oom)
    return LiveOperation(
        operation=OperationId("operation-1"),
        user="anna",
        spec=with_tasks(spec, [Task(f"t{n}", ["true"], count) for n, count in enumerate(tasks)]) if tasks else spec,
        state=OperationState.RUNNING,
        suspended=False,
        ephemeral_pool=False,
        started_at_ms=1,
        block=block,
        block_term=term,
        done=done if done is not None else bytes((block + 7) // 8),
        attempts=attempts or [],
    )


def test_jobs_of_a_block_of_our_own_term_go_out_at_once_low_indexes_first() -> None:
    slots = JobSlots.from_ledger(live(10, block=4, term=3), own_term=3)

    assert slots.take(3) == [JobSlot(0), JobSlot(1), JobSlot(2)]
    assert (slots.ready_count, slots.pending_count) == (1, 7)


def test_jobs_that_a_former_allocator_drew_are_in_doubt_until_nobody_can_hold_them() -> None:
    slots = JobSlots.from_ledger(live(10, block=4, term=2, done=b"\x02"), own_term=3)
    assert (slots.ready_count, slots.in_doubt()) == (0, [JobSlot(0), JobSlot(2), JobSlot(3)])

    assert slots.adopt(JobSlot(2))
    slots.release_doubt()

    assert slots.take(9) == [JobSlot(0), JobSlot(3)]
    assert slots.check() == []


def test_a_job_that_is_done_or_whose_attempt_was_given_up_is_not_adopted() -> None:
    slots = JobSlots.from_ledger(live(4, block=4, term=2, done=b"\x01", attempts=[Retry(1, 3)]), own_term=3)

    assert not slots.adopt(JobSlot(0))
    assert not slots.adopt(JobSlot(1, 2))
    assert slots.adopt(JobSlot(1, 3))


def test_a_job_that_ended_comes_back_only_by_the_ledgers_word() -> None:
    slots = JobSlots.from_ledger(live(1, block=1, term=3), own_term=3)
    slots.take(1)
    slots.end(0, 1)
    assert slots.pending_count == 0

    slots.retry(Retry(0, 2))
    slots.retry(Retry(0, 2))

    assert slots.take(5) == [JobSlot(0, 2)]


def test_jobs_of_a_task_go_out_low_indexes_first_and_without_those_that_are_kept_away() -> None:
    slots = JobSlots.from_ledger(live(7, block=6, term=3, tasks=[2, 5]), own_term=3)

    assert slots.take(2, without=[3], task=1) == [JobSlot(2), JobSlot(4)]
    assert [(slots.ready_of(task, without=[3]), slots.pending_of(task), slots.out_of(task)) for task in (0, 1)] == [
        (2, 2, 0),
        (1, 3, 2),
    ]
    slots.give_back([JobSlot(2)])
    assert slots.take(9, task=1) == [JobSlot(2), JobSlot(3), JobSlot(5)]
    assert slots.take(9, task=0) == [JobSlot(0), JobSlot(1)]
    assert slots.check() == []


def test_jobs_with_raised_memory_go_out_apart_from_the_others() -> None:
    slots = JobSlots.from_ledger(live(8, block=6, term=3, attempts=[Retry(4, 2, 2)], memory_on_oom="x2"), own_term=3)
    slots.release_doubt()
    for index in (1, 0):
        slots.end(index, 1)
        slots.retry(Retry(index, 2, 1))

    assert [(slots.ready_of(step), slots.pending_of(step)) for step in range(3)] == [(3, 5), (2, 2), (1, 1)]
    assert slots.take(9, without=[0], task=1) == [JobSlot(1, 2)]
    assert slots.take(9, task=0) == [JobSlot(2), JobSlot(3), JobSlot(5)]
    assert slots.take(9, task=2) == [JobSlot(4, 2)]
    slots.draw(8)
    assert [slots.pending_of(step) for step in range(3)] == [2, 1, 0]
    assert slots.check() == []


class Slots(RuleBasedStateMachine):
    """Every index is in exactly one place after whatever happens, and no attempt is given out twice."""

    @initialize(jobs=st.integers(1, 12), block=st.integers(0, 12), own=st.booleans(), first=st.integers(0, 12))
    def begin(self, jobs: int, block: int, own: bool, first: int) -> None:
        block = min(block, jobs)
        tasks = [first, jobs - first] if 0 < first < jobs else []
        self.raises = not tasks
        self.slots = JobSlots.from_ledger(live(jobs, block, 3 if own else 2, tasks=tasks), own_term=3)
        self.given: set[JobSlot] = set()
        self.out: list[JobSlot] = []

    @rule(count=st.integers(1, 4), second=st.booleans())
    def take(self, count: int, second: bool) -> None:
        has_tasks = bool(self.slots.tasks or self.slots.memory_steps)
        for slot in self.slots.take(count, task=int(second) if has_tasks else None):
            assert slot not in self.given
            assert not has_tasks or self.slots.task_of(slot.index) == second
            self.given.add(slot)
            self.out.append(slot)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), again=st.booleans())
    def end(self, data: st.DataObject, again: bool) -> None:
        slot = data.draw(st.sampled_from(self.out))
        self.out.remove(slot)
        for _ in range(1 + again):
            self.slots.end(slot.index, slot.attempt)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.out))
        self.out.remove(slot)
        self.given.discard(slot)
        self.slots.give_back([slot, slot])

    @rule(index=st.integers(0, 11), attempt=st.integers(1, 4), step=st.sampled_from([0, 0, 1]))
    def retry(self, index: int, attempt: int, step: int) -> None:
        if index < self.slots.block:
            newer = attempt > self.slots.attempt(index)
            self.slots.retry(Retry(index, attempt, step if self.raises else 0))
            if newer:
                self.out = [slot for slot in self.out if slot.index != index]

    @rule(index=st.integers(0, 11), attempt=st.integers(1, 4))
    def adopt(self, index: int, attempt: int) -> None:
        slot = JobSlot(index, attempt)
        if index < self.slots.job_count and self.slots.adopt(slot) and slot not in self.out:
            self.given.add(slot)
            self.out.append(slot)

    @rule(below=st.integers(0, 14))
    def draw(self, below: int) -> None:
        self.slots.draw(below)

    @rule()
    def release_doubt(self) -> None:
        self.slots.release_doubt()

    @invariant()
    def every_index_is_in_one_place(self) -> None:
        if hasattr(self, "slots"):
            assert self.slots.check() == []
            if self.slots.memory_steps:
                assert sum(map(self.slots.pending_of, range(MOST_MEMORY_STEPS + 1))) == self.slots.pending_count
            assert sorted(self.out, key=lambda slot: slot.index) == self.slots.out()


TestSlots = Slots.TestCase
