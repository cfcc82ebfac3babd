"""A share for everyone: how much of what waits for the log may be one person's.

The log takes requests in the order in which they came, so a flood of one person would delay everybody by as long as it takes.
"""

from __future__ import annotations

from headrace.runtime.engine import Figure, counter
from headrace.wire.refusals import Busy

__all__ = ["SharesOfUsers"]


class SharesOfUsers:
    """Requests that are being decided and recorded, by user."""

    def __init__(self, most_requests: int, most_bytes: int) -> None:
        self._most_requests = most_requests
        self._most_bytes = most_bytes
        #: Requests and bytes that wait. Whoever has none is not in it.
        self._waiting: dict[str, tuple[int, int]] = {}
        self._refused = 0

    def take(self, user: str, size_bytes: int) -> bool:
        """Counts a request. False if the user's share is used up, and then nothing is counted."""
        requests, waiting_bytes = self._waiting.get(user, (0, 0))
        if requests >= self._most_requests or (requests and waiting_bytes + size_bytes > self._most_bytes):
            self._refused += 1
            return False
        self._waiting[user] = (requests + 1, waiting_bytes + size_bytes)
        return True

    def give_back(self, user: str, size_bytes: int) -> None:
        """A request that was counted has been answered."""
        requests, waiting_bytes = self._waiting.pop(user)
        if requests > 1:
            self._waiting[user] = (requests - 1, waiting_bytes - size_bytes)

    def refusal(self, user: str) -> Busy:
        """The refusal for a user whose share is used up."""
        return Busy(waiting=self._waiting.get(user, (0, 0))[0], oldest_waiting_ms=0)

    def figures(self) -> list[Figure]:
        """Starts that were refused to whoever asked too much at once."""
        return [counter("refused_over_share_of_user", "requests", self._refused)]
