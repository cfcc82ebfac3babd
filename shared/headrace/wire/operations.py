"""Operations as people start, read and end them: requests to admission, and the view that it publishes."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.wire.heartbeat import AccountName, JobEnd, JobResult, JobSlot, ShortText
from headrace.wire.operation_spec import LARGEST_JOB_COUNT, OnLostNode, OperationSpec, PerTree, Weight
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


#: Accounts that are told of an operation.
MOST_ACCOUNTS = 10


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
    #: The placement rule that chose the pool; empty where the request did.
    rule: str = ""


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
    #: What it waits for, in each tree where it has no running slot. Views that are published on a change do not count its place.
    waiting: list[WaitingFor] = []
    #: Trees that it named and is not in: they had no room, or were removed.
    erased_trees: list[TreeName] = []
    #: The accounts of nodes as which runs of its jobs that ended were run; empty: that of the node's agent.
    accounts: Annotated[list[AccountName], msgspec.Meta(max_length=MOST_ACCOUNTS)] = []
    #: Jobs that failed and wait until they may run again, and when the first of them may; 0: none does.
    pausing_jobs: Counter = 0
    next_retry_at_ms: Counter = 0
    #: True if the reader may not see arguments, environment, folder and output of its jobs, and the fields are empty for that.
    is_withheld: bool = False


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
    #: The account of that node as which it ran; empty: its agent's.
    account: str = ""
    #: It failed, and runs again then; 0: it waits for no time.
    retry_at_ms: Counter = 0


class JobPage(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Jobs in the order of their index."""

    operation: OperationId
    jobs: list[JobRow]
    job_count: Counter
