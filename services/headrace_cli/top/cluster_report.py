"""The cluster as it was last reported, part by part, and figures of the cluster as a whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.client.preemptions import Starving, starving_in
from headrace.ids import OperationId
from headrace.resources import RESOURCE_NAMES
from headrace.wire.happenings import AllocationPreempted
from headrace.wire.nodes import NodeView, OperationProgress
from headrace.wire.operations import OperationView
from headrace.wire.plain_values import plain_amount
from headrace.wire.pools import PoolList, PoolView
from headrace.wire.snapshots import ShareItem

#: Upper bound of the operations that are requested: the newest that are not over.
MOST_OPERATIONS: Final = 200


class ClusterReport(msgspec.Struct, frozen=True):
    """All that is known at one time. A part that is None was not reported yet."""

    at_ms: int
    shares: PoolList | None = None
    operations: list[OperationView] | None = None
    nodes: list[NodeView] | None = None
    #: Progress of each operation of which at least one job reports progress.
    progress: Mapping[OperationId, OperationProgress] = {}
    #: Numbers of nodes, as `heard/enrolled`, while the allocator is recovering; empty: it is not recovering.
    recovering: str = ""
    #: Pauses by administrators, in words.
    pauses: list[str] = []
    #: Preemptions since this command began, the newest first.
    preemptions: list[AllocationPreempted] = []
    #: Reason why a part is out of date, by the name of the part.
    silent: dict[str, str] = {}

    @property
    def pools(self) -> list[PoolView]:
        """Return the pools, the root first."""
        return self.shares.pools if self.shares is not None else []

    @property
    def operation_shares(self) -> Mapping[OperationId, ShareItem]:
        """Return the known shares of operations."""
        told = self.shares.operations if self.shares is not None else []
        return {OperationId(item.name): item for item in told}

    @property
    def starving(self) -> list[Starving]:
        """Return what starves, the longest starving first."""
        return starving_in(self.shares) if self.shares is not None else []


class InUse(msgspec.Struct, frozen=True):
    """The usage of one resource of the cluster, counted as in messages (cpu in hundredths of a core)."""

    resource: str
    used: int
    total: int


class Cluster(msgspec.Struct, frozen=True):
    """Figures of the cluster as a whole."""

    tree: str
    in_use: list[InUse]
    #: Version of the snapshot of shares; empty: there is none.
    version: str
    #: Age of the snapshot of shares in milliseconds; None: not known.
    age_ms: int | None
    #: Term of the allocator from whose usage the shares were computed; 0: not known.
    allocator_term: int
    nodes: int
    nodes_online: int
    running_jobs: int
    operations: int
    running_operations: int
    recovering: str
    pauses: list[str]
    #: Errors of the fair-share algorithm in words, such as guarantees above the cluster.
    errors: list[str]
    silent: dict[str, str]


def cluster_of(report: ClusterReport) -> Cluster:
    """Return the figures of the cluster as a whole."""
    root = report.pools[0] if report.pools else None
    shares, nodes = report.shares, report.nodes or []
    total = shares.frame.total if shares is not None else None
    return Cluster(
        tree=shares.tree if shares is not None else "",
        in_use=[
            InUse(name, getattr(root.usage, name), getattr(total, name))
            for name in RESOURCE_NAMES
            if root is not None and name != "user_slots" and getattr(total, name)
        ],
        version=str(shares.version) if shares is not None else "",
        age_ms=max(0, report.at_ms - shares.frame.at_ms) if shares is not None and shares.frame.at_ms else None,
        allocator_term=shares.frame.usage_version.term if shares is not None else 0,
        nodes=len(nodes),
        nodes_online=sum(node.state in ("online", "suspect") for node in nodes),
        running_jobs=sum(node.running_jobs for node in nodes),
        operations=root.operation_count if root is not None else 0,
        running_operations=root.running_count if root is not None else 0,
        recovering=report.recovering,
        pauses=report.pauses,
        errors=list(shares.frame.errors) if shares is not None else [],
        silent=report.silent,
    )


def document(report: ClusterReport) -> dict[str, object]:
    """Return the report as one JSON document."""
    cluster = cluster_of(report)
    in_use = [
        {"resource": name, "used": plain_amount(name, used), "total": plain_amount(name, total)}
        for name, used, total in map(msgspec.structs.astuple, cluster.in_use)
    ]
    return {
        "at_ms": report.at_ms,
        "cluster": {**msgspec.structs.asdict(cluster), "in_use": in_use},
        "pools": report.pools,
        "operations": report.operations or [],
        "operation_shares": list(report.operation_shares.values()),
        "progress": list(report.progress.values()),
        "nodes": report.nodes or [],
        "starving": report.starving,
        "preemptions": report.preemptions,
    }
