"""The tree that has each job of an operation of several trees: no job is given out in two.

A tree draws indexes that no tree has, and keeps each until its run ends or the tree returns it. A job that runs again is anybody's.
One byte for each index holds its owner, so it has one at most. Invariants (`check`): jobs that are over have none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.ids import TreeName
from headrace.wire.log import IndexRun

_NOBODY: Final = 0
#: In place of an owner: the job is done, or failed for good.
_OVER: Final = 255
#: Runs of one draw: they travel in one event.
_MOST_RUNS: Final = 4_096


class OwnersRecord(msgspec.Struct, frozen=True, array_like=True):
    """The owners as a checkpoint keeps them."""

    packed: bytes
    trees: list[TreeName]
    changes: int


class IndexOwners:
    """The owners of one operation's indexes."""

    def __init__(self, job_count: int) -> None:
        self._job_count = job_count
        #: Of each index that was ever drawn the number of its tree, counted from 1, or one of the two above.
        self._owners = bytearray()
        self._trees: list[TreeName] = []
        #: Indexes that no tree has and that are not over.
        self.free = job_count
        #: How often trees drew or returned.
        self.changes = 0

    def next_free(self, most: int) -> list[IndexRun]:
        """Up to `most` indexes that nobody has, low ones first."""
        runs: list[IndexRun] = []
        below = 0
        while most and len(runs) < _MOST_RUNS:
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
        """The tree has those of these indexes that nobody had."""
        if tree not in self._trees:
            self._trees.append(tree)
        for run in runs:
            self._owners.extend(bytes(max(0, min(run.below, self._job_count) - len(self._owners))))
            self.free -= self._replace(run, _NOBODY, self._number(tree))
        self.changes += 1

    def give_back(self, tree: TreeName, runs: Sequence[IndexRun] = ()) -> None:
        """The tree has these indexes no more, or none at all without runs."""
        for run in runs or [IndexRun(0, len(self._owners))]:
            self.free += self._replace(run, self._number(tree), _NOBODY)
        self.changes += 1

    def end(self, index: int, *, runs_again: bool) -> None:
        """A run of the job ended. Whichever tree draws the job first runs it again."""
        had_owner = self._owners[index] != _NOBODY
        self._owners[index] = _NOBODY if runs_again else _OVER
        self.free += runs_again - (not had_owner)

    def count(self, tree: TreeName, runs: Sequence[IndexRun] = ()) -> int:
        """The number of indexes that a tree has, of these runs or of all."""
        number = self._number(tree)
        return sum(self._owners.count(number, run.first, run.below) for run in runs or [IndexRun(0, self._job_count)])

    def owner(self, index: int) -> TreeName | None:
        """The tree that has an index."""
        number = self._owners[index]
        return self._trees[number - 1] if 0 < number <= len(self._trees) else None

    def owning_trees(self) -> list[TreeName]:
        """The trees that have an index."""
        return [tree for tree in self._trees if self.count(tree)]

    def indexes(self, tree: TreeName) -> list[int]:
        """The indexes that a tree has."""
        number = self._number(tree)
        return [index for index, owner in enumerate(self._owners) if owner == number]

    def bits_of_others(self, tree: TreeName) -> bytes:
        """One bit per index that was ever drawn, lowest first in each byte: the tree does not have it."""
        if not self._owners:
            return b""
        digits = bytearray(b"1" * 256)
        digits[self._number(tree)] = ord("0")
        return int(self._owners[::-1].translate(digits), 2).to_bytes((len(self._owners) + 7) // 8, "little")

    def to_record(self) -> OwnersRecord:
        return OwnersRecord(zlib.compress(self._owners, 1), list(self._trees), self.changes)

    @classmethod
    def from_record(cls, job_count: int, record: OwnersRecord) -> IndexOwners:
        owners = cls(job_count)
        owners._owners = bytearray(zlib.decompress(record.packed))
        owners._trees, owners.changes = list(record.trees), record.changes
        owners.free = job_count - len(owners._owners) + owners._owners.count(_NOBODY)
        return owners

    def check(self, block: int, *, over: int) -> list[str]:
        """The broken invariants in words, for a ledger in which so many indexes were drawn and are over."""
        found = (len(self._owners), self._owners.count(_OVER), self.free)
        expected = (block, over, self._job_count - block + self._owners.count(_NOBODY))
        return [] if found == expected else [f"drawn, over and free are {found} by their owners, not {expected}"]

    def _number(self, tree: TreeName) -> int:
        return self._trees.index(tree) + 1 if tree in self._trees else _OVER - 1

    def _replace(self, run: IndexRun, owner: int, by: int) -> int:
        """Replaces an owner in a run. Returns how often."""
        piece = self._owners[run.first : run.below]
        self._owners[run.first : run.below] = piece.replace(bytes([owner]), bytes([by]))
        return piece.count(owner)
