"""The jobs of one operation, by job index: which may be given out now, which an allocation holds, and which are in doubt.

At any time every index of the operation is in exactly one state:

* not leased: the index is at or above the ledger's block.
* ready: the job can be given out now. Either its index is leased and no allocation holds the job, or the job is to run again.
* out: an allocation holds the job.
* in doubt (unconfirmed in the documentation): the job may be out, but no node has reported it since this allocator began.
* ended: the end of the job was reported. A retry makes the job ready again.
* elsewhere, only in an operation of several trees: another tree has the index, no tree has it, or the job is over. A retried job stays
  in this state until a tree leases it.

Invariant (`check`): the counts agree with the states.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Final

from headrace.wire.heartbeat import MOST_MEMORY_STEPS, JobSlot, Retry
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import IndexRun
from headrace.wire.tasks import ranges_of

_READY: Final = 0
_OUT: Final = 1
_IN_DOUBT: Final = 2
_ENDED: Final = 3
_ELSEWHERE: Final = 4
_BYTE: Final = [bytes([place]) for place in range(_ELSEWHERE + 1)]
#: Translates a digit into the state of an index that an earlier allocator leased. The digit `1` says that the job is done; it becomes the
#: state ended. Every other digit becomes the state in doubt. A million indexes are translated in one call, because a loop over them would
#: be too slow.
_PLACE_OF_DIGIT: Final = bytes(_ENDED if digit == ord("1") else _IN_DOUBT for digit in range(256))
#: Translates a state into a byte: 1 if the job has ended, else 0.
_IS_ENDED: Final = bytes(place == _ENDED for place in range(256))
#: Matches a run of ready jobs.
_ALL_READY: Final = re.compile(rb"\x00+")
#: Translates a state into a byte: 0 if the job has ended, else 1.
_NOT_ENDED: Final = bytes(place != _ENDED for place in range(256))


class JobSlots:
    """The jobs of one operation, as the allocator may give them out."""

    def __init__(self, job_count: int) -> None:
        self.job_count = job_count
        #: True if the operation has a gang. A gang of a single job is none, and neither is a gang in several trees: each tree gives out its
        #: part of the jobs independently.
        self.has_gang = False
        #: The numbers of the tasks whose jobs form the gang; None if all jobs of the operation do.
        self.gang_tasks: tuple[int, ...] | None = None
        #: False while another allocator leads. Newly leased jobs and retried jobs are then in doubt, because a node may run them.
        self.are_ours = True
        #: The state of each leased index, one byte each: a million jobs take a megabyte.
        self._places = bytearray()
        self._counts = [0, 0, 0, 0, 0]
        #: No index below this number is ready.
        self._first = 0
        #: Newest attempts of the indexes that are past their first attempt, as the ledger reported them when these slots were created.
        self._told: Sequence[Retry] = ()
        #: For an operation of several trees: number of indexes that no tree has. None for an operation of one tree.
        self.free: int | None = None
        #: Jobs of the gang that a node reported as ended, until the ledger retries them or records that they are done.
        self.unsettled: set[int] = set()
        #: Number of failed jobs of the gang that wait for their retry, without the jobs in `unsettled`. The ledger reports this number, and
        #: each retry that the ledger records lowers it.
        self.pausing = 0
        #: The indexes of each task; empty for an operation without tasks.
        self.tasks: list[range] = []
        #: Number of times that the memory of a job was raised, by index. Jobs with the same number count as a task.
        self.memory_steps: dict[int, int] = {}
        #: By task, the number of its leased jobs in each state; empty while all jobs have one size.
        self._of_task: list[list[int]] = []

    @classmethod
    def from_ledger(cls, live: LiveOperation, *, own_term: int) -> JobSlots:
        """Create the slots from what the ledger reports of the operation. Indexes that another allocator leased are in doubt.

        `own_term` is 0 while another allocator leads.
        """
        slots = cls(live.spec.job_count)
        slots.are_ours = own_term > 0
        slots.pausing = live.pausing
        slots.has_gang = live.spec.gang_job_count > 1 and live.free is None
        slots.gang_tasks = live.spec.gang_tasks if slots.has_gang else None
        slots.tasks = ranges_of(live.spec.tasks)
        slots._count_tasks()
        slots.draw(live.block)
        slots._told = live.attempts
        if live.spec.memory_on_oom:
            slots.memory_steps = {slot.index: slot.memory_step for slot in live.attempts if slot.memory_step}
        slots.free = live.free
        if live.block_term == own_term and not live.done.strip(b"\0") and not live.attempts:
            return slots
        places = _places_of(live.done)[: live.block]
        slots._places[:] = places if live.free is None else places.replace(_BYTE[_ENDED], _BYTE[_ELSEWHERE])
        ended = (int.from_bytes(live.done, "little") & ((1 << live.block) - 1)).bit_count()
        slots._counts = [0] * (_ELSEWHERE + 1)
        slots._counts[_ENDED if live.free is None else _ELSEWHERE] = ended
        slots._counts[_IN_DOUBT] = live.block - ended
        slots._count_tasks()
        return slots

    @cached_property
    def _attempts(self) -> dict[int, int]:
        """The newest known attempt of each index that is past its first attempt. The dict is built when it is first needed, because 100,000
        entries take 10 ms.
        """
        return {slot.index: slot.attempt for slot in self._told}

    @property
    def block(self) -> int:
        """Number of leased indexes. The jobs of all indexes below this number may have been given out, according to the ledger."""
        return len(self._places)

    @property
    def ready_count(self) -> int:
        """Number of jobs that can be given out at once."""
        return self._counts[_READY]

    @property
    def in_doubt_count(self) -> int:
        """Number of jobs in doubt: they may be out, but no node has reported them."""
        return self._counts[_IN_DOUBT]

    @property
    def pending_count(self) -> int:
        """Number of pending jobs: ready, or not leased yet."""
        return self.ready_count + (self.job_count - self.block if self.free is None else self.free)

    @property
    def gang_ready_count(self) -> int:
        """Number of jobs of the gang that can be given out at once."""
        return self.ready_count if self.gang_tasks is None else sum(map(self.ready_of, self.gang_tasks))

    @property
    def gang_pending_count(self) -> int:
        """Number of pending jobs of the gang."""
        return self.pending_count if self.gang_tasks is None else sum(map(self.pending_of, self.gang_tasks))

    @property
    def gang_in_doubt_count(self) -> int:
        """Number of jobs of the gang that are in doubt."""
        return self.in_doubt_count if self.gang_tasks is None else sum(map(self.in_doubt_of, self.gang_tasks))

    def is_of_gang(self, index: int) -> bool:
        """True if a job belongs to the gang of the operation."""
        return self.has_gang and (self.gang_tasks is None or self.task_of(index) in self.gang_tasks)

    def task_of(self, index: int) -> int:
        """Return the number of the task to which a job belongs; in an operation without tasks, the number of times that the job's memory
        was raised.
        """
        if not self.tasks:
            return self.memory_steps.get(index, 0)
        return next((task for task, indexes in enumerate(self.tasks) if index in indexes), 0)

    def ready_of(self, task: int, without: Collection[int] = ()) -> int:
        """Return the number of ready jobs of a task, not counting the ready jobs in `without`."""
        return self._of_task[task][_READY] - sum(self.task_of(index) == task for index in without)

    def pending_of(self, task: int) -> int:
        """Return the number of pending jobs of a task."""
        return self._of_task[task][_READY] + self._not_leased(range(self.block, self.job_count), task)

    def out_of(self, task: int) -> int:
        """Return the number of jobs of a task that allocations hold."""
        return self._of_task[task][_OUT]

    def in_doubt_of(self, task: int) -> int:
        """Return the number of jobs of a task that are in doubt."""
        return self._of_task[task][_IN_DOUBT]

    def attempt(self, index: int) -> int:
        """Return the newest known attempt of an index."""
        return self._attempts.get(index, 1)

    def is_out(self, index: int) -> bool:
        """True if an allocation holds the newest attempt of the job."""
        return index < self.block and self._places[index] == _OUT

    def out(self) -> list[JobSlot]:
        """Return the jobs that allocations hold."""
        return self._in(_OUT)

    def in_doubt(self, most: int | None = None) -> list[JobSlot]:
        """Return the jobs in doubt, or the first `most` of them."""
        return self._in(_IN_DOUBT, most)

    def is_ready(self, index: int) -> bool:
        """True if the job can be given out at once."""
        return index < self.block and self._places[index] == _READY

    def take(self, count: int, without: Collection[int] = (), task: int | None = None) -> list[JobSlot]:
        """Give out up to `count` ready jobs, low indexes first. Jobs in `without` are not given out, even if they are ready.

        In an operation with tasks, `task` is the number of the task from which the jobs are taken.
        """
        if task is not None:
            return self._take_of_task(count, without, task)
        taken: list[JobSlot] = []
        places, attempts = self._places, self._attempts
        for index in without:
            places[index] = _OUT
        for _ in range(min(count, self.ready_count - len(without))):
            index = places.index(_READY, self._first)
            self._first = index + 1
            places[index] = _OUT
            taken.append(JobSlot(index, attempts.get(index, 1)))
        for index in without:
            places[index] = _READY
            self._first = min(self._first, index)
        self._counts[_READY] -= len(taken)
        self._counts[_OUT] += len(taken)
        return taken

    def _take_of_task(self, count: int, without: Collection[int], task: int) -> list[JobSlot]:
        taken: list[JobSlot] = []
        for index in self._ready_in(task):
            if len(taken) == count:
                break
            if index not in without:
                self._put(index, _OUT)
                taken.append(JobSlot(index, self.attempt(index)))
        return taken

    def _ready_in(self, task: int) -> Iterator[int]:
        """Yield the ready jobs of a task, low indexes first. The caller may give out each job before it takes the next job from the
        iterator.
        """
        if task and not self.tasks:
            # Only `memory_steps` is searched: it names few jobs, while the operation may have a million jobs.
            yield from sorted(each for each, step in self.memory_steps.items() if step == task and self.is_ready(each))
            return
        indexes = self.tasks[task] if self.tasks else range(self.block)
        at = max(indexes.start, self._first)
        while (index := self._places.find(_READY, at, indexes.stop)) >= 0:
            at = index + 1
            if self.task_of(index) == task:
                yield index
            if self._first == index and self._places[index] != _READY:
                self._first = at

    def give_back(self, slots: Iterable[JobSlot]) -> None:
        """Make jobs ready again that were out and never ran."""
        for slot in slots:
            if self.is_out(slot.index) and slot.attempt == self.attempt(slot.index):
                self._put(slot.index, _READY)

    def may_hold(self, slot: JobSlot, *, ready: bool = False) -> bool:
        """True if a node may run this attempt of the job although no booked allocation holds the job. This is the case if the job is in
        doubt.

        If `ready` is True, it is also the case if the job is ready.
        """
        index = slot.index
        if index >= self.block or slot.attempt != self.attempt(index):
            return False
        return self._places[index] == _IN_DOUBT or (ready and self._places[index] == _READY)

    def adopt(self, slot: JobSlot, *, ready: bool = False) -> bool:
        """Mark a job as out, because a node reports the job in an allocation for which it was not booked.

        Returns False if the node cannot hold the job (`may_hold`). Then the allocation must end the job.
        """
        if not self.may_hold(slot, ready=ready):
            return False
        self._put(slot.index, _OUT)
        return True

    def end(self, index: int, attempt: int) -> None:
        """Record the end of an attempt. The job runs again only when the ledger records a retry."""
        places = self._places
        if index < len(places) and places[index] != _ELSEWHERE and attempt >= self._attempts.get(index, 1):
            if self.has_gang and places[index] != _ENDED and self.is_of_gang(index):
                self.unsettled.add(index)
            self._put(index, _ENDED)

    def retry(self, slot: Retry) -> None:
        """Record that the ledger allows the next attempt of a job. In an operation of several trees, any tree may then lease the job's
        index.
        """
        if slot.index < self.block and slot.attempt > self.attempt(slot.index):
            self._attempts[slot.index] = slot.attempt
            if slot.index in self.unsettled:
                self.unsettled.discard(slot.index)
            elif self.gang_tasks is None or self.is_of_gang(slot.index):
                self.pausing = max(0, self.pausing - 1)
            self._put(slot.index, self._let_out if self.free is None else _ELSEWHERE)
            self._raise_memory(slot)
            self.free = None if self.free is None else self.free + 1

    def draw(self, below: int) -> None:
        """Record that the ledger leased all indexes under `below`."""
        drawn = range(self.block, max(self.block, min(below, self.job_count)))
        self._places.extend(bytes([self._let_out]) * len(drawn))
        self._counts[self._let_out] += len(drawn)
        for task, counts in enumerate(self._of_task):
            counts[self._let_out] += self._not_leased(drawn, task)

    def share(self, below: int, runs: Iterable[IndexRun], free: int) -> None:
        """Record which indexes are leased: each index under `below` to some tree, and the indexes in `runs` to this tree.

        `free` is the number of indexes that no tree has.
        """
        drawn = max(0, min(below, self.job_count) - self.block)
        self._places.extend(bytes([_ELSEWHERE]) * drawn)
        self._counts[_ELSEWHERE] += drawn
        self.free = free
        for index in _indexes(runs):
            if self._places[index] == _ELSEWHERE:
                self._put(index, self._let_out)

    def lose(self, index: int) -> None:
        """Record that this tree no longer has a job: another tree has it, or no tree."""
        self._put(index, _ELSEWHERE)

    def return_ready(self, most: int) -> list[IndexRun]:
        """Take out up to `most` ready jobs, high indexes first, to release them to other trees. Returns their indexes."""
        runs: list[IndexRun] = []
        index = self.block
        for _ in range(min(most, self.ready_count)):
            index = self._places.rfind(_READY, 0, index)
            self._put(index, _ELSEWHERE)
            if runs and runs[-1].first == index + 1:
                runs[-1] = IndexRun(index, runs[-1].below)
            else:
                runs.append(IndexRun(index, index + 1))
        return runs

    def release_doubt(self) -> None:
        """Make the jobs in doubt ready, since no node holds them. Each job keeps its attempt number, because no process of the attempt can
        be running.
        """
        if not self.in_doubt_count:
            return
        self._first = min(self._first, self._places.index(_IN_DOUBT))
        self._places = self._places.replace(_BYTE[_IN_DOUBT], _BYTE[_READY])
        self._counts[_READY] += self._counts[_IN_DOUBT]
        self._counts[_IN_DOUBT] = 0
        self._count_tasks()

    def release(self, runs: Iterable[IndexRun]) -> None:
        """Make jobs in doubt ready, because the earlier allocator recorded that it never gave out the jobs of `runs`."""
        for run in runs:
            piece = self._places[run.first : run.below]
            released = piece.count(_IN_DOUBT)
            if released:
                self._places[run.first : run.below] = piece.replace(_BYTE[_IN_DOUBT], _BYTE[_READY])
                self._counts[_READY] += released
                self._counts[_IN_DOUBT] -= released
                self._first = min(self._first, run.first)
        self._count_tasks()

    def check(self) -> list[str]:
        """Return a text for each broken invariant; empty if all hold."""
        broken = []
        if self._counts != [self._places.count(place) for place in range(_ELSEWHERE + 1)]:
            broken.append("counts of job indexes differ from the states of the job indexes")
        if self._places.find(_READY, 0, self._first) >= 0:
            broken.append(f"a job index below {self._first} is ready")
        if self._of_task != self._counted_tasks():
            broken.append("counts of the job indexes of tasks differ from the states of the job indexes")
        return broken

    @property
    def _let_out(self) -> int:
        """The state of a newly leased job."""
        return _READY if self.are_ours else _IN_DOUBT

    def _in(self, place: int, most: int | None = None) -> list[JobSlot]:
        return [JobSlot(index, self.attempt(index)) for index in islice(_positions(self._places, place), most)]

    def _count_tasks(self) -> None:
        """Count the jobs of each task in each state again, after many jobs changed at once."""
        self._of_task = self._counted_tasks()

    def _counted_tasks(self) -> list[list[int]]:
        states = range(_ELSEWHERE + 1)
        if self.memory_steps:
            found = [[0] * len(states) for _ in range(MOST_MEMORY_STEPS + 1)]
            found[0] = [self._places.count(state) for state in states]
            for index, step in self.memory_steps.items():
                found[0][self._places[index]] -= 1
                found[step][self._places[index]] += 1
            return found
        return [[self._places.count(state, each.start, each.stop) for state in states] for each in self.tasks]

    def _not_leased(self, indexes: range, task: int) -> int:
        """Return how many of these indexes belong to a task. None of the indexes is leased yet, so the memory of no such job was raised."""
        if not self.tasks:
            return 0 if task else len(indexes)
        of_task = self.tasks[task]
        return len(range(max(of_task.start, indexes.start), min(of_task.stop, indexes.stop)))

    def _raise_memory(self, slot: Retry) -> None:
        before = self.memory_steps.get(slot.index, 0)
        if slot.memory_step == before:
            return
        self.memory_steps[slot.index] = slot.memory_step
        if not self._of_task:
            self._count_tasks()
            return
        place = self._places[slot.index]
        self._of_task[before][place] -= 1
        self._of_task[slot.memory_step][place] += 1

    def _put(self, index: int, place: int) -> None:
        self._counts[self._places[index]] -= 1
        self._counts[place] += 1
        if self._of_task:
            of_task = self._of_task[self.task_of(index)]
            of_task[self._places[index]] -= 1
            of_task[place] += 1
        self._places[index] = place
        if place == _READY:
            self._first = min(self._first, index)


def not_given_out(slots: JobSlots) -> list[IndexRun]:
    """Return the jobs that no node has: ready jobs, and jobs that are not leased as far as this allocator knows."""
    # The jobs of a gang start together, so they are handed over all together or not at all.
    if slots.has_gang and slots.gang_tasks is None and slots.ready_count < slots.block:
        return []
    places = slots._places if slots.gang_tasks is None else _without_part_of_gang(slots, slots.gang_tasks)
    runs = [IndexRun(*found.span()) for found in _ALL_READY.finditer(places)]
    if slots.free is None and slots.block < slots.job_count:
        runs.append(IndexRun(slots.block, slots.job_count))
    return runs


def _without_part_of_gang(slots: JobSlots, tasks: Iterable[int]) -> bytearray:
    """Return the state of each leased job. If not all leased jobs of the gang are ready, none of them is returned as ready."""
    places = slots._places[:]
    of_gang = [range(slots.tasks[n].start, min(slots.tasks[n].stop, slots.block)) for n in tasks]
    if slots.gang_ready_count < sum(map(len, of_gang)):
        for each in of_gang:
            places[each.start : each.stop] = _BYTE[_OUT] * len(each)
    return places


def is_whole(slots: JobSlots) -> bool:
    """True if every job of the gang that is not done may be given out now, or is out."""
    is_known = slots.free is None and slots.block >= slots.job_count and not slots.gang_in_doubt_count
    return is_known and not slots.unsettled and not slots.pausing


def has_ended(slots: JobSlots, index: int, attempt: int) -> bool:
    """True if this attempt is known to be over, or a newer attempt is known."""
    if index >= slots.block or attempt > slots.attempt(index):
        return False
    return attempt < slots.attempt(index) or slots._places[index] in (_ENDED, _ELSEWHERE)


def not_ended(slots: JobSlots, done: bytes) -> list[int]:
    """Return the leased indexes whose jobs are done according to the ledger, but whose end is not recorded here. `done` has one bit
    per index.
    """
    places = _places_of(done)[: slots.block].translate(_IS_ENDED)
    here = slots._places[: len(places)].translate(_NOT_ENDED)
    both = int.from_bytes(places) & int.from_bytes(here)
    return list(_positions(both.to_bytes(len(places)), 1))


def newer_attempts(slots: JobSlots, told: Iterable[Retry]) -> list[Retry]:
    """Return the attempts that are newer than the attempts known here."""
    known = slots._attempts
    return [slot for slot in told if slot.attempt > known.get(slot.index, 1)]


def _indexes(runs: Iterable[IndexRun]) -> Iterator[int]:
    return chain.from_iterable(range(run.first, run.below) for run in runs)


def _places_of(done: bytes) -> bytes:
    digits = f"{int.from_bytes(done, 'little'):0{8 * len(done)}b}" if done else ""
    return digits.encode()[::-1].translate(_PLACE_OF_DIGIT)


def _positions(places: bytes | bytearray, place: int) -> Iterator[int]:
    """Yield the positions at which the byte `place` occurs. Skipping other bytes costs next to nothing."""
    at = places.find(place)
    while at >= 0:
        yield at
        at = places.find(place, at + 1)
