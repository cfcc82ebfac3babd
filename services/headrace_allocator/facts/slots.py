"""The jobs of one operation: those that may be given out now, those that are out, those in doubt.

Every index of the operation is, at each moment, in exactly one place: not drawn yet (from the ledger's block on), ready (drawn and not
out, or to run again), out (in an allocation), in doubt (it may be out, but nobody said so since this allocator began), ended (its
end was reported; a retry brings it back), or elsewhere (of an operation of several trees: another tree has it, or none, or it is over;
a retry brings it there). Invariant (`check`): the counts are those of the places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Final

from headrace.wire.heartbeat import JobSlot
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import IndexRun

_READY: Final = 0
_OUT: Final = 1
_IN_DOUBT: Final = 2
_ENDED: Final = 3
_ELSEWHERE: Final = 4
_BYTE: Final = [bytes([place]) for place in range(_ELSEWHERE + 1)]
#: Makes the place of an index that a former allocator drew of a digit that says whether it is done. A million indexes are looked at
#: in one piece, so that it must not be one by one.
_PLACE_OF_DIGIT: Final = bytes(_ENDED if digit == ord("1") else _IN_DOUBT for digit in range(256))
#: Makes a one bit of each place where a job has ended here, or by the ledger; and of each other place.
_IS_ENDED: Final = bytes(place == _ENDED for place in range(256))
_ALL_READY: Final = re.compile(rb"\x00+")
_NOT_ENDED: Final = bytes(place != _ENDED for place in range(256))


class JobSlots:
    """Jobs of one operation, as the allocator may give them out."""

    def __init__(self, job_count: int) -> None:
        self.job_count = job_count
        #: True if all of its jobs start together.
        self.is_of_gang = False
        #: False while another allocator leads: the jobs that it draws, or that run again, may be out on any node.
        self.are_ours = True
        #: The place of each drawn index, one byte each: a million jobs take a megabyte.
        self._places = bytearray()
        self._counts = [0, 0, 0, 0, 0]
        #: No index below is ready.
        self._first = 0
        #: Attempts past their first, as the ledger told of them at the start.
        self._told: Sequence[JobSlot] = ()
        #: Of an operation of several trees: the indexes that no tree has.
        self.free: int | None = None
        #: Of a gang: jobs that ended by a node's word, until the ledger lets them run again or says that they are done.
        self.unsettled: set[int] = set()
        #: Others that wait until they may run again, as the ledger told at the start.
        self.pausing = 0

    @classmethod
    def from_ledger(cls, live: LiveOperation, *, own_term: int) -> JobSlots:
        """Starts from what the ledger says of the operation. Indexes that another allocator drew are in doubt.

        `own_term` is 0 while another one leads.
        """
        slots = cls(live.spec.job_count)
        slots.are_ours = own_term > 0
        slots.pausing = live.pausing
        slots.draw(live.block)
        slots._told = live.attempts
        slots.free = live.free
        if live.block_term == own_term and not live.done.strip(b"\0") and not live.attempts:
            return slots
        places = _places_of(live.done)[: live.block]
        slots._places[:] = places if live.free is None else places.replace(_BYTE[_ENDED], _BYTE[_ELSEWHERE])
        ended = (int.from_bytes(live.done, "little") & ((1 << live.block) - 1)).bit_count()
        slots._counts = [0] * (_ELSEWHERE + 1)
        slots._counts[_ENDED if live.free is None else _ELSEWHERE] = ended
        slots._counts[_IN_DOUBT] = live.block - ended
        return slots

    @cached_property
    def _attempts(self) -> dict[int, int]:
        """The newest attempt known of indexes past their first. It is made when it is needed: a hundred thousand take 10 ms."""
        return {slot.index: slot.attempt for slot in self._told}

    @property
    def block(self) -> int:
        """Indexes below may be out, by the ledger."""
        return len(self._places)

    @property
    def ready_count(self) -> int:
        """Jobs that can be given out at once."""
        return self._counts[_READY]

    @property
    def in_doubt_count(self) -> int:
        """Jobs that may be out without anybody having said so."""
        return self._counts[_IN_DOUBT]

    @property
    def pending_count(self) -> int:
        """Jobs that wait for a place: ready, or not drawn yet."""
        return self.ready_count + (self.job_count - self.block if self.free is None else self.free)

    def attempt(self, index: int) -> int:
        """The newest attempt known of an index."""
        return self._attempts.get(index, 1)

    def is_out(self, index: int) -> bool:
        """True if an allocation holds the job, in its newest attempt."""
        return index < self.block and self._places[index] == _OUT

    def out(self) -> list[JobSlot]:
        """The jobs that allocations hold."""
        return self._in(_OUT)

    def in_doubt(self, most: int | None = None) -> list[JobSlot]:
        """The jobs that may be out without anybody having said so, or the first `most` of them."""
        return self._in(_IN_DOUBT, most)

    def take(self, count: int) -> list[JobSlot]:
        """Gives out up to `count` jobs, low indexes first."""
        taken: list[JobSlot] = []
        places, attempts = self._places, self._attempts
        for _ in range(min(count, self.ready_count)):
            index = places.index(_READY, self._first)
            self._first = index + 1
            places[index] = _OUT
            taken.append(JobSlot(index, attempts.get(index, 1)))
        self._counts[_READY] -= len(taken)
        self._counts[_OUT] += len(taken)
        return taken

    def give_back(self, slots: Iterable[JobSlot]) -> None:
        """Jobs that were out and never ran are ready again."""
        for slot in slots:
            if self.is_out(slot.index) and slot.attempt == self.attempt(slot.index):
                self._put(slot.index, _READY)

    def may_hold(self, slot: JobSlot, *, ready: bool = False) -> bool:
        """True if a node may run this job though it is booked nowhere: the job is in doubt, in this very attempt.

        With `ready` a job that is ready counts as well.
        """
        index = slot.index
        if index >= self.block or slot.attempt != self.attempt(index):
            return False
        return self._places[index] == _IN_DOUBT or (ready and self._places[index] == _READY)

    def adopt(self, slot: JobSlot, *, ready: bool = False) -> bool:
        """An allocation that is not booked with this job holds it: it is out. False if that cannot be (`may_hold`): it must end there."""
        if not self.may_hold(slot, ready=ready):
            return False
        self._put(slot.index, _OUT)
        return True

    def end(self, index: int, attempt: int) -> None:
        """The end of a run was reported. It runs again only when the ledger says so."""
        places = self._places
        if index < len(places) and places[index] != _ELSEWHERE and attempt >= self._attempts.get(index, 1):
            if self.is_of_gang and places[index] != _ENDED:
                self.unsettled.add(index)
            self._put(index, _ENDED)

    def retry(self, slot: JobSlot) -> None:
        """The ledger recorded an end and lets the next attempt out: of several trees to the one that draws it."""
        if slot.index < self.block and slot.attempt > self.attempt(slot.index):
            self._attempts[slot.index] = slot.attempt
            if slot.index in self.unsettled:
                self.unsettled.discard(slot.index)
            else:
                self.pausing = max(0, self.pausing - 1)
            self._put(slot.index, self._let_out if self.free is None else _ELSEWHERE)
            self.free = None if self.free is None else self.free + 1

    def draw(self, below: int) -> None:
        """The ledger lets more indexes out."""
        drawn = max(0, min(below, self.job_count) - self.block)
        self._places.extend(bytes([self._let_out]) * drawn)
        self._counts[self._let_out] += drawn

    def share(self, below: int, runs: Iterable[IndexRun], free: int) -> None:
        """The ledger lets indexes under `below` out to several trees, of which this one has `runs` in addition."""
        drawn = max(0, min(below, self.job_count) - self.block)
        self._places.extend(bytes([_ELSEWHERE]) * drawn)
        self._counts[_ELSEWHERE] += drawn
        self.free = free
        for index in _indexes(runs):
            if self._places[index] == _ELSEWHERE:
                self._put(index, self._let_out)

    def lose(self, index: int) -> None:
        """The ledger does not count this job to this tree."""
        self._put(index, _ELSEWHERE)

    def return_ready(self, most: int) -> list[IndexRun]:
        """Takes out up to so many jobs that are ready, high indexes first, for other trees."""
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
        """Nobody holds the jobs in doubt: they are ready again. The attempt is the same, since nothing of it can be running."""
        if not self.in_doubt_count:
            return
        self._first = min(self._first, self._places.index(_IN_DOUBT))
        self._places = self._places.replace(_BYTE[_IN_DOUBT], _BYTE[_READY])
        self._counts[_READY] += self._counts[_IN_DOUBT]
        self._counts[_IN_DOUBT] = 0

    def release(self, runs: Iterable[IndexRun]) -> None:
        """Of these jobs none was ever given out: those in doubt are ready."""
        for run in runs:
            piece = self._places[run.first : run.below]
            released = piece.count(_IN_DOUBT)
            if released:
                self._places[run.first : run.below] = piece.replace(_BYTE[_IN_DOUBT], _BYTE[_READY])
                self._counts[_READY] += released
                self._counts[_IN_DOUBT] -= released
                self._first = min(self._first, run.first)

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        broken = []
        if self._counts != [self._places.count(place) for place in range(_ELSEWHERE + 1)]:
            broken.append("counts differ from the places")
        if self._places.find(_READY, 0, self._first) >= 0:
            broken.append(f"an index below {self._first} is ready")
        return broken

    @property
    def _let_out(self) -> int:
        """The place of a job that the ledger lets out."""
        return _READY if self.are_ours else _IN_DOUBT

    def _in(self, place: int, most: int | None = None) -> list[JobSlot]:
        return [JobSlot(index, self.attempt(index)) for index in islice(_positions(self._places, place), most)]

    def _put(self, index: int, place: int) -> None:
        self._counts[self._places[index]] -= 1
        self._counts[place] += 1
        self._places[index] = place
        if place == _READY:
            self._first = min(self._first, index)


def not_given_out(slots: JobSlots) -> list[IndexRun]:
    """The jobs that no node has: those that are ready, and those that were not drawn so far as is known."""
    if slots.is_of_gang and slots.ready_count < slots.block:
        # Its jobs start together, so that it is settled as a whole.
        return []
    runs = [IndexRun(*found.span()) for found in _ALL_READY.finditer(slots._places)]
    if slots.free is None and slots.block < slots.job_count:
        runs.append(IndexRun(slots.block, slots.job_count))
    return runs


def is_whole(slots: JobSlots) -> bool:
    """True if each job that is not done may be given out now, or is given out."""
    is_known = slots.free is None and slots.block >= slots.job_count and not slots.in_doubt_count
    return is_known and not slots.unsettled and not slots.pausing


def has_ended(slots: JobSlots, index: int, attempt: int) -> bool:
    """True if this attempt of a job is known to be over, or a newer one is known."""
    if index >= slots.block or attempt > slots.attempt(index):
        return False
    return attempt < slots.attempt(index) or slots._places[index] in (_ENDED, _ELSEWHERE)


def not_ended(slots: JobSlots, done: bytes) -> list[int]:
    """The drawn indexes that are done, by one bit each, and have not ended here."""
    places = _places_of(done)[: slots.block].translate(_IS_ENDED)
    here = slots._places[: len(places)].translate(_NOT_ENDED)
    both = int.from_bytes(places) & int.from_bytes(here)
    return list(_positions(both.to_bytes(len(places)), 1))


def newer_attempts(slots: JobSlots, told: Iterable[JobSlot]) -> list[JobSlot]:
    """Those attempts that are newer than what is known here."""
    known = slots._attempts
    return [slot for slot in told if slot.attempt > known.get(slot.index, 1)]


def _indexes(runs: Iterable[IndexRun]) -> Iterator[int]:
    return chain.from_iterable(range(run.first, run.below) for run in runs)


def _places_of(done: bytes) -> bytes:
    digits = f"{int.from_bytes(done, 'little'):0{8 * len(done)}b}" if done else ""
    return digits.encode()[::-1].translate(_PLACE_OF_DIGIT)


def _positions(places: bytes | bytearray, place: int) -> Iterator[int]:
    """The place of a byte. What is passed over costs next to nothing."""
    at = places.find(place)
    while at >= 0:
        yield at
        at = places.find(place, at + 1)
