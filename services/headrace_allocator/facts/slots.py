"""The jobs of one operation: those that may be given out now, those that are out, those in doubt.

Every index of the operation is, at each moment, in exactly one place: not drawn yet (from the ledger's block on), fresh (drawn, never
given out by anybody), ready (to run again, or given back unused), out (in an allocation), in doubt (it may be out, but nobody said so
since this allocator began), or ended (its end was reported; a retry brings it back). `check` says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from headrace.wire.heartbeat import JobSlot
from headrace.wire.ledger import LiveOperation

__all__ = ["JobSlots"]


class JobSlots:
    """Jobs of one operation, as the allocator may give them out."""

    def __init__(self, job_count: int) -> None:
        self.job_count = job_count
        #: Indexes below may be out, by the ledger.
        self.block = 0
        self._next_fresh = 0
        self._ready: list[tuple[int, int]] = []
        self._ready_set: set[int] = set()
        #: index → attempt.
        self.out: dict[int, int] = {}
        self.in_doubt: dict[int, int] = {}
        #: Newest attempt known of indexes past their first.
        self._attempts: dict[int, int] = {}
        #: One byte per index below `block`: a million jobs take a megabyte.
        self._ended = bytearray()

    @classmethod
    def from_ledger(cls, live: LiveOperation, *, own_term: int) -> JobSlots:
        """Starts from what the ledger says of the operation. Indexes that a former allocator drew are in doubt."""
        slots = cls(live.spec.job_count)
        slots.draw(live.block)
        slots._attempts = {slot.index: slot.attempt for slot in live.attempts}
        if live.block_term == own_term and not live.done.strip(b"\0") and not live.attempts:
            return slots
        slots._next_fresh = live.block
        for index in range(live.block):
            if live.done[index >> 3] >> (index & 7) & 1:
                slots._ended[index] = 1
            else:
                slots.in_doubt[index] = slots.attempt(index)
        return slots

    @property
    def ready_count(self) -> int:
        """Jobs that can be given out at once."""
        return len(self._ready_set) + self.block - self._next_fresh

    @property
    def pending_count(self) -> int:
        """Jobs that wait for a place: ready, fresh, or not drawn yet."""
        return len(self._ready_set) + self.job_count - self._next_fresh

    def attempt(self, index: int) -> int:
        """The newest attempt known of an index."""
        return self._attempts.get(index, 1)

    def take(self, count: int) -> list[JobSlot]:
        """Gives out up to `count` jobs, retries and returned ones first, low indexes first."""
        taken: list[JobSlot] = []
        while len(taken) < count and self._ready_set:
            index, attempt = heapq.heappop(self._ready)
            if index in self._ready_set and attempt == self.attempt(index):
                self._ready_set.discard(index)
                taken.append(JobSlot(index, attempt))
        while len(taken) < count and self._next_fresh < self.block:
            taken.append(JobSlot(self._next_fresh, self.attempt(self._next_fresh)))
            self._next_fresh += 1
        for slot in taken:
            self.out[slot.index] = slot.attempt
        return taken

    def give_back(self, slots: Iterable[JobSlot]) -> None:
        """Jobs that were out and never ran are ready again."""
        for slot in slots:
            if self.out.get(slot.index) == slot.attempt:
                del self.out[slot.index]
                self._make_ready(slot.index, slot.attempt)

    def adopt(self, slot: JobSlot) -> bool:
        """An allocation that is not booked with this job holds it: it is out. False if the job must end there.

        That is so when another allocation holds it, and when that attempt was given up or is done.
        """
        index = slot.index
        if index >= self.block or self._ended[index] or slot.attempt < self.attempt(index):
            return False
        if index in self.out:
            return False
        self.in_doubt.pop(index, None)
        self._ready_set.discard(index)
        self._leave_fresh(index)
        self.out[index] = slot.attempt
        if slot.attempt > 1:
            self._attempts[index] = slot.attempt
        return True

    def end(self, index: int, attempt: int) -> None:
        """The end of a run was reported. It runs again only when the ledger says so."""
        if attempt < self.attempt(index):
            return
        self.out.pop(index, None)
        self.in_doubt.pop(index, None)
        self._ready_set.discard(index)
        if index < self.block:
            self._leave_fresh(index)
            self._ended[index] = 1

    def retry(self, slot: JobSlot) -> None:
        """The ledger recorded an end and lets the next attempt out."""
        if slot.attempt <= self.attempt(slot.index) or slot.index >= self.block:
            return
        self._attempts[slot.index] = slot.attempt
        self.out.pop(slot.index, None)
        self.in_doubt.pop(slot.index, None)
        self._leave_fresh(slot.index)
        self._ended[slot.index] = 0
        self._make_ready(slot.index, slot.attempt)

    def draw(self, below: int) -> None:
        """The ledger lets more indexes out."""
        self.block = max(self.block, min(below, self.job_count))
        self._ended.extend(bytes(self.block - len(self._ended)))

    def release_doubt(self) -> list[JobSlot]:
        """Nobody holds the jobs in doubt: they are ready again. The attempt is the same, since nothing of it can be running."""
        released = [JobSlot(index, attempt) for index, attempt in sorted(self.in_doubt.items())]
        self.in_doubt.clear()
        for slot in released:
            self._make_ready(slot.index, slot.attempt)
        return released

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        places: dict[int, list[str]] = {}
        for name, indexes in (
            ("ready", self._ready_set),
            ("out", self.out),
            ("in doubt", self.in_doubt),
            ("ended", [index for index, ended in enumerate(self._ended) if ended]),
        ):
            for index in indexes:
                places.setdefault(index, []).append(name)
        broken = [f"index {index} is {' and '.join(names)}" for index, names in places.items() if len(names) > 1]
        broken += [f"index {index} is nowhere" for index in range(self._next_fresh) if index not in places]
        broken += [f"fresh index {i} is {names[0]}" for i, names in places.items() if i >= self._next_fresh]
        return broken

    def _leave_fresh(self, index: int) -> None:
        """The index is fresh no more. Those before it that still are stay to be given out."""
        for between in range(self._next_fresh, index):
            self._make_ready(between, self.attempt(between))
        self._next_fresh = max(self._next_fresh, index + 1)

    def _make_ready(self, index: int, attempt: int) -> None:
        if index not in self._ready_set:
            self._ready_set.add(index)
            heapq.heappush(self._ready, (index, attempt))
        elif attempt > 1:
            heapq.heappush(self._ready, (index, attempt))
