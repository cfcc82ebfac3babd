"""Gangs: jobs of an operation that start together or not at all. The state of a gang beside its allocations.

A gang has all jobs of its operation, or the jobs of some tasks; the jobs of the other tasks then start one by one.

    waiting ─> gathering ─> starting ─> running ─> (its jobs ended)
       ^           │            └──> breaking <──┘
       ├── paused <┘                    │
       ├─> yielding ─> (waiting)        │
       └────────────────────────────────┘

While a gang gathers, resources are held for it on nodes: each hold is an allocation of one job that its node does not know yet. One gang of
a tree gathers at a time, so that no two gangs can wait for each other. Invariant (`Facts.checks`): a gang that waits, yields, gathers or
pauses has no job on any node.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.ids import NodeName, PoolName
from headrace.resources import ZERO
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.gangs.packing import Jobs

#: Seconds before resources are gathered again for a gang that found too few. Each further pause in a row is twice as long.
_FIRST_PAUSE_S: Final = 5.0
#: Upper bound of a gang's pause, in seconds.
_LONGEST_PAUSE_S: Final = 300.0


class GangPhase(enum.StrEnum):
    """The phase of a gang."""

    WAITING = "waiting"
    #: Resources are held for the gang until all its jobs have an allocation.
    GATHERING = "gathering"
    #: All jobs have an allocation, and the nodes are being ordered to start them.
    STARTING = "starting"
    RUNNING = "running"
    #: A job is missing: all other jobs are taken back, and then the gang starts anew.
    BREAKING = "breaking"
    #: The gang found too few resources in time. Resources are held for other gangs meanwhile.
    PAUSED = "paused"
    #: Another gang of the same pool found too few resources in time, so gangs of other pools go first.
    YIELDING = "yielding"


#: Phases in which resources may be held for the gang.
MAY_GATHER: Final = frozenset({GangPhase.WAITING, GangPhase.GATHERING})
#: Phases in which all jobs of the gang are on nodes.
TOGETHER: Final = frozenset({GangPhase.STARTING, GangPhase.RUNNING})


class JobsAtOnce(msgspec.Struct, frozen=True):
    """The largest number of jobs of an operation that can run at once if nothing else runs."""

    most: int
    #: The pool whose limit is the bound; empty for the operation's own limit, None for the resources of all nodes.
    limit_of: PoolName | None = None


class Gang:
    """The state of one gang."""

    __slots__ = (
        "allocations", "asked", "at_once", "awaited", "holds", "judged_for", "pauses", "phase", "priority", "scale", "tried_s", "until_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.phase = GangPhase.WAITING
        #: All allocations of the gang, `holds` included. They are all allocations of the operation, unless only some of its tasks form the
        #: gang.
        self.allocations: dict[Allocation, None] = {}
        #: Resources held for the gang, as allocations that their nodes do not know yet.
        self.holds: dict[Allocation, None] = {}
        #: True once nodes were nudged because all jobs have an allocation, or because all remaining jobs are to be taken back.
        self.asked = False
        #: Nodes that must send a heartbeat that shows enough free resources before any job of the gang starts.
        self.awaited: set[NodeName] = set()
        #: Steady-clock seconds at which gathering, starting or pausing ends.
        self.until_s: float | None = None
        #: The number of jobs that can run at once; None if nothing bounds them or the bound is not known.
        self.at_once: JobsAtOnce | None = None
        #: For a gang with tasks: the jobs that had not ended when `at_once` was computed.
        self.judged_for: list[Jobs] = []
        #: For a gang with tasks: the largest amount of each resource on any node that its jobs may use. Sizes are compared by it.
        self.scale = ZERO
        #: Number of times in a row that the gang found too few resources in time.
        self.pauses = 0
        #: Preemption priority of the gang in a tree with `preempt_gangs_whole`. The operation's own priority is `NONE` in such a tree, so
        #: that the decision on a heartbeat preempts nothing for a single job of the gang.
        self.priority = PreemptionPriority.NONE
        #: Steady-clock seconds of the last search for resources that preemption could free for the gang.
        self.tried_s: float | None = None

    def next_pause_s(self) -> float:
        """Begin a pause, and return its length: the seconds until resources are gathered for the gang again. Each call returns a longer
        pause.
        """
        self.pauses += 1
        return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self.pauses - 1, 10))
