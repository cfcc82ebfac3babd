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
    """A new allocation, in free resources or through preemption."""

    operation: OperationId
    jobs: int
    job: Resources


class Taken(msgspec.Struct, frozen=True):
    """An allocation that is preempted."""

    allocation: AllocationId
    reason: PreemptionReason
    group: Group
    beneficiary: OperationId | None
    properly: bool


class Decided(msgspec.Struct, frozen=True):
    """All that is carried out of a decision, in the decision's order."""

    starts: list[Start]
    #: Number of further jobs, by existing allocation; 0 if the allocation is given back.
    jobs: list[tuple[AllocationId, int]]
    taken: list[Taken]


class AllocationCase(msgspec.Struct, frozen=True):
    """One allocation of the node."""

    id: AllocationId
    operation: OperationId
    resources: Resources
    usage: Resources
    #: Usage of all allocations of the operation that come before this one.
    before: Resources
    state: AllocationState
    job: RunningJob | None
    progress_started_ms: int | None
    take_back: TakeBackReason | None
    #: True if the allocation was preempted, gracefully or not.
    preempted: bool


class MayBeDecided(msgspec.Struct, frozen=True):
    """The steps of the decision that were due. Plans of a YARN policy are not part of a case."""

    extend: bool
    start: bool
    preempt: bool
    preemptive_stages: bool
    repair_overcommit: bool


class HeartbeatCase(msgspec.Struct, frozen=True):
    """A heartbeat on which the quick way and the plain way chose the same operations and differed otherwise."""

    quickly: Decided
    plainly: Decided
    due: MayBeDecided
    #: All resources of the node that the tree may use.
    limits: Resources
    #: Resources of the node that are held for gangs.
    held: Resources
    boottime_ms: int
    pace_ms: int
    allocations: list[AllocationCase]
    #: The node's free resources, the tree and the operations before the decision, in the form of a choice in which none was chosen.
    tree: ChoiceCase

    @property
    def about(self) -> dict[str, int]:
        """The fields of the alarm about this case."""
        return {"taken": len(self.quickly.taken), "expected": len(self.plainly.taken)}


Case = ChoiceCase | HeartbeatCase


def allocation_cases(view: View) -> list[AllocationCase]:
    """Return the cases of all allocations of a node."""
    before = _used_before(view)
    return [
        AllocationCase(
            one.id, one.operation, one.resources, one.usage, before.get(one, ZERO),
            one.state, one.job, one.progress_started_ms, one.take_back, one.preemption is not None,
        )
        for one in view.allocations
    ]  # fmt: skip


def _used_before(view: View) -> dict[Allocation, Resources]:
    """Return for each allocation the usage of all allocations that come before it in its operation, on any node."""
    before: dict[Allocation, Resources] = {}
    here = set(view.allocations)
    for name in {one.operation for one in view.allocations} & view.operations.keys():
        used = ZERO
        for one in view.operations[name].groups:
            if one in here:
                before[one] = used
            used = used + one.usage
    return before
