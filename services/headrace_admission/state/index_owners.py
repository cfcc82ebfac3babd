"""The owner of each job index: the tree that has leased the index.

Only two kinds of operations have owners: operations in several trees, and operations whose jobs follow the jobs of another operation.
The owners ensure that no job is assigned in two trees, and that a job that follows another job is assigned only after the followed
job has completed.

A tree leases indexes that no tree holds. The tree keeps an index until the attempt of the job ends or the tree releases the index. If
the job is retried, any tree may lease the index. One byte for each index names its owner, so an index has at most one owner.
Invariants (`check`): finished jobs have no owner.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.ids import TreeName
from headrace.wire.log import IndexRun

_NOBODY: Final = 0
#: Value in place of an owner: the job waits for the job with the same index in another operation.
_AWAITS: Final = 253
#: Table for `bytes.translate`, which turns one digit for each followed job into the first value for the job that follows it: 1 (the
#: followed job has completed) into free, 0 into waiting.
_OWNER_OF_DIGIT: Final = bytes(_NOBODY if digit == ord("1") else _AWAITS for digit in range(256))
#: Value in place of an owner: the job is completed, or failed for good.
_OVER: Final = 255
#: Upper bound of runs of indexes in one lease, which are sent in one event.
MOST_RUNS: Final = 4_096


class OwnersRecord(msgspec.Struct, frozen=True, array_like=True):
    """The owners as a checkpoint stores them."""

    packed: bytes
    trees: list[TreeName]
    changes: int


class IndexOwners:
    """The owners of one operation's indexes."""

    def __init__(self, job_count: int, completed: bytes | None = None) -> None:
        """Begin with no owner for any index.

        `completed` is given if the jobs follow jobs of another operation. It has one bit for each job of the other operation, lowest
        index first in each byte: 1 if that job has completed.
        """
        self._job_count = job_count
        #: For each index that was ever leased: the number of the tree that holds it, counted from 1, or `_NOBODY`, `_AWAITS` or
        #: `_OVER`. If jobs follow other jobs, all indexes are here.
        self._owners = (
            bytearray() if completed is None else bytearray(_digits(completed, job_count).translate(_OWNER_OF_DIGIT))
        )
        self._trees: list[TreeName] = []
        #: Number of jobs that wait for jobs of another operation.
        self.awaiting = self._owners.count(_AWAITS)
        #: Number of indexes that a tree may lease: no tree holds them, and their jobs are not finished and wait for no other job.
        self.free = job_count - self.awaiting
        #: Number of times that trees leased or released indexes.
        self.changes = 0

    def next_free(self, most: int) -> list[IndexRun]:
        """Return up to `most` indexes that no tree holds, lowest first."""
        runs: list[IndexRun] = []
        below = 0
        while most and len(runs) < MOST_RUNS:
            first = self._owners.find(_NOBODY, below)
            if first < 0:
                first = len(self._owners)
                below = min(first + most, self._job_count)
                return [*runs, IndexRun(first, below)] if below > first else runs
            below = first + 1
            while below < len(self._owners) and self._owners[below] == _NOBODY and below - first < most:
                below += 1
            runs.append(IndexRun(first, below))
            most -= below - first
        return runs

    def give(self, tree: TreeName, runs: Iterable[IndexRun]) -> None:
        """Lease to a tree those indexes among `runs` that no tree holds."""
        if tree not in self._trees:
            self._trees.append(tree)
        for run in runs:
            self._owners.extend(bytes(max(0, min(run.below, self._job_count) - len(self._owners))))
            self.free -= self._replace(run, _NOBODY, self._number(tree))
        self.changes += 1

    def give_back(self, tree: TreeName, runs: Sequence[IndexRun] = ()) -> None:
        """Release these indexes of a tree, or all its indexes if `runs` is empty."""
        for run in runs or [IndexRun(0, len(self._owners))]:
            self.free += self._replace(run, self._number(tree), _NOBODY)
        self.changes += 1

    @property
    def size_bytes(self) -> int:
        return len(self._owners)

    def awaits(self, index: int) -> bool:
        """True if the job waits for a job of another operation."""
        return index < len(self._owners) and self._owners[index] == _AWAITS

    def waiting_in_vain(self, completed: bytes) -> list[int]:
        """Return, in order, the indexes of jobs that still wait although the jobs that they wait for have completed.

        `completed` has one bit for each of the jobs that they wait for, lowest index first in each byte: 1 if that job has completed.
        """
        digits = _digits(completed, self._job_count)
        return [run for found in re.finditer(b"1+", digits) for run in range(*found.span()) if self.awaits(run)]

    def release(self, runs: Iterable[IndexRun]) -> None:
        """Record that the jobs of these indexes need not wait for other jobs any more."""
        for run in runs:
            released = self._replace(run, _AWAITS, _NOBODY)
            self.awaiting -= released
            self.free += released
        self.changes += 1

    def end(self, index: int, *, runs_again: bool) -> None:
        """Record that an attempt of the job ended. If the job is retried, the first tree that leases the index runs it."""
        had_owner = self._owners[index] != _NOBODY
        self._owners[index] = _NOBODY if runs_again else _OVER
        self.free += runs_again - (not had_owner)

    def count(self, tree: TreeName, runs: Sequence[IndexRun] = ()) -> int:
        """Return the number of indexes in `runs` that a tree holds; if `runs` is empty, of all indexes."""
        number = self._number(tree)
        return sum(self._owners.count(number, run.first, run.below) for run in runs or [IndexRun(0, self._job_count)])

    def owner(self, index: int) -> TreeName | None:
        """Return the tree that holds an index, or None."""
        number = self._owners[index]
        return self._trees[number - 1] if 0 < number <= len(self._trees) else None

    def owning_trees(self) -> list[TreeName]:
        """Return the trees that hold any index."""
        return [tree for tree in self._trees if self.count(tree)]

    def indexes(self, tree: TreeName) -> list[int]:
        """Return the indexes that a tree holds."""
        number = self._number(tree)
        return [index for index, owner in enumerate(self._owners) if owner == number]

    def bits_of_others(self, tree: TreeName, below: int) -> bytes:
        """Return one bit for each index below `below`, lowest first in each byte: 1 if the tree does not hold the index."""
        owners = self._owners[:below]
        if not owners:
            return b""
        digits = bytearray(b"1" * 256)
        digits[self._number(tree)] = ord("0")
        return int(owners[::-1].translate(digits), 2).to_bytes((len(owners) + 7) // 8, "little")

    def to_record(self) -> OwnersRecord:
        return OwnersRecord(zlib.compress(self._owners, 1), list(self._trees), self.changes)

    @classmethod
    def from_record(cls, job_count: int, record: OwnersRecord) -> IndexOwners:
        owners = cls(job_count)
        owners._owners = bytearray(zlib.decompress(record.packed))
        owners._trees, owners.changes = list(record.trees), record.changes
        owners.free = job_count - len(owners._owners) + owners._owners.count(_NOBODY)
        owners.awaiting = owners._owners.count(_AWAITS)
        return owners

    def check(self, block: int, *, over: int) -> list[str]:
        """Return a description of each broken invariant, for a ledger with `block` leased indexes and `over` finished jobs."""
        known = len(self._owners)
        found = (known if known < self._job_count else block, self._owners.count(_OVER), self.free, self.awaiting)
        free = self._job_count - known + self._owners.count(_NOBODY)
        expected = (block, over, free, self._owners.count(_AWAITS))
        return (
            []
            if found == expected
            else [f"by owners, {found} indexes are leased, over, free and awaiting; by the ledger, {expected}"]
        )

    def _number(self, tree: TreeName) -> int:
        return self._trees.index(tree) + 1 if tree in self._trees else _OVER - 1

    def _replace(self, run: IndexRun, owner: int, by: int) -> int:
        """Within a run of indexes, replace the owner `owner` by the owner `by`. Return the number of indexes that changed."""
        piece = self._owners[run.first : run.below]
        self._owners[run.first : run.below] = piece.replace(bytes([owner]), bytes([by]))
        return piece.count(owner)


def runs_of(indexes: Iterable[int]) -> list[IndexRun]:
    """Return indexes, which must be in order, as runs."""
    runs: list[IndexRun] = []
    for index in indexes:
        if runs and runs[-1].below == index:
            runs[-1] = IndexRun(runs[-1].first, index + 1)
        else:
            runs.append(IndexRun(index, index + 1))
    return runs


def _digits(bits: bytes, count: int) -> bytes:
    """Return the first `count` bits as digits, lowest index first."""
    return f"{int.from_bytes(bits, 'little'):0{count}b}".encode()[::-1][:count]
