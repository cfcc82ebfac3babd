"""Reasons for which jobs wait, as data with figures. `words` makes the only English of them."""

from __future__ import annotations

import enum

import msgspec

from headrace.ids import NodeName, OperationId, PoolName
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import Resources
from headrace.wire.operations import OperationState
from headrace_allocator.facts.nodes import NodeCondition
from headrace_allocator.gangs.gang import GangPhase


class Exceeded(msgspec.Struct, frozen=True):
    """A resource of which one more job would take too much."""

    resource: str
    used: int
    limit: int
    #: What the job needs.
    needed: int = 0


class OperationNotRunning(msgspec.Struct, frozen=True, tag="operation_not_running"):
    """Its state lets no job start."""

    state: OperationState


class OperationSuspended(msgspec.Struct, frozen=True, tag="operation_suspended"):
    """Somebody suspended it."""


class DemandCovered(msgspec.Struct, frozen=True, tag="demand_covered"):
    """It has all that it wanted when shares were computed last, and wants more since."""


class FifoCountReached(msgspec.Struct, frozen=True, tag="fifo_count_reached"):
    """It is owed nothing, and as many operations of its fifo pool as may take part stand before it."""


class FairShareReached(msgspec.Struct, frozen=True, tag="fair_share_reached"):
    """It is graceful and not below its fair share: it gets no more than that."""


class GangWaits(msgspec.Struct, frozen=True, tag="gang_waits"):
    """It is a gang, and its jobs start together or not at all."""

    phase: GangPhase
    jobs: int
    #: Jobs of it that are on nodes.
    running: int = 0
    #: Jobs for which room is held, and on how many nodes.
    held: int = 0
    nodes: int = 0
    #: Until what it does now is over.
    left_s: float = 0.0
    #: Another gang for which room is held.
    other: OperationId = OperationId("")


class GangOwedTooLittle(msgspec.Struct, frozen=True, tag="gang_owed_too_little"):
    """It is a gang that starves and is owed room for fewer jobs than start together, so nothing is preempted for it."""

    jobs: int
    owed: int


class GangNeverFits(msgspec.Struct, frozen=True, tag="gang_never_fits"):
    """It is a gang of more jobs than can run at once, were nothing else there."""

    jobs: int
    most: int
    #: The pool whose limit bounds them. Empty: its own limit does. None: the room of all nodes does.
    limit_of: PoolName | None


class NoJobReady(msgspec.Struct, frozen=True, tag="no_job_ready"):
    """No job of it can be given out at this moment."""


class StartsPaused(msgspec.Struct, frozen=True, tag="starts_paused"):
    """An operator lets no job start in the tree."""


class StillRecovering(msgspec.Struct, frozen=True, tag="still_recovering"):
    """The allocator waits for the word of nodes that may run jobs of it."""

    heard: int
    enrolled: int
    in_doubt: int
    #: The first of the nodes that have not reported, by name.
    awaited: list[NodeName] = []


class LimitsUnknown(msgspec.Struct, frozen=True, tag="limits_unknown"):
    """No snapshot of shares has told of the limits of pools since the allocator began."""


class PoolLimitReached(msgspec.Struct, frozen=True, tag="pool_limit_reached"):
    """The limit of its pool, or of one above, leaves no room for another job."""

    pool: PoolName
    exceeded: tuple[Exceeded, ...]


class OperationLimitReached(msgspec.Struct, frozen=True, tag="operation_limit_reached"):
    """Its own limits leave no room for another job."""

    exceeded: tuple[Exceeded, ...]


class NoNodeAcceptsJobs(msgspec.Struct, frozen=True, tag="no_node_accepts_jobs"):
    """Every node is silent, drained, left out by a rule of the tree, or in trouble."""

    #: The first few of them.
    nodes: tuple[tuple[NodeName, NodeCondition], ...]
    #: One that lacks the isolation that the tree requires, and why it does.
    unisolated: tuple[NodeName, str] | None = None
    #: One that is online and says why it starts nothing.
    in_trouble: tuple[NodeName, str] | None = None


class NoNodeMatches(msgspec.Struct, frozen=True, tag="no_node_matches"):
    """Nodes accept jobs, and the tags of none match the filters of the operation and its pools."""

    filters: tuple[str, ...]
    #: So many nodes accept jobs.
    nodes: int
    #: A node whose name stands where a tag should. Empty: none does.
    named: NodeName = NodeName("")
    #: Enrolled nodes that match, and accept no jobs now; one of them, and its condition in a word.
    away: int = 0
    first_away: NodeName = NodeName("")
    condition: str = ""


class MatchingNodesOwed(msgspec.Struct, frozen=True, tag="matching_nodes_owed"):
    """It wants more than all the nodes have which match its tag filters, or a pool above it does."""

    #: Empty: it is the operation itself.
    pool: PoolName
    filters: tuple[str, ...]
    #: Resources of which it wants more than these nodes have, and all that they have.
    resources: tuple[str, ...]
    most: Resources


class MatchingNodesShared(msgspec.Struct, frozen=True, tag="matching_nodes_shared"):
    """It is owed a part of what the nodes have which match its tag filters. Others that can run nowhere else are owed the rest."""

    filters: tuple[str, ...]
    resource: str
    owed: Resources
    most: Resources


class LargerThanEveryNode(msgspec.Struct, frozen=True, tag="larger_than_every_node"):
    """No node that accepts jobs could run a job of it, were the node empty."""

    needed: Resources
    #: The most that any of them has, resource by resource.
    most: Resources
    largest: NodeName
    largest_total: Resources
    #: Enrolled nodes that could, and accept no jobs now; one of them, and its condition in a word.
    away: int = 0
    first_away: NodeName = NodeName("")
    condition: str = ""


class NoRoomOnAnyNode(msgspec.Struct, frozen=True, tag="no_room_on_any_node"):
    """Nodes accept jobs, and none has room for one of it."""

    needed: Resources
    #: Nothing starts on a node with less room than this.
    spare: Resources
    nodes: int
    #: Of the emptiest.
    free: Resources


class RoomUnheard(msgspec.Struct, frozen=True, tag="room_unheard"):
    """Nodes have room for a job of it, and each of them should have been heard long ago."""

    nodes: int
    #: The one that was heard last, and how long ago that was.
    last: NodeName
    silent_s: float


class BlockBeingDrawn(msgspec.Struct, frozen=True, tag="block_being_drawn"):
    """The ledger has not confirmed yet that more of its jobs may be given out."""


class SharesOld(msgspec.Struct, frozen=True, tag="shares_old"):
    """Fair_share has told no shares for so long that nobody loses a place by those that are known."""

    age_s: float


class PreemptionPaused(msgspec.Struct, frozen=True, tag="preemption_paused"):
    """It might take places of others, and an operator lets nothing be taken in the tree."""


class PlacesKept(msgspec.Struct, frozen=True, tag="places_kept"):
    """It might take places of others, and pools that have some let none be taken."""

    #: The first few, each the highest of those of one `preemption` that stand below each other.
    pools: tuple[tuple[PoolName, PreemptionSwitch], ...]


class PlacesExempt(msgspec.Struct, frozen=True, tag="places_exempt"):
    """It might take places of others, and jobs in them began too lately for that."""

    places: int
    nodes: int
    #: Until the first of them may be taken.
    left_s: float


class KeptBy(enum.StrEnum):
    """A rule by which a place is not taken for an operation that starves. Of several the first is told."""

    #: Its job ends already, so that the room comes free without this one.
    ENDING = "ending"
    GRACEFUL = "graceful"
    #: `preemption` of its pool is off or observe.
    PREEMPTION = "preemption"
    ALLOW_NORMAL_PREEMPTION = "allow_normal_preemption"
    #: Under a YARN policy.
    ALLOW_PREEMPTION_FROM = "allow_preemption_from"
    USAGE_THRESHOLD = "non_preemptible_resource_usage_threshold"
    #: Its operation is owed all that it wants.
    OWED_EVERYTHING = "owed_everything"
    FAIR_SHARE = "fair_share"
    #: The part of the fair share that even aggressive preemption leaves.
    PART_OF_FAIR_SHARE = "part_of_fair_share"
    ALLOW_AGGRESSIVE_PREEMPTION = "allow_aggressive_preemption"
    GANG = "gang"
    #: It is of a gang that goes as a whole or not at all, and nobody is owed all of its room.
    WHOLE_GANG = "whole_gang"
    STARVING = "starving"
    #: By the older rules of victims its operation or a pool above is shielded as a whole.
    LEGACY_RULES = "legacy_rules"
    EXEMPT = "preemption_exempt_time"


class PlacesProtected(msgspec.Struct, frozen=True, tag="places_protected"):
    """It might take places of others, and a rule keeps some on nodes that were looked at for it."""

    kept_by: KeptBy
    #: Jobs in these places, and the nodes that these are on.
    places: int
    nodes: int
    #: The first few pools, the most places first: of each the pool that sets the rule, else the one of the operations.
    pools: tuple[tuple[PoolName, int], ...]


class RoomBeingMade(msgspec.Struct, frozen=True, tag="room_being_made"):
    """On every node with room for a job of it a start waits for another job to go. Nothing else starts there."""

    nodes: int


class NodeReserved(msgspec.Struct, frozen=True, tag="node_reserved"):
    """A node is reserved for it, and its job does not fit there yet."""

    node: NodeName
    #: Seconds until the job is expected to fit, and until the reservation ends at the latest.
    expected_s: float
    left_s: float


class RoomReserved(msgspec.Struct, frozen=True, tag="room_reserved"):
    """Each node with free resources for a job of it is reserved for another operation."""

    nodes: int
    #: One of these operations.
    operation: OperationId


class NoShareYet(msgspec.Struct, frozen=True, tag="no_share_yet"):
    """No snapshot of shares has named it in its pool. Neither its share nor its limits are known."""


class NoShare(msgspec.Struct, frozen=True, tag="no_share"):
    """Its fair share is zero."""

    #: All that a gang wants, of which it is owed everything or nothing. None: it is no gang.
    gang_wants: Resources | None = None


class PoolOverFairShare(msgspec.Struct, frozen=True, tag="pool_over_fair_share"):
    """A pool above it has its fair share, so whatever is below another that is short goes first."""

    pool: PoolName
    satisfaction: float


class OverFairShare(msgspec.Struct, frozen=True, tag="over_fair_share"):
    """It has its fair share, so whoever is below theirs goes first."""

    satisfaction: float


Reason = (
    OperationNotRunning
    | OperationSuspended
    | DemandCovered
    | FifoCountReached
    | FairShareReached
    | GangWaits
    | GangNeverFits
    | GangOwedTooLittle
    | NoJobReady
    | StartsPaused
    | StillRecovering
    | LimitsUnknown
    | PoolLimitReached
    | OperationLimitReached
    | NoNodeAcceptsJobs
    | NoNodeMatches
    | MatchingNodesOwed
    | MatchingNodesShared
    | LargerThanEveryNode
    | NoRoomOnAnyNode
    | BlockBeingDrawn
    | SharesOld
    | PreemptionPaused
    | PlacesKept
    | PlacesExempt
    | PlacesProtected
    | RoomBeingMade
    | NodeReserved
    | RoomReserved
    | RoomUnheard
    | NoShareYet
    | NoShare
    | OverFairShare
    | PoolOverFairShare
)
