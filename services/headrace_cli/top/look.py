"""The cluster as it was told, part by part, and the figures of it as a whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.ids import OperationId
from headrace.resources import RESOURCE_NAMES
from headrace.wire.happenings import AllocationPreempted
from headrace.wire.nodes import NodeView, OperationProgress
from headrace.wire.operations import OperationView
from headrace.wire.pools import PoolList, PoolView
from headrace.wire.snapshots import ShareItem
from headrace_cli.show.elements.starving import Starving, starving_in

#: The newest operations that are not over.
MOST_OPERATIONS: Final = 200


class Look(msgspec.Struct, frozen=True):
    """All that is known at a moment. None: nobody told it yet."""

    at_ms: int
    shares: PoolList | None = None
    operations: list[OperationView] | None = None
    nodes: list[NodeView] | None = None
    #: Of operations of which some job says how far it is.
    progress: Mapping[OperationId, OperationProgress] = {}
    #: Of the allocator, «heard/enrolled» while it is recovering.
    recovering: str = ""
    #: In words, by an operator.
    pauses: list[str] = []
    #: The newest first, since this look at the cluster began.
    preemptions: list[AllocationPreempted] = []
    #: Why a part of it is as old as it is, by the part.
    silent: dict[str, str] = {}

    @property
    def pools(self) -> list[PoolView]:
        """The pools, the root first."""
        return self.shares.pools if self.shares is not None else []

    @property
    def operation_shares(self) -> Mapping[OperationId, ShareItem]:
        """The shares of operations, as far as they were told."""
        told = self.shares.operations if self.shares is not None else []
        return {OperationId(item.name): item for item in told}

    @property
    def starving(self) -> list[Starving]:
        """Whatever starves, the longest first."""
        return starving_in(self.shares) if self.shares is not None else []


class InUse(msgspec.Struct, frozen=True):
    """One resource of the cluster, of which there is some."""

    resource: str
    used: int
    total: int


class Cluster(msgspec.Struct, frozen=True):
    """The cluster as a whole."""

    tree: str
    in_use: list[InUse]
    #: Of the snapshot of shares, and its age.
    version: str
    age_ms: int | None
    #: The term of the allocator whose usage the shares are of. 0: none is known.
    allocator_term: int
    nodes: int
    nodes_online: int
    running_jobs: int
    operations: int
    running_operations: int
    recovering: str
    pauses: list[str]
    #: What the shares break of what was promised, in words.
    errors: list[str]
    silent: dict[str, str]


def cluster_of(look: Look) -> Cluster:
    """Sums up what is known."""
    root = look.pools[0] if look.pools else None
    shares, nodes = look.shares, look.nodes or []
    total = shares.frame.total if shares is not None else None
    return Cluster(
        tree=shares.tree if shares is not None else "",
        in_use=[
            InUse(name, getattr(root.usage, name), getattr(total, name))
            for name in RESOURCE_NAMES
            if root is not None and name != "user_slots" and getattr(total, name)
        ],
        version=str(shares.version) if shares is not None else "",
        age_ms=max(0, look.at_ms - shares.frame.at_ms) if shares is not None and shares.frame.at_ms else None,
        allocator_term=shares.frame.usage_version.term if shares is not None else 0,
        nodes=len(nodes),
        nodes_online=sum(node.state == "online" for node in nodes),
        running_jobs=sum(node.running_jobs for node in nodes),
        operations=root.operation_count if root is not None else 0,
        running_operations=root.running_count if root is not None else 0,
        recovering=look.recovering,
        pauses=look.pauses,
        errors=list(shares.frame.errors) if shares is not None else [],
        silent=look.silent,
    )


def document(look: Look) -> dict[str, object]:
    """The look as one JSON document."""
    return {
        "at_ms": look.at_ms,
        "cluster": cluster_of(look),
        "pools": look.pools,
        "operations": look.operations or [],
        "operation_shares": list(look.operation_shares.values()),
        "progress": list(look.progress.values()),
        "nodes": look.nodes or [],
        "starving": look.starving,
        "preemptions": look.preemptions,
    }
