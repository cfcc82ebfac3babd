"""A plan: the shares of a pool tree that is described in a file, passed from the process that computes it to the one that shows it.

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
    """The file cannot be used. The answer has all its problems, in the order of lines."""

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
    #: The nodes that match the element's tag filters have no more for it, because elements that can run only there are
    #: owed the rest.
    NODES = "nodes"
    #: Every child that wants more is at a limit of its own.
    BELOW = "below"
    #: In a fifo pool the elements before this one come first.
    FIFO = "fifo"
    #: The element is a gang, which gets all or nothing, and all of it does not fit.
    GANG = "gang"
    #: The whole cluster is given out; this is the element's part.
    FULL = "full"
    #: The rest of the cluster cannot be given to any element, because no demand has its proportions of resources.
    SHAPE = "shape"


class Bound(msgspec.Struct, frozen=True):
    """The bound of an element's share."""

    kind: BoundKind
    #: Resource that binds; empty if no single resource does.
    resource: str = ""
    #: Pool whose limit or order binds; empty if the element's own limit does.
    pool: str = ""


class Scaled(msgspec.Struct, frozen=True):
    """A guarantee that is not in force as configured."""

    #: `strong_guarantee_resources` or `burst_guarantee_resources`.
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
    #: Strong guarantee in force, after inference and fitting.
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
    #: Warnings that a running Headrace would give for this configuration, and facts about it that a plan cannot know.
    warnings: list[str] = []
