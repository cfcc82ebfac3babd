"""The usage that is published for fair_share: what each operation holds, and what it asks for."""

from __future__ import annotations

from itertools import islice

import msgspec

from headrace.ids import OperationId
from headrace.resources import ZERO, Resources
from headrace.wire.snapshots import UsageFrame, UsageItem
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation, never_fits


class UsageCut(msgspec.Struct, frozen=True):
    """The news since the cut before. Keys of what is gone are ids of operations and those of nodes' items."""

    frame: UsageFrame
    items: list[UsageItem]
    gone: list[str]


class UsageCutting:
    """A cut that is made in slices, since very many operations may have changed at once.

    Each operation is told as it is when its turn comes. One that changes after its turn is told again by the next cut.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._items: dict[OperationId, UsageItem] = {}
        #: Operations of the cut that is being made whose turn has not come.
        self._left = 0

    def slice(self, most: int) -> UsageCut | None:
        """Goes on by up to `most` operations, or begins a cut. Returns what changed since the last cut, or None until it is done."""
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
        # In the order in which they changed: to sort very many would take longer than a slice may.
        nodes, empty = _nodes_of_tags(facts)
        return UsageCut(facts.told_frame, [*items.values(), *nodes], [*gone, *empty])


def usage_changed(facts: Facts) -> bool:
    """True if usage is not what was cut last."""
    return bool(facts.touched or facts.gone or facts.tagged_rooms.changed) or _usage_frame(facts) != facts.told_frame


def _nodes_of_tags(facts: Facts) -> tuple[list[UsageItem], list[str]]:
    """The nodes of tags whose room changed since the last cut, and keys of those that have none any more."""
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
        pending=ZERO if not operation.fits_somewhere or never_fits(operation) else _pending(operation),
        min_needed=operation.min_needed,
        times_seen_to=operation.times_seen_to,
    )


def _pending(operation: Operation) -> Resources:
    """The amount that all waiting jobs need together."""
    if operation.task_groups and operation.schedulable:
        return Resources.sum(group.job * group.pending for group in operation.task_groups).within_wire()
    return operation.spec.resources * operation.pending_jobs
