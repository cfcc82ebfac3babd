"""Questions of what if: the shares of a running tree, and what they would be after changes that nobody makes."""

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

#: Of nodes in one supposition.
_MOST_NODES = 1_000_000


class SupposedNodes(msgspec.Struct, frozen=True):
    """Nodes that are supposed to come, or to go where `count` is less than 0."""

    count: Annotated[int, msgspec.Meta(ge=-_MOST_NODES, le=_MOST_NODES)]
    #: Of each.
    resources: Resources
    tags: Tags = []


class SupposedOperation(msgspec.Struct, frozen=True):
    """An operation that is supposed to start."""

    spec: OperationSpec
    #: Pools that would be made for it, parents first.
    ephemeral_pools: Annotated[list[EphemeralPool], msgspec.Meta(max_length=10)] = []
    #: Whether it would wait for a running slot, by the word of admission. None: that is to be judged here.
    waits: bool | None = None


class WhatIf(msgspec.Struct, frozen=True):
    """Ask for the shares of a tree before and after all of this. Nothing is changed."""

    tree: TreeName = TreeName("default")
    changes: list[PoolChange] = []
    operations: Annotated[list[SupposedOperation], msgspec.Meta(max_length=100)] = []
    nodes: Annotated[list[SupposedNodes], msgspec.Meta(max_length=100)] = []


class ElementShares(msgspec.Struct, frozen=True):
    """The shares of a pool or an operation in one of the two worlds."""

    weight: float = 1.0
    #: As shares of the cluster, and as amounts.
    fair_share: Share = ZERO_SHARE
    fair_resources: Resources = ZERO
    #: Strong guarantee in force.
    guarantee: Resources = ZERO
    usage: Resources = ZERO
    demand: Resources = ZERO
    #: Milliseconds until it starves if no job starts or ends, 0 if it starves already. None: it does not, or that is not known.
    starves_in_ms: Counter | None = None


class ComparedElement(msgspec.Struct, frozen=True):
    """The root, a pool or an operation, before and after. None: it is not there."""

    kind: ElementKind
    #: Pool name or operation id.
    name: str
    #: Pool that it stands in, in the end if it is still there; empty for the root.
    parent: PoolName
    before: ElementShares | None
    after: ElementShares | None
    #: True if any of it differs.
    differs: bool


class WhatIfAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Both worlds side by side: parents before children."""

    #: What becomes of the configuration. If it breaks rules, nothing of it could be made, by this person at least.
    plan: PoolPlan
    total_before: Resources
    total_after: Resources
    #: All that differs with all pools above, then pools that do not, as far as there is room. Empty if there is no second world.
    elements: list[ComparedElement] = []
    #: Elements that differ for which there was no room; those that differ least.
    left_out: Counter = 0
    #: All those that do not differ.
    unchanged_pools: Counter = 0
    unchanged_operations: Counter = 0
    #: What else is to be known, in words.
    notes: list[str] = []
