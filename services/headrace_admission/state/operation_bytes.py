"""The bytes of live and of finished operations, counted for the quotas. Pure."""

from __future__ import annotations

from collections import Counter

from headrace_admission.state.life import is_final
from headrace_admission.state.operation import Operation


class OperationBytes:
    """The bytes of live operations, by user and in total, and the bytes of finished operations."""

    def __init__(self) -> None:
        self.live = 0
        self.live_of_user: Counter[str] = Counter()
        self.finished = 0

    def count(self, operation: Operation) -> None:
        """Count an operation with its present size, in place of its previous count."""
        self.forget(operation)
        operation.counted_bytes = operation.size_bytes
        operation.is_counted_live = not is_final(operation.state)
        self._add(operation, operation.counted_bytes)

    def forget(self, operation: Operation) -> None:
        """Stop counting an operation."""
        self._add(operation, -operation.counted_bytes)
        operation.counted_bytes = 0

    def _add(self, operation: Operation, by: int) -> None:
        if not operation.is_counted_live:
            self.finished += by
            return
        self.live += by
        self.live_of_user[operation.user] += by
        if not self.live_of_user[operation.user]:
            del self.live_of_user[operation.user]
