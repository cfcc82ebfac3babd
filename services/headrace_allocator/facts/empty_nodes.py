"""Nodes that run nothing, as the allocator of their tree has recorded it for the allocator after it.

A new allocator waits for every enrolled node that may run a job which a former allocator gave out. A host that is off keeps it waiting
for a whole lease. So the allocator records the nodes of which it knows that they run nothing: their agent stopped in order, they fell
silent with nothing on them, or their lease ended and the ledger has the loss of all their jobs.

Why no job runs twice by that:

1. A node is recorded only by an allocator that heard it in its own term, or saw its lease end, and that has given it nothing since
   (`lost_nodes.runs_nothing`). An order that the node may still obey, and an end that the ledger may not have, keep it out of the record.
2. A node whose name may stand in the record gets no job. When it comes back the allocator has the record written without it, and gives
   it jobs once that is durable. While a write is under way, or its outcome is not known, the names before and after it count.
3. The record is one value that is written by compare-and-set and carries the term of its writer. A new allocator writes it with its own
   term before it reads anything else. From then on each write of the former allocator is refused, so that one that was frozen can neither
   record a node to which its successor gave jobs, nor take a node out of the record in order to give it jobs.
4. So the record that a new allocator reads names no node to which any former allocator gave jobs after the node's name came into it. What
   is lost or cut out of the record only makes the new allocator wait.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from headrace.ids import NodeName

#: Names in the record, quotes and commas included. Nodes beyond that are waited for.
_MOST_BYTES: Final = 128 * 1024
_BYTES_BESIDE: Final = 3


class EmptyNodes:
    """The names that are to stand in the record, and those that may stand there now."""

    def __init__(self) -> None:
        self._wanted: set[NodeName] = set()
        self._bytes = 0
        #: True if other names are wanted than were written last.
        self._changed = False
        #: What stands in the record by the last write that is known to be durable.
        self._recorded: frozenset[NodeName] = frozenset()
        #: What was written since, with an unknown outcome; and what is being written, None if nothing is.
        self._unsure: frozenset[NodeName] = frozenset()
        self._writing: frozenset[NodeName] | None = None
        #: All names that may stand in the record. Their nodes get no job.
        self.names: frozenset[NodeName] = frozenset()

    def begin(self, names: Collection[NodeName]) -> None:
        """The record has these names, in our own term."""
        for name in names:
            self.add(name)
        # All of them, though fewer may be kept.
        self._recorded = self.names = frozenset(names)
        self._changed = self._wanted != self.names

    def add(self, name: NodeName) -> None:
        """The node runs nothing."""
        more = len(name) + _BYTES_BESIDE
        if name not in self._wanted and self._bytes + more <= _MOST_BYTES:
            self._wanted.add(name)
            self._bytes += more
            self._changed = True

    def discard(self, name: NodeName) -> None:
        """The node is back, or is no more."""
        if name in self._wanted:
            self._wanted.remove(name)
            self._bytes -= len(name) + _BYTES_BESIDE
            self._changed = True

    def holds(self, name: NodeName) -> bool:
        """True if the node is to stand in the record."""
        return name in self._wanted

    def next_write(self) -> list[NodeName] | None:
        """Returns the names to be written now, None if the record has them or a write is under way. Then call `written`."""
        if self._writing is not None or not self._changed:
            return None
        self._changed = False
        self._writing = frozenset(self._wanted)
        self.names |= self._writing
        return sorted(self._writing)

    def written(self, *, durable: bool) -> Collection[NodeName]:
        """The write is over, durably or with an unknown outcome. Returns the names that cannot stand in the record any more."""
        assert self._writing is not None
        before, written, self._writing = self.names, self._writing, None
        if durable:
            self._recorded, self._unsure = written, frozenset()
        else:
            self._unsure |= written
            self._changed = True
        self.names = self._recorded | self._unsure
        return before - self.names
