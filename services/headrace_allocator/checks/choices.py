"""The check of the quick choice in production: now and then the plain loop chooses, too.

The plain loop looks at a sample, so that it never holds other heartbeats up. Whoever comes first of all comes first of a few.
That fails where a pool that is judged by those below it stands above one that is judged by itself.
So a sample only raises suspicion. The plain loop over all operations must confirm it. A difference is kept as a case.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from headrace.ids import OperationId
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Figure, counter
from headrace.wire.ledger import LiveOperation
from headrace.wire.snapshots import PreemptionPriority, ShareItem
from headrace_allocator.decision.plain_loop import is_considered, next_in_line_plainly
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.operations import Operation

#: One heartbeat of so many is checked, in it so many choices, each against so many operations: some 10 ms.
_EVERY: Final = 10_000
_CHOICES: Final = 2
_SAMPLE: Final = 300
#: Cases that wait to be kept.
_MOST_CASES: Final = 5


class OperationCase(msgspec.Struct, frozen=True):
    """One operation, without its command."""

    live: LiveOperation
    held: Resources
    share: ShareItem | None


class PoolCase(msgspec.Struct, frozen=True):
    """One pool, and what is in use below it."""

    item: ShareItem
    used: Resources


class ChoiceCase(msgspec.Struct, frozen=True):
    """A choice in which the quick way and the plain loop differed, with what both looked at."""

    chosen: OperationId | None
    expected: OperationId | None
    room: Resources
    priority: PreemptionPriority | None
    passes_limits: bool
    tags: tuple[str, ...]
    total: Resources
    options: AllocationOptions
    pools: list[PoolCase]
    #: Both that were chosen, and the sample.
    operations: list[OperationCase]


class ChoiceCheck:
    """Chooses as `next_in_line` does, and checks that on one heartbeat of very many."""

    def __init__(self, every: int = _EVERY) -> None:
        self._every = every
        #: Heartbeats since the last one that was checked.
        self._heartbeats = 0
        #: Choices of this heartbeat that are still to be checked.
        self._left = 0
        self._checked = 0
        self._differing = 0
        self._cases: list[ChoiceCase] = []

    def begin(self, *, settled: bool = True) -> None:
        """A heartbeat is about to be decided on. While some places are to be found anew, the plain loop knows better for a while."""
        self._heartbeats += 1
        self._left = _CHOICES if settled and self._heartbeats >= self._every else 0

    def choose(self, overlay: Overlay, room: Resources, priority: PreemptionPriority | None = None) -> Operation | None:
        """The operation whose job goes first into `room`, by the quick way."""
        chosen = next_in_line(overlay, room, priority)
        if self._left > 0:
            # Only now: on most heartbeats of a full cluster nothing is to be chosen, and nothing would be checked.
            self._heartbeats = 0
            self._left -= 1
            self._check(overlay, room, priority, chosen)
        return chosen

    def take_cases(self) -> list[ChoiceCase]:
        """The differences since it was asked last."""
        cases, self._cases = self._cases, []
        return cases

    def figures(self) -> list[Figure]:
        """Choices that were checked, and those that were wrong."""
        return [
            counter("choices_checked", "choices", self._checked, "Choices that were made again by the plain rule."),
            counter("choices_differing", "choices", self._differing, "Choices that the plain rule did not confirm."),
        ]

    def _check(
        self, overlay: Overlay, room: Resources, priority: PreemptionPriority | None, chosen: Operation | None
    ) -> None:
        self._checked += 1
        sample = self._sample(overlay, chosen)
        if next_in_line_plainly(overlay, room, priority, among=sample.values()) is chosen:
            return
        expected = next_in_line_plainly(overlay, room, priority)
        if expected is chosen:
            return
        self._differing += 1
        if len(self._cases) < _MOST_CASES:
            if expected is not None:
                sample[expected.id] = expected
            self._cases.append(_case_of(overlay, room, priority, chosen, expected, sample.values()))

    def _sample(self, overlay: Overlay, chosen: Operation | None) -> dict[OperationId, Operation]:
        """Every so-manieth operation, others each time. A case has those only that the stage looks at."""
        operations = overlay.view.operations
        stride = len(operations) // _SAMPLE + 1
        some = islice(operations.values(), self._checked % stride, None, stride)
        sample = {one.id: one for one in some if is_considered(overlay, one)}
        if chosen is not None:
            sample[chosen.id] = chosen
        return sample


def _case_of(
    overlay: Overlay,
    room: Resources,
    priority: PreemptionPriority | None,
    chosen: Operation | None,
    expected: Operation | None,
    operations: Iterable[Operation],
) -> ChoiceCase:
    view = overlay.view
    items = (view.pools.pool(name) for name in view.pools.known)
    return ChoiceCase(
        chosen=None if chosen is None else chosen.id,
        expected=None if expected is None else expected.id,
        room=room,
        priority=priority,
        passes_limits=overlay.passes_limits,
        tags=view.tags,
        total=view.pools.total,
        options=view.pools.options,
        pools=[PoolCase(one.item, one.charged + overlay.pools.get(one.name, ZERO)) for one in items if one.item],
        operations=[_operation_case(overlay, one) for one in sorted(operations, key=lambda one: one.arrival)],
    )


def _operation_case(overlay: Overlay, operation: Operation) -> OperationCase:
    ready = max(0, overlay.ready(operation))
    spec = msgspec.structs.replace(operation.spec, argv=["…"], environment={}, job_count=max(1, ready))
    live = LiveOperation(
        operation.id, operation.user, spec, operation.state, operation.suspended, False,
        operation.rank, ready, 1,
    )  # fmt: skip
    return OperationCase(live, overlay.held(operation) + operation.in_doubt, operation.share)
