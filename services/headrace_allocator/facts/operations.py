"""Operations as the allocator deals with them: their jobs, what they hold, and what they are owed."""

from __future__ import annotations

import math
from functools import reduce
from typing import Final

import msgspec

from headrace.ids import AllocationId, NodeName
from headrace.pools.amounts import NOTHING
from headrace.pools.effective_options import EffectiveOptions, of_operation, of_tree
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import ZERO, ZERO_SHARE, Resources, Share
from headrace.satisfaction import Owed
from headrace.wire.codec import encode
from headrace.wire.heartbeat import RunningJob, TakeBackReason
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import IndexRun
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.operations import OnLostNode, OperationSpec, OperationState
from headrace.wire.snapshots import PreemptionPriority, SchedulingStatus, ShareItem, StarvationStatus
from headrace_allocator.facts.allocations import NEVER, Allocation, Rest
from headrace_allocator.facts.groups import AllocationGroups, Protection
from headrace_allocator.facts.pool_tree import PoolTree
from headrace_allocator.facts.slots import JobSlots
from headrace_allocator.gangs.gang import TOGETHER, Gang, GangPhase

#: Looked up once: the lookup of a member in its enumeration costs as much as ten comparisons.
_RUNNING: Final = OperationState.RUNNING
_GRACEFUL: Final = PreemptionMode.GRACEFUL
_ENDING: Final = (OperationState.ABORTING, OperationState.FAILING, OperationState.COMPLETING)

#: An allocation gets as many jobs as end in this many heartbeat round trips.
ROUND_TRIPS_AHEAD: Final = 2

#: The part of a job that an operation must be owed to be owed the job: shares are floats.
_NEARLY_A_JOB: Final = 0.999

#: The weight of the newest job in the mean length of jobs.
_NEWEST_WEIGHT: Final = 0.2


class Returning(msgspec.Struct, frozen=True):
    """Jobs that this tree returns, for as long as the ledger may still take or refuse them.

    The ledger takes them only as the next change of owners, so that the next one that is heard of settles it.
    """

    change: int
    runs: list[IndexRun]


class TaskGroup(msgspec.Struct):
    """Jobs of one size that wait."""

    job: Resources
    pending: int


class Operation:
    """One live operation. What it holds is the sum over its allocations. Its slots that are out are those in them."""

    # There are very many, and a heartbeat looks at each that has something on its node.
    __slots__ = (
        "_cut_by", "_mean_job_ms", "_most_held", "_options", "_options_at", "_options_of",
        "allocations", "arrival", "block_term", "changes", "charged_doubt", "demand_share", "dominant_resource",
        "drawing", "ends_running_jobs", "fair_share", "fits_somewhere", "gang", "groups", "held", "id", "in_fifo_pool",
        "is_graceful", "job_spec", "job_spec_bytes", "limited", "min_needed", "owed", "preemption_priority",
        "progress", "rank", "release_told", "rest", "returning", "running_jobs", "schedulable", "share", "slots", "spec",
        "starvation", "state", "suspended", "task_groups", "times_seen_to", "total", "unconfirmed", "user", "yields",
    )  # fmt: skip

    def __init__(self, live: LiveOperation, arrival: int, own_term: int) -> None:
        #: What heartbeats need to know of it to leave its allocations alone.
        self.rest = Rest(math.inf)
        self._mean_job_ms = math.inf
        self.id = live.operation
        #: What is known of it as a gang. A single job is none, and of several trees each gives its jobs out by itself.
        self.gang = Gang() if live.spec.is_gang and live.spec.job_count > 1 and live.free is None else None
        self.user = live.user
        self.state, self.suspended, self.ends_running_jobs = live.state, live.suspended, live.ends_running_jobs
        self.set_spec(live.spec)
        self.set_state(live.state, suspended=live.suspended)
        #: How-manieth this allocator heard of: the earlier comes first where satisfaction is equal.
        self.arrival = arrival
        self.slots = JobSlots.from_ledger(live, own_term=own_term)
        self.slots.is_of_gang = self.gang is not None
        #: Of the allocator that drew last, as far as the ledger told of others than ours. 0 in several trees: each has its own.
        self.block_term = live.block_term if live.free is None else 0
        #: All that it holds on nodes, and its allocations that no heartbeat has shown yet.
        self.held = ZERO
        self.unconfirmed: dict[Allocation, None] = {}
        #: Jobs in doubt that are charged to limits, since they may run.
        self.charged_doubt = 0
        self.running_jobs = 0
        #: Running jobs that say how far they are, and the thousandths that they say together.
        self.progress = (0, 0)
        #: Nodes name them, so that two of them may name one alike.
        self.allocations: dict[tuple[NodeName, AllocationId], Allocation] = {}
        self.groups = AllocationGroups(self.rest)
        #: The newest item of it in a snapshot of shares that it took.
        self.share: ShareItem | None = None
        self.fair_share: Share = ZERO_SHARE
        self.demand_share: Share = ZERO_SHARE
        self.dominant_resource = "cpu"
        #: Its place where satisfaction and what is owed are equal; in a fifo pool its place in that order.
        self.rank = live.started_at_ms
        self.in_fifo_pool = False
        self.preemption_priority = PreemptionPriority.NONE
        #: The time for which it has been below its fair share, in one word.
        self.starvation = StarvationStatus.NON_STARVING
        #: The cluster that its shares are parts of, as the snapshot knew it.
        self.total = ZERO
        #: The same with its shares, once its place was found by them.
        self.owed: Owed | None = None
        #: Its options in force, with what they were made of; what its groups were cut by.
        self._options = EffectiveOptions()
        self._options_of: tuple[EffectiveOptions | None, OperationSpec, AllocationOptions] | None = None
        self._cut_by: tuple[object, ...] = ()
        #: True while a block of indexes is being drawn.
        self.drawing = False
        #: Of an operation of several trees: the last change of its indexes' owners that is known here.
        self.changes = live.changes
        self.returning: Returning | None = None
        #: True until the next tick when another tree wanted jobs of it: that one draws first.
        self.yields = False
        #: True if some node could run a job of it, were the node empty; True without any node.
        self.fits_somewhere = True
        #: How many times preemption by a YARN policy looked for room for it.
        self.times_seen_to = 0
        #: True once the ledger is being told that no node holds anything of it.
        self.release_told = False

    def set_spec(self, spec: OperationSpec) -> None:
        """Notes what was asked for, and the part of it that travels to nodes with its length on the wire."""
        self.spec, self.limited = spec, spec.resource_limits != NOTHING
        self.is_graceful = spec.preemption_mode is _GRACEFUL
        self.job_spec = spec.job_spec(self.id, self.user)
        self.job_spec_bytes = len(encode(self.job_spec))
        self.set_task_groups([])
        self._options_at = self.rest.cut_at = NEVER
        self._note_rest()

    def set_state(self, state: OperationState, *, suspended: bool) -> None:
        """Notes its state. `schedulable` is true if its jobs may be given out."""
        self.state, self.suspended = state, suspended
        self.schedulable = state is _RUNNING and not suspended
        self._note_rest()

    def set_task_groups(self, groups: list[TaskGroup]) -> None:
        """Notes jobs of several sizes. Without any all of its jobs have the size of the spec, which is all that the wire knows."""
        self.task_groups = groups
        waiting = [group.job for group in groups if group.pending] or [self.spec.resources]
        #: The least of each resource that any of its waiting jobs needs. It may be less than any one of them.
        self.min_needed = reduce(Resources.within, waiting)
        self._most_held: Resources | None = None

    def set_share(self, item: ShareItem, total: Resources) -> None:
        """Notes what a snapshot of shares says of it, of which `total` is the whole."""
        if item.demand_share != self.demand_share or total is not self.total:
            # Most snapshots change the fair share alone, of thousands of operations.
            self._most_held = None
        self.share = item
        self.fair_share, self.demand_share = item.fair_share.total, item.demand_share
        self.dominant_resource = item.dominant_resource
        self.rank, self.in_fifo_pool = item.rank, item.fifo_index is not None
        self.preemption_priority, self.starvation = item.preemption_priority, item.starvation_status
        self.total, self.owed = total, None
        self.rest.cut_at = NEVER

    @property
    def most_held(self) -> Resources | None:
        """The most it may hold for another job to be within its demand. None before a snapshot that knows the cluster.

        Its demand is all that it wanted at that snapshot, what it had included.
        """
        if self._most_held is None and self.total != ZERO:
            self._most_held = self.total.part(self.demand_share) - self.min_needed
        return self._most_held

    @property
    def below_fair_share(self) -> bool:
        """True if it had less than it is owed at the last snapshot."""
        return self.share is not None and self.share.scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE

    def options(self, pools: PoolTree) -> EffectiveOptions:
        """The options in force for it: those of its pool, and what it asks for itself."""
        if self._options_at != pools.rules:
            self._renew_options(pools)
        return self._options

    def _renew_options(self, pools: PoolTree) -> None:
        item = pools.pool(self.spec.pool).item
        made_of = (None if item is None else item.options, self.spec, pools.options)
        if self._options_of != made_of:
            of_pool = of_tree(pools.options) if made_of[0] is None else made_of[0]
            self._options = of_operation(of_pool, self.spec, pools.options)
        self._options_of, self._options_at = made_of, pools.rules

    def cut_groups(self, pools: PoolTree) -> AllocationGroups:
        """Its allocations, cut by its share and the tree's rules."""
        if self.rest.cut_at != pools.rules:
            options = self.options(pools)
            made_of = (self.share, options, pools.options, pools.total)
            if self._cut_by != made_of:
                self.groups.publish(self._protection(pools, options))
            self._cut_by, self.rest.cut_at = made_of, pools.rules
        return self.groups

    def _protection(self, pools: PoolTree, options: EffectiveOptions) -> Protection:
        policy = pools.options
        return Protection(
            fair_share=self.fair_share,
            demand_share=self.demand_share,
            total=pools.total,
            aggressive_threshold=policy.aggressive_preemption_satisfaction_threshold,
            threshold=policy.preemption_satisfaction_threshold,
            usage_threshold=options.non_preemptible_resource_usage_threshold,
            crossing_is_preemptible=policy.consider_allocation_on_fair_share_bound_preemptible,
            crossing_may_go=policy.preempt_at_bound_for_owed_jobs,
        )

    @property
    def precommit(self) -> Resources:
        """The part of what it holds that no heartbeat has shown yet."""
        return Resources.sum(one.usage for one in self.unconfirmed) if self.unconfirmed else ZERO

    @property
    def usage(self) -> Resources:
        """The part of what it holds that heartbeats have shown."""
        return self.held - self.precommit

    @property
    def in_doubt(self) -> Resources:
        """The most that its jobs in doubt may hold, for which limits keep room."""
        return self.spec.resources * self.charged_doubt if self.charged_doubt else ZERO

    @property
    def charged(self) -> Resources:
        """All that counts under limits."""
        # Asked for by every heartbeat, and there is doubt only after a restart.
        return self.held + self.in_doubt if self.charged_doubt else self.held

    @property
    def ending(self) -> bool:
        """True if it is to end and what it holds is to go."""
        return self.state in _ENDING

    @property
    def waits_for_lost_nodes(self) -> bool:
        """True if its jobs wait for a lost node to come back. One that is to end waits for nothing."""
        return self.spec.on_lost_node is OnLostNode.WAIT and not self.ending

    @property
    def may_run(self) -> bool:
        """True if a node holds something of it, or may hold it unseen."""
        return bool(self.allocations or self.slots.in_doubt_count)

    @property
    def pending_jobs(self) -> int:
        """The number of its jobs that ask for a place."""
        return self.slots.pending_count if self.schedulable else 0

    @property
    def taken_back(self) -> TakeBackReason | None:
        """The reason for which all that it holds is to be taken back, or None while it may keep it."""
        if self.ending:
            return TakeBackReason.OPERATION_ENDED
        if self.suspended and self.ends_running_jobs:
            return TakeBackReason.SUSPENDED
        return TakeBackReason.GANG if self.gang is not None and self.gang.phase is GangPhase.BREAKING else None

    @property
    def mean_job_ms(self) -> float:
        """Mean length of its jobs, a moving average. It is infinite before the first ended."""
        return self._mean_job_ms

    @mean_job_ms.setter
    def mean_job_ms(self, ms: float) -> None:
        self._mean_job_ms = ms
        self._note_rest()

    def _note_rest(self) -> None:
        self.rest.job_ms = 0.0 if self.is_graceful or self.taken_back is not None else self._mean_job_ms

    def note_length(self, ms: int) -> None:
        """A job of it ran for this long."""
        if self.mean_job_ms == math.inf:
            self.mean_job_ms = ms
        else:
            self.mean_job_ms = (1 - _NEWEST_WEIGHT) * self.mean_job_ms + _NEWEST_WEIGHT * ms

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        allocations = self.allocations.values()
        broken: list[str] = []
        if self.held != Resources.sum(one.usage for one in allocations):
            broken.append("held differs from its allocations")
        if set(self.unconfirmed) != {one for one in allocations if not one.confirmed}:
            broken.append("unconfirmed differs from its allocations")
        if self.running_jobs != sum(one.job is not None for one in allocations):
            broken.append("running_jobs differs from its allocations")
        told = [one.job.progress for one in allocations if one.job is not None and one.job.progress is not None]
        if self.progress != (len(told), sum(told)):
            broken.append("progress differs from that of its jobs")
        in_allocations = sorted((slot.index, slot.attempt) for one in allocations for slot in one.slots.values())
        if in_allocations != [(slot.index, slot.attempt) for slot in self.slots.out()]:
            broken.append("slots out differ from those in allocations")
        if self.charged_doubt != self.slots.in_doubt_count:
            broken.append("charged_doubt differs from the jobs in doubt")
        if self.taken_back is not None and self.rest.job_ms > 0:
            broken.append("its allocations rest, and are to be taken back")
        if set(self.groups) != set(allocations):
            broken.append("the allocations in groups differ from its allocations")
        return [f"{self.id}: {words}" for words in broken + self.slots.check() + self.groups.check()]


def members(operation: Operation) -> int:
    """The number of its allocations that nodes were told of."""
    return len(operation.allocations) - (0 if operation.gang is None else len(operation.gang.holds))


def note_progress(operation: Operation, before: RunningJob | None, after: RunningJob | None) -> None:
    """An allocation runs one job in place of another, or the same job is further than before."""
    jobs, thousandths = operation.progress
    for job, sign in ((before, -1), (after, 1)):
        if job is not None and job.progress is not None:
            jobs, thousandths = jobs + sign, thousandths + sign * job.progress
    operation.progress = (jobs, thousandths)


def take_usage(operation: Operation, item: ShareItem) -> bool:
    """Takes over what a snapshot says of an operation if no more than its usage changed, which is counted here."""
    known = operation.share
    # Of one that moved these are the very same, unless others changed.
    if known is None or item.fair_share is not known.fair_share:
        return False
    alike = msgspec.structs.replace(
        known,
        usage_share=item.usage_share,
        satisfaction_ratio=item.satisfaction_ratio,
        local_satisfaction_ratio=item.local_satisfaction_ratio,
    )
    if alike != item:
        return False
    operation.share = item
    return True


def is_starving(operation: Operation) -> bool:
    """True if it starves, or a pool above it lends it its starvation, as the last snapshot says."""
    return (
        operation.starvation is not StarvationStatus.NON_STARVING
        or operation.preemption_priority is not PreemptionPriority.NONE
    )


def is_owed_a_job(operation: Operation, held: Resources) -> bool:
    """True if another job beside what it holds is within its fair share, in every resource that the job needs."""
    figures = zip(
        held.as_tuple(),
        operation.spec.resources.as_tuple(),
        operation.fair_share,
        operation.total.as_tuple(),
        strict=True,
    )
    return all(there + more * _NEARLY_A_JOB <= share * whole for there, more, share, whole in figures if more)


def wants_node(operation: Operation) -> bool:
    """True if a node may be reserved for it, as far as its own state says: it is short of a whole job that it is owed.

    It starves, or stands in a FIFO pool and is below its fair share. A gang has room held for it in another way.
    """
    if operation.gang is not None or operation.task_groups:
        return False
    is_short = is_starving(operation) or (operation.in_fifo_pool and operation.below_fair_share)
    return is_short and is_owed_a_job(operation, operation.held)


def waits_for_a_turn(operation: Operation) -> bool:
    """True if it is a gang for which no room is held."""
    return operation.gang is not None and operation.gang.phase is GangPhase.WAITING


def never_fits(operation: Operation) -> bool:
    """True if it is a gang of more jobs than can run at once, were nothing else there."""
    at_once = None if operation.gang is None else operation.gang.at_once
    return at_once is not None and together(operation) > at_once.most


def together(operation: Operation) -> int:
    """The number of jobs of a gang that start together, or did."""
    return operation.slots.pending_count + operation.slots.in_doubt_count + len(operation.allocations)


def break_up(operation: Operation) -> None:
    """A job is missing, or is about to be: of a gang all others are to go."""
    if operation.gang is not None and operation.gang.phase in TOGETHER:
        set_phase(operation, GangPhase.BREAKING)


def set_phase(operation: Operation, phase: GangPhase, until_s: float | None = None) -> None:
    """The operation is a gang, and is in that phase from now on."""
    assert operation.gang is not None
    operation.gang.phase, operation.gang.until_s, operation.gang.asked = phase, until_s, False
    # In some phases its allocations get no rest.
    operation.set_state(operation.state, suspended=operation.suspended)
