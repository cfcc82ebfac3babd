"""The record of nodes that run nothing, which an allocator keeps for the next allocator of its tree.

A new allocator waits for every enrolled node that may run a job which an earlier allocator gave out. A host that is off would keep the new
allocator waiting for a whole lease. So the allocator records the nodes that it knows to run nothing. These are nodes whose agent was
stopped and had nothing left to run, nodes that fell silent while they held nothing, and nodes whose lease ended and whose lost jobs are all
recorded in the ledger.

Why no job runs twice because of the record:

1. An allocator records a node only if it received the node's heartbeat in its own term or saw the node's lease end, and has given the
   node nothing since (`lost_nodes.runs_nothing`). A node is not recorded while it may still obey an order, or while the ledger may lack
   the end of one of its jobs.
2. A node whose name may be in the record gets no job. When the node comes back, the allocator writes the record without it, and gives
   it jobs once that write is durable. While a write is under way or its outcome is unknown, the names before and the names after the write
   count.
3. The record is one value that is written by compare-and-set and carries the term of its writer. A new allocator writes the record with
   its own term before it reads anything else. From then on each write of an earlier allocator is refused. So an earlier allocator that
   was frozen can neither record a node to which its successor gave jobs, nor take a node out of the record to give it jobs.
4. So the record that a new allocator reads names no node to which any earlier allocator gave jobs after the name was recorded. If names
   are lost or do not fit into the record, the new allocator only waits longer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from headrace.ids import NodeName

#: Upper bound of the bytes of all names in the record, quotes and commas included. Nodes whose names do not fit are not recorded, so the
#: next allocator waits for them.
_MOST_BYTES: Final = 128 * 1024
#: Bytes that the quotes and the comma of one name take.
_BYTES_BESIDE: Final = 3


class EmptyNodes:
    """The names that the record should contain, and the names that it may contain now."""

    def __init__(self) -> None:
        self._wanted: set[NodeName] = set()
        self._bytes = 0
        #: True if the wanted names differ from the names that were written last.
        self._changed = False
        #: Names in the last record that is known to be durable.
        self._recorded: frozenset[NodeName] = frozenset()
        #: Names in all writes after the record `_recorded`; the outcome of these writes is unknown.
        self._unsure: frozenset[NodeName] = frozenset()
        #: Names of the write under way; None if no write is under way.
        self._writing: frozenset[NodeName] | None = None
        #: All names that the record may contain now. These nodes get no job.
        self.names: frozenset[NodeName] = frozenset()

    def begin(self, names: Collection[NodeName]) -> None:
        """Start with the names that were in the record when this allocator wrote its term to it."""
        for name in names:
            self.add(name)
        # All these names may be in the record, even if `add` did not accept all of them as wanted names.
        self._recorded = self.names = frozenset(names)
        self._changed = self._wanted != self.names

    def add(self, name: NodeName) -> None:
        """Add a node that runs nothing to the wanted names. The node is ignored if the record is full."""
        more = len(name) + _BYTES_BESIDE
        if name not in self._wanted and self._bytes + more <= _MOST_BYTES:
            self._wanted.add(name)
            self._bytes += more
            self._changed = True

    def discard(self, name: NodeName) -> None:
        """Remove from the wanted names a node that came back or is no longer known."""
        if name in self._wanted:
            self._wanted.remove(name)
            self._bytes -= len(name) + _BYTES_BESIDE
            self._changed = True

    def holds(self, name: NodeName) -> bool:
        """True if the record should contain the node."""
        return name in self._wanted

    def next_write(self) -> list[NodeName] | None:
        """Return the names to write now; None if the record has these names already, or while a write is under way.

        After the write, call `written`.
        """
        if self._writing is not None or not self._changed:
            return None
        self._changed = False
        self._writing = frozenset(self._wanted)
        self.names |= self._writing
        return sorted(self._writing)

    def written(self, *, durable: bool) -> Collection[NodeName]:
        """Note that a write has ended, durably or with an unknown outcome. Return the names that the record can no longer contain."""
        assert self._writing is not None
        before, written, self._writing = self.names, self._writing, None
        if durable:
            self._recorded, self._unsure = written, frozenset()
        else:
            self._unsure |= written
            self._changed = True
        self.names = self._recorded | self._unsure
        return before - self.names
