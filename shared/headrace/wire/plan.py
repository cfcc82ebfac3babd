"""A plan: the shares of a pool tree that stands in a file, from who computes to who shows.

Nothing of this goes over the bus. It goes from one process to another as JSON, and `headrace plan --json` prints it.
"""

from __future__ import annotations

import enum

import msgspec

from headrace.resources import ZERO, Finite, Resources
from headrace.tree_file.problems import FileProblem
from headrace.wire.snapshots import ElementKind, ShareComplaint, ShareItem
from headrace.wire.version import Counter


class PlanRefused(msgspec.Struct, frozen=True, tag_field="outcome", tag="refused"):
    """The file cannot be used. All that is wrong with it stands here in the order of its lines."""

    file: str
    problems: list[FileProblem]


class BoundKind(enum.StrEnum):
    """Why an element is owed no more than its fair share."""

    #: It wants nothing.
    IDLE = "idle"
    #: It is owed all that it wants.
    MET = "met"
    #: It wants a resource of which the cluster has none.
    ABSENT = "absent"
    #: A limit of its own, or of a pool above it.
    LIMIT = "limit"
    #: The nodes that match its tag filters have no more, since others that can run nowhere else are owed the rest.
    NODES = "nodes"
    #: Everything that it has and that wants more is at a limit of its own.
    BELOW = "below"
    #: Those before it in a fifo pool come first.
    FIFO = "fifo"
    #: All of it or nothing, and all of it does not fit.
    GANG = "gang"
    #: The cluster is handed out; this is its part.
    FULL = "full"
    #: What is left can be given to nobody in the shape in which it is wanted.
    SHAPE = "shape"


class Bound(msgspec.Struct, frozen=True):
    """Kinds of bounds on an element's share."""

    kind: BoundKind
    #: The resource that binds it; empty where none does alone.
    resource: str = ""
    #: The pool whose limit or order binds it; empty where it is its own.
    pool: str = ""


class Scaled(msgspec.Struct, frozen=True):
    """A guarantee that is not in force as it is configured."""

    #: `strong_guarantee_resources` or `burst_guarantee_resources`.
    setting: str
    resource: str
    #: cpu in hundredths of a core, memory in bytes.
    configured: Counter
    in_force: Counter


class PlanElement(msgspec.Struct, frozen=True):
    """The root, a pool or an operation."""

    kind: ElementKind
    name: str
    path: str
    #: Where it stands in the file.
    line: Counter
    share: ShareItem
    bound: Bound
    #: Strong guarantee in force, after inference and fitting.
    guarantee: Resources = ZERO
    #: Amounts to the shares.
    fair_resources: Resources = ZERO
    usage: Resources = ZERO
    demand: Resources = ZERO
    scaled: list[Scaled] = []
    #: Savings that it was computed with: share of the cluster times seconds; None without integral guarantees.
    accumulated_resource_ratio_volume: Finite | None = None
    gang: bool = False


class Plan(msgspec.Struct, frozen=True, tag_field="outcome", tag="computed"):
    """The tree with all shares: parents before children, in the order of the file, child pools before operations."""

    file: str
    total: Resources
    elements: list[PlanElement]
    #: Errors of the algorithm; it went on all the same.
    complaints: list[ShareComplaint] = []
    #: What a running Headrace would say to this configuration, and what of it a plan cannot know.
    warnings: list[str] = []
