"""One operation in admission's memory: its spec, its state, its ledger and its placement in each tree."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from headrace.ids import OperationId, TreeName
from headrace.resources import Resources
from headrace.wire.heartbeat import JobEnd
from headrace.wire.log import SessionNoted
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.placements import UPSTREAM, TreePlacement
from headrace_admission.consumption.facts import FormerPool
from headrace_admission.state.ledger import Ledger, LedgerRecord
from headrace_admission.state.operation_states import is_final
from headrace_admission.state.spec_size import texts_bytes

#: Upper bound of the session spans of an operation that are open at a time. Further spans are not recorded.
MOST_OPEN_SESSIONS: Final = 256
#: Upper bound of the recorded session spans of an operation, so that one operation cannot fill the log.
MOST_SESSIONS_RECORDED: Final = 10_000
#: Upper bound of the bytes that an open session span takes in memory, without the name of the person.
_SESSION_BYTES: Final = 500


class _Fields(msgspec.Struct, kw_only=True):
    """The fields that an operation has both in memory and in a checkpoint."""

    user: str
    spec: OperationSpec
    state: OperationState
    started_at_ms: int
    ended_at_ms: int = 0
    reason: str = ""
    suspended: bool = False
    #: True if running jobs are to be ended while the operation is suspended.
    ends_running_jobs: bool = False
    ephemeral_pool: bool = False
    #: Sequence of the log entry that changed the operation last; 0: not known yet.
    sequence: int = 0
    #: Sequence of the log entry with the start of the operation; 0: not known yet, or the operation was started by an older version.
    first_sequence: int = 0
    #: Operations of `spec.after` that have not ended yet.
    awaits: list[OperationId] = []
    #: Why the operation can never complete: an operation that it waits for ended in another way than wanted. Empty: it can complete.
    upstream_failure: str = ""
    #: True if the operation `spec.after_each` has not ended yet.
    awaits_jobs: bool = False
    #: Unix time in milliseconds at which the operation got its first running slot. It is corrected when the wall clock is set. 0: the
    #: operation had no slot yet, or its record was written by a version without time limits.
    runs_since_ms: int = 0
    #: Reason why the operation is suspended; empty if it is not suspended, or a user suspended it.
    suspended_for: str = ""
    #: Pools that the operation left when it was moved, in the order of the moves. Only the newest are kept.
    former_pools: list[FormerPool] = []
    #: Session spans of people with jobs of the operation that have begun and not ended.
    open_sessions: list[SessionNoted] = []
    #: Number of session spans whose beginning was recorded.
    sessions_recorded: int = 0

    def note_session(self, event: SessionNoted) -> None:
        """Record that a session span began or ended."""
        if event.end is None:
            self.open_sessions.append(event)
            self.sessions_recorded += 1
            return
        key = event.slot, event.node, event.user, event.began_at_ms
        self.open_sessions = [
            each for each in self.open_sessions if (each.slot, each.node, each.user, each.began_at_ms) != key
        ]

    def note_entry(self, sequence: int) -> None:
        """Record that the log holds a change of the operation in this entry."""
        self.first_sequence = self.first_sequence or (0 if self.sequence else sequence)
        self.sequence = sequence


class OperationRecord(_Fields, kw_only=True):
    """An operation as a checkpoint stores it."""

    operation: OperationId
    ledger: LedgerRecord
    #: Placement of the operation in each of its trees. None in records of old versions, in which each operation ran in one tree and
    #: never waited.
    placements: list[TreePlacement] | None = None


class Operation(_Fields, kw_only=True, eq=False):
    """An operation as the log describes it. Changed only by `State`."""

    id: OperationId
    ledger: Ledger
    #: Placement of the operation in each of its trees; after its end, the last placements.
    placements: dict[TreeName, TreePlacement] = {}
    #: Bytes that the spec of the operation takes in memory.
    spec_bytes: int = 0
    #: Bytes with which `OperationBytes` counts this operation, among the live or among the finished operations.
    counted_bytes: int = 0
    is_counted_live: bool = True

    @property
    def size_bytes(self) -> int:
        """Bytes that the spec, the ledger, the reasons and the open sessions of the operation take in memory."""
        sessions_bytes = sum(_SESSION_BYTES + texts_bytes((each.user,)) for each in self.open_sessions)
        return (
            self.spec_bytes + self.ledger.size_bytes + texts_bytes((self.reason, self.suspended_for)) + sessions_bytes
        )

    @property
    def is_vanilla(self) -> bool:
        return self.spec.is_vanilla

    @property
    def ends_by_ms(self) -> int:
        """Return the Unix time in milliseconds at which the operation reaches its time limit; 0 if it has no limit or does not run."""
        limit_ms = self.spec.operation_time_limit_ms
        if limit_ms is None or self.state is not OperationState.RUNNING:
            return 0
        return (self.runs_since_ms or self.started_at_ms) + limit_ms

    @property
    def is_held_back(self) -> bool:
        """True if the operation is in no queue yet because it waits for other operations."""
        return any(placement.blocked_by == UPSTREAM for placement in self.placements.values())

    @property
    def awaiting_jobs(self) -> int:
        """Number of jobs of this operation that wait for jobs of another operation; 0 if this operation is ending or has ended."""
        owners = self.ledger.owners
        waits = self.state in (OperationState.PENDING, OperationState.RUNNING)
        return owners.awaiting if owners is not None and waits else 0

    @property
    def may_be_judged(self) -> bool:
        """True if a decision about the operation is due: it is held back although it may run, or it can never complete."""
        if self.upstream_failure:
            return self.state in (OperationState.PENDING, OperationState.RUNNING)
        has_job = self.ledger.owners is None or self.ledger.owners.free > 0
        return self.is_held_back and not self.awaits and has_job

    def size_of_run(self, end: JobEnd) -> Resources:
        """Return the resources that a run had: the resources of its job, with more memory if the memory was raised for this run."""
        size = self.spec.size_of(end.index)
        return msgspec.structs.replace(size, memory=end.memory_bytes) if end.memory_bytes else size

    def to_record(self) -> OperationRecord:
        placements = list(self.placements.values())
        return OperationRecord(
            operation=self.id, ledger=self.ledger.to_record(), placements=placements, **_common(self)
        )

    @classmethod
    def from_record(cls, record: OperationRecord) -> Operation:
        spec, placements = record.spec, record.placements
        if placements is None:
            placements = [TreePlacement(spec.tree, spec.pool, ticket=0)]
        ledger = Ledger.from_record(spec.job_count, record.ledger)
        if len(placements) > 1 and ledger.owners is None:
            # Older versions leased all jobs to one tree.
            ledger.share_out(spec.tree)
        by_tree = {placement.tree: placement for placement in placements}
        return cls(id=record.operation, ledger=ledger, placements=by_tree, **_common(record))


def _common(fields: _Fields) -> dict[str, Any]:
    return {name: getattr(fields, name) for name in _Fields.__struct_fields__}


class OperationBytes:
    """The bytes of live operations, by user and in total, and the bytes of finished operations, for the quotas."""

    def __init__(self) -> None:
        self.live = 0
        self.live_of_user: Counter[str] = Counter()
        self.finished = 0

    def count(self, operation: Operation) -> None:
        """Count an operation with its present size, instead of the size with which it was counted before."""
        self.forget(operation)
        operation.counted_bytes = operation.size_bytes
        operation.is_counted_live = not is_final(operation.state)
        self._add(operation, operation.counted_bytes)

    def forget(self, operation: Operation) -> None:
        """Stop counting an operation."""
        self._add(operation, -operation.counted_bytes)
        operation.counted_bytes = 0

    def _add(self, operation: Operation, by: int) -> None:
        if not operation.is_counted_live:
            self.finished += by
            return
        self.live += by
        self.live_of_user[operation.user] += by
        if not self.live_of_user[operation.user]:
            del self.live_of_user[operation.user]
