"""What-if requests: the shares of a running tree, and the shares that it would have after changes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.resources import ZERO, ZERO_SHARE, Resources, Share
from headrace.wire.nodes import Tags
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.placements import EphemeralPool
from headrace.wire.pool_changes import PoolChange, PoolPlan
from headrace.wire.snapshots import ElementKind
from headrace.wire.version import Counter

#: Largest number of nodes that one `SupposedNodes` adds or removes.
_MOST_NODES = 1_000_000
#: Largest number of pools over their limits in an answer.
MOST_OVER_LIMITS = 100


class SupposedNodes(msgspec.Struct, frozen=True):
    """Nodes that the what-if request adds to the tree, or removes if `count` is negative."""

    count: Annotated[int, msgspec.Meta(ge=-_MOST_NODES, le=_MOST_NODES)]
    #: Resources of each node.
    resources: Resources
    tags: Tags = []


class SupposedOperation(msgspec.Struct, frozen=True):
    """An operation that the what-if request starts."""

    spec: OperationSpec
    #: Pools that would be made for the operation, parents first.
    ephemeral_pools: Annotated[list[EphemeralPool], msgspec.Meta(max_length=10)] = []
    #: Whether the operation would wait for a running slot, according to admission. None: fair_share decides.
    waits: bool | None = None


class WhatIf(msgspec.Struct, frozen=True):
    """Ask for the shares of a tree before and after all of these changes. Nothing is changed."""

    tree: TreeName = TreeName("default")
    changes: list[PoolChange] = []
    operations: Annotated[list[SupposedOperation], msgspec.Meta(max_length=100)] = []
    nodes: Annotated[list[SupposedNodes], msgspec.Meta(max_length=100)] = []


class ElementShares(msgspec.Struct, frozen=True):
    """The shares of a pool or an operation, before or after the changes."""

    weight: float = 1.0
    #: Fair share, as shares of the cluster.
    fair_share: Share = ZERO_SHARE
    #: Fair share, as amounts.
    fair_resources: Resources = ZERO
    #: Strong guarantee in force.
    guarantee: Resources = ZERO
    usage: Resources = ZERO
    demand: Resources = ZERO
    #: Milliseconds until the element starves if no job starts or ends, 0 if it starves already. None: it will not starve, or the time is
    #: not known.
    starves_in_ms: Counter | None = None


class ComparedElement(msgspec.Struct, frozen=True):
    """The root, a pool or an operation, before and after the changes.

    `before` is None for an element that the changes add, and `after` for an element that they remove.
    """

    kind: ElementKind
    #: Pool name or operation id.
    name: str
    #: Pool that the element is in after the changes, or before the changes if they remove the element; empty for the root.
    parent: PoolName
    before: ElementShares | None
    after: ElementShares | None
    #: True if any figure differs.
    differs: bool


class JobsOverLimits(msgspec.Struct, frozen=True):
    """A pool that uses more than its resource limits after the changes, so that running jobs would be preempted."""

    pool: PoolName
    #: Smallest number of running jobs that must end so that this pool is within its limits. Jobs that must end for the limits of a pool
    #: below are not included.
    jobs: Counter
    #: Number of all running jobs of the pool.
    running_jobs: Counter


class WhatIfAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """All elements before and after the changes, parents before children."""

    #: Outcome of the changes of the configuration. If the changes break rules, the person who asks cannot make these changes.
    plan: PoolPlan
    total_before: Resources
    total_after: Resources
    #: First the elements that differ, with all pools above them, then pools that do not differ; as many as fit into the answer. Empty if
    #: there is nothing to compare.
    elements: list[ComparedElement] = []
    #: Number of differing elements that did not fit; those that differ least are left out.
    left_out: Counter = 0
    #: Number of pools that do not differ.
    unchanged_pools: Counter = 0
    #: Number of operations that do not differ.
    unchanged_operations: Counter = 0
    #: Further notes, in words.
    notes: list[str] = []
    #: Pools over their limits after the changes, at most `MOST_OVER_LIMITS`, parents before children.
    over_limits: Annotated[list[JobsOverLimits], msgspec.Meta(max_length=MOST_OVER_LIMITS)] = []
