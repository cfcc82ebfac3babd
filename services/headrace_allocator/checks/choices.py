"""The choices of a heartbeat, made again by the plain loop.

The plain loop looks at a sample of the operations, so that it never delays other heartbeats. The operation that comes first of all comes
first in a sample too. That fails where a pool that is judged by the operations below it stands above a pool that is judged by its own
satisfaction. So a sample only raises a suspicion, which the plain loop over all operations must confirm. A difference is kept as a case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from headrace.ids import OperationId
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import ZERO, Resources
from headrace.wire.ledger import LiveOperation
from headrace.wire.snapshots import PreemptionPriority, ShareItem
from headrace_allocator.decision.plain_loop import is_considered, next_in_line_plainly
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.operations import Operation

#: Upper bounds of the operations that all choices of one heartbeat look at: where an operation was chosen, and where none was. An
#: operation whose jobs fit takes 7 us: all of 10,000 operations for each allocation would be 65 ms an allocation. Where no operation is
#: chosen, nearly all drop out at once, within 1 us.
_LOOKS: Final = 1_000
_LOOKS_FOR_NOBODY: Final = 2_500
_LEAST_SAMPLE: Final = 8
#: Upper bound of the suspicions of one heartbeat that are followed.
_CONFIRMATIONS: Final = 2


class OperationCase(msgspec.Struct, frozen=True):
    """One operation, without its command."""

    live: LiveOperation
    held: Resources
    share: ShareItem | None


class PoolCase(msgspec.Struct, frozen=True):
    """One pool, and what is used below it."""

    item: ShareItem
    used: Resources


class ChoiceCase(msgspec.Struct, frozen=True):
    """A choice in which the quick walk and the plain loop differed, with what both looked at."""

    chosen: OperationId | None
    expected: OperationId | None
    room: Resources
    priority: PreemptionPriority | None
    passes_limits: bool
    tags: tuple[str, ...]
    total: Resources
    options: AllocationOptions
    pools: list[PoolCase]
    #: Both chosen operations, and the sample.
    operations: list[OperationCase]
    #: The operation for which the node is reserved; empty for none.
    reserved: OperationId = OperationId("")

    @property
    def about(self) -> dict[str, OperationId | None]:
        """The fields of the alarm about this case."""
        return {"chosen": self.chosen, "expected": self.expected}


class PlainChoices:
    """Chooses by the plain loop, side by side with the choices that the quick walk made from the same facts.

    It follows the quick walk as long as both agree. After the first difference it has a case, and chooses no operation any more.
    """

    def __init__(self, made: Mapping[PreemptionPriority | None, Sequence[Operation | None]], turn: int) -> None:
        """Prepare to repeat the quick choices in `made`: in their order, by the preemption priority that took part.

        Each `turn` looks at another sample.
        """
        self._made = {priority: iter(ones) for priority, ones in made.items()}
        self._turn = turn
        everybody = [one for ones in made.values() for one in ones]
        nobody = everybody.count(None)
        self._sample = max(_LEAST_SAMPLE, _LOOKS // max(1, len(everybody) - nobody))
        self._sample_for_nobody = max(_LEAST_SAMPLE, _LOOKS_FOR_NOBODY // max(1, nobody))
        self._confirmations = _CONFIRMATIONS
        self.checked = 0
        self.case: ChoiceCase | None = None

    def choose(self, overlay: Overlay, room: Resources, priority: PreemptionPriority | None = None) -> Operation | None:
        """Return the operation whose job comes first and fits into `room`, by the plain loop."""
        if self.case is not None:
            return None
        # Where the quick walk did not look at all, it chose no operation.
        chosen = next(self._made.get(priority, iter(())), None)
        self.checked += 1
        sample = self._sample_of(overlay, chosen)
        if next_in_line_plainly(overlay, room, priority, among=sample.values()) is chosen:
            return chosen
        if self._confirmations == 0:
            return chosen
        self._confirmations -= 1
        expected = next_in_line_plainly(overlay, room, priority)
        if expected is not chosen:
            if expected is not None:
                sample[expected.id] = expected
            self.case = case_of(overlay, room, priority, chosen, expected, sample.values())
        return expected

    def _sample_of(self, overlay: Overlay, chosen: Operation | None) -> dict[OperationId, Operation]:
        """Return every n-th operation that the stage looks at, and the chosen one. Each call starts at another operation."""
        operations = overlay.view.operations
        stride = len(operations) // (self._sample_for_nobody if chosen is None else self._sample) + 1
        some = islice(operations.values(), (self._turn + self.checked) % stride, None, stride)
        sample = {one.id: one for one in some if is_considered(overlay, one)}
        for one in (chosen, overlay.reserved):
            if one is not None:
                sample[one.id] = one
        return sample


def case_of(
    overlay: Overlay,
    room: Resources,
    priority: PreemptionPriority | None,
    chosen: Operation | None,
    expected: Operation | None,
    operations: Iterable[Operation],
) -> ChoiceCase:
    """Return the case of a choice: all facts that the choice is made from."""
    view = overlay.view
    items = (view.pools.pool(name) for name in view.pools.known)
    return ChoiceCase(
        chosen=None if chosen is None else chosen.id,
        expected=None if expected is None else expected.id,
        # Free resources of an overcommitted node are negative.
        room=room.within_wire(),
        priority=priority,
        passes_limits=overlay.passes_limits,
        tags=view.tags,
        total=view.pools.total,
        options=view.pools.options,
        pools=[PoolCase(one.item, one.charged + overlay.pools.get(one.name, ZERO)) for one in items if one.item],
        operations=[_operation_case(overlay, one) for one in sorted(operations, key=lambda one: one.arrival)],
        reserved=OperationId("") if overlay.reserved is None else overlay.reserved.id,
    )


def _operation_case(overlay: Overlay, operation: Operation) -> OperationCase:
    ready = max(0, overlay.ready(operation))
    spec = msgspec.structs.replace(operation.spec, argv=["…"], environment={}, job_count=max(1, ready))
    live = LiveOperation(
        operation.id, operation.user, spec, operation.state, operation.suspended, False,
        operation.rank, ready, 1,
    )  # fmt: skip
    return OperationCase(live, overlay.held(operation) + operation.in_doubt, operation.share)
