"""Operations that changed. For each of them, the allocator may have to lease job indexes, settle unconfirmed jobs, or tell the ledger that
no node holds anything of the operation (release it).

Very many operations may change at once. So each tick makes a bounded number of the operations due, and the due operations are settled a few
at a time. If the request for a lease failed, it is sent again the next time the operation is settled.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from headrace.ids import OperationId

_MOST_A_TICK: Final = 1_000


class Unsettled:
    """Operations in the order in which they changed."""

    def __init__(self) -> None:
        self._changed: dict[OperationId, None] = {}
        self._due: dict[OperationId, None] = {}

    @property
    def some_due(self) -> bool:
        """True if operations are due to be settled."""
        return bool(self._due)

    def note(self, operation: OperationId) -> None:
        """Record that the operation changed. A later tick makes it due."""
        self._changed[operation] = None

    def tick(self) -> None:
        """Make some of the changed operations due. Call it once a second."""
        for name in list(islice(self._changed, _MOST_A_TICK)):
            self._due[name] = self._changed.pop(name)

    def make_due(self, operations: Iterable[OperationId]) -> None:
        """Make these operations due now."""
        self._due.update(dict.fromkeys(operations))

    def take(self, most: int) -> list[OperationId]:
        """Remove and return up to `most` operations that are due, the longest waiting first."""
        names = list(islice(self._due, most))
        for name in names:
            del self._due[name]
        return names
