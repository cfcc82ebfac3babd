"""Effects that the allocator's engine asks the service around it to perform, in the order given."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import JobKey
from headrace.wire.ledger import ReportedEnd, ReportedSession
from headrace.wire.log import IndexRun
from headrace.wire.version import Term


class Report(msgspec.Struct, frozen=True):
    """Report session spans and ends of jobs to the ledger until it confirms them. Then call `on_recorded`."""

    ends: list[ReportedEnd]
    sessions: list[ReportedSession] = []


def report_of(ends: list[ReportedEnd], sessions: list[ReportedSession] | None = None) -> list[Effect]:
    """Return the effect that reports these ends and session spans; an empty list if there are none."""
    return [Report(ends, sessions or [])] if ends or sessions else []


class Draw(msgspec.Struct, frozen=True):
    """Lease indexes of an operation from the ledger. Then call `on_drawn`.

    The lease is for all indexes below `below`, or for `more` indexes if several trees run the operation.
    """

    operation: OperationId
    below: int
    more: int = 0


class Return(msgspec.Struct, frozen=True):
    """Release indexes to the ledger, in one attempt. The log shows whether the ledger accepted them."""

    operation: OperationId
    change: int
    runs: list[IndexRun]


class Want(msgspec.Struct, frozen=True):
    """Tell the allocators of other trees that jobs of these operations could run here at once."""

    operations: list[OperationId]


class Release(msgspec.Struct, frozen=True):
    """Tell the ledger that no node holds anything of these operations. Call `on_release_failed` if that fails."""

    operations: list[OperationId]


class NudgeNode(msgspec.Struct, frozen=True):
    """Ask a node for a heartbeat now."""

    node: NodeName


class HeldTwice(msgspec.Struct, frozen=True):
    """Raise an alarm: a node holds a job that another allocation holds, too. The job is taken back from this node."""

    node: NodeName
    allocation: AllocationId
    job: JobKey


class ForeignClaim(msgspec.Struct, frozen=True):
    """Raise an alarm: a node reported jobs that it was not given. These false claims were dropped."""

    node: NodeName
    #: Number of false claims in this heartbeat.
    claims: int
    #: Text of the first of these claims.
    first: str


class UnknownOperation(msgspec.Struct, frozen=True):
    """Log that a node holds an allocation of an operation that admission does not know. The allocation is taken back."""

    node: NodeName
    allocation: AllocationId
    operation: OperationId


class Alarm(msgspec.Struct, frozen=True):
    """Raise an alarm that a person should look into."""

    what: str
    about: Mapping[str, str | int | float]


class SuspectNode(msgspec.Struct, frozen=True):
    """Report that a node became suspect, or that it is suspect no more."""

    node: NodeName
    is_suspect: bool
    #: Text that says how jobs fail on the node; empty if the node is suspect no more.
    words: str
    #: Operations whose jobs failed on the node in a row.
    operations: list[OperationId]


class LowerLease(msgspec.Struct, frozen=True):
    """Record `lease_ms` as the longest lease that any node may have been given. If the record cannot be written, the next allocator waits
    longer than necessary; nothing else goes wrong.
    """

    lease_ms: int


class RecordEmptyNodes(msgspec.Struct, frozen=True):
    """Record these nodes, and no others, as nodes that run nothing.

    Then call `on_empty_nodes_recorded`, even if the outcome is unknown.
    """

    nodes: list[NodeName]


class StepDown(msgspec.Struct, frozen=True):
    """Act on a node that knows a higher term than this allocator's: end this process if another process really took the higher term."""

    term: Term


class Superseded(msgspec.Struct, frozen=True):
    """End this process: the log contains leases for a higher term, so the ledger refuses this allocator."""

    term: Term


Effect = (
    Report
    | Draw
    | Return
    | Want
    | Release
    | NudgeNode
    | HeldTwice
    | ForeignClaim
    | UnknownOperation
    | Alarm
    | SuspectNode
    | LowerLease
    | RecordEmptyNodes
    | StepDown
    | Superseded
)
