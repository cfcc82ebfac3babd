"""Gangs: operations whose jobs start together or not at all, and what is known of each beside its allocations.

    waiting ─> gathering ─> starting ─> running ─> (its jobs ended)
       ^           │            └──> breaking <──┘
       ├── paused <┘                    │
       ├─> yielding ─> (waiting)        │
       └────────────────────────────────┘

While it gathers, room is held for it on nodes: an allocation of one job that no node was told of. One gang of a tree gathers at a time,
so that no two can wait for each other. Invariant (`Facts.checks`): a gang that waits, yields, gathers or pauses has no job on any
node.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.ids import NodeName, PoolName
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.facts.allocations import Allocation

#: Until room is gathered again for a gang that found too little: doubled each time.
_FIRST_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 300.0


class GangPhase(enum.StrEnum):
    """The course of a gang."""

    WAITING = "waiting"
    #: Room is held for it until all of its jobs have a place.
    GATHERING = "gathering"
    #: All have one, and their nodes are being told.
    STARTING = "starting"
    RUNNING = "running"
    #: A job is missing: the others are taken back, and all start anew.
    BREAKING = "breaking"
    #: It found too little room in time, and room is held for others meanwhile.
    PAUSED = "paused"
    #: Another gang of its pool found too little room in time, and those of other pools go first.
    YIELDING = "yielding"


#: Phases in which all of its jobs are on nodes.
TOGETHER: Final = frozenset({GangPhase.STARTING, GangPhase.RUNNING})


class JobsAtOnce(msgspec.Struct, frozen=True):
    """The most jobs of an operation that can run at once, were nothing else there."""

    most: int
    #: The pool whose limit bounds them. Empty: their operation's own limit does. None: the room of all nodes does.
    limit_of: PoolName | None = None


class Gang:
    """One gang."""

    __slots__ = ("asked", "at_once", "awaited", "holds", "pauses", "phase", "priority", "tried_s", "until_s")

    def __init__(self) -> None:
        self.phase = GangPhase.WAITING
        #: Room that is held for it: its allocations that no node was told of.
        self.holds: dict[Allocation, None] = {}
        #: True once nodes were asked to speak: all of its jobs have a place, or all that are left are to go.
        self.asked = False
        #: Nodes that must be heard, with room for its jobs, before any of them starts.
        self.awaited: set[NodeName] = set()
        #: The end of gathering, starting or pausing.
        self.until_s: float | None = None
        #: None: nothing bounds them, or that is not known.
        self.at_once: JobsAtOnce | None = None
        #: How often in a row it found too little room in time.
        self.pauses = 0
        #: Its preemption priority where `preempt_gangs_whole` is set, where it has none as an operation: no heartbeat preempts for it.
        self.priority = PreemptionPriority.NONE
        #: When it was last looked for room that others would have to give up for it.
        self.tried_s: float | None = None

    def next_pause_s(self) -> float:
        """The time until room is gathered for it again. To be called once for each pause."""
        self.pauses += 1
        return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self.pauses - 1, 10))
