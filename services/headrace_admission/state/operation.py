"""One operation in admission's memory: its spec, its state, its ledger and its place in each tree."""

from __future__ import annotations

import msgspec

from headrace.ids import OperationId, TreeName
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.placements import TreePlacement
from headrace_admission.state.ledger import Ledger, LedgerRecord
from headrace_admission.state.rules import VANILLA

__all__ = ["Operation", "OperationRecord"]


class OperationRecord(msgspec.Struct, frozen=True):
    """An operation as a checkpoint keeps it."""

    operation: OperationId
    user: str
    spec: OperationSpec
    state: OperationState
    suspended: bool
    ephemeral_pool: bool
    started_at_ms: int
    ended_at_ms: int
    reason: str
    ledger: LedgerRecord
    sequence: int
    #: None in records from before there were limits.
    placements: list[TreePlacement] | None = None
    ends_running_jobs: bool = False


class Operation:
    """Changed only by `State`."""

    def __init__(
        self, operation: OperationId, user: str, spec: OperationSpec, state: OperationState, started_at_ms: int
    ) -> None:
        self.id = operation
        self.user = user
        self.spec = spec
        self.state = state
        self.started_at_ms = started_at_ms
        self.ended_at_ms = 0
        self.suspended = False
        #: True if running jobs are to be ended while it is suspended.
        self.ends_running_jobs = False
        self.ephemeral_pool = False
        self.reason = ""
        self.ledger = Ledger(spec.job_count)
        #: The log's entry that changed it last; 0 while that is not known yet.
        self.sequence = 0
        #: Its place in each of its trees, or the last one once it is over.
        self.placements: dict[TreeName, TreePlacement] = {}

    @property
    def is_vanilla(self) -> bool:
        return self.spec.type == VANILLA

    def to_record(self) -> OperationRecord:
        return OperationRecord(
            operation=self.id,
            user=self.user,
            spec=self.spec,
            state=self.state,
            suspended=self.suspended,
            ephemeral_pool=self.ephemeral_pool,
            started_at_ms=self.started_at_ms,
            ended_at_ms=self.ended_at_ms,
            reason=self.reason,
            ledger=self.ledger.to_record(),
            sequence=self.sequence,
            placements=list(self.placements.values()),
            ends_running_jobs=self.ends_running_jobs,
        )

    @classmethod
    def from_record(cls, record: OperationRecord) -> Operation:
        made = cls(record.operation, record.user, record.spec, record.state, record.started_at_ms)
        made.ended_at_ms = record.ended_at_ms
        made.suspended = record.suspended
        made.ends_running_jobs = record.ends_running_jobs
        made.ephemeral_pool = record.ephemeral_pool
        made.reason = record.reason
        made.ledger = Ledger.from_record(record.spec.job_count, record.ledger)
        made.sequence = record.sequence
        placements = record.placements
        if placements is None:
            placements = [TreePlacement(record.spec.tree, record.spec.pool, ticket=0)]
        made.placements = {placement.tree: placement for placement in placements}
        return made
