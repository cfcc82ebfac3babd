"""A plan: the shares of a pool tree that is described in a file.

A plan does not go over the bus. The process that computes a plan passes it as JSON to the process that shows it, and `headrace plan --json`
prints this JSON.
"""

from __future__ import annotations

import enum

import msgspec

from headrace.resources import ZERO, Finite, Resources
from headrace.tree_file.problems import FileProblem
from headrace.wire.snapshots import ElementKind, ShareComplaint, ShareItem
from headrace.wire.version import Counter


class PlanRefused(msgspec.Struct, frozen=True, tag_field="outcome", tag="refused"):
    """The file cannot be used. `problems` has all problems of the file, in the order of its lines."""

    file: str
    problems: list[FileProblem]


class BoundKind(enum.StrEnum):
    """Reasons for which an element's fair share is not larger."""

    #: The element wants nothing.
    IDLE = "idle"
    #: The element is owed all that it wants.
    MET = "met"
    #: The element wants a resource that the cluster does not have.
    ABSENT = "absent"
    #: The element is at its own limit, or at the limit of a pool above it.
    LIMIT = "limit"
    #: The nodes that match the element's tag filters have no more resources for it: the rest is owed to elements that can run only on these
    #: nodes.
    NODES = "nodes"
    #: Every child that wants more is at a limit of its own.
    BELOW = "below"
    #: The element is an operation in a fifo pool, and the operations before it in the pool's order are served first.
    FIFO = "fifo"
    #: The element is a gang, which gets all that it wants or nothing, and what it wants does not fit.
    GANG = "gang"
    #: The whole cluster is given out, and the fair share is the element's part of the cluster.
    FULL = "full"
    #: No element can take the rest of the cluster, because no element demands resources in the proportions of the rest.
    SHAPE = "shape"


class Bound(msgspec.Struct, frozen=True):
    """The reason why an element's fair share is not larger, with the resource and the pool that bind it."""

    kind: BoundKind
    #: Resource that binds; empty if no single resource does.
    resource: str = ""
    #: Pool whose limit or order binds; empty if the element's own limit does.
    pool: str = ""


class Scaled(msgspec.Struct, frozen=True):
    """A guarantee that is not in force as configured."""

    #: Setting of the guarantee: `strong_guarantee_resources` or `burst_guarantee_resources`.
    setting: str
    resource: str
    #: Configured amount; cpu in hundredths of a core, memory in bytes.
    configured: Counter
    #: Amount in force, in the same unit.
    in_force: Counter


class PlanElement(msgspec.Struct, frozen=True):
    """The root, a pool or an operation, with its shares."""

    kind: ElementKind
    name: str
    path: str
    #: Line of the element in the file.
    line: Counter
    share: ShareItem
    bound: Bound
    #: Strong guarantee in force: missing amounts are inferred, and amounts that do not fit into the parent's guarantee or limit are
    #: reduced.
    guarantee: Resources = ZERO
    #: Fair share as amounts.
    fair_resources: Resources = ZERO
    usage: Resources = ZERO
    demand: Resources = ZERO
    scaled: list[Scaled] = []
    #: Savings used for the computation: share of the cluster times seconds; None without integral guarantees.
    accumulated_resource_ratio_volume: Finite | None = None
    gang: bool = False


class Plan(msgspec.Struct, frozen=True, tag_field="outcome", tag="computed"):
    """The tree with all its shares: parents before children, in the order of the file, child pools before operations."""

    file: str
    total: Resources
    elements: list[PlanElement]
    #: Errors of the algorithm; the computation went on in spite of them.
    complaints: list[ShareComplaint] = []
    #: Rules of the configuration that a running Headrace would refuse, and settings that have no effect in a plan, in words.
    warnings: list[str] = []
