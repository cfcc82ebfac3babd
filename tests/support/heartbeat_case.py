"""Replays a heartbeat that was decided in two ways: `python -m tests.support.heartbeat_case FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.resources import ZERO, Resources
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_allocator.checks.heartbeat_cases import AllocationCase, HeartbeatCase
from headrace_allocator.checks.heartbeats import HeartbeatCheck
from headrace_allocator.decide import DueSteps, decide
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.facts.allocations import Allocation
from tests.support.allocating import Desk
from tests.support.choice_case import desk_of

__all__ = ["replay"]


def replay(case: HeartbeatCase) -> HeartbeatCase | None:
    """Decides again, both ways, in an allocator that learns all anew. Returns the case if they still differ."""
    used = Resources.sum(one.usage for one in case.allocations)
    desk = desk_of(case.tree, node=case.limits, hold=lambda desk: _hold(desk, case))
    node = desk.node("n")
    view = View.of(desk.facts, node, desk.engine.ranking.order, case.pace_ms)
    view = msgspec.structs.replace(
        view, free=case.limits - case.held - used, limits=case.limits, boottime_ms=case.boottime_ms
    )
    due = DueSteps(**msgspec.structs.asdict(case.due))
    check = HeartbeatCheck(every=1)
    check.begin()
    check.compare(view, due, decide(Overlay(view), due, check.choose))
    found = check.take_cases()
    return found[0] if found and isinstance(found[0], HeartbeatCase) else None


def _hold(desk: Desk, case: HeartbeatCase) -> None:
    """The allocations of the node, and between them what else their operations have, so that each has as much before it."""
    passed: dict[OperationId, Resources] = {}
    by_place = sorted(case.allocations, key=lambda one: one.before.as_tuple())
    in_order = {id(one): number for number, one in enumerate(case.allocations)}
    for one in by_place:
        _fill(desk, one.operation, one.before - passed.get(one.operation, ZERO), f"{one.id}")
        _add(desk, one)
        passed[one.operation] = one.before + one.usage
    for each in case.tree.operations:
        _fill(desk, each.live.operation, each.held - passed.get(each.live.operation, ZERO), "rest")
    allocations = desk.node("n").allocations
    known = {one.id: one for one in case.allocations}
    for name in sorted(allocations, key=lambda name: in_order[id(known[name])]):
        allocations[name] = allocations.pop(name)


def _add(desk: Desk, one: AllocationCase) -> None:
    allocation = Allocation(one.id, one.operation, NodeName("n"), one.resources)
    allocation.usage = one.usage
    desk.facts.add(allocation)
    desk.facts.confirm(allocation)
    allocation.state, allocation.job = one.state, one.job
    allocation.progress_started_ms, allocation.take_back = one.progress_started_ms, one.take_back
    allocation.preemption = PreemptionRecord(PreemptionReason.PREEMPTION) if one.preempted else None


def _fill(desk: Desk, operation: OperationId, amount: Resources, behind: str) -> None:
    if amount != ZERO:
        filler = Allocation(AllocationId(f"held-{operation}-{behind}"), operation, NodeName("elsewhere"), amount)
        desk.facts.add(filler)
        desk.facts.confirm(filler)


def main() -> None:
    """Tells how both decided then, and whether they still differ."""
    case = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=HeartbeatCase)
    now = replay(case)
    print(f"{len(case.allocations)} allocations, {len(case.tree.operations)} operations, room {case.tree.room}")
    print(f"then: quickly {case.quickly}\n      plainly {case.plainly}")
    print(f"now:  quickly {now.quickly}\n      plainly {now.plainly}" if now is not None else "now:  no difference")
    sys.exit(now is not None)


if __name__ == "__main__":
    main()
