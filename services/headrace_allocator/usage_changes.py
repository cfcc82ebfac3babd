"""The usage that is published for fair_share: what each operation holds, and what it asks for."""

from __future__ import annotations

from itertools import islice

import msgspec

from headrace.ids import OperationId
from headrace.resources import ZERO
from headrace.wire.snapshots import UsageFrame, UsageItem
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation, can_ever_start, pending_resources


class UsageChanges(msgspec.Struct, frozen=True):
    """The changes since the previous publication. `gone` has the keys of the items that no longer exist.

    An item is about an operation, or about all nodes with the same tags.
    """

    frame: UsageFrame
    items: list[UsageItem]
    gone: list[str]


class UsageCollector:
    """Collects changed usage in slices, since very many operations may have changed at once.

    Each operation is included with the usage that it has when its slice is collected. If it changes after that, the next publication
    includes it again.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._items: dict[OperationId, UsageItem] = {}
        #: Number of operations that are still to be collected for the current publication.
        self._left = 0

    def slice(self, most: int) -> UsageChanges | None:
        """Collect up to `most` operations. Return None until all are collected, and then the changes since the last publication."""
        facts = self._facts
        self._left = self._left or len(facts.touched)
        for name in list(islice(facts.touched, min(most, self._left))):
            del facts.touched[name]
            self._left -= 1
            operation = facts.operations.get(name)
            if operation is not None:
                self._items[name] = _usage_of(operation)
        if self._left:
            return None
        items, self._items = self._items, {}
        gone, facts.gone = [name for name in facts.gone if name not in facts.operations], {}
        facts.told_frame = _usage_frame(facts)
        for name in gone:
            items.pop(name, None)
        # The items stay in the order in which they changed: sorting very many items would take longer than a slice may.
        nodes, empty = _nodes_of_tags(facts)
        return UsageChanges(facts.told_frame, [*items.values(), *nodes], [*gone, *empty])


def usage_changed(facts: Facts) -> bool:
    """True if usage has changed since it was last collected."""
    return bool(facts.touched or facts.gone or facts.tagged_rooms.changed) or _usage_frame(facts) != facts.told_frame


def _nodes_of_tags(facts: Facts) -> tuple[list[UsageItem], list[str]]:
    """Return what changed about nodes, by groups of nodes with the same tags.

    The first result has an item for each group whose resources changed, the second the keys of the groups to which no node belongs any
    more.
    """
    rooms = facts.tagged_rooms
    changed, rooms.changed = rooms.changed, {}
    told = [UsageItem.of_nodes(tags, rooms.of[tags].within_wire()) for tags in changed if tags in rooms.of]
    return told, [UsageItem.of_nodes(tags).operation for tags in changed if tags not in rooms.of]


def _usage_frame(facts: Facts) -> UsageFrame:
    return UsageFrame(total=facts.total.within_wire(), complete=facts.recovery.complete)


def _usage_of(operation: Operation) -> UsageItem:
    precommit = operation.precommit
    return UsageItem(
        operation=operation.id,
        usage=(operation.held - precommit).within_wire(),
        precommit=precommit.within_wire(),
        pending_jobs=operation.pending_jobs,
        pending=pending_resources(operation) if can_ever_start(operation) else ZERO,
        min_needed=operation.min_needed,
        times_seen_to=operation.times_seen_to,
    )
