"""Finished operations that are still known, and the choice of the operation that is forgotten next. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Final

from headrace.ids import OperationId
from headrace_admission.state.operation import Operation

#: Largest number of entries in the order of users, by user and in addition, before outdated entries are dropped.
_ENTRIES_OF_A_USER: Final = 4
_MORE_ENTRIES: Final = 64


class FinishedOperations:
    """The finished operations of each user, in the order of their ends.

    If their number or their bytes exceed the bounds, the oldest operation of the user with the largest share is forgotten. So a user who
    ends very many or very large operations causes no operation of a user with a smaller share to be forgotten. The choice depends only on
    the finished operations, so every process that has read the same log forgets the same operations.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        #: The bytes of each finished operation.
        self._of_user: dict[str, dict[OperationId, int]] = {}
        self._bytes_of: Counter[str] = Counter()
        self._count = self._bytes = 0
        self._newest = OperationId("")
        #: A heap of the users' shares, negated so that the largest is first. An entry with another share than the user's is outdated.
        self._order: list[tuple[float, str]] = []

    def __iter__(self) -> Iterator[OperationId]:
        for operations in self._of_user.values():
            yield from operations

    def note(self, operation: Operation) -> None:
        """Add an operation that has ended, or count it with its present size."""
        own = self._of_user.setdefault(operation.user, {})
        if operation.id not in own:
            self._count += 1
            self._newest = operation.id
        self._resize(operation.user, operation.counted_bytes - own.get(operation.id, 0))
        own[operation.id] = operation.counted_bytes
        self._note_share(operation.user)

    def drop(self, operation: Operation) -> None:
        """Remove an operation."""
        own = self._of_user[operation.user]
        self._count -= 1
        self._resize(operation.user, -own.pop(operation.id))
        if own:
            self._note_share(operation.user)
        else:
            del self._of_user[operation.user], self._bytes_of[operation.user]

    def next_to_forget(self) -> OperationId | None:
        """Return the operation that must be forgotten now; None if all operations are within the bounds.

        The operation that ended last stays even if it alone takes too many bytes, for clients that wait for its end.
        """
        if self._count <= self._most and (self._bytes <= self._most_bytes or self._count <= 1):
            return None
        user = self._largest()
        oldest = next(iter(self._of_user[user]))
        if oldest != self._newest or self._count == 1:
            return oldest
        # The user's only operation ended last. It is set aside while the user with the next smaller share is looked up.
        aside = self._order[0]
        while self._order[0] == aside:
            heapq.heappop(self._order)
        oldest = next(iter(self._of_user[self._largest()]))
        heapq.heappush(self._order, aside)
        return oldest

    def _share(self, user: str) -> float:
        return max(len(self._of_user[user]) / max(1, self._most), self._bytes_of[user] / max(1, self._most_bytes))

    def _resize(self, user: str, by: int) -> None:
        self._bytes += by
        self._bytes_of[user] += by

    def _note_share(self, user: str) -> None:
        heapq.heappush(self._order, (-self._share(user), user))
        if len(self._order) > _ENTRIES_OF_A_USER * len(self._of_user) + _MORE_ENTRIES:
            self._order = [(-self._share(each), each) for each in self._of_user]
            heapq.heapify(self._order)

    def _largest(self) -> str:
        """Return the user with the largest share, after dropping the outdated entries before it."""
        while True:
            share, user = self._order[0]
            if user in self._of_user and -share == self._share(user):
                return user
            heapq.heappop(self._order)
