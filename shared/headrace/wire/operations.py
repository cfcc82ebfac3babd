"""Operations as people start, read and end them: requests to admission, and the view that it publishes."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import Resources
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot, JobSpec
from headrace.wire.placements import PoolLevel, TreePlacement, WaitingFor
from headrace.wire.version import Counter

__all__ = [
    "FINAL_STATES",
    "LARGEST_JOB_COUNT",
    "AbortOperation",
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
    "OperationSpec",
    "OperationState",
    "OperationView",
    "PerTree",
    "PoolCounts",
    "ResumeOperation",
    "ScanQueues",
    "Scanned",
    "StartAnswer",
    "StartOperation",
    "SuspendOperation",
    "UpdateOperation",
]

LARGEST_JOB_COUNT = 1_000_000

ShortText = Annotated[str, msgspec.Meta(max_length=4096)]


class OperationState(enum.StrEnum):
    """States of an operation. Suspended is a flag beside the state."""

    STARTING = "starting"
    #: Ready; needs a running slot in its pool and every ancestor.
    PENDING = "pending"
    RUNNING = "running"
    #: Every job is done; the last bookkeeping runs.
    COMPLETING = "completing"
    COMPLETED = "completed"
    #: Too many jobs failed; the others are being ended.
    FAILING = "failing"
    FAILED = "failed"
    ABORTING = "aborting"
    ABORTED = "aborted"


FINAL_STATES = frozenset({OperationState.COMPLETED, OperationState.FAILED, OperationState.ABORTED})


class OnLostNode(enum.StrEnum):
    """Fates of a job whose node was silent for the whole lease."""

    REQUEUE = "requeue"
    WAIT = "wait"


Weight = Annotated[float, msgspec.Meta(ge=1e-8, le=1e8)]


class PerTree(msgspec.Struct, frozen=True):
    """Weight and pool of an operation for one tree. Null and empty: as for the operation as a whole."""

    pool: PoolName = PoolName("")
    weight: Weight | None = None


class OperationSpec(msgspec.Struct, frozen=True):
    """The wishes of a person for an operation."""

    #: Where it runs; empty: the pool that is named as the user.
    pool: PoolName
    argv: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=131_072)]], msgspec.Meta(min_length=1, max_length=10_000)
    ]
    job_count: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_JOB_COUNT)] = 1
    #: Of each job.
    resources: Resources = Resources(user_slots=1, cpu=100)
    environment: dict[str, str] = {}
    working_directory: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    title: Annotated[str, msgspec.Meta(max_length=256)] = ""
    weight: Weight = 1.0
    #: The operation fails when this many runs of its jobs have failed; until then each failed job runs again.
    max_failed_job_count: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_JOB_COUNT)] = 10
    on_lost_node: OnLostNode = OnLostNode.REQUEUE
    interruption_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 10_000
    log_cap_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    #: `vanilla`, or a label of upstream's, which decides about lightweight pools and tentative trees.
    type: Annotated[str, msgspec.Meta(max_length=64)] = "vanilla"
    #: The tree in which its jobs run: of several, the first that had a running slot.
    tree: TreeName = TreeName("default")
    #: All its jobs are of use only together: where its pool and tree say so, it is owed all that it wants or nothing.
    is_gang: bool = False
    #: The most that it is owed and gets; of a resource that is left out, any amount.
    resource_limits: PartialResources = NOTHING
    #: Trees that may run it, where there are several or others than `tree`.
    pool_trees: Annotated[list[TreeName], msgspec.Meta(max_length=64)] = []
    #: Trees beside these that are left out without a word when they have no room.
    tentative_pool_trees: Annotated[list[TreeName], msgspec.Meta(max_length=64)] = []
    #: Tentative trees that do not exist are left out as well, instead of refusing the operation.
    ignore_missing_tentative_trees: bool = False
    scheduling_options_per_pool_tree: dict[TreeName, PerTree] = {}
    #: A tree whose pools have no room is left out, instead of refusing the operation, as long as one is left.
    erase_trees_with_pool_limit_violations: bool = False
    #: Refused where its pool does not exist, instead of making an ephemeral one.
    require_specified_pools_existence: bool = False

    def job_spec(self, operation: OperationId, user: str) -> JobSpec:
        """The part that a node needs to run a job of this."""
        return JobSpec(
            operation=operation,
            argv=self.argv,
            environment=self.environment,
            working_directory=self.working_directory,
            job_count=self.job_count,
            user=user,
            pool=self.pool,
            interruption_timeout_ms=self.interruption_timeout_ms,
            log_cap_bytes=self.log_cap_bytes,
            on_lost_node=self.on_lost_node.value,
        )


class StartOperation(msgspec.Struct, frozen=True):
    """Start an operation. The caller makes the id.

    The same id from the same user again gets the first answer.
    """

    operation: OperationId
    spec: OperationSpec
    #: Wait until the pool configuration of this revision is known.
    min_revision: Counter = 0


class StartAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Recorded: the operation will run as soon as limits and resources allow."""

    operation: OperationId
    state: OperationState
    pool: PoolName
    #: The pool did not exist and lives as long as its operations do.
    ephemeral_pool: bool = False
    #: The nearest existing pool names, where the pool is ephemeral.
    near: list[str] = []
    #: The id was known already: nothing new was started.
    repeated: bool = False
    warnings: list[str] = []
    #: Below which pool the ephemeral one lives.
    parent: PoolName = PoolName("")
    #: What it waits for, by tree, while it is pending.
    waiting: list[WaitingFor] = []
    #: Trees that were left out since they have no room.
    erased_trees: list[TreeName] = []


class OperationView(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """An operation as admission knows it. Job counts add up to `job_count`."""

    operation: OperationId
    user: str
    spec: OperationSpec
    state: OperationState
    suspended: bool
    ephemeral_pool: bool
    started_at_ms: Counter
    #: 0 until it is over.
    ended_at_ms: Counter
    completed_jobs: Counter
    #: Runs that failed, retried ones too.
    failed_jobs: Counter
    #: Runs that we ended or that were lost; they count against nobody.
    aborted_jobs: Counter
    lost_jobs: Counter
    #: Not completed yet: running, pending, or in doubt.
    open_jobs: Counter
    #: Why it is in this state, in words: what failed it, who aborted it.
    reason: ShortText = ""
    #: The last failures, newest last.
    last_failures: list[JobEnd] = []
    #: Sequence of the log that this view is of; a later one is newer.
    sequence: Counter = 0
    placements: list[TreePlacement] = []
    #: What it waits for, by tree, while it is pending. Views that are published on a change do not count its place.
    waiting: list[WaitingFor] = []


class GetOperation(msgspec.Struct, frozen=True):
    """One operation's view."""

    operation: OperationId


class ListOperations(msgspec.Struct, frozen=True):
    """Views, newest first."""

    pool: str = ""
    #: A state, or `waiting` for pending.
    state: str = ""
    user: str = ""
    #: Only those that are not over.
    live: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100
    #: Continue behind this operation.
    after: str = ""


class OperationList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of operations, with `more` when there are others behind it.

    `argv` and environment are left out of the specs.
    """

    operations: list[OperationView]
    more: bool = False


class AbortOperation(msgspec.Struct, frozen=True):
    """End it: no new jobs, running ones are interrupted. Answered by the view. Aborting twice is no error."""

    operation: OperationId
    reason: ShortText = ""


class CompleteOperation(msgspec.Struct, frozen=True):
    """End a running operation as one that has done enough.

    No new jobs start, running ones are interrupted, and it is completed.
    """

    operation: OperationId


class SuspendOperation(msgspec.Struct, frozen=True):
    """Let no job of it start until it is resumed. It keeps its running slot.

    Running jobs go on unless they are to be aborted.
    """

    operation: OperationId
    abort_running_jobs: bool = False


class ResumeOperation(msgspec.Struct, frozen=True):
    """Let a suspended operation go on."""

    operation: OperationId


class UpdateOperation(msgspec.Struct, frozen=True):
    """Change an operation on the fly. What is not given stays. Answered by the view.

    A weight given for the whole beats those for single trees. What is said for a tree hides the pool given for the whole there.
    """

    operation: OperationId
    weight: Weight | None = None
    pool: PoolName | None = None
    scheduling_options_per_pool_tree: dict[TreeName, PerTree] = {}
    #: Wait until the pool configuration of this revision is known.
    min_revision: Counter = 0


class ExplainOperation(msgspec.Struct, frozen=True):
    """Why an operation runs or waits, level by level."""

    operation: OperationId


class OperationExplanation(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Every level from the root down to the operation's pool, in each of its trees.

    Each has counts, limits and who holds the slots.
    """

    view: OperationView
    levels: list[PoolLevel]
    #: The running limits of its pools do not concern it.
    lightweight: bool = False
    #: Levels that did not fit.
    levels_left_out: Counter = 0
    #: What an operator has paused in its trees.
    pauses: list[str] = []


class CountPools(msgspec.Struct, frozen=True):
    """Pools as admission counts them: one, or a page of all behind `after`."""

    pool: PoolName = PoolName("")
    tree: TreeName = TreeName("default")
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 100


class PoolCounts(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Pools with their counts and limits in the order of their names, the root first."""

    tree: TreeName
    pools: list[PoolLevel]
    more: bool = False
    #: Why the newest configuration is not in force yet; empty when it is.
    held_back: str = ""


class ScanQueues(msgspec.Struct, frozen=True):
    """Judge everybody anew who waits at a pool, as happens each minute anyhow. For administrators."""


class Scanned(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Durable."""

    promoted: Counter
    still_waiting: Counter


class GetJobs(msgspec.Struct, frozen=True):
    """Asks where the jobs of an operation ran."""

    operation: OperationId
    first: Counter = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class JobRow(msgspec.Struct, frozen=True, array_like=True):
    """One job: its newest attempt that ended, and where."""

    slot: JobSlot
    #: Null: it has not ended yet.
    result: JobResult | None
    node: NodeName | str
    exit_code: int | None = None


class JobPage(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Jobs in the order of their index."""

    operation: OperationId
    jobs: list[JobRow]
    job_count: Counter
