"""Dry runs of starts: where an operation would be placed, and what would hold its jobs back there."""

from __future__ import annotations

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.explanations import Cause, NodesFit, PoolRoom
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import StartOperation
from headrace.wire.placements import EphemeralPool, WaitingFor
from headrace.wire.version import Counter


class PlanStart(StartOperation, frozen=True):
    """person → admission: ask for the outcome of this start. Nothing is recorded, and the operation's files need not have been sent."""


class PlannedPlace(msgspec.Struct, frozen=True):
    """The placement that an operation would have in one tree."""

    tree: TreeName
    pool: PoolName
    #: Ephemeral pools that would be made, parents first, the operation's own pool last.
    made: list[EphemeralPool] = []
    #: Placement rule that chose the pool; empty if the request named the pool.
    rule: str = ""
    #: Limit that the operation would wait for. None: it would run at once.
    waiting: WaitingFor | None = None

    @property
    def nearest_existing(self) -> PoolName:
        """The pool if it exists, else the nearest existing pool above it."""
        return self.made[0].parent if self.made else self.pool


class StartPlanned(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The outcome that the start would have."""

    places: list[PlannedPlace]
    #: Trees that would be left out because their pools are at their limits.
    erased_trees: list[TreeName] = []
    #: Existing pool names nearest to the pool of the first placement, if that pool would be ephemeral.
    near: list[str] = []
    #: True if the id is known already: nothing new would be started, and `places` is empty.
    repeated: bool = False
    warnings: list[str] = []
    #: Operations that would have to end before this operation runs.
    awaits: list[OperationId] = []
    #: Why the operation would fail at once; empty unless an operation that it waits for ended in another way than asked.
    upstream_failure: str = ""
    #: Number of jobs that would wait for jobs of `spec.after_each`.
    awaiting_jobs: Counter = 0
    #: Time limit that each run of a job would have, in milliseconds; null: none.
    time_limit_ms: Counter | None = None
    #: Time limit that the whole operation would have, in milliseconds; null: none.
    operation_time_limit_ms: Counter | None = None


class FitOperation(msgspec.Struct, frozen=True):
    """person → allocator: ask what would keep jobs of such an operation from starting now if no other operation competed."""

    spec: OperationSpec


class OperationFit(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Everything that the allocator knows of an operation before the operation has a share."""

    tree: TreeName
    #: Resources that each job needs.
    needed: Resources
    causes: list[Cause]
    nodes: NodesFit
    limits: list[PoolRoom]
    #: Largest number of the operation's jobs that could run at the same time if nothing else ran. None: unknown.
    jobs_at_once: Counter | None = None
