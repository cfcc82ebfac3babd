"""Reasons why jobs are pending, as data with amounts. Only `words` turns them into English."""

from __future__ import annotations

import enum

import msgspec

from headrace.ids import NodeName, OperationId, PoolName
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import Resources
from headrace.wire.operations import OperationState
from headrace_allocator.gangs.gang import GangPhase


class Exceeded(msgspec.Struct, frozen=True):
    """A resource whose limit one more job would exceed."""

    resource: str
    used: int
    limit: int
    #: Amount that the job needs.
    needed: int = 0


class OperationNotRunning(msgspec.Struct, frozen=True, tag="operation_not_running"):
    """No job may start while the operation is in its present state."""

    state: OperationState


class OperationIsSuspended(msgspec.Struct, frozen=True, tag="operation_suspended"):
    """The operation is suspended."""


class JobSizeRefused(msgspec.Struct, frozen=True, tag="job_size_refused"):
    """The size of each job breaks a bound of a pool, so that no job starts. Running jobs continue."""

    #: The pool that sets the bound; the root if the tree sets it.
    pool: PoolName
    resource: str
    needed: int
    bound: int
    #: True if the job needs more than the upper bound, false if it needs less than the lower bound.
    is_above: bool


class DemandCovered(msgspec.Struct, frozen=True, tag="demand_covered"):
    """The operation has all that it wanted when shares were last computed. Its demand has grown since."""


class FifoCountReached(msgspec.Struct, frozen=True, tag="fifo_count_reached"):
    """The operation is owed nothing: the operations before it in its fifo pool already reach the number that may be scheduled."""


class FairShareReached(msgspec.Struct, frozen=True, tag="fair_share_reached"):
    """The operation is graceful and not below its fair share, so it gets no more."""


class GangWaits(msgspec.Struct, frozen=True, tag="gang_waits"):
    """The operation has a gang, whose jobs start together or not at all."""

    phase: GangPhase
    jobs: int
    #: Number of the gang's jobs that are on nodes.
    running: int = 0
    #: Number of jobs for which resources are held.
    held: int = 0
    #: Number of nodes on which resources are held for the gang.
    nodes: int = 0
    #: Seconds until the present phase of the gang is over.
    left_s: float = 0.0
    #: Number of nodes that are reserved for those jobs of the gang that still lack resources.
    reserved: int = 0
    #: The first few of the reserved nodes.
    reserved_nodes: tuple[NodeName, ...] = ()
    #: Seconds until a job is expected to fit on every reserved node.
    expected_s: float = 0.0
    #: Another gang for which resources are being held; empty if there is none.
    other: OperationId = OperationId("")
    #: Tasks that form the gang; empty if all jobs of the operation do.
    tasks: tuple[str, ...] = ()
    #: Number of other allocations of the operation. They count under the same fair share.
    beside: int = 0


class GangOwedTooLittle(msgspec.Struct, frozen=True, tag="gang_owed_too_little"):
    """The operation is a starving gang that is owed too little for all its jobs together, so nothing is preempted for it."""

    jobs: int
    owed: int
    #: Tasks that form the gang; empty if all jobs of the operation do.
    tasks: tuple[str, ...] = ()


class GangNeverFits(msgspec.Struct, frozen=True, tag="gang_never_fits"):
    """The operation is a gang with more jobs than could run at once if nothing else ran."""

    jobs: int
    most: int
    #: The pool whose limit bounds the jobs. Empty: the operation's own limit bounds them; None: the resources of all nodes do.
    limit_of: PoolName | None
    #: Tasks that form the gang; empty if all jobs of the operation do.
    tasks: tuple[str, ...] = ()


class NoJobReady(msgspec.Struct, frozen=True, tag="no_job_ready"):
    """No job of the operation can be given out now."""


class StartsPaused(msgspec.Struct, frozen=True, tag="starts_paused"):
    """An operator has paused starts in the tree."""


class StillRecovering(msgspec.Struct, frozen=True, tag="still_recovering"):
    """Since the allocator took over, it has waited for the reports of nodes that may run jobs of the operation."""

    heard: int
    enrolled: int
    in_doubt: int
    #: Names of the first few nodes that have not reported.
    awaited: list[NodeName] = []


class LimitsUnknown(msgspec.Struct, frozen=True, tag="limits_unknown"):
    """No snapshot of shares has reported the limits of pools since the allocator started."""


class PoolLimitReached(msgspec.Struct, frozen=True, tag="pool_limit_reached"):
    """The limit of the operation's pool, or of a pool above, does not allow another job."""

    pool: PoolName
    exceeded: tuple[Exceeded, ...]
    #: True if the limit is smaller than a single job, and the tree's option `enable_limiting_ancestor_check` makes the operation fail if
    #: the limit stays so small.
    is_limiting: bool = False


class OperationLimitReached(msgspec.Struct, frozen=True, tag="operation_limit_reached"):
    """The operation's own limits do not allow another job."""

    exceeded: tuple[Exceeded, ...]


class NoNodeAcceptsJobs(msgspec.Struct, frozen=True, tag="no_node_accepts_jobs"):
    """Every node is silent, drained, excluded by a rule of the tree, or in trouble."""

    #: The first few nodes, with their conditions in words.
    nodes: tuple[tuple[NodeName, str], ...]
    #: A node without the isolation that the tree requires, and the reason why it has none.
    unisolated: tuple[NodeName, str] | None = None
    #: A node whose agent reports a reason for starting nothing, and this reason.
    in_trouble: tuple[NodeName, str] | None = None


class NoNodeMatches(msgspec.Struct, frozen=True, tag="no_node_matches"):
    """Nodes accept jobs, but no such node has tags that match the filters of the operation and its pools."""

    filters: tuple[str, ...]
    #: Number of nodes that accept jobs.
    nodes: int
    #: A node whose name is used as a tag in a filter by mistake; empty if there is none.
    named: NodeName = NodeName("")
    #: Image of the operation, if nodes match all filters but lack the container runtime for the image; empty if the filters are the reason.
    image: str = ""
    #: Number of enrolled nodes that match the filters but accept no jobs now.
    away: int = 0
    #: One of the nodes that `away` counts; empty if there is none.
    first_away: NodeName = NodeName("")
    #: The condition of the node `first_away`; for a drained node with the reason of the drain.
    condition: str = ""


class MatchingNodesOwed(msgspec.Struct, frozen=True, tag="matching_nodes_owed"):
    """The operation or a pool above it wants more than all nodes that match its tag filters have."""

    #: The pool that wants more than the nodes have; empty if the operation itself wants more.
    pool: PoolName
    filters: tuple[str, ...]
    #: Resources of which more is wanted than the matching nodes have.
    resources: tuple[str, ...]
    #: Sum of the resources of all matching nodes.
    most: Resources


class MatchingNodesShared(msgspec.Struct, frozen=True, tag="matching_nodes_shared"):
    """The operation is owed only a part of the nodes that match its tag filters.

    All other resources of these nodes are owed to operations that can run nowhere else.
    """

    filters: tuple[str, ...]
    resource: str
    owed: Resources
    most: Resources


class LargerThanEveryNode(msgspec.Struct, frozen=True, tag="larger_than_every_node"):
    """A job of the operation would not fit on any node that accepts jobs, even if the node were empty."""

    needed: Resources
    #: The largest amount of each resource on any node that accepts jobs and matches the filters.
    most: Resources
    #: The node with the most cpu.
    largest: NodeName
    #: Size of the node `largest`.
    largest_total: Resources
    #: Number of enrolled nodes that are large enough but accept no jobs now.
    away: int = 0
    #: One of the nodes that `away` counts; empty if there is none.
    first_away: NodeName = NodeName("")
    #: The condition of the node `first_away`; for a drained node with the reason of the drain.
    condition: str = ""


class NoRoomOnAnyNode(msgspec.Struct, frozen=True, tag="no_room_on_any_node"):
    """Nodes accept jobs, but none has free resources for a job of the operation."""

    needed: Resources
    #: The tree's minimum: nothing starts on a node with fewer free resources than these.
    spare: Resources
    nodes: int
    #: Free resources of the node with the most free cpu.
    free: Resources
    #: Number of enrolled nodes that match the filters and are large enough, but accept no jobs now.
    away: int = 0
    #: One of the nodes that `away` counts; empty if there is none.
    first_away: NodeName = NodeName("")
    #: The condition of the node `first_away`; for a drained node with the reason of the drain.
    condition: str = ""


class RoomUnheard(msgspec.Struct, frozen=True, tag="room_unheard"):
    """Nodes have free resources for a job of the operation, but the heartbeats of all of these nodes are overdue."""

    nodes: int
    #: The node whose last heartbeat is the newest.
    last: NodeName
    #: Seconds since the last heartbeat of the node `last`.
    silent_s: float


class BlockBeingDrawn(msgspec.Struct, frozen=True, tag="block_being_drawn"):
    """The ledger has not confirmed yet that more jobs of the operation may be given out."""


class SharesOld(msgspec.Struct, frozen=True, tag="shares_old"):
    """fair_share has sent no shares for so long that nothing is preempted: the known shares are too old."""

    age_s: float


class PreemptionPaused(msgspec.Struct, frozen=True, tag="preemption_paused"):
    """The operation could preempt allocations of other operations, but an operator has paused preemption in the tree."""


class PlacesKept(msgspec.Struct, frozen=True, tag="places_kept"):
    """The operation could preempt allocations of other operations, but the pools of some of these allocations do not allow it."""

    #: The first few pools, each with its `preemption` switch. If a pool and a pool below it have the same switch, only the upper pool is
    #: listed.
    pools: tuple[tuple[PoolName, PreemptionSwitch], ...]


class PlacesExempt(msgspec.Struct, frozen=True, tag="places_exempt"):
    """The operation could preempt allocations of other operations, but the jobs in these allocations began too recently."""

    places: int
    nodes: int
    #: Seconds until the first of these allocations may be preempted.
    left_s: float


class KeptBy(enum.StrEnum):
    """A rule that protects an allocation from being preempted for a starving operation. If several rules protect the allocation, only one
    of them is reported.
    """

    #: The allocation is ending already, so its resources become free anyway.
    ENDING = "ending"
    GRACEFUL = "graceful"
    #: The switch `preemption` of the allocation's pool is off or observe.
    PREEMPTION = "preemption"
    ALLOW_NORMAL_PREEMPTION = "allow_normal_preemption"
    #: The option `allow_preemption_from` is false for the allocation's pool or a pool above it. Applies under a YARN policy only.
    ALLOW_PREEMPTION_FROM = "allow_preemption_from"
    USAGE_THRESHOLD = "non_preemptible_resource_usage_threshold"
    #: The allocation's operation is owed all that it wants.
    OWED_EVERYTHING = "owed_everything"
    FAIR_SHARE = "fair_share"
    #: The allocation belongs to the part of its operation's fair share that is protected even from aggressive preemption.
    PART_OF_FAIR_SHARE = "part_of_fair_share"
    ALLOW_AGGRESSIVE_PREEMPTION = "allow_aggressive_preemption"
    GANG = "gang"
    #: The allocation is of a gang that can only be preempted as a whole, and the starving operation is not owed enough to justify that.
    WHOLE_GANG = "whole_gang"
    STARVING = "starving"
    #: By the legacy victim rules the allocation's operation, or a pool above it, is protected as a whole.
    LEGACY_RULES = "legacy_rules"
    EXEMPT = "preemption_exempt_time"


class PlacesProtected(msgspec.Struct, frozen=True, tag="places_protected"):
    """The operation could preempt allocations of other operations, but a rule protects some allocations on the nodes that were
    examined for it.
    """

    kept_by: KeptBy
    #: Number of protected allocations.
    places: int
    #: Number of nodes with protected allocations.
    nodes: int
    #: The first few pools with their numbers of protected allocations, the largest number first. A listed pool is the pool that sets the
    #: rule or, if no pool sets the rule, the pool of the operations that hold the allocations.
    pools: tuple[tuple[PoolName, int], ...]


class RoomBeingMade(msgspec.Struct, frozen=True, tag="room_being_made"):
    """Every node with free resources for a job of the operation has an allocation that waits for another job there to end. Until then
    nothing else starts on the node.
    """

    nodes: int


class NodeReserved(msgspec.Struct, frozen=True, tag="node_reserved"):
    """A node is reserved for the operation, but the operation's next job does not fit there yet."""

    node: NodeName
    #: Seconds until the job is expected to fit on the reserved node.
    expected_s: float
    #: Seconds until the reservation ends at the latest.
    left_s: float


class RoomReserved(msgspec.Struct, frozen=True, tag="room_reserved"):
    """Each node with free resources for a job of the operation is reserved for another operation."""

    nodes: int
    #: One of the operations for which these nodes are reserved.
    operation: OperationId


class NodeHeldBack(msgspec.Struct, frozen=True, tag="node_held_back"):
    """A node that could run the operation's jobs is held back, because jobs fail there in a row."""

    node: NodeName
    is_suspect: bool
    #: Number of jobs that failed on the node in a row.
    failures: int
    #: Number of operations to which these failures belong.
    operations: int
    #: Seconds until the next single job is tried there; 0: it may be tried now.
    tried_in_s: float
    #: Number of other nodes that are held back and could run the jobs.
    more: int


class NodeAvoided(msgspec.Struct, frozen=True, tag="node_avoided"):
    """The operation avoids a node, because its own jobs fail there in a row."""

    node: NodeName
    failures: int
    #: Seconds until a single job of the operation is tried there; 0: it may be tried now.
    tried_in_s: float
    #: Number of other nodes that the operation avoids.
    more: int


class NoShareYet(msgspec.Struct, frozen=True, tag="no_share_yet"):
    """No snapshot of shares has named the operation in its pool, so neither its share nor its limits are known."""


class NoShare(msgspec.Struct, frozen=True, tag="no_share"):
    """The fair share of the operation is zero."""

    #: All resources that the jobs of the gang need together: a gang is owed either all of them or nothing. None if the operation is no
    #: gang.
    gang_wants: Resources | None = None


class PoolOverFairShare(msgspec.Struct, frozen=True, tag="pool_over_fair_share"):
    """A pool above the operation has its fair share, so operations below pools that lack their fair share go first."""

    pool: PoolName
    satisfaction: float


class OverFairShare(msgspec.Struct, frozen=True, tag="over_fair_share"):
    """The operation has its fair share, so operations that lack their fair share go first."""

    satisfaction: float


class TaskWaits(msgspec.Struct, frozen=True, tag="task_waits"):
    """Some jobs of the operation wait for a reason that need not apply to its other jobs.

    The waiting jobs belong to one task or, if the memory of some jobs of the operation was raised, need the same amount of memory.
    """

    #: Name of the task; empty for jobs whose memory may have been raised.
    task: str
    #: Number of these jobs that are pending.
    jobs: int
    reason: (
        PoolLimitReached
        | OperationLimitReached
        | NoNodeAcceptsJobs
        | NoNodeMatches
        | LargerThanEveryNode
        | NoRoomOnAnyNode
        | RoomBeingMade
        | RoomReserved
        | RoomUnheard
    )
    #: Memory of each of these jobs in bytes, if the operation has no tasks; else 0.
    memory: int = 0


Reason = (
    OperationNotRunning
    | OperationIsSuspended
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
    | JobSizeRefused
    | PlacesKept
    | PlacesExempt
    | PlacesProtected
    | RoomBeingMade
    | NodeReserved
    | RoomReserved
    | RoomUnheard
    | NodeHeldBack
    | NodeAvoided
    | NoShareYet
    | NoShare
    | OverFairShare
    | PoolOverFairShare
    | TaskWaits
)
