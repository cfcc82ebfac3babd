"""Replays a choice that was kept because the quick way and the plain loop differed: `python -m tests.support.choice_case FILE`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.resources import Resources
from headrace.wire.snapshots import ElementKind
from headrace_allocator.checks.choices import ChoiceCase
from headrace_allocator.decision.plain_loop import next_in_line_plainly
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.nodes import Reservation
from tests.support.allocating import Desk

__all__ = ["Replayed", "desk_of", "replay"]


class Replayed(msgspec.Struct, frozen=True):
    """Who is chosen now."""

    quickly: OperationId | None
    plainly: OperationId | None


def replay(case: ChoiceCase) -> Replayed:
    """Makes the choice again, both ways, in an allocator that learns all anew."""
    desk = desk_of(case, node=case.room, hold=lambda desk: _hold_all(desk, case))
    overlay = Overlay(View.of(desk.facts, desk.node("n"), desk.engine.ranking.order, 1_000))
    if case.passes_limits:
        overlay.pass_limits(True)
    quickly = next_in_line(overlay, case.room, case.priority)
    plainly = next_in_line_plainly(overlay, case.room, case.priority)
    return Replayed(None if quickly is None else quickly.id, None if plainly is None else plainly.id)


def desk_of(case: ChoiceCase, node: Resources, hold: Callable[[Desk], None]) -> Desk:
    """An allocator that learned the tree and the operations of a case, with a node `n`. `hold` gives them what they have."""
    desk = Desk({"n": node, "elsewhere": (case.total - node).within_wire()})
    desk.options = case.options
    desk.node("n").record.tags.extend(case.tags)
    for name in desk.nodes:
        desk.beat(name)
    lives = [msgspec.structs.replace(each.live, block_term=desk.facts.term) for each in case.operations]
    desk.engine.on_operations(lives, desk.now)
    hold(desk)
    items = [each.item for each in case.pools] + [each.share for each in case.operations if each.share is not None]
    desk.tell(items, total=case.total)
    for pool in case.pools:
        known = desk.facts.pools.pool(pool.item.name)  # type: ignore[arg-type]
        # Operations that are no part of the case have some of it.
        known.used = pool.used
        desk.facts.pools.changed.add(known.name)
    for each in case.operations:
        desk.engine.ranking.refresh(desk.operation(each.live.operation))
    if case.reserved:
        job = desk.operation(case.reserved).spec.resources
        desk.facts.reservations.enter(Reservation(case.reserved, job, desk.node("n"), 0.0, 0.0, math.inf))
    return desk


def _hold_all(desk: Desk, case: ChoiceCase) -> None:
    for each in case.operations:
        _hold(desk, each.live.operation, each.held)


def _hold(desk: Desk, operation: OperationId, held: Resources) -> None:
    allocation = Allocation(AllocationId(f"held-{operation}"), operation, NodeName("elsewhere"), held)
    desk.facts.add(allocation)
    desk.facts.confirm(allocation)


def main() -> None:
    """Tells who was chosen then, and who is now."""
    case = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ChoiceCase)
    now = replay(case)
    kinds = [each.item.kind for each in case.pools].count(ElementKind.POOL)
    print(f"{len(case.operations)} operations, {kinds} pools, room {case.room}")
    print(f"then: quickly {case.chosen}, plainly {case.expected}")
    print(f"now:  quickly {now.quickly}, plainly {now.plainly}")
    sys.exit(now.quickly != now.plainly)


if __name__ == "__main__":
    main()
