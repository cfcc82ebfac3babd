"""Explanations: why jobs of an operation wait in one tree, in words and figures, as its allocator knows it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.pools.tree_options import PreemptionPolicy
from headrace.resources import ZERO, Finite, Resources
from headrace.wire.snapshots import ElementKind, PreemptionPriority
from headrace.wire.version import Counter


class ExplainWaiting(msgspec.Struct, frozen=True):
    """person → allocator: why do jobs of an operation wait."""

    operation: Annotated[OperationId, msgspec.Meta(max_length=200)]


class Cause(msgspec.Struct, frozen=True):
    """One reason for which jobs wait."""

    #: Such as `pool_limit_reached`.
    kind: str
    words: str
    #: What would end it, in words.
    cure: str
    #: The reason's own figures by name; amounts as on the wire.
    figures: dict[str, Any]


class NodesFit(msgspec.Struct, frozen=True):
    """Nodes of the tree, and how many of each figure fit the next as well."""

    enrolled: Counter
    accepting: Counter
    #: Accepting ones whose tags match the filters of the operation and its pools.
    matching: Counter
    #: Matching ones that could run a job, were they empty.
    large_enough: Counter
    with_room: Counter


class PoolRoom(msgspec.Struct, frozen=True):
    """The limit of one resource of a pool above an operation, or of the operation itself, without a pool."""

    pool: PoolName
    resource: str
    used: int
    limit: int
    #: One more job would pass it.
    holds: bool


class Ahead(msgspec.Struct, frozen=True):
    """A child of a pool that gets room before the operation, or before the pool that it is below."""

    kind: ElementKind
    name: str
    #: Of what it is owed, by the resource that tells most.
    satisfaction: Finite
    #: Its dominant resource, what it has of that, and what it is owed. Empty: no share of it is known.
    resource: str = ""
    used: int = 0
    owed: int = 0


class Level(msgspec.Struct, frozen=True):
    """One pool on the way from the root to an operation: who comes first there."""

    pool: PoolName
    #: The operation, or the pool on the way to it.
    own: Ahead
    #: So many come before it, and the first of them.
    ahead: Counter
    first: list[Ahead]


class KeptPlaces(msgspec.Struct, frozen=True):
    """Places of others on a node that are not taken for an operation, by the rule that keeps them."""

    #: Such as `allow_normal_preemption`.
    rule: str
    words: str
    places: Counter


class Try(msgspec.Struct, frozen=True):
    """The last preemptive stage of a node in which the operation took part."""

    node: NodeName
    age_ms: Counter
    #: Allocations that could be taken, and what there would be with them.
    candidates: Counter
    room: Resources
    #: What a job needs beyond that.
    short: Resources = ZERO
    #: The operation that got the room; empty: nobody.
    started: OperationId = OperationId("")
    tags_match: bool = True
    #: So many more could be taken, had their jobs run for as long as their pools let them; and the time until the first can.
    exempt: Counter = 0
    exempt_ms: Counter = 0
    #: Places of others there that are not to be had now, the most of one rule first. Empty where something was started.
    kept: list[KeptPlaces] = []


class Tries(msgspec.Struct, frozen=True):
    """The newest preemptive stage of the operation's priority on each node, of at most 500 that were heard last."""

    priority: PreemptionPriority
    #: Under a YARN policy there are no such stages.
    policy: PreemptionPolicy = PreemptionPolicy.YTSAURUS
    #: Nodes looked at, and what came of it.
    nodes: Counter = 0
    started: Counter = 0
    started_others: Counter = 0
    short: Counter = 0
    unmatched: Counter = 0
    #: Nodes with enough to take, where something else held the operation back.
    held_back: Counter = 0
    #: The nodes that came nearest, and the newest among equals.
    nearest: list[Try] = []
    #: Under a YARN policy by which it is due something: places of others that are not to be had, the most of one rule first.
    kept: list[KeptPlaces] = []


class WaitingExplained(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """All that keeps jobs of an operation from starting in one tree."""

    tree: TreeName
    operation: OperationId
    running_jobs: Counter
    pending_jobs: Counter
    in_doubt_jobs: Counter
    #: Each job's size.
    needed: Resources
    causes: list[Cause]
    nodes: NodesFit
    limits: list[PoolRoom]
    levels: list[Level]
    tries: Tries
    #: How often its jobs lost their places within the last hour, and how often the one that did so most.
    preempted: Counter = 0
    preempted_most: Counter = 0
    #: The mean time that its jobs took, of late ones more than of others. None: none has ended yet.
    mean_job_ms: Counter | None = None
