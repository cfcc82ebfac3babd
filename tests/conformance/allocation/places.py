"""Allocations as the nodes of a scenario know them, and what their heartbeats say of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.ids import AllocationId, OperationId
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobSlot, RunningJob
from headrace.wire.preemption import PreemptionRecord

__all__ = ["EPOCH_S", "Place", "waiter_on"]

#: The moment 0 of every scenario.
EPOCH_S: Final = 1_000_000


@dataclass
class Place:
    """An allocation as its node knows it."""

    name: str
    operation: str
    node: str
    resources: Resources
    slot: JobSlot
    #: None: not known yet.
    progress_s: float | None
    state: AllocationState = AllocationState.RUNNING
    #: When an interrupted one is over.
    ends_s: float | None = None
    preemption: PreemptionRecord | None = None

    def report(self) -> AllocationReport:
        """Its lines in a heartbeat."""
        started = self.progress_s is not None and self.state is not AllocationState.WAITING
        began_ms = _ms(self.progress_s or 0)
        job = RunningJob(self.slot.index, self.slot.attempt, began_ms, began_ms) if started else None
        # An allocation that was taken back runs again: cases have no end of the job that ran in it.
        gone = started and self.state is AllocationState.ENDED
        return AllocationReport(
            AllocationId(self.name), OperationId(self.operation), self.state, self.resources, None if gone else job,
            [self.slot] if gone or job is None else [], preemption=self.preemption, jobs_ended=int(gone),
        )  # fmt: skip


def waiter_on(node: str) -> AllocationReport:
    """An allocation that waits there for another to go, and is of nobody whom the case knows."""
    name, other = AllocationId(f"waits-on-{node}"), OperationId("of-another-case")
    return AllocationReport(name, other, AllocationState.WAITING, ZERO, None, [])


def _ms(at_s: float) -> int:
    return round((at_s + EPOCH_S) * 1000)
