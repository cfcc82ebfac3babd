"""Dry runs of starts: where an operation would come, and what would hold its jobs back there."""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.explanations import Cause, NodesFit, PoolRoom
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import StartOperation
from headrace.wire.placements import EphemeralPool, WaitingFor
from headrace.wire.version import Counter


class PlanStart(StartOperation, frozen=True):
    """person → admission: what would become of this start. Nothing is recorded, and its files need not have been sent."""


class PlannedPlace(msgspec.Struct, frozen=True):
    """The place that an operation would have in one tree."""

    tree: TreeName
    pool: PoolName
    #: Ephemeral pools that would be made, parents first, the operation's own last.
    made: list[EphemeralPool] = []
    #: The placement rule that chose the pool; empty where the request did.
    rule: str = ""
    #: The limit for which it would wait. None: it would run at once.
    waiting: WaitingFor | None = None

    @property
    def nearest_existing(self) -> PoolName:
        """The pool, or else the one that exists above it."""
        return self.made[0].parent if self.made else self.pool


class StartPlanned(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The start would be recorded so."""

    places: list[PlannedPlace]
    #: Trees that would be left out since they have no room.
    erased_trees: list[TreeName] = []
    #: The nearest existing pool names, where the pool of the first place would be ephemeral.
    near: list[str] = []
    #: The id is known already: nothing new would be started, and there are no places.
    repeated: bool = False
    warnings: list[str] = []


class FitOperation(msgspec.Struct, frozen=True):
    """person → allocator: what of its own would keep jobs of such an operation from starting now."""

    spec: OperationSpec


class OperationFit(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """All that can be said of an operation before it has a share."""

    tree: TreeName
    #: Each job's size.
    needed: Resources
    causes: list[Cause]
    nodes: NodesFit
    limits: list[PoolRoom]
    #: The most of its jobs that could run at once, were nothing else there. None: that is not known.
    jobs_at_once: Counter | None = None
