"""Operations as the allocator handles them: their jobs, their allocations, and the shares that they are owed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

import msgspec

from headrace.ids import AllocationId, NodeName
from headrace.pools.amounts import NOTHING
from headrace.pools.effective_options import EffectiveOptions, of_operation, of_tree
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import ZERO, ZERO_SHARE, Resources, Share
from headrace.retry_rules import sizes_of_retries
from headrace.satisfaction import Owed
from headrace.wire.codec import encode
from headrace.wire.heartbeat import RunningJob, TakeBackReason
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import IndexRun
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.operations import OnLostNode, OperationSpec, OperationState
from headrace.wire.snapshots import PreemptionPriority, SchedulingStatus, ShareItem, StarvationStatus
from headrace.wire.tasks import Task
from headrace_allocator.facts.allocations import NO_RULES_YET, Allocation, Rest
from headrace_allocator.facts.job_outcomes import Outcomes
from headrace_allocator.facts.job_slots import JobSlots
from headrace_allocator.facts.pool_tree import PoolStates, RefusedSize
from headrace_allocator.facts.preemption_groups import AllocationGroups, Protection
from headrace_allocator.gangs.gang import MAY_GATHER, TOGETHER, Gang, GangPhase

#: The enum member is looked up only once here, because a look-up costs as much as ten comparisons.
_RUNNING: Final = OperationState.RUNNING
_GRACEFUL: Final = PreemptionMode.GRACEFUL
_ENDING: Final = (OperationState.ABORTING, OperationState.FAILING, OperationState.COMPLETING)

#: An allocation gets as many jobs as end in this number of heartbeat round trips.
ROUND_TRIPS_AHEAD: Final = 2

#: An operation that is owed this fraction of a job counts as owed the whole job, because shares are floats with rounding errors.
_NEARLY_A_JOB: Final = 0.999

#: Weight of the newest job in the moving average of job lengths.
_NEWEST_WEIGHT: Final = 0.2


class Returning(msgspec.Struct, frozen=True):
    """Job indexes that this tree is releasing. They are kept until it is known whether the ledger accepted the release.

    The ledger refuses the release if the owners (trees) of the operation's indexes changed before the release arrived. So the next change
    of owners in the log shows whether the release was accepted.
    """

    change: int
    runs: list[IndexRun]


class Operation:
    """One live operation: its jobs, its allocations and its shares.

    Invariants (`check`): `held` is the sum of the usage of its allocations, and the jobs that are out are the jobs in its allocations.
    """

    # The slots save memory: there are very many operations, and a heartbeat looks at each operation that holds something on its node.
    __slots__ = (
        "_cut_by", "_mean_job_ms", "_most_held", "_options", "_options_at", "_options_of",
        "allocations", "arrival", "block_term", "changes", "charged_doubt", "demand_share", "dominant_resource",
        "drawing", "ends_running_jobs", "fair_share", "fitting", "gang", "groups", "held", "id", "in_doubt", "in_fifo_pool",
        "is_graceful", "job_spec", "job_spec_bytes", "kinds", "limited", "outcomes", "owed", "preemption_priority",
        "progress", "rank", "refused_size", "release_told", "rest", "returning", "running_jobs", "schedulable", "share", "slots", "spec",
        "started_at_ms", "starvation", "state", "suspended", "times_seen_to", "total", "unconfirmed", "user", "yields",
    )  # fmt: skip

    def __init__(self, live: LiveOperation, arrival: int, own_term: int) -> None:
        #: `rest`: facts by which a heartbeat's decision recognizes that the operation's allocations need no order.
        self.rest, self._mean_job_ms = Rest(math.inf), math.inf
        self.id, self.user, self.started_at_ms = live.operation, live.user, live.started_at_ms
        self.slots = JobSlots.from_ledger(live, own_term=own_term)
        #: State of the gang; None if the operation has no gang.
        self.gang = Gang() if self.slots.has_gang else None
        self.state, self.suspended, self.ends_running_jobs = live.state, live.suspended, live.ends_running_jobs
        #: `kinds`: the tasks, or one kind for each number of times that memory was raised; empty if all jobs have one size. `fitting`: by
        #: kind (one flag if all jobs have one size), True if some node could run such a job if the node were empty, or if there is no node.
        self.kinds, self.fitting = (kinds := _kinds_of(live)), (True,) * max(1, len(kinds))
        self.set_spec(live.spec)
        self.set_state(live.state, suspended=live.suspended)
        #: Arrival number in this allocator; breaks ties in satisfaction.
        self.arrival = arrival
        #: Term of the allocator that last leased indexes (from the ledger); 0 if several trees, with terms of their own, run the operation.
        self.block_term = live.block_term if live.free is None else 0
        #: `held`: resources that the operation holds on nodes; `in_doubt`: resources that the unconfirmed jobs counted in `charged_doubt`
        #: may hold; `total`: the cluster total in the snapshot from which the operation's shares were taken.
        self.held = self.in_doubt = self.total = ZERO
        #: The operation's allocations that no heartbeat has shown yet.
        self.unconfirmed: dict[Allocation, None] = {}
        #: `charged_doubt`: number of unconfirmed jobs that count under limits; `running_jobs`: number of allocations that run a job.
        self.charged_doubt = self.running_jobs = 0
        #: Number of running jobs that report progress, and the sum of their progress in thousandths.
        self.progress = (0, 0)
        #: The operation's allocations by node and id, since two nodes may report allocations with the same id.
        self.allocations: dict[tuple[NodeName, AllocationId], Allocation] = {}
        self.groups = AllocationGroups(self.rest)
        #: The operation's item in the last snapshot of shares that was applied to the operation.
        self.share: ShareItem | None = None
        self.fair_share = self.demand_share = ZERO_SHARE
        #: Breaks ties between operations with the same satisfaction and the same share above their fair share. In a FIFO pool it is the
        #: position in the pool's order.
        self.rank = live.started_at_ms
        self.in_fifo_pool, self.dominant_resource, self.preemption_priority = False, "cpu", PreemptionPriority.NONE
        #: Starvation of the operation itself: an operation starves if it has been below its fair share for longer than a timeout.
        self.starvation = StarvationStatus.NON_STARVING
        #: Cluster total and fair share, prepared for computing satisfaction. None until a position is computed from the present shares.
        self.owed: Owed | None = None
        self._options = EffectiveOptions()
        #: The inputs from which `_options` was computed.
        self._options_of: tuple[EffectiveOptions | None, OperationSpec, AllocationOptions] | None = None
        #: The inputs that were used when the allocations were last divided into preemption groups.
        self._cut_by: tuple[object, ...] = ()
        #: If several trees run the operation, each owns some job indexes: number of the newest change of owners that is known here.
        self.changes = live.changes
        self.returning: Returning | None = None
        #: `drawing`: True while a block of indexes is being leased. `yields`: True if this tree leases no indexes until the next tick,
        #: because another tree wanted jobs of the operation or no index was free.
        self.drawing = self.yields = False
        #: Outcomes of the operation's jobs; None before the first job has ended.
        self.outcomes: Outcomes | None = None
        #: The bound of a pool that the size of the operation's jobs breaks, so that no job starts; None if no bound is broken.
        self.refused_size: RefusedSize | None = None
        #: Number of times that preemption by a YARN policy looked for resources for the operation.
        self.times_seen_to = 0
        #: True once the allocator has begun to report to the ledger that no node holds anything of the operation.
        self.release_told = False

    def set_spec(self, spec: OperationSpec) -> None:
        """Take over a spec and prepare the part of it that is sent to nodes, with its encoded length."""
        self.spec, self.limited = spec, spec.resource_limits != NOTHING
        self.is_graceful = spec.preemption_mode is _GRACEFUL
        self.job_spec = spec.job_spec(self.id, self.user, self.started_at_ms)
        self.job_spec_bytes = len(encode(self.job_spec))
        self._most_held: Resources | None = None
        self._options_at = self.rest.cut_at = NO_RULES_YET
        self._note_rest()

    def set_state(self, state: OperationState, *, suspended: bool) -> None:
        """Set the state, and the attribute `schedulable`, which is True if jobs of the operation may be given out."""
        self.state, self.suspended = state, suspended
        self.schedulable = state is _RUNNING and not suspended
        self._note_rest()

    @property
    def min_needed(self) -> Resources:
        """For each resource, the smallest amount that any pending job needs. With tasks, these amounts together may be smaller than every
        single job. Jobs of a gang beside other jobs count only while resources may be held for them.
        """
        if not self.kinds:
            return self.spec.resources
        waiting = waiting_tasks(self)
        if self.gang is not None and self.gang.phase not in MAY_GATHER:
            of_gang = self.slots.gang_tasks or ()
            waiting = [each for each in waiting if each[0] not in of_gang] or waiting
        return reduce(Resources.within, [task.resources for _, task in waiting] or sizes_of(self))

    @property
    def fits_somewhere(self) -> bool:
        """True if some node could run a job of the operation if the node were empty. Also True if there is no node."""
        return any(self.fitting)

    def set_share(self, item: ShareItem, total: Resources) -> None:
        """Take over the operation's item in a snapshot of shares. The shares are fractions of `total`."""
        if item.demand_share != self.demand_share or total is not self.total:
            # `most_held` is computed again only when it is needed. Most snapshots change only the fair share, on which it does not depend.
            self._most_held = None
        self.share = item
        self.fair_share, self.demand_share = item.fair_share.total, item.demand_share
        self.dominant_resource = item.dominant_resource
        self.rank, self.in_fifo_pool = item.rank, item.fifo_index is not None
        self.preemption_priority, self.starvation = item.preemption_priority, item.starvation_status
        self.total, self.owed = total, None
        self.rest.cut_at = NO_RULES_YET

    @property
    def most_held(self) -> Resources | None:
        """Upper bound of what the operation may hold just before one more job starts, so that with this job it stays within its demand.

        The demand includes what the operation held when the snapshot was made. None before a snapshot has the cluster total.
        """
        if self.total != ZERO and (self._most_held is None or self.kinds):
            # The stored result is not reused for an operation with tasks, because its `min_needed` changes with each start.
            self._most_held = self.total.part(self.demand_share) - self.min_needed
        return self._most_held

    @property
    def below_fair_share(self) -> bool:
        """True if the operation had less than it is owed at the last snapshot."""
        return self.share is not None and self.share.scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE

    def options(self, pools: PoolStates) -> EffectiveOptions:
        """Return the options in force: the options of the operation's pool, combined with the options in the operation's own spec."""
        if self._options_at != pools.rules:
            self._renew_options(pools)
        return self._options

    def _renew_options(self, pools: PoolStates) -> None:
        item = pools.pool(self.spec.pool).item
        made_of = (None if item is None else item.options, self.spec, pools.options)
        if self._options_of != made_of:
            of_pool = of_tree(pools.options) if made_of[0] is None else made_of[0]
            self._options = of_operation(of_pool, self.spec, pools.options)
        self._options_of, self._options_at = made_of, pools.rules

    def cut_groups(self, pools: PoolStates) -> AllocationGroups:
        """Return the operation's allocations, divided into preemption groups by the present share and the present rules of the tree."""
        if self.rest.cut_at != pools.rules:
            options = self.options(pools)
            made_of = (self.share, options, pools.options, pools.total)
            if self._cut_by != made_of:
                self.groups.publish(self._protection(pools, options))
            self._cut_by, self.rest.cut_at = made_of, pools.rules
        return self.groups

    def _protection(self, pools: PoolStates, options: EffectiveOptions) -> Protection:
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
        """Resources of the operation's allocations that no heartbeat has shown yet."""
        return Resources.sum(one.usage for one in self.unconfirmed) if self.unconfirmed else ZERO

    @property
    def usage(self) -> Resources:
        """Resources of the operation's allocations that heartbeats have shown."""
        return self.held - self.precommit

    @property
    def charged(self) -> Resources:
        """All resources of the operation that count towards limits: what it holds, and what its unconfirmed jobs may hold."""
        # The sum is computed only if there are unconfirmed jobs: such jobs exist only after a restart of the allocator, but this property
        # is read on every heartbeat.
        return self.held + self.in_doubt if self.charged_doubt else self.held

    @property
    def ending(self) -> bool:
        """True if the operation is ending, so that all its allocations must be taken back."""
        return self.state in _ENDING

    @property
    def waits_for_lost_nodes(self) -> bool:
        """True if jobs of the operation wait for a lost node to come back. An operation that is ending does not wait."""
        return self.spec.on_lost_node is OnLostNode.WAIT and not self.ending

    @property
    def may_run(self) -> bool:
        """True if a node holds an allocation of the operation, or may hold an unconfirmed job of the operation."""
        return bool(self.allocations or self.slots.in_doubt_count)

    @property
    def pending_jobs(self) -> int:
        """The number of pending jobs; 0 while no job may be given out."""
        return self.slots.pending_count if self.schedulable else 0

    @property
    def taken_back(self) -> TakeBackReason | None:
        """The reason to take back all allocations of the operation, or all of its gang; None while the operation may keep them."""
        if self.ending:
            return TakeBackReason.OPERATION_ENDED
        if self.suspended and self.ends_running_jobs:
            return TakeBackReason.SUSPENDED
        return TakeBackReason.GANG if self.gang is not None and self.gang.phase is GangPhase.BREAKING else None

    @property
    def mean_job_ms(self) -> float:
        """Mean length of the operation's jobs in milliseconds, a moving average. Infinite until the first job has ended."""
        return self._mean_job_ms

    @mean_job_ms.setter
    def mean_job_ms(self, ms: float) -> None:
        self._mean_job_ms = ms
        self._note_rest()

    def _note_rest(self) -> None:
        self.rest.job_ms = 0.0 if self.is_graceful or self.taken_back is not None else self._mean_job_ms

    def note_length(self, ms: int) -> None:
        """Update the mean length of jobs with a job that ran for `ms` milliseconds."""
        if self.mean_job_ms == math.inf:
            self.mean_job_ms = ms
        else:
            self.mean_job_ms = (1 - _NEWEST_WEIGHT) * self.mean_job_ms + _NEWEST_WEIGHT * ms

    def check(self) -> list[str]:
        """Return a text for each broken invariant; empty if all hold."""
        allocations = self.allocations.values()
        broken: list[str] = []
        if self.held != Resources.sum(one.usage for one in allocations):
            broken.append("held differs from the sum of its allocations")
        if set(self.unconfirmed) != {one for one in allocations if not one.confirmed}:
            broken.append("unconfirmed differs from its unconfirmed allocations")
        if self.running_jobs != sum(one.job is not None for one in allocations):
            broken.append("running_jobs differs from the running jobs in its allocations")
        told = [one.job.progress for one in allocations if one.job is not None and one.job.progress is not None]
        if self.progress != (len(told), sum(told)):
            broken.append("progress differs from the progress of its jobs")
        in_allocations = sorted((slot.index, slot.attempt) for one in allocations for slot in one.slots.values())
        if in_allocations != [(slot.index, slot.attempt) for slot in self.slots.out()]:
            broken.append("job indexes that are given out differ from the job indexes in its allocations")
        if self.charged_doubt != self.slots.in_doubt_count:
            broken.append("charged_doubt differs from the number of jobs in doubt")
        if self.taken_back is not None and self.rest.job_ms > 0:
            broken.append("its allocations are marked as needing no order and are to be taken back")
        if set(self.groups) != set(allocations):
            broken.append("the allocations in groups differ from its allocations")
        return [f"{self.id}: {words}" for words in broken + self.slots.check() + self.groups.check()]


def sizes_of(operation: Operation) -> list[Resources]:
    """Return the size of each kind of jobs of an operation; a list with the only size if all jobs have one size."""
    return [kind.resources for kind in operation.kinds] or [operation.spec.resources]


def kinds_by_size(spec: OperationSpec, sizes: Iterable[Resources]) -> list[Task]:
    """Return a kind of jobs for each of these sizes. The first size must be the size of the jobs whose memory was never raised."""
    return [Task("memory", spec.argv, resources=size) for size in sizes]


def _kinds_of(live: LiveOperation) -> Sequence[Task]:
    if not live.spec.memory_on_oom:
        return live.spec.tasks
    is_raised = any(slot.memory_step for slot in live.attempts)
    return kinds_by_size(live.spec, sizes_of_retries(live.spec)) if is_raised else []


def waiting_tasks(operation: Operation) -> list[tuple[int, Task]]:
    """Return each kind that has pending jobs and whose jobs fit on some node, with its number. Empty if all jobs have one size.

    The tasks of a gang that can never start beside other jobs are left out.
    """
    tasks, slots, fitting = operation.kinds, operation.slots, operation.fitting
    found = [(number, task) for number, task in enumerate(tasks) if fitting[number] and slots.pending_of(number)]
    if slots.gang_tasks is not None and never_fits(operation):
        return [each for each in found if each[0] not in slots.gang_tasks]
    return found


def pending_resources(operation: Operation) -> Resources:
    """Return the sum of the resources that all pending jobs which fit on some node need; zero while no job may be given out."""
    spec, slots = operation.spec, operation.slots
    if not operation.kinds or not operation.schedulable:
        return spec.resources * operation.pending_jobs
    waiting = waiting_tasks(operation)
    return Resources.sum(task.resources * slots.pending_of(number) for number, task in waiting).within_wire()


def charge_doubt(operation: Operation) -> Resources:
    """Count the operation's present unconfirmed jobs under limits. Returns the difference to the resources that were counted before."""
    spec, slots, before = operation.spec, operation.slots, operation.in_doubt
    operation.charged_doubt = slots.in_doubt_count
    of_tasks = (task.resources * slots.in_doubt_of(number) for number, task in enumerate(operation.kinds))
    operation.in_doubt = Resources.sum(of_tasks) if operation.kinds else spec.resources * operation.charged_doubt
    return operation.in_doubt - before


def members(operation: Operation) -> int:
    """Return the number of the gang's allocations that were sent to nodes."""
    return 0 if operation.gang is None else len(operation.gang.allocations) - len(operation.gang.holds)


def in_gang(operation: Operation, task: int | None) -> bool:
    """True if the jobs of a task belong to the operation's gang. `task` is None if all jobs of the operation have one size."""
    tasks = operation.slots.gang_tasks
    return operation.gang is not None and (tasks is None or task in tasks)


def note_in_gang(operation: Operation, allocation: Allocation, indexes: Iterable[int]) -> None:
    """Count an allocation of the operation for its gang, if jobs of these indexes belong to the gang."""
    gang, slots = operation.gang, operation.slots
    if gang is not None and (slots.gang_tasks is None or any(map(slots.is_of_gang, indexes))):
        gang.allocations[allocation] = None


def is_in_gang(operation: Operation, allocation: Allocation) -> bool:
    """True if the allocation belongs to the gang of its operation."""
    return operation.gang is not None and allocation in operation.gang.allocations


def names_in_gang(operation: Operation) -> tuple[str, ...]:
    """Return the names of the tasks that form the operation's gang; empty if the gang has all jobs of the operation."""
    tasks, of_gang = operation.spec.tasks, operation.slots.gang_tasks
    return () if of_gang is None else tuple(tasks[number].name for number in of_gang)


def held_by_gang(operation: Operation) -> Resources:
    """Return the resources that the gang of the operation holds on nodes."""
    if operation.gang is None or operation.slots.gang_tasks is None:
        return operation.held
    return Resources.sum(one.usage for one in operation.gang.allocations)


def taken_back_for(operation: Operation, allocation: Allocation) -> TakeBackReason | None:
    """Return the reason to take back one allocation of the operation. A gang that breaks up concerns only its own allocations."""
    why = operation.taken_back
    return None if why is TakeBackReason.GANG and not is_in_gang(operation, allocation) else why


def note_progress(operation: Operation, before: RunningJob | None, after: RunningJob | None) -> None:
    """Update the operation's progress when the job of an allocation changes from `before` to `after`."""
    jobs, thousandths = operation.progress
    for job, sign in ((before, -1), (after, 1)):
        if job is not None and job.progress is not None:
            jobs, thousandths = jobs + sign, thousandths + sign * job.progress
    operation.progress = (jobs, thousandths)


def take_usage(operation: Operation, item: ShareItem) -> bool:
    """Take over the operation's item of a snapshot if only its usage changed. A new usage moves no operation in the order, because
    positions are computed from the usage that the allocator counts itself.

    Returns False if anything else changed. Then nothing is taken over.
    """
    known = operation.share
    # In an item made from a `MovedShare`, an unchanged fair share is the same object as before.
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


def lasts_ms(operation: Operation) -> int:
    """Return the milliseconds after which each job of an operation has ended at the latest, kill included; 0: not known.

    The jobs of a gang keep their resources until all of them have started, so their end is not known.
    """
    spec = operation.spec
    return (
        0
        if spec.time_limit_ms is None or operation.gang is not None
        else spec.time_limit_ms + spec.interruption_timeout_ms
    )


def is_starving(operation: Operation) -> bool:
    """True if the operation starves according to the last snapshot, or may preempt because a pool above it starves."""
    return (
        operation.starvation is not StarvationStatus.NON_STARVING
        or operation.preemption_priority is not PreemptionPriority.NONE
        or (operation.gang is not None and operation.gang.priority is not PreemptionPriority.NONE)
    )


def is_owed_a_job(operation: Operation, held: Resources) -> bool:
    """True if the operation's fair share covers `held` and one more job, in every resource that the job needs."""
    return covers_a_job(operation.fair_share, operation.total, held, operation.min_needed)


def covers_a_job(fair_share: Share, total: Resources, held: Resources, job: Resources) -> bool:
    """True if a fair share of `total` covers `held` and one more job, in every resource that the job needs."""
    figures = zip(held.as_tuple(), job.as_tuple(), fair_share, total.as_tuple(), strict=True)
    return all(there + more * _NEARLY_A_JOB <= share * whole for there, more, share, whole in figures if more)


def wants_node(operation: Operation) -> bool:
    """True if the state of the operation allows a node to be reserved for it.

    The operation must starve, or be below its fair share in a fifo pool. It must also be owed another whole job, or hold nothing: if each
    operation of a pool is owed only a part of a job, the pool may still be owed a whole job. Gangs are excluded: nodes are reserved for a
    gang in its turn. Operations with tasks are excluded too: it is not known which size their next job will have.
    """
    if operation.gang is not None or operation.kinds:
        return False
    is_short = is_starving(operation) or (operation.in_fifo_pool and operation.below_fair_share)
    return is_short and (operation.held == ZERO or is_owed_a_job(operation, operation.held))


def waits_for_a_turn(operation: Operation) -> bool:
    """True if the operation has a gang for which no resources are held yet."""
    return operation.gang is not None and operation.gang.phase is GangPhase.WAITING


def has_other_jobs_ready(operation: Operation) -> bool:
    """True if the operation has jobs to give out at once that do not belong to its gang."""
    slots = operation.slots
    return slots.gang_tasks is not None and slots.ready_count > slots.gang_ready_count


def starts_only_in_its_turn(operation: Operation) -> bool:
    """True if the operation can start nothing while resources are held for another gang."""
    return operation.gang is not None and waits_for_a_turn(operation) and not has_other_jobs_ready(operation)


def never_fits(operation: Operation) -> bool:
    """True if the gang of the operation has more jobs than could run at once if nothing else ran."""
    at_once = None if operation.gang is None else operation.gang.at_once
    return at_once is not None and judged_together(operation) > at_once.most


def judged_together(operation: Operation) -> int:
    """Return the number of jobs of a gang that must run at once. With tasks, it is the number when the gang was last judged."""
    if operation.gang is None or not operation.kinds:
        return together(operation)
    return sum(jobs.count for jobs in operation.gang.judged_for)


def can_ever_start(operation: Operation) -> bool:
    """True if a job of the operation could start if nothing else ran. Jobs that could never start do not count as demand."""
    if operation.refused_size is not None or not operation.fits_somewhere:
        return False
    # If a gang never fits, other jobs of its operation may remain.
    return operation.gang is None or not never_fits(operation) or operation.slots.gang_tasks is not None


def together(operation: Operation) -> int:
    """Return how many jobs of a gang have not ended, if all its jobs have the same size. They start together, or have started together."""
    return operation.slots.pending_count + operation.slots.in_doubt_count + len(operation.allocations)


def break_up(operation: Operation) -> None:
    """Break up a gang that runs, because one of its jobs is missing or will be: all other jobs of the gang are taken back."""
    if operation.gang is not None and operation.gang.phase in TOGETHER:
        set_phase(operation, GangPhase.BREAKING)


def set_phase(operation: Operation, phase: GangPhase, until_s: float | None = None) -> None:
    """Set the phase of a gang, and the time at which the phase ends (steady clock, seconds)."""
    assert operation.gang is not None
    operation.gang.phase, operation.gang.until_s, operation.gang.asked = phase, until_s, False
    # In some phases the gang's allocations may need orders, which `set_state` records in `rest`.
    operation.set_state(operation.state, suspended=operation.suspended)
