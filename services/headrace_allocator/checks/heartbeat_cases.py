"""Cases of heartbeats that the quick way and the plain way decided differently, with all that both looked at."""

from __future__ import annotations

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import AllocationState, RunningJob, TakeBackReason
from headrace.wire.preemption import PreemptionReason
from headrace_allocator.checks.choices import ChoiceCase
from headrace_allocator.decision.view import View
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.groups import Group


class Start(msgspec.Struct, frozen=True):
    """A new allocation, in free room or through preemption."""

    operation: OperationId
    jobs: int
    job: Resources


class Taken(msgspec.Struct, frozen=True):
    """A victim."""

    allocation: AllocationId
    reason: PreemptionReason
    group: Group
    beneficiary: OperationId | None
    properly: bool


class Decided(msgspec.Struct, frozen=True):
    """All that is carried out of a decision, in its order."""

    starts: list[Start]
    #: Further jobs of living allocations; 0 where one is given back.
    jobs: list[tuple[AllocationId, int]]
    taken: list[Taken]


class AllocationCase(msgspec.Struct, frozen=True):
    """One allocation of the node."""

    id: AllocationId
    operation: OperationId
    resources: Resources
    usage: Resources
    #: Used by those of its operation that come before it.
    before: Resources
    state: AllocationState
    job: RunningJob | None
    progress_started_ms: int | None
    take_back: TakeBackReason | None
    #: True if it was told to go, gracefully or not.
    preempted: bool


class MayBeDecided(msgspec.Struct, frozen=True):
    """Steps of the decision that were due. Plans of a YARN policy are no part of a case."""

    extend: bool
    start: bool
    preempt: bool
    preemptive_stages: bool
    repair_overcommit: bool


class HeartbeatCase(msgspec.Struct, frozen=True):
    """A heartbeat on which the two ways chose the same operations, and differed otherwise."""

    quickly: Decided
    plainly: Decided
    due: MayBeDecided
    #: All that the tree may use of the node.
    limits: Resources
    #: Room on it that is held for gangs.
    held: Resources
    boottime_ms: int
    pace_ms: int
    allocations: list[AllocationCase]
    #: The node's room, the tree and operations before the decision, as if nobody were chosen.
    tree: ChoiceCase

    @property
    def about(self) -> dict[str, int]:
        """The words of its alarm."""
        return {"taken": len(self.quickly.taken), "expected": len(self.plainly.taken)}


Case = ChoiceCase | HeartbeatCase


def allocation_cases(view: View) -> list[AllocationCase]:
    """Describes the allocations of a node."""
    before = _used_before(view)
    return [
        AllocationCase(
            one.id, one.operation, one.resources, one.usage, before.get(one, ZERO),
            one.state, one.job, one.progress_started_ms, one.take_back, one.preemption is not None,
        )
        for one in view.allocations
    ]  # fmt: skip


def _used_before(view: View) -> dict[Allocation, Resources]:
    """The usage of all that stand before each allocation in its operation, which may have very many elsewhere."""
    before: dict[Allocation, Resources] = {}
    here = set(view.allocations)
    for name in {one.operation for one in view.allocations} & view.operations.keys():
        used = ZERO
        for one in view.operations[name].groups:
            if one in here:
                before[one] = used
            used = used + one.usage
    return before
