"""The wishes of a person for an operation: its jobs, its pools, and how it shares with others."""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec

from headrace.durations import LONGEST_MS
from headrace.ids import OperationId, PoolName, TreeName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import Resources
from headrace.wire.files import Archive
from headrace.wire.heartbeat import JobSpec
from headrace.wire.preemption import InterruptSignal
from headrace.wire.trace import Trace

#: The type of an operation that says none.
VANILLA: Final = "vanilla"
LARGEST_JOB_COUNT = 1_000_000
LONGEST_INTERRUPTION_MS = 3_600_000
#: Of what people start and say nothing about.
RETRY_BACKOFF_MS = 500
LONGEST_RETRY_BACKOFF_MS = 10_000


class OnLostNode(enum.StrEnum):
    """Fates of a job whose node was silent for the whole lease."""

    REQUEUE = "requeue"
    WAIT = "wait"


class PreemptionMode(enum.StrEnum):
    """Ways of an operation to give back what is above its fair share."""

    #: Its jobs are interrupted when others starve.
    NORMAL = "normal"
    #: Its jobs are asked to end as soon as it has more than its fair share, with a longer time, and never otherwise.
    GRACEFUL = "graceful"


Weight = Annotated[float, msgspec.Meta(ge=1e-8, le=1e8)]


class PerTree(msgspec.Struct, frozen=True):
    """Weight and pool of an operation for one tree. Null and empty: as for the operation as a whole."""

    pool: PoolName = PoolName("")
    weight: Weight | None = None


Millis = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_MS)]


class OperationSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The wishes of a person for an operation. What is at its default is not sent."""

    #: Where it is to run; empty: where the placement rules of its tree say.
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
    #: From the failure of a run of a job to the next one. It doubles with each failure of that job, up to the second. 0: at once.
    retry_backoff_ms: Millis = 0
    longest_retry_backoff_ms: Millis = LONGEST_RETRY_BACKOFF_MS
    #: From the signal to the kill wherever no place is preempted: it is aborted or suspended, or the node is taken out of use.
    interruption_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_INTERRUPTION_MS)] = 10_000
    log_cap_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    #: `vanilla`, or a label of upstream's, which decides about lightweight pools and tentative trees.
    type: Annotated[str, msgspec.Meta(max_length=64)] = VANILLA
    #: The tree in which its jobs run: of several, the first that had a running slot, by which lists show it.
    tree: TreeName = TreeName("default")
    #: All its jobs are of use only together: where its pool and tree say so, it is owed all that it wants or nothing.
    is_gang: bool = False
    #: The most that it is owed and gets; of a resource that is left out, any amount.
    resource_limits: PartialResources = NOTHING
    #: Trees that run it, where there are several or others than `tree`: in each a part of its jobs.
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
    preemption_mode: PreemptionMode = PreemptionMode.NORMAL
    #: Its jobs understand the signal: after it, exit status 0 is done, and 75 saved and to be run again.
    interruptible: bool = False
    #: The signal that tells a job that its place is taken back.
    interrupt_signal: InterruptSignal = InterruptSignal.SIGTERM
    #: The same where its place is taken for others or for a limit. None: as the tree says, where it is `job_interrupt_timeout`, too.
    allocation_preemption_timeout_ms: Millis | None = None
    #: The same for an operation whose `preemption_mode` is graceful.
    allocation_graceful_preemption_timeout_ms: Millis | None = None
    #: The part of its fair share that counts as having it. It holds where it is below that of the pool.
    fair_share_starvation_tolerance: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    #: How long below its fair share until it starves. It holds where it is above that of the pool.
    fair_share_starvation_timeout_ms: Millis | None = None
    #: Use up to which nothing is taken from it, by resource where it is below that of the pool, or where the pool names none.
    non_preemptible_resource_usage_threshold: PartialResources = NOTHING
    #: The older form of its slots, of which only 0 is left.
    max_unpreemptible_allocation_count: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_JOB_COUNT)] | None = None
    #: Preemptive stages may pass its limits by so much.
    resource_limits_overcommit_tolerance: PartialResources = NOTHING
    #: A formula over tags of nodes that may run its jobs. Empty: all nodes.
    scheduling_tag_filter: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    #: How long an allocation may wait on its node for room. None: as its pool says.
    waiting_for_resources_on_node_timeout_ms: Millis | None = None
    #: The others are of no use without job 0: under a YARN policy that is taken after all others of its node.
    first_job_is_master: bool = False
    #: The trace that it is part of, which its jobs find in `TRACEPARENT`.
    trace: Trace = ""
    #: Files that its user sent before, which its jobs find on their node.
    files: Archive | None = None

    @property
    def is_vanilla(self) -> bool:
        """True if it is of the type that may be lightweight."""
        return self.type == VANILLA

    def in_tree(self, tree: TreeName, pool: PoolName) -> OperationSpec:
        """The operation as one of its trees has it, with its pool and its weight there."""
        weight = self.scheduling_options_per_pool_tree.get(tree, PerTree()).weight or self.weight
        return msgspec.structs.replace(self, tree=tree, pool=pool, weight=weight)

    def job_spec(self, operation: OperationId, user: str) -> JobSpec:
        """The part that a node needs to run a job of this."""
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
        )
