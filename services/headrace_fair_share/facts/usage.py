"""The usage of operations, as the allocator reports it in snapshots, and the counts of preemptions that the allocator reports under a YARN
policy. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.ids import OperationId
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Moment
from headrace.wire.snapshots import NodesOfTags, UsageFrame, UsageItem
from headrace.wire.version import NEVER, Term, Version
from headrace_fair_share.facts.changed_operations import News


class UsageChange(msgspec.Struct, frozen=True):
    """The changes in a usage snapshot; if `whole` is True, the complete usage."""

    version: Version
    frame: UsageFrame
    items: list[UsageItem]
    removed: frozenset[str] = frozenset()
    whole: bool = False


class KnownUsage:
    """The newest usage of one tree."""

    def __init__(self, counts_within_us: int, news: News) -> None:
        self._counts_within_us, self._news = counts_within_us, news
        self.items: dict[OperationId, UsageItem] = {}
        #: Operations that the allocator has reported in its present term.
        self.named: set[OperationId] = set()
        self.version = NEVER
        self.frame = UsageFrame()
        #: Total resources of the tree. They stay unchanged while the allocator recovers, because it has not heard from all nodes then.
        self.total = ZERO
        #: Total resources of the nodes with each set of tags; unchanged while the allocator recovers. None: not reported.
        self.rooms: Mapping[tuple[str, ...], Resources] | None = None
        self._nodes: dict[str, NodesOfTags] = {}
        self._heard_us: int | None = None
        self._had_complete = False

    def apply(self, change: UsageChange, now: Moment) -> bool:
        """Apply a snapshot of the allocator. Return True if anything changed."""
        if change.version.term != self.version.term:
            self.named.clear()
        told = [item for item in change.items if item.nodes is None]
        if change.whole:
            changed = len(told) != len(self.items)
            changed = changed or any(self.items.get(item.operation) != item for item in told)
            self.items = {item.operation: item for item in told}
            self._nodes = {}
            self._news.anything()
        else:
            self._news.changed([*(item.operation for item in told), *map(OperationId, change.removed)])
            changed = bool(change.items or change.removed)
            self.items.update((item.operation, item) for item in told)
            for name in change.removed:
                self.items.pop(OperationId(name), None)
                self._nodes.pop(name, None)
        self._nodes.update((item.operation, item.nodes) for item in change.items if item.nodes is not None)
        self.named.update(item.operation for item in told)
        frame = change.frame
        changed = changed or frame.total != self.frame.total or frame.complete != self.frame.complete
        if frame.complete or not self._had_complete:
            self.total = frame.total
            changed = self._take_rooms(frame) or changed
        self._had_complete = self._had_complete or frame.complete
        self.version, self.frame, self._heard_us = change.version, frame, now.steady_us
        return changed

    def _take_rooms(self, frame: UsageFrame) -> bool:
        """Take over the total resources of the nodes with each set of tags, if all nodes were reported.

        Return True if these totals changed.
        """
        before, rooms = self.rooms, {nodes.tags: nodes.total for nodes in self._nodes.values()}
        # Compare with the largest amount that a message can carry, because a larger total is reported as that amount. If the reported nodes
        # do not add up to the total, the allocator did not report all nodes, and nothing is known about the nodes that match a filter.
        is_all = frame.complete and Resources.sum(rooms.values()).within_wire() == frame.total
        if not is_all or rooms != before:
            self.rooms = rooms if is_all else None
        return self.rooms != before

    def counts(self, now: Moment) -> bool:
        """Return True if usage is complete and not too old, so that it shows which elements are below their fair share."""
        heard = self._heard_us
        return heard is not None and now.steady_us - heard <= self._counts_within_us and self.frame.complete

    def check(self) -> list[str]:
        """Return an error for each operation that has usage but was never reported by the allocator in its present term."""
        unnamed = self.items.keys() - self.named
        return [f"usage of {name}, which the allocator never reported" for name in sorted(unnamed)[:10]]


class SeenTo:
    """For each operation, the time at which a usage snapshot last reported that preemption had handled the operation. Only time that counts
    for starvation is counted.
    """

    def __init__(self) -> None:
        self._at_ms: dict[OperationId, int] = {}
        self._counted: dict[OperationId, tuple[Term, int]] = {}

    @property
    def at_ms(self) -> Mapping[OperationId, int]:
        """This time in milliseconds, by operation."""
        return dict(self._at_ms)

    def note(self, usage: UsageChange, now_ms: int) -> None:
        """Record the counts of preemptions in a usage snapshot. Each term of the allocator counts from zero."""
        for item in usage.items:
            counted = (usage.version.term, item.times_seen_to)
            if item.times_seen_to and self._counted.get(item.operation) != counted:
                self._at_ms[item.operation], self._counted[item.operation] = now_ms, counted
        for name in usage.removed:
            self._at_ms.pop(OperationId(name), None)
            self._counted.pop(OperationId(name), None)
