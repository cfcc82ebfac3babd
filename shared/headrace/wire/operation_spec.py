"""The specification of an operation: its jobs, its pools, and how it shares with other operations."""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec

from headrace.durations import LONGEST_MS
from headrace.errors import BadInput
from headrace.ids import OperationId, PoolName, TreeName, operation_id
from headrace.images import nodes_for
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import Resources
from headrace.wire.files import Archive
from headrace.wire.heartbeat import FileName, ImageName, IndexText, JobSpec, Lines
from headrace.wire.preemption import InterruptSignal
from headrace.wire.tasks import TaskOfJob, Tasks, task_of
from headrace.wire.trace import Trace

#: Default type of an operation.
VANILLA: Final = "vanilla"
LARGEST_JOB_COUNT = 1_000_000
MOST_TRIES: Final = 1_000
#: Default of `tries` for operations that people start.
TRIES: Final = 3
LONGEST_INTERRUPTION_MS = 3_600_000
#: Default of the nodes' setting `largest_log_cap_bytes`, in bytes.
USUAL_LARGEST_LOG_CAP: Final = 1024 * 1024 * 1024
#: Default of `retry_backoff_ms` for operations that people start, in milliseconds.
RETRY_BACKOFF_MS = 500
LONGEST_RETRY_BACKOFF_MS = 10_000
#: Largest number of operations that one operation waits for.
MOST_UPSTREAM = 256


class OnLostNode(enum.StrEnum):
    """The treatment of a job whose node was silent for the whole lease."""

    REQUEUE = "requeue"
    WAIT = "wait"


class UpstreamEnd(enum.StrEnum):
    """Ways in which an operation must end, so that an operation that waits for it may run."""

    #: The operation completed.
    OK = "ok"
    #: The operation failed or was aborted.
    FAILED = "failed"
    #: The operation ended in any way: completed, failed or aborted.
    ANY = "any"


class Upstream(msgspec.Struct, frozen=True):
    """An operation that must end before the operation that names it may run."""

    operation: OperationId
    end: UpstreamEnd = UpstreamEnd.OK


def parse_upstream(text: str, *, place: str) -> Upstream:
    """Parse `ID` or `ID:END`, where END is `ok`, `failed` or `any`. Raises `BadInput`, which names `place`.

    >>> parse_upstream("array-one:any", place="--after")
    Upstream(operation='array-one', end=<UpstreamEnd.ANY: 'any'>)
    """
    name, colon, end = text.partition(":")
    if colon and end not in list(UpstreamEnd):
        raise BadInput(place, text, f"ID, or ID and one of {', '.join(f':{each}' for each in UpstreamEnd)}")
    try:
        return Upstream(operation_id(name), UpstreamEnd(end or UpstreamEnd.OK))
    except BadInput as error:
        raise BadInput(place, text, error.expected) from None


class PreemptionMode(enum.StrEnum):
    """Modes in which an operation gives back resources above its fair share."""

    #: Jobs of the operation are interrupted when other operations starve.
    NORMAL = "normal"
    #: As soon as the operation is above its fair share, its jobs are asked to end, with a longer timeout. They are never preempted in
    #: another way.
    GRACEFUL = "graceful"


Weight = Annotated[float, msgspec.Meta(ge=1e-8, le=1e8)]


class PerTree(msgspec.Struct, frozen=True):
    """Weight and pool of an operation in one tree. A null weight or an empty pool stands for the value of the whole operation."""

    pool: PoolName = PoolName("")
    weight: Weight | None = None


Millis = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_MS)]
TimeLimit = Annotated[int, msgspec.Meta(ge=1, le=LONGEST_MS)]

FailureText = Annotated[str, msgspec.Meta(max_length=1000)]


class OperationSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The specification of an operation. A field that has its default value is not sent."""

    #: Pool in which the operation runs; empty: the placement rules of the tree choose the pool.
    pool: PoolName
    argv: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=131_072)]], msgspec.Meta(min_length=1, max_length=10_000)
    ]
    job_count: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_JOB_COUNT)] = 1
    #: Resources of each job. The amounts are zero in an operation with tasks, so that an older admission, which does not know tasks,
    #: refuses the operation; see `size_of` and `sizes`.
    resources: Resources = Resources(user_slots=1, cpu=100)
    environment: dict[str, str] = {}
    working_directory: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    title: Annotated[str, msgspec.Meta(max_length=256)] = ""
    weight: Weight = 1.0
    #: Number of failed runs, summed over all jobs, at which the operation fails.
    max_failed_job_count: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_JOB_COUNT)] = 10
    #: Number of failed runs after which a job is given up instead of retried; 0: the number of failed runs of a single job is not limited.
    #: The jobs of a gang are retried together, so their failed runs count together.
    tries: Annotated[int, msgspec.Meta(ge=0, le=MOST_TRIES)] = 0
    #: True: when a job is given up, the other jobs run on, and the operation fails once all jobs are over. False: the operation fails as
    #: soon as a job is given up. With `tries` 0 only jobs that time out are given up.
    keep_going: bool = False
    on_lost_node: OnLostNode = OnLostNode.REQUEUE
    #: Milliseconds from a failed run of a job to its next run; 0: at once. Doubles with each failure of that job, up to
    #: `longest_retry_backoff_ms`.
    retry_backoff_ms: Millis = 0
    longest_retry_backoff_ms: Millis = LONGEST_RETRY_BACKOFF_MS
    #: Milliseconds from the signal to the kill of a job when the operation is aborted or suspended, the time limit is reached, or the node
    #: is taken out of use. Preempted jobs have other timeouts: see `allocation_preemption_timeout_ms`.
    interruption_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_INTERRUPTION_MS)] = 10_000
    log_cap_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    #: `vanilla`, or another operation type of YTsaurus. The type decides whether the operation may be lightweight, and which tentative
    #: trees accept it.
    type: Annotated[str, msgspec.Meta(max_length=64)] = VANILLA
    #: Tree in which the jobs run. In an operation of several trees: the first tree in which the operation has a running slot, or else its
    #: first tree; lists show the operation in this tree.
    tree: TreeName = TreeName("default")
    #: True if all jobs are useful only together. If pool and tree support gangs, the operation is owed all that it wants or nothing. False
    #: if only some tasks form a gang, which `Task.is_gang` says.
    is_gang: bool = False
    #: Upper bound, by resource, of the operation's fair share and usage; a resource that is left out is not limited.
    resource_limits: PartialResources = NOTHING
    #: Trees that run the operation; each tree runs a part of the jobs. Empty: only `tree` runs it.
    pool_trees: Annotated[list[TreeName], msgspec.Meta(max_length=64)] = []
    #: Further trees, which are left out silently if their pools are at their limits.
    tentative_pool_trees: Annotated[list[TreeName], msgspec.Meta(max_length=64)] = []
    #: True if tentative trees that do not exist are left out as well, instead of refusing the operation.
    ignore_missing_tentative_trees: bool = False
    scheduling_options_per_pool_tree: dict[TreeName, PerTree] = {}
    #: True if a tree whose pools are at their limits is left out, instead of refusing the operation, as long as one tree remains.
    erase_trees_with_pool_limit_violations: bool = False
    #: True if the operation is refused when its pool does not exist, instead of making an ephemeral pool.
    require_specified_pools_existence: bool = False
    preemption_mode: PreemptionMode = PreemptionMode.NORMAL
    #: True if the jobs handle the interruption signal. A job that then ends with exit status 0 is completed; with 75 it has saved its state
    #: and is run again.
    interruptible: bool = False
    #: Signal that notifies a job of its preemption.
    interrupt_signal: InterruptSignal = InterruptSignal.SIGTERM
    #: Milliseconds from the signal to the kill when a job is preempted for another operation or for a limit. None: the tree's option of the
    #: same name, which is also called `job_interrupt_timeout`.
    allocation_preemption_timeout_ms: Millis | None = None
    #: Milliseconds from the signal to the kill for an operation whose `preemption_mode` is graceful. None: the tree's option.
    allocation_graceful_preemption_timeout_ms: Millis | None = None
    #: The operation counts as below its fair share when its usage is less than this fraction of its fair share. Used if lower than the
    #: pool's value.
    fair_share_starvation_tolerance: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    #: Milliseconds for which the operation must be below its fair share until it starves. Used if higher than the pool's value.
    fair_share_starvation_timeout_ms: Millis | None = None
    #: Usage up to which nothing of the operation is preempted, by resource. Used if lower than the pool's value, or if the pool has none.
    non_preemptible_resource_usage_threshold: PartialResources = NOTHING
    #: Older form of the slots in `non_preemptible_resource_usage_threshold`; only 0 is accepted.
    max_unpreemptible_allocation_count: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_JOB_COUNT)] | None = None
    #: Amounts by which preemptive stages may exceed the operation's limits.
    resource_limits_overcommit_tolerance: PartialResources = NOTHING
    #: Formula over tags, which a node must match to run the operation's jobs. Empty: all nodes.
    scheduling_tag_filter: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    #: Milliseconds for which an allocation may wait on its node for free resources. None: the pool's value.
    waiting_for_resources_on_node_timeout_ms: Millis | None = None
    #: True if the other jobs are of no use without job 0: under a YARN policy job 0 is preempted after all other jobs on its node.
    first_job_is_master: bool = False
    #: Trace that the operation is part of; its jobs find the trace in `TRACEPARENT`.
    trace: Trace = ""
    #: Archive that the user sent before the start; the jobs find its files on their node.
    files: Archive | None = None
    #: Indexes that the jobs see instead of their numbers from 0, such as `1-99:7,200`; there are as many indexes as jobs. Empty: the jobs
    #: see their numbers from 0.
    indexes: IndexText = ""
    #: One line of text for each index that the jobs see; a job finds its line in `HEADRACE_LINE`, and in place of `{}` in its command.
    lines: Lines = []
    #: File on the node to which each job writes its stdout, relative to the working directory; `%i` stands for the index. Empty: the job's
    #: log.
    output: FileName = ""
    #: File on the node to which each job writes its stderr; its path is given as in `output`. Empty: the job's log.
    error: FileName = ""
    #: File on the node from which each job reads its stdin; its path is given as in `output`. Empty: stdin is empty.
    stdin: FileName = ""
    #: Operation whose jobs this operation runs again; empty: none.
    rerun_of: Annotated[str, msgspec.Meta(max_length=200)] = ""
    #: Operations that must end before this operation may run. If one of these operations ends in another way than asked, this operation
    #: fails.
    after: Annotated[list[Upstream], msgspec.Meta(max_length=MOST_UPSTREAM)] = []
    #: Operation that this operation waits for job by job: a job of this operation may run when the job with the same index in the other
    #: operation has completed. None: the jobs wait for no other jobs.
    after_each: OperationId | None = None
    #: Milliseconds that one run of a job may take before it is interrupted. None: the default of the pool, which may be no limit. Admission
    #: records the limit in force at the start, so a later change of the pool does not change the time limit of this operation.
    time_limit_ms: TimeLimit | None = None
    #: Milliseconds from the first running slot of the operation until the operation fails; the time for which the operation then waits or
    #: is suspended counts too. None: the default of the pool, as for `time_limit_ms`.
    operation_time_limit_ms: TimeLimit | None = None
    #: Failures after which a job is retried, in the form that `headrace.retry_rules` reads; empty: no rule. After any other failure the job
    #: is given up, whatever `tries` is.
    retry_on: FailureText = ""
    #: Failures after which a job is given up instead of retried; empty: no rule. Not allowed together with `retry_on`.
    no_retry_on: FailureText = ""
    #: True if the operation is suspended after its first run that failed or timed out. It is not suspended if that run makes the operation
    #: fail or end.
    suspend_on_failure: bool = False
    #: True if the only job gets a terminal, to which a person connects. The job ends when no person has been connected for a while.
    terminal: bool = False
    #: Image that the jobs run in: a name in a registry, or a path on the nodes. Empty: the jobs run without a container.
    image: ImageName = ""
    #: Kinds of jobs, each with its own number, size and command. The first task has the lowest job indexes, the next task the indexes that
    #: follow. `job_count` is then the sum of the tasks' job counts, `argv` is `SEVERAL_TASKS`, and `resources` is empty. Empty: all jobs
    #: are of one kind.
    tasks: Tasks = []
    #: Memory of the next attempt of a job that ran out of memory, in the form that `headrace.retry_rules` reads: a multiple of the job's
    #: memory, or an amount. Empty: the job keeps its memory.
    memory_on_oom: Annotated[str, msgspec.Meta(max_length=40)] = ""

    def task_of(self, index: int) -> TaskOfJob | None:
        """Return the task of a job; None if all jobs are of one kind."""
        return task_of(self.tasks, index)

    def size_of(self, index: int) -> Resources:
        """Return the resources of a job, by its index."""
        found = task_of(self.tasks, index)
        return self.resources if found is None else found.task.resources

    @property
    def gang_tasks(self) -> tuple[int, ...] | None:
        """The numbers of the tasks whose jobs form the gang. None if the operation has no gang, or if its gang has all its jobs."""
        return tuple(number for number, task in enumerate(self.tasks) if task.is_gang) or None

    @property
    def gang_job_count(self) -> int:
        """The number of jobs of the gang; 0 if the operation has no gang."""
        return self.job_count if self.is_gang else sum(task.job_count for task in self.tasks if task.is_gang)

    @property
    def has_gang(self) -> bool:
        """True if all jobs of the operation, or the jobs of some of its tasks, form a gang."""
        return self.is_gang or self.gang_tasks is not None

    def is_of_gang(self, index: int) -> bool:
        """True if a job belongs to the gang of the operation."""
        return self.is_gang or ((found := self.task_of(index)) is not None and found.task.is_gang)

    @property
    def sizes(self) -> list[Resources]:
        """The resources of one job of each task, in the order of the tasks. Without tasks: one entry, the resources of each job."""
        return [task.resources for task in self.tasks] or [self.resources]

    @property
    def all_jobs(self) -> Resources:
        """The resources of all jobs together."""
        if not self.tasks:
            return self.resources * self.job_count
        return Resources.sum(task.resources * task.job_count for task in self.tasks).within_wire()

    @property
    def mean_job(self) -> Resources:
        """The resources of one job. In an operation with tasks: the mean of all jobs, rounded up."""
        if not self.tasks:
            return self.resources
        return Resources(*(-(-amount // self.job_count) for amount in self.all_jobs.as_tuple()))

    @property
    def node_filters(self) -> tuple[str, ...]:
        """Tag formulas that a node must match to run the jobs.

        These are the formula of the spec and, if the jobs run in an image, a formula that requires a container runtime.
        """
        return tuple(filter(None, (self.scheduling_tag_filter, nodes_for(self.image))))

    @property
    def is_vanilla(self) -> bool:
        """True if the operation's type allows it to be lightweight."""
        return self.type == VANILLA

    def in_tree(self, tree: TreeName, pool: PoolName) -> OperationSpec:
        """Return the spec for one of the operation's trees, with the operation's pool and weight in that tree."""
        weight = self.scheduling_options_per_pool_tree.get(tree, PerTree()).weight or self.weight
        return msgspec.structs.replace(self, tree=tree, pool=pool, weight=weight)

    def job_spec(self, operation: OperationId, user: str, started_at_ms: int) -> JobSpec:
        """Return the part of the spec that a node needs to run a job of this operation."""
        return JobSpec(
            operation=operation,
            argv=self.argv,
            environment=self.environment,
            working_directory=self.working_directory,
            job_count=self.job_count,
            pool=self.pool,
            user=user,
            interruption_timeout_ms=self.interruption_timeout_ms,
            log_cap_bytes=self.log_cap_bytes,
            interruptible=self.interruptible,
            interrupt_signal=self.interrupt_signal,
            trace=self.trace,
            files=self.files,
            indexes=self.indexes,
            lines=self.lines,
            output=self.output,
            error=self.error,
            stdin=self.stdin,
            time_limit_ms=self.time_limit_ms,
            terminal=self.terminal,
            image=self.image,
            tasks=self.tasks,
            started_at_ms=started_at_ms,
        )
