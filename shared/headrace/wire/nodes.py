"""Nodes: how they are enrolled, and what people see of them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from headrace.durations import LONGEST_MS
from headrace.ids import NodeName, OperationId, TreeName
from headrace.resources import ZERO, Amount, Resources
from headrace.wire.log import IndexRun
from headrace.wire.operations import MOST_OPERATIONS
from headrace.wire.start_stages import StartRecord, StartStage
from headrace.wire.version import Counter, Term

#: Largest number of tags of a node.
MOST_TAGS: Final = 100
#: Longest tag, in characters. The constants below are the upper bounds of other texts, in characters.
LONGEST_TAG: Final = 64
LONGEST_MACHINE: Final = 200
LONGEST_ISOLATION_DETAIL: Final = 500
LONGEST_DRAIN_REASON: Final = 200

Tags = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TAG)]], msgspec.Meta(max_length=MOST_TAGS)
]

#: Machine on which an agent runs, followed by a comma and the agent's state folder. Empty if the agent does not report it.
Machine = Annotated[str, msgspec.Meta(max_length=LONGEST_MACHINE)]

#: Why jobs can or cannot reach the key of their agent, in words. Empty if the agent does not say.
IsolationDetail = Annotated[str, msgspec.Meta(max_length=LONGEST_ISOLATION_DETAIL)]

Millis = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_MS)]

#: Public key of a NATS user, in its text form.
PublicKey = Annotated[str, msgspec.Meta(max_length=80)]


class NodeTerms(msgspec.Struct, frozen=True):
    """The tags and resources that an administrator allows a node to offer. Anything beyond them is ignored."""

    tags: Tags = []
    #: Upper bound of the hundredths of cores that the node may offer; None: no bound.
    cpu: Amount | None = None
    #: Upper bound of the bytes of memory that the node may offer; None: no bound.
    memory: Amount | None = None
    #: Upper bound of the slots for jobs that the node may offer; None: no bound. Tokens made by former releases lack this field and the
    #: fields below.
    user_slots: Amount | None = None
    gpu: Amount | None = None
    network: Amount | None = None

    def cut(self, offered: Resources) -> Resources:
        """Return the offered resources, reduced to what the node may offer."""
        most = (self.user_slots, self.cpu, self.gpu, self.memory, self.network)
        amounts = zip(offered.as_tuple(), most, strict=True)
        u, c, g, m, n = (amount if limit is None else min(amount, limit) for amount, limit in amounts)
        return Resources(u, c, g, m, n)


class Drain(msgspec.Struct, frozen=True, omit_defaults=True):
    """An administrator's order that no jobs start on a node. The drain begins at once or at a later time, and lasts for a given time or
    until an administrator undoes it.
    """

    #: Administrator who gave the order.
    by: Annotated[str, msgspec.Meta(max_length=200)]
    #: Unix time of the order, in milliseconds.
    at_ms: Counter
    reason: Annotated[str, msgspec.Meta(max_length=LONGEST_DRAIN_REASON)] = ""
    #: Unix time in milliseconds at which the drain begins; 0: as soon as the order is given.
    from_ms: Counter = 0
    #: Unix time in milliseconds at which the drain ends; 0: when it is undone.
    until_ms: Counter = 0
    #: Milliseconds from the beginning of the drain to the interruption of running jobs, which are requeued. None: jobs run to their end.
    abort_after_ms: Millis | None = None

    @property
    def begins_at_ms(self) -> int:
        """Unix time in milliseconds from which the drain is in force."""
        return max(self.at_ms, self.from_ms)

    def is_over(self, now_ms: int) -> bool:
        """True if the end of the drain has passed."""
        return 0 < self.until_ms <= now_ms

    def is_in_force(self, now_ms: int) -> bool:
        """True from the beginning of the drain up to its end."""
        return self.from_ms <= now_ms and not self.is_over(now_ms)

    def ends_jobs(self, now_ms: int) -> bool:
        """True if running jobs must end now."""
        return self.is_in_force(now_ms) and self.aborts_at_ms is not None and self.aborts_at_ms <= now_ms

    @property
    def aborts_at_ms(self) -> int | None:
        """Unix time in milliseconds from which running jobs must end; None: never."""
        return None if self.abort_after_ms is None else self.begins_at_ms + self.abort_after_ms

    def next_change_ms(self, now_ms: int) -> int | None:
        """Return the next Unix time in milliseconds at which the drain begins or ends, or jobs must end; None if no
        such time follows.
        """
        return min(
            (at_ms for at_ms in (self.from_ms, self.aborts_at_ms, self.until_ms) if at_ms and at_ms > now_ms),
            default=None,
        )


class NodeRecord(msgspec.Struct, frozen=True):
    """An enrolled node. Stored as JSON in the bucket of nodes, keyed by the node's name."""

    node: NodeName
    tree: TreeName = TreeName("default")
    tags: Tags = []
    #: True if the node takes no new jobs.
    drained: bool = False
    enrolled_at_ms: Counter = 0
    #: Machine of the node's agent. While anything may run on this machine, an agent on another machine cannot act for the node.
    machine: Machine = ""
    #: Public key with which the node joined; empty if it joined without a token.
    key: PublicKey = ""
    #: Terms of the token with which the node joined; null if it joined without a token.
    terms: NodeTerms | None = None
    #: Tags that the agent claims and the token does not allow.
    cut_tags: Tags = []
    #: True if the agent reports that no job can reach the agent's key or its runner.
    isolated: bool = False
    isolation_detail: IsolationDetail = ""
    #: Number of times that an administrator undrained the node. After an administrator has undrained the node, earlier failures of jobs
    #: there no longer count against the node.
    undrained: Counter = 0
    #: The drain that is in force or is to begin later; None if there is no drain, and for a node that was drained under a former release.
    #: `drained` says whether the node is drained now.
    drain: Drain | None = None
    #: True while the drain ends the jobs that still run.
    ends_jobs: bool = False

    def at(self, now_ms: int) -> NodeRecord:
        """Return the record with the values that `drain`, `drained` and `ends_jobs` have at this Unix time in milliseconds."""
        if self.drain is None:
            return self
        drain = None if self.drain.is_over(now_ms) else self.drain
        in_force = drain is not None and drain.is_in_force(now_ms)
        ends_jobs = drain is not None and drain.ends_jobs(now_ms)
        return msgspec.structs.replace(self, drain=drain, drained=in_force, ends_jobs=ends_jobs)

    def is_of(self, machine: str) -> bool:
        """True if an agent on this machine may act for the node.

        If the record names no state folder, any state folder on the machine matches.
        """
        return machine in ("", self.machine) or (self.machine != "" and machine.startswith(f"{self.machine}, "))


class Enrol(msgspec.Struct, frozen=True):
    """agent → admission: this node wants to take part. Enrolling again changes only the tags and the isolation.

    Enrolling from another machine is refused while anything may still run on the previous machine.
    """

    node: NodeName
    tree: TreeName = TreeName("default")
    tags: Tags = []
    machine: Machine = ""
    #: True if no job can reach the key of the agent or its runner.
    isolated: bool = False
    isolation_detail: IsolationDetail = ""


class Enrolled(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The node is recorded. `revision` is the revision of the bucket of nodes."""

    node: NodeName
    tree: TreeName
    revision: Counter


class NodeChange(enum.StrEnum):
    """Changes that an administrator makes to an enrolled node."""

    #: No more jobs start on the node; running jobs go on to their end, unless the request says otherwise.
    DRAIN = "drain"
    UNDRAIN = "undrain"
    #: The node's key becomes invalid at once, even if jobs run on the node. These jobs go on until the node's lease is over.
    SHUT_OUT = "shut_out"
    #: The node is no longer enrolled. Jobs that it ran count as lost.
    REMOVE = "remove"


class ChangeNode(msgspec.Struct, frozen=True):
    """person → admission: change an enrolled node."""

    node: NodeName
    change: NodeChange
    #: Reason of the drain. This field and the fields below are the settings of a drain; see `Drain`.
    reason: Annotated[str, msgspec.Meta(max_length=LONGEST_DRAIN_REASON)] = ""
    from_ms: Counter = 0
    until_ms: Counter = 0
    abort_after_ms: Millis | None = None


class ChangedNode(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The change is recorded, now or earlier."""

    node: NodeName
    #: The drain that the node has now.
    drain: Drain | None = None


class GiveUpNode(msgspec.Struct, frozen=True):
    """admission → allocator: give up a node that is to be removed. The allocator refuses unless the node is silent, or drained and empty.
    Jobs of a silent node then count as lost.
    """

    node: NodeName
    #: Machine that takes over the node's name; empty: the node is removed. If a machine takes over, no job counts as lost, because the
    #: request is refused while any job may run.
    to_machine: Machine = ""


class GivenUpNode(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The allocator no longer counts on the node."""

    node: NodeName
    lost_jobs: Counter


class LongestLeaseRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The longest lease that nodes of a tree may have been given, and what an allocator leaves to its successor."""

    term: Term = 0
    lease_ms: Counter = 0
    #: Nodes that run nothing. A node gets jobs only after it was removed from this list.
    empty_nodes: list[NodeName] = []
    #: Job indexes that no allocator has assigned to a node, or whose start never happened. An allocator that stops normally writes these
    #: indexes as its last step. The next allocator clears this field before it assigns any job.
    not_given_out: dict[OperationId, list[IndexRun]] = {}


class ListNodes(msgspec.Struct, frozen=True):
    """person → allocator: ask for a page of the tree's nodes."""

    first: Counter = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1000
    #: Name of a node: the answer has only this node, with its operations. Empty: all nodes, without operations.
    operations_of: Annotated[str, msgspec.Meta(max_length=63)] = ""
    #: Only nodes whose names come after this name. `first` is a position among these nodes.
    after: Annotated[str, msgspec.Meta(max_length=63)] = ""
    #: Only nodes whose name begins with this text.
    name_prefix: Annotated[str, msgspec.Meta(max_length=63)] = ""
    #: Only nodes in this state, as in `NodeView.state`; empty: all nodes.
    state: Annotated[str, msgspec.Meta(max_length=63)] = ""
    #: Only nodes that have this tag; empty: all nodes.
    tag: Annotated[str, msgspec.Meta(max_length=200)] = ""


class NodeGpu(msgspec.Struct, frozen=True):
    """A GPU device of a node, and the job that has it."""

    name: str
    #: The operation of the job; empty: no job has the device.
    operation: str = ""
    #: The index of the job; None if no job has the device.
    index: int | None = None


class NodeJob(msgspec.Struct, frozen=True, array_like=True):
    """A job that runs on a node."""

    operation: OperationId
    index: int
    attempt: int
    ran_ms: Counter
    #: Milliseconds until the job's time limit; None: the job has no limit, or the operation is over.
    left_ms: Counter | None = None
    #: Title of the operation; empty if the operation is over.
    title: str = ""
    #: Pool of the operation; empty if the operation is over.
    pool: str = ""
    #: Account under which it runs on the node; empty: the agent's account.
    account: str = ""
    #: Progress in thousandths, if the job reports it.
    progress: int | None = None


class NodeView(msgspec.Struct, frozen=True):
    """A node as the allocator sees it."""

    node: NodeName
    #: `online`, `suspect` (online, and jobs fail there that complete elsewhere), `offline` (no heartbeat for the timeout), `unheard` (no
    #: heartbeat since the allocator started), `draining`.
    state: str
    tags: list[str]
    total: Resources = ZERO
    usage: Resources = ZERO
    allocations: Counter = 0
    running_jobs: Counter = 0
    #: Milliseconds since the last heartbeat.
    heartbeat_age_ms: Counter | None = None
    #: `full` if no job can reach the key of the agent, else `none`.
    isolation: str = ""
    #: Reason for this isolation, in words.
    isolation_detail: str = ""
    #: How the host limits jobs to their resources: `cgroup2`, `rlimit` or `none`.
    limits: str = ""
    trouble: str = ""
    #: Resources that the agent offers beyond the terms of the node's token. They are ignored.
    cut: Resources = ZERO
    #: Tags that the agent offers beyond the terms of the node's token. They are ignored.
    cut_tags: list[str] = []
    #: Why the tree gives the node no jobs, even if it has free resources; empty if it may get jobs.
    left_out: str = ""
    #: Operation for which the node is reserved, and when its job is expected to fit, in words. Empty: the node is not reserved.
    reserved: str = ""
    #: The GPU devices that jobs may get. Empty if the agent knows none, and for agents of former versions.
    gpus: list[NodeGpu] = []
    #: The drain that is in force or begins later; None: no drain.
    drain: Drain | None = None
    #: Operations that hold an allocation on the node, at most 1,000. Only in answers about one node.
    operations: Annotated[list[OperationId], msgspec.Meta(max_length=MOST_OPERATIONS)] = []
    #: How jobs fail on the node, and when the next job is tried, in words. Empty: the node is not held back.
    held_back: str = ""
    #: Jobs that run on the node, at most 1,000, the longest-running job first. Only in answers about one node.
    jobs: list[NodeJob] = []


class NodeList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """All nodes of the tree, by name.

    While the allocator is recovering, `recovering` says how many of the enrolled nodes have sent a heartbeat, such as "3/5"; else it is
    empty.
    """

    nodes: list[NodeView]
    recovering: str = ""
    more: bool = False


class WhereRequest(msgspec.Struct, frozen=True):
    """person → allocator: ask where the jobs of an operation run, and why the other jobs wait."""

    operation: str


class JobPlace(msgspec.Struct, frozen=True, array_like=True):
    """A job that runs now, and its allocation."""

    index: int
    attempt: int
    node: NodeName
    allocation: str
    ran_ms: Counter
    #: Account under which the job runs on the node; empty: the agent's account.
    account: str = ""
    #: Progress in thousandths, if the job reports it.
    progress: int | None = None
    #: How the node limits the job to its resources: `cgroup2`, `rlimit` or `none`; empty: unknown.
    limits: str = ""
    #: Stage that started the allocation; None if an earlier allocator started it and the node did not report the stage.
    stage: StartStage | None = None
    #: The stage that started the allocation, together with the shares at the time of the start; None if the stage is not known.
    start: StartRecord | None = None
    #: Names of the GPU devices that the job has on its node.
    gpus: list[str] = []


class OperationProgress(msgspec.Struct, frozen=True, array_like=True):
    """Summed progress of an operation's running jobs, without the jobs that report no progress."""

    operation: OperationId
    #: Number of running jobs that report their progress.
    jobs: Counter
    #: Sum of the progress of these jobs, in thousandths of a job.
    thousandths: Counter

    @staticmethod
    def joined(parts: Sequence[OperationProgress]) -> OperationProgress | None:
        """Return the sums over several trees, or None without parts."""
        if not parts:
            return None
        jobs, thousandths = sum(each.jobs for each in parts), sum(each.thousandths for each in parts)
        return OperationProgress(parts[0].operation, jobs, thousandths)

    def done(self, completed_jobs: int, job_count: int) -> float:
        """Return the fraction of an operation that is done (0 to 1), including the progress of its running jobs."""
        return min(1.0, (completed_jobs + self.thousandths / 1000) / job_count)


class TaskPlaces(msgspec.Struct, frozen=True, array_like=True):
    """Numbers of jobs of one task: jobs on nodes, and pending jobs."""

    on_nodes: Counter
    pending: Counter


class OperationPlaces(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The running jobs of an operation (at most 1,000), and the reasons why its pending jobs wait."""

    operation: str
    running: list[JobPlace]
    running_jobs: Counter
    pending_jobs: Counter
    in_doubt_jobs: Counter
    #: Every reason that applies, the most important first, each with its numbers.
    reasons: list[str]
    #: Progress of all running jobs that report progress. None if no job does.
    progress: OperationProgress | None = None
    #: The jobs of each task, in the order of `OperationSpec.tasks`; empty for an operation without tasks.
    tasks: list[TaskPlaces] = []

    @staticmethod
    def joined(places: Sequence[OperationPlaces]) -> OperationPlaces:
        """Return the answers of several trees as one."""
        return OperationPlaces(
            operation=places[0].operation,
            running=[place for each in places for place in each.running],
            running_jobs=sum(each.running_jobs for each in places),
            # The largest number is taken instead of the sum, because an index that is leased to no tree is pending in each tree.
            pending_jobs=max(each.pending_jobs for each in places),
            in_doubt_jobs=sum(each.in_doubt_jobs for each in places),
            reasons=list(dict.fromkeys(reason for each in places for reason in each.reasons)),
            progress=OperationProgress.joined([each.progress for each in places if each.progress is not None]),
            # An operation with tasks runs in one tree.
            tasks=places[0].tasks,
        )


class ListProgress(msgspec.Struct, frozen=True):
    """person → allocator: ask for the progress of the running jobs of these operations."""

    operations: Annotated[list[OperationId], msgspec.Meta(max_length=MOST_OPERATIONS)]


class ProgressList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The progress of the requested operations. Operations without a running job that reports progress are left out."""

    operations: Annotated[list[OperationProgress], msgspec.Meta(max_length=MOST_OPERATIONS)]


class StopMode(enum.StrEnum):
    """Treatments of running jobs when their agent stops, from the gentlest to the most urgent."""

    #: Jobs run on to their end, then the agent ends.
    WAIT = "wait"
    #: Jobs run on under the runner, with the lease they have; the next agent on this host adopts them.
    LEAVE = "leave"
    #: Jobs are interrupted, and killed after their timeout; they count as aborted and are requeued.
    INTERRUPT = "interrupt"
    #: Jobs are killed at once.
    KILL = "kill"
