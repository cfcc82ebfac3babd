"""Effects that the allocator's engine asks of its shell, performed in the order given."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import JobKey
from headrace.wire.ledger import ReportedEnd
from headrace.wire.log import IndexRun
from headrace.wire.version import Term
from headrace_allocator.checks.heartbeat_cases import Case


class Report(msgspec.Struct, frozen=True):
    """Tell the ledger, until it confirms. Then call `on_recorded`."""

    ends: list[ReportedEnd]


def report_of(ends: list[ReportedEnd]) -> list[Effect]:
    """Returns the report of these ends, none if there are none."""
    return [Report(ends)] if ends else []


class Draw(msgspec.Struct, frozen=True):
    """Ask the ledger for indexes up to a border, of an operation of several trees for so many. Then call `on_drawn`."""

    operation: OperationId
    below: int
    more: int = 0


class Return(msgspec.Struct, frozen=True):
    """Return indexes to the ledger, once. What became of it is learnt from the log."""

    operation: OperationId
    change: int
    runs: list[IndexRun]


class Want(msgspec.Struct, frozen=True):
    """Tell the allocators of other trees that jobs of these operations could run here at once."""

    operations: list[OperationId]


class Release(msgspec.Struct, frozen=True):
    """Tell the ledger that no node holds anything of these. Call `on_release_failed` if it could not be told."""

    operations: list[OperationId]


class NudgeNode(msgspec.Struct, frozen=True):
    """Ask a node for a heartbeat now."""

    node: NodeName


class HeldTwice(msgspec.Struct, frozen=True):
    """Raise an alarm: a node holds a job that another allocation holds. It is taken back there."""

    node: NodeName
    allocation: AllocationId
    job: JobKey


class ForeignClaim(msgspec.Struct, frozen=True):
    """Raise an alarm: a node speaks of jobs that it was not given. Nothing of that was believed."""

    node: NodeName
    #: Claims in this heartbeat, and the first of them in words.
    claims: int
    first: str


class UnknownOperation(msgspec.Struct, frozen=True):
    """Log that a node holds an allocation of an operation that admission does not know. It is taken back."""

    node: NodeName
    allocation: AllocationId
    operation: OperationId


class Alarm(msgspec.Struct, frozen=True):
    """Raise an alarm: somebody should look at this."""

    what: str
    about: Mapping[str, str | int | float]


class KeepCase(msgspec.Struct, frozen=True):
    """Raise an alarm, and write the case to a file: the quick way decided otherwise than the plain one."""

    case: Case


class LowerLease(msgspec.Struct, frozen=True):
    """Record that no node knows a longer lease than this. To fail in it harms nothing."""

    lease_ms: int


class RecordEmptyNodes(msgspec.Struct, frozen=True):
    """Record that these nodes run nothing, and no others. Then call `on_empty_nodes_recorded`, also where the outcome is not known."""

    nodes: list[NodeName]


class StepDown(msgspec.Struct, frozen=True):
    """A node knows a higher term: if it was truly taken, this process ends."""

    term: Term


class Superseded(msgspec.Struct, frozen=True):
    """The log has jobs drawn for a higher term, so the ledger refuses ours: this process ends."""

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
    | KeepCase
    | LowerLease
    | RecordEmptyNodes
    | StepDown
    | Superseded
)
