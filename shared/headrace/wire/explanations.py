"""Explanations from the allocator: why jobs of an operation wait in one tree, in text and in numbers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.pools.tree_options import PreemptionPolicy
from headrace.resources import ZERO, Finite, Resources
from headrace.wire.snapshots import ElementKind, PreemptionPriority
from headrace.wire.version import Counter


class ExplainWaiting(msgspec.Struct, frozen=True):
    """person → allocator: ask why jobs of an operation wait."""

    operation: Annotated[OperationId, msgspec.Meta(max_length=200)]


class Cause(msgspec.Struct, frozen=True):
    """One reason why jobs wait."""

    #: Kind of the reason, such as `pool_limit_reached`.
    kind: str
    words: str
    #: Text that says how this reason can be removed.
    cure: str
    #: Numbers that belong to this reason, by name. Amounts are in the units of messages.
    figures: dict[str, Any]


class NodesFit(msgspec.Struct, frozen=True):
    """Numbers of nodes of the tree. From `enrolled` to `with_room`, each field counts a part of the nodes that an earlier field counts."""

    #: Nodes enrolled in the tree.
    enrolled: Counter
    #: Enrolled nodes that accept jobs.
    accepting: Counter
    #: Accepting nodes whose tags match the filters of the operation and its pools.
    matching: Counter
    #: Matching nodes that could run a job if they were empty.
    large_enough: Counter
    #: Matching nodes with enough free resources for a job now.
    with_room: Counter
    #: Accepting nodes that match all filters, but have no container runtime for the operation's image. They are not
    #: included in the counts above.
    without_runtime: Counter = 0


class PoolRoom(msgspec.Struct, frozen=True):
    """The limit of one resource, set by the operation itself or by a pool above it."""

    #: The pool that sets the limit; empty for the operation's own limit.
    pool: PoolName
    resource: str
    used: int
    limit: int
    #: True if one more job would exceed the limit.
    holds: bool


class Ahead(msgspec.Struct, frozen=True):
    """A child of a pool that gets resources before the operation, or before the pool on the way to the operation."""

    kind: ElementKind
    name: str
    #: Satisfaction: usage over fair share.
    satisfaction: Finite
    #: Dominant resource; empty if no share of the child is known.
    resource: str = ""
    #: Used amount of that resource; 0 if no share is known.
    used: int = 0
    #: Amount of that resource that the child is owed; 0 if no share is known.
    owed: int = 0


class Level(msgspec.Struct, frozen=True):
    """One pool on the way from the root to an operation, with the children of the pool that get resources before the operation."""

    pool: PoolName
    #: The operation, or the child pool on the way to it.
    own: Ahead
    #: Number of children of the pool that get resources before `own`.
    ahead: Counter
    #: The first few of the children that get resources before `own`, in scheduling order.
    first: list[Ahead]


class ProtectedAllocations(msgspec.Struct, frozen=True):
    """A rule by which this operation may not preempt allocations of other operations, and the number of allocations that the rule
    protects.
    """

    #: Rule that protects the allocations, such as `allow_normal_preemption`.
    rule: str
    words: str
    #: Number of allocations.
    places: Counter


class Try(msgspec.Struct, frozen=True):
    """The newest preemptive stage on a node, and the resources that this stage could have freed for a job of the operation."""

    node: NodeName
    #: Milliseconds since the stage.
    age_ms: Counter
    #: Number of allocations that could be preempted.
    candidates: Counter
    #: Free resources that a job would have after all these allocations were preempted.
    room: Resources
    #: Resources that a job needs beyond `room`.
    short: Resources = ZERO
    #: Operation that started a job in that stage; empty if none did.
    started: OperationId = OperationId("")
    tags_match: bool = True
    #: Number of further allocations that could be preempted if their jobs had already run for the exempt time of their pools.
    exempt: Counter = 0
    #: Milliseconds until the first of the `exempt` allocations can be preempted.
    exempt_ms: Counter = 0
    #: Counts of other operations' allocations that are protected on the node now, one count for each rule, the largest count
    #: first. Empty if the stage started a job.
    kept: list[ProtectedAllocations] = []


class Tries(msgspec.Struct, frozen=True):
    """Results of preemptive stages of the operation's priority: the newest stage on each node. At most 500 nodes are included,
    those with the newest heartbeats.
    """

    priority: PreemptionPriority
    #: Preemption policy of the tree. A YARN policy has no preemptive stages.
    policy: PreemptionPolicy = PreemptionPolicy.YTSAURUS
    #: Number of nodes on which a preemptive stage of the operation's priority ran.
    nodes: Counter = 0
    #: Number of nodes where the stage started a job of this operation.
    started: Counter = 0
    #: Number of nodes where the stage started a job of another operation.
    started_others: Counter = 0
    #: Number of nodes where the stage started nothing and preemption would not have freed enough.
    short: Counter = 0
    #: Number of nodes whose tags do not match the filters of the operation and its pools.
    unmatched: Counter = 0
    #: Number of nodes where preemption would have freed enough, but something else held the operation back.
    held_back: Counter = 0
    #: Stages on the nodes where the fewest resources were missing for a job; if equally few were missing, the newest stage comes first.
    nearest: list[Try] = []
    #: Counts of other operations' protected allocations, one count for each rule, the largest count first. Empty unless the tree
    #: has a YARN policy and the operation may get resources by preemption.
    kept: list[ProtectedAllocations] = []


class WaitingExplained(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Everything that keeps jobs of an operation from starting in one tree."""

    tree: TreeName
    operation: OperationId
    running_jobs: Counter
    pending_jobs: Counter
    in_doubt_jobs: Counter
    #: Resources that each job needs.
    needed: Resources
    causes: list[Cause]
    nodes: NodesFit
    limits: list[PoolRoom]
    levels: list[Level]
    tries: Tries
    #: Number of preemptions of the operation's jobs within the last hour.
    preempted: Counter = 0
    #: Largest number of preemptions of a single job within the last hour.
    preempted_most: Counter = 0
    #: Mean run time of the operation's jobs in milliseconds, weighted towards recent jobs. None until a job has ended.
    mean_job_ms: Counter | None = None
