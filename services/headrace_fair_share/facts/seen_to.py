"""When preemption last handled each operation under a YARN policy, from the allocator's counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.ids import OperationId
from headrace.wire.version import Term
from headrace_fair_share.facts.usage import UsageChange


class SeenTo:
    """The counted time at which preemption was last reported to have handled each operation."""

    def __init__(self) -> None:
        self._at_ms: dict[OperationId, int] = {}
        self._counted: dict[OperationId, tuple[Term, int]] = {}

    @property
    def at_ms(self) -> Mapping[OperationId, int]:
        """The counted time in milliseconds, by operation."""
        return dict(self._at_ms)

    def note(self, usage: UsageChange, now_ms: int) -> None:
        """Record the counts of a usage snapshot. Each term of the allocator counts from zero."""
        for item in usage.items:
            counted = (usage.version.term, item.times_seen_to)
            if item.times_seen_to and self._counted.get(item.operation) != counted:
                self._at_ms[item.operation], self._counted[item.operation] = now_ms, counted
        for name in usage.removed:
            self._at_ms.pop(OperationId(name), None)
            self._counted.pop(OperationId(name), None)
