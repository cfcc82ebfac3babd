"""Operations as people start, read and end them: requests to admission, and the views that admission publishes."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.resources import LARGEST_SUM
from headrace.wire.heartbeat import AccountName, JobEnd, JobResult, JobSlot, ShortText
from headrace.wire.operation_spec import (
    LARGEST_JOB_COUNT,
    Millis,
    OnLostNode,
    OperationSpec,
    PerTree,
    UpstreamEnd,
    Weight,
)
from headrace.wire.placements import PoolLevel, TreePlacement, WaitingFor
from headrace.wire.version import Counter

__all__ = [
    "FINAL_STATES",
    "LARGEST_JOB_COUNT",
    "AbortOperation",
    "AwaitedOperation",
    "CompleteOperation",
    "CountPools",
    "ExplainOperation",
    "GetJobs",
    "GetOperation",
    "JobPage",
    "JobRow",
    "ListOperations",
    "OnLostNode",
    "OperationExplanation",
    "OperationList",
    "OperationOrder",
    "OperationSpec",
    "OperationState",
    "OperationView",
    "PerTree",
    "PoolCounts",
    "ResumeOperation",
    "RunUsage",
    "ScanQueues",
    "Scanned",
    "StartAnswer",
    "StartOperation",
    "SuspendOperation",
    "TaskEnds",
    "UpdateOperation",
]


#: Largest number of operations that one message names.
MOST_OPERATIONS = 1_000
#: Largest number of accounts named in a view of an operation.
MOST_ACCOUNTS = 10
#: Milliseconds that a run must last for its mean use of cores to count; the mean of a shorter run is mostly noise.
_LEAST_RUN_TIME_MS = 1_000


class OperationState(enum.StrEnum):
    """State of an operation. Suspended is a flag beside the state."""

    STARTING = "starting"
    #: Ready, but needs a running slot in its pool and in every pool above.
    PENDING = "pending"
    RUNNING = "running"
    #: Every job is done; the operation's last allocations are being released.
    COMPLETING = "completing"
    COMPLETED = "completed"
    #: Too many jobs failed; the remaining jobs are being ended.
    FAILING = "failing"
    FAILED = "failed"
    ABORTING = "aborting"
    ABORTED = "aborted"


FINAL_STATES = frozenset({OperationState.COMPLETED, OperationState.FAILED, OperationState.ABORTED})


class StartOperation(msgspec.Struct, frozen=True):
    """Start an operation. The caller makes the id.

    A repeated request with the same id from the same user gets the same answer as the first request.
    """

    operation: OperationId
    spec: OperationSpec
    #: Revision of the pool configuration that admission must know before it decides.
    min_revision: Counter = 0


class StartAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The start is recorded. The operation will run as soon as limits and resources allow."""

    operation: OperationId
    state: OperationState
    pool: PoolName
    #: True if the pool is ephemeral: it is not configured, and exists as long as it has operations.
    ephemeral_pool: bool = False
    #: Existing pool names nearest to the pool's name, if the pool is ephemeral.
    near: list[str] = []
    #: True if the id was known already and nothing new was started.
    repeated: bool = False
    warnings: list[str] = []
    #: Pool below which the ephemeral pool was made.
    parent: PoolName = PoolName("")
    #: Limits that the operation waits for, by tree, while it is pending.
    waiting: list[WaitingFor] = []
    #: Trees that were left out because their pools are at their limits.
    erased_trees: list[TreeName] = []
    #: Placement rule that chose the pool; empty if the request named the pool.
    rule: str = ""
    #: Operations that must end before the operation may run.
    awaits: list[OperationId] = []
    #: Why the operation failed as soon as it was started: an operation that it waits for did not end as required. Empty: the operation has
    #: not failed.
    upstream_failure: str = ""
    #: Number of jobs that wait for jobs of `spec.after_each`.
    awaiting_jobs: Counter = 0


class RunUsage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage of the runs of an operation that ended with one result (such as failed), summed over the measured runs.

    Sums stop at `LARGEST_SUM`.
    """

    #: Number of measured runs; runs that never started or were lost are not measured.
    runs: Counter = 0
    #: Total run time, in milliseconds.
    ran_ms: Counter = 0
    #: Total CPU time, in milliseconds.
    cpu_ms: Counter = 0
    #: Largest peak memory of a run, in bytes.
    max_rss_bytes: Counter = 0
    #: Mean use of cores in the run where this mean is largest, in hundredths of a core. Runs shorter than 1 s do not count.
    most_cpu: Counter = 0
    #: Number of the measured runs whose figures cover all processes of the job.
    runs_in_cgroups: Counter = 0
    #: Number of the measured runs with raised memory (`OperationSpec.memory_on_oom`). The field below is the total run time of these runs,
    #: in milliseconds.
    raised_runs: Counter = 0
    raised_ms: Counter = 0
    #: Memory times run time of these runs, in byte-seconds.
    raised_byte_seconds: Counter = 0
    #: Largest raised memory of a run, in bytes.
    raised_memory_bytes: Counter = 0

    def plus(self, end: JobEnd) -> RunUsage:
        """Return the usage with one more measured run (`JobEnd.is_measured`)."""
        ran_ms = max(0, end.ended_at_ms - end.started_at_ms) if end.started_at_ms else 0
        most_cpu = end.cpu_ms * 100 // ran_ms if ran_ms >= _LEAST_RUN_TIME_MS else 0
        return RunUsage(
            self.runs + 1,
            min(self.ran_ms + ran_ms, LARGEST_SUM),
            min(self.cpu_ms + end.cpu_ms, LARGEST_SUM),
            max(self.max_rss_bytes, end.max_rss_bytes),
            max(self.most_cpu, most_cpu),
            self.runs_in_cgroups + end.from_cgroup,
            self.raised_runs + (end.memory_bytes > 0),
            min(self.raised_ms + ran_ms * (end.memory_bytes > 0), LARGEST_SUM),
            min(self.raised_byte_seconds + end.memory_bytes * ran_ms // 1000, LARGEST_SUM),
            max(self.raised_memory_bytes, end.memory_bytes),
        )


class TaskEnds(msgspec.Struct, frozen=True, array_like=True):
    """Ends of the attempts of one task's jobs."""

    #: Number of attempts by their result.
    counts: dict[JobResult, int] = {}
    #: Usage of the measured runs, by their result.
    used: dict[JobResult, RunUsage] = {}

    def plus(self, end: JobEnd) -> TaskEnds:
        """Return the counts and the usage with this end added."""
        counts = self.counts | {end.result: self.counts.get(end.result, 0) + 1}
        if not end.is_measured:
            return TaskEnds(counts, self.used)
        return TaskEnds(counts, self.used | {end.result: self.used.get(end.result, RunUsage()).plus(end)})


class OperationView(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """An operation as admission knows it. Completed, open and given-up jobs add up to `job_count`."""

    operation: OperationId
    user: str
    spec: OperationSpec
    state: OperationState
    suspended: bool
    ephemeral_pool: bool
    started_at_ms: Counter
    #: Unix time of the end in milliseconds; 0 until the operation is over.
    ended_at_ms: Counter
    completed_jobs: Counter
    #: Number of failed runs, including runs that were retried.
    failed_jobs: Counter
    #: Number of runs that Headrace ended. They do not count as failures.
    aborted_jobs: Counter
    #: Number of runs that were lost. They do not count as failures.
    lost_jobs: Counter
    #: Number of jobs that are not completed and not given up: running, pending or unconfirmed.
    open_jobs: Counter
    #: Why the operation is in this state: what failed it, who aborted it.
    reason: ShortText = ""
    #: Last failures and time-outs, newest last.
    last_failures: list[JobEnd] = []
    #: Sequence of the log at which the view was made; a higher sequence is newer.
    sequence: Counter = 0
    placements: list[TreePlacement] = []
    #: Limits that the operation waits for, in each tree where it has no running slot. The operation's position in the queue is given only
    #: in answers to requests, not in views that are published after a change.
    waiting: list[WaitingFor] = []
    #: Trees that the request named, but in which the operation does not run, because the pools in the tree were at their limits or the tree
    #: was removed.
    erased_trees: list[TreeName] = []
    #: Accounts on the nodes under which ended runs of the operation's jobs ran; an empty name is the account of the node's agent.
    accounts: Annotated[list[AccountName], msgspec.Meta(max_length=MOST_ACCOUNTS)] = []
    #: Number of failed jobs that wait for their retry.
    pausing_jobs: Counter = 0
    #: Unix time in milliseconds of the earliest retry of a failed job; 0: no failed job waits for its retry.
    next_retry_at_ms: Counter = 0
    #: True if the reader may not see arguments, environment, folder and output of the jobs; these fields are then empty.
    is_withheld: bool = False
    #: Number of jobs that failed or timed out and are not retried.
    given_up_jobs: Counter = 0
    #: Usage of the measured runs that have ended, by their result. Runs that ended under a former version of admission, which did not sum
    #: usage, are not included.
    used: dict[JobResult, RunUsage] = {}
    #: Operations of `spec.after` that have not ended yet. While there are any, the operation is pending and in no queue.
    awaits: list[OperationId] = []
    #: Number of jobs that wait for the jobs of `spec.after_each` with the same indexes. If all jobs of an operation wait, the operation is
    #: in no queue.
    awaiting_jobs: Counter = 0
    #: Number of jobs that timed out. Timed-out runs do not count in `failed_jobs`.
    timed_out_jobs: Counter = 0
    #: Unix time in milliseconds at which the time limit of the whole operation is reached; 0: no such limit, or not running.
    ends_by_ms: Counter = 0
    #: Number of failed runs that ended because their memory was at its limit.
    out_of_memory_runs: Counter = 0
    #: Reason why the operation is suspended; empty if it is not suspended, or a user suspended it.
    suspended_for: ShortText = ""
    #: Ends of the jobs of each task, by the number of the task in `spec.tasks`; tasks without an ended job are left out.
    task_ends: dict[int, TaskEnds] = {}


class GetOperation(msgspec.Struct, frozen=True):
    """Ask for the view of one operation."""

    operation: OperationId


class OperationOrder(enum.StrEnum):
    """Orders of a list of operations."""

    #: The newest operation first.
    STARTED = "started"
    #: The oldest operation first.
    OLDEST = "oldest"
    #: The largest number of unused core-seconds first (`headrace.efficiency.unused`). Operations without a measured run are left out.
    UNUSED_CPU = "unused_cpu"
    #: The largest number of unused byte-seconds of memory first. Operations without a measured run are left out.
    UNUSED_MEMORY = "unused_memory"

    @property
    def is_by_start(self) -> bool:
        """True for the orders by the time of the start. False for the orders by unused resources."""
        return self in (OperationOrder.STARTED, OperationOrder.OLDEST)


class ListOperations(msgspec.Struct, frozen=True):
    """Ask for views of operations."""

    pool: str = ""
    #: Only operations in this state; `waiting` stands for `pending`. Empty: all states.
    state: str = ""
    user: str = ""
    #: True: only operations that are not over.
    live: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100
    #: Id of the operation after which the page begins.
    after: str = ""
    #: Only these operations; empty: all operations.
    operations: Annotated[list[OperationId], msgspec.Meta(max_length=MOST_OPERATIONS)] = []
    order: OperationOrder = OperationOrder.STARTED
    #: Time of the start of the operation `after`, in Unix milliseconds; 0: not given. If the operation `after` was forgotten meanwhile, a
    #: list in the order of the starts goes on at this time.
    after_started_at_ms: Counter = 0


class OperationList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of operations. `more` is true if further operations follow.

    `argv` and environment are left out of the specs.
    """

    operations: list[OperationView]
    more: bool = False


class AbortOperation(msgspec.Struct, frozen=True):
    """End an operation: no new jobs start, running jobs are interrupted. The answer is the operation's view, even if the operation was
    aborted before.
    """

    operation: OperationId
    reason: ShortText = ""


class CompleteOperation(msgspec.Struct, frozen=True):
    """End a running operation that has done enough.

    No new jobs start, running jobs are interrupted, and the operation is completed.
    """

    operation: OperationId


class SuspendOperation(msgspec.Struct, frozen=True):
    """Start no more jobs of an operation until it is resumed. The operation keeps its running slot.

    Running jobs go on unless `abort_running_jobs` is true.
    """

    operation: OperationId
    abort_running_jobs: bool = False


class ResumeOperation(msgspec.Struct, frozen=True):
    """Resume a suspended operation."""

    operation: OperationId


class UpdateOperation(msgspec.Struct, frozen=True):
    """Change an operation on the fly. Fields that are not given stay as they are. The answer is the operation's view.

    A weight for the whole operation overrides the weights of single trees. In a tree that has an entry in
    `scheduling_options_per_pool_tree`, this entry replaces the pool for the whole operation.
    """

    operation: OperationId
    weight: Weight | None = None
    pool: PoolName | None = None
    scheduling_options_per_pool_tree: dict[TreeName, PerTree] = {}
    #: Revision of the pool configuration that admission must know before it decides.
    min_revision: Counter = 0
    #: Time limit of the whole operation, from its first running slot; 0: no limit.
    operation_time_limit_ms: Millis | None = None


class AwaitedOperation(msgspec.Struct, frozen=True):
    """An operation that must end before another operation may run."""

    operation: OperationId
    #: End that the other operation waits for. None: each job of the other operation waits until the job with the same index has completed.
    end: UpstreamEnd | None
    state: OperationState
    user: str
    pool: PoolName
    #: Number of the awaited operation's jobs that are not completed yet.
    open_jobs: Counter


class ExplainOperation(msgspec.Struct, frozen=True):
    """Ask why an operation runs or waits, level by level."""

    operation: OperationId


class OperationExplanation(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Every pool level from the root down to the operation's pool, in each tree of the operation.

    Each level has the counts and limits of a pool, and the operations that hold running slots of the pool.
    """

    view: OperationView
    levels: list[PoolLevel]
    #: True if the operation is lightweight: the running limits of its pools do not apply to it.
    lightweight: bool = False
    #: Number of levels that did not fit into the answer.
    levels_left_out: Counter = 0
    #: Messages about what an operator has paused in the operation's trees.
    pauses: list[str] = []
    #: The first operations among those that this operation waits for and that have not ended.
    upstream: list[AwaitedOperation] = []


class CountPools(msgspec.Struct, frozen=True):
    """Ask how many operations run and wait, as admission counts them: in one pool, or in each pool of a page.

    The page begins after the pool `after`.
    """

    pool: PoolName = PoolName("")
    tree: TreeName = TreeName("default")
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 100


class PoolCounts(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Pools with their counts and limits in the order of their names, the root first."""

    tree: TreeName
    pools: list[PoolLevel]
    more: bool = False
    #: Why the newest configuration is not in force yet; empty if it is in force.
    held_back: str = ""


class ScanQueues(msgspec.Struct, frozen=True):
    """Check again every operation that waits in a pool's queue, as admission does every minute without a request.
    For administrators.
    """


class Scanned(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The scan's changes are durable."""

    promoted: Counter
    still_waiting: Counter


class GetJobs(msgspec.Struct, frozen=True):
    """Ask where the jobs of an operation ran."""

    operation: OperationId
    first: Counter = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    #: Only jobs whose newest ended attempt has one of these results; empty: all jobs.
    results: Annotated[list[JobResult], msgspec.Meta(max_length=len(JobResult))] = []


class JobRow(msgspec.Struct, frozen=True, array_like=True):
    """One job, with its newest ended attempt and the node of this attempt."""

    slot: JobSlot
    #: Null if no attempt has ended yet.
    result: JobResult | None
    node: NodeName | str
    exit_code: int | None = None
    #: Account under which the job ran on the node; empty: the agent's account.
    account: str = ""
    #: Unix time in milliseconds at which the failed job will be retried; 0: the job does not wait for a retry.
    retry_at_ms: Counter = 0
    #: True if the attempt failed because its memory was at its limit.
    out_of_memory: bool = False
    #: Number of times that the memory of the job has been raised.
    memory_step: Counter = 0


class JobPage(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of jobs in the order of their index. A page with fewer jobs than the limit is the last page."""

    operation: OperationId
    jobs: list[JobRow]
    job_count: Counter
