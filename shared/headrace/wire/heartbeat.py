"""Heartbeats and orders: the conversation of one node's agent with the allocator of its tree.

A heartbeat always carries the complete node report. An answer is valid only for the agent's newest heartbeat. If heartbeat n + 1
says `applied < n`, the orders in the answer to heartbeat n were never carried out. So lost, repeated or reordered messages do no
harm: the allocator knows which orders were carried out. Orders name allocations, never jobs.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec

from headrace.ids import AllocationId, Incarnation, NodeName, OperationId, TreeName
from headrace.resources import MOST_OF_A_NODE, Resources
from headrace.wire.files import Archive
from headrace.wire.preemption import LARGEST_RECORD_BYTES, InterruptSignal, PreemptionRecord
from headrace.wire.start_stages import StartRecord
from headrace.wire.tasks import Tasks
from headrace.wire.version import Counter, Term

#: Largest number of unacknowledged job ends in one heartbeat; further ends go into the next heartbeat.
MOST_ENDS_PER_HEARTBEAT = 500
#: Largest number of session spans in one heartbeat, and largest number of session spans that an agent keeps.
MOST_SESSION_SPANS = 256
#: Largest number of allocations in one heartbeat.
MOST_REPORTS = 100_000
#: Largest number of preemption records in one heartbeat, so that the heartbeat fits into a message even if all allocations are
#: preempted at once.
MOST_RECORDS_PER_HEARTBEAT = 300
#: Largest number of start records in one heartbeat. Agents send start records only to an allocator process that has just become the leader.
MOST_STARTS_PER_HEARTBEAT = 50
#: Largest number of indexes that one allocation may run without a new order.
LARGEST_ALLOCATION_JOBS = 64
#: Upper bound in bytes of a node's allocations in a heartbeat, as `picture_bytes` computes it. The rest of the message is for preemption
#: records, for the reasons of allocations that the node gave back, and for at least one job end.
LARGEST_PICTURE_BYTES = 360 * 1024
#: Largest number of GPU devices of one node.
MOST_GPUS = 128
#: Largest number of times that the memory of one job is raised.
MOST_MEMORY_STEPS = 10
#: Longest name of a GPU device, in characters.
LONGEST_GPU_NAME = 64
#: Pattern of the names of GPU devices. The names are shown in tables, and listed in environment variables of jobs.
GPU_NAME_PATTERN = r"\A[A-Za-z0-9._:/-]+\Z"
#: Upper bound in bytes of all preemption records and all reasons in one heartbeat.
LARGEST_REMARKS_BYTES = MOST_RECORDS_PER_HEARTBEAT * LARGEST_RECORD_BYTES


def picture_bytes(allocations: int, unstarted: int) -> int:
    """Return an upper bound in bytes of the allocations in a heartbeat, without preemption records and reasons.

    `unstarted` is the number of job indexes in these allocations whose jobs have not started.
    """
    return 270 * allocations + 12 * unstarted


#: Longest account name, in characters; longer than any name that Linux allows.
LONGEST_ACCOUNT = 64
AccountName = Annotated[str, msgspec.Meta(max_length=LONGEST_ACCOUNT)]
#: Id of an operation as a node reports it. Ids that services make are shorter.
ToldOperation = Annotated[OperationId, msgspec.Meta(max_length=64)]
ToldAllocation = Annotated[AllocationId, msgspec.Meta(max_length=64)]
#: Name of a GPU device on its node: the number of its device file, or the name that the agent's settings give it.
GpuName = Annotated[str, msgspec.Meta(max_length=LONGEST_GPU_NAME, pattern=GPU_NAME_PATTERN)]
ExitNumber = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
#: Longest `ShortText`, in characters.
LONGEST_SHORT_TEXT = 4096
ShortText = Annotated[str, msgspec.Meta(max_length=LONGEST_SHORT_TEXT)]
UnixMillis = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


def short_text(text: str, most_characters: int = 2_000) -> str:
    """Return the text in a form that fits a message: cut to `most_characters`, without characters that UTF-8 cannot encode.

    Every system error, file name or job output that goes into a message of an agent or a runner passes through this function.
    The default leaves space in a `ShortText` for the words around the text.
    """
    return text[:most_characters].encode("utf-8", errors="replace").decode()


class JobSlot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One run of one job: the index of the job and the number of the attempt, from 1."""

    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1


class Retry(JobSlot, frozen=True, array_like=True, gc=False):
    """A further run of a job, which may have more memory than the first."""

    #: Number of times that the memory of the job was raised.
    memory_step: Annotated[int, msgspec.Meta(ge=0, le=MOST_MEMORY_STEPS)] = 0


class JobKey(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """One run of one job of an operation: (operation, index, attempt)."""

    operation: OperationId
    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1


class AllocationState(enum.StrEnum):
    """State of an allocation on its node."""

    #: The allocator ordered the allocation, but its resources are not free on the host yet, because another job is still ending.
    WAITING = "waiting"
    RUNNING = "running"
    #: The allocation was taken back: the running job was interrupted, and no further job starts.
    CLOSING = "closing"
    #: Nothing of the allocation runs. The agent reports the allocation until the allocator acknowledges this with a `Forget`.
    ENDED = "ended"


class RunningJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The job that an allocation runs now."""

    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    started_at_ms: UnixMillis = 0
    #: CLOCK_BOOTTIME of the host when the job began, in milliseconds; 0 until the job has begun. Does not change while the job runs.
    started_boottime_ms: UnixMillis = 0
    #: Account under which the job runs on the host; empty: the agent's account.
    account: AccountName = ""
    #: Progress in thousandths, if the job reports it.
    progress: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None

    def ran_ms(self, boottime_ms: int) -> int:
        """Return how long the job has run when the CLOCK_BOOTTIME of its host is `boottime_ms`, in milliseconds; 0 until the job
        has begun.
        """
        return max(0, boottime_ms - self.started_boottime_ms) if self.started_boottime_ms else 0


class AllocationReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One allocation as the agent reports it."""

    id: ToldAllocation
    operation: ToldOperation
    state: AllocationState
    resources: Resources
    job: RunningJob | None = None
    #: Job indexes of the allocation that have not started yet. A closing or ended allocation returns these indexes, and their
    #: jobs may start elsewhere.
    unstarted: Annotated[list[JobSlot], msgspec.Meta(max_length=LARGEST_ALLOCATION_JOBS)] = []
    #: Number of jobs that have ended in the allocation.
    jobs_ended: Counter = 0
    #: Total run time of the jobs that have ended in the allocation, in milliseconds.
    jobs_ended_ms: UnixMillis = 0
    #: Preemption record, from the preemption order until the allocation is forgotten. If very many allocations have a
    #: record, some of the records are left out of the heartbeat.
    preemption: PreemptionRecord | None = None
    #: Reason for which the node itself gave the allocation back, before the allocation started or while it had jobs left to run.
    #: If very many allocations have a reason, some of the reasons are left out of the heartbeat.
    given_back_for: ShortText = ""

    def __post_init__(self) -> None:
        _check_amounts("resources", self.resources)


class JobResult(enum.StrEnum):
    """Results of attempts of jobs."""

    COMPLETED = "completed"
    #: Exit code other than 0, a signal that the runner did not send, or a failed start.
    FAILED = "failed"
    #: The runner ended the job, because its allocation was taken back, its operation was aborted, or the host or the service
    #: stopped. Does not count as a failure.
    ABORTED = "aborted"
    #: It is not known how the job ended: the node or its runner disappeared together with the job.
    LOST = "lost"
    #: The runner ended the job because its time limit was reached. Only jobs of operations with a time limit have this result. A
    #: former release that does not know time limits does not know this result either, but never has to decode it.
    TIMED_OUT = "timed_out"


#: Exit status of a job that saved its state and must run again: EX_TEMPFAIL, `SAVED` in `headrace.checkpoint`.
EXIT_SAVED: Final = 75


class JobEnd(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The end of one run of one job. The agent reports it until a `Forget` acknowledges it.

    Fields with their default are omitted, because the log keeps one such struct for every job.
    """

    operation: ToldOperation
    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    allocation: ToldAllocation
    result: JobResult
    exit_code: ExitNumber | None = None
    #: Number of the signal that ended the job.
    signal: ExitNumber | None = None
    #: Reason in words, if the exit code does not say it: not started, interrupted, disk full.
    reason: ShortText = ""
    #: Last bytes of stderr, if the job failed or timed out.
    stderr_tail: ShortText = ""
    started_at_ms: UnixMillis = 0
    ended_at_ms: UnixMillis = 0
    #: CPU time in milliseconds; 0 if it was not measured. See `from_cgroup`.
    cpu_ms: UnixMillis = 0
    #: Peak memory in bytes; 0 if it was not measured. See `from_cgroup`.
    max_rss_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    #: Preemption record, if the job ended after it was notified of its preemption.
    preemption: PreemptionRecord | None = None
    #: True if the job failed before it had a process, because its program or its folder is missing.
    not_started: bool = False
    #: Account under which the job ran or was to run on the host; empty: the agent's account.
    account: AccountName = ""
    #: Node of the run. Admission fills it in when it reports the failures of an operation.
    node: Annotated[str, msgspec.Meta(max_length=63)] = ""
    #: How the allocation was started; null if unknown, as in entries recorded by former versions.
    start: StartRecord | None = None
    #: True if CPU time and peak memory are those of the job's cgroup. False: the CPU time covers only the processes that were waited for,
    #: and the peak memory is that of the largest single process.
    from_cgroup: bool = False
    #: True if the job failed because its memory was at its limit.
    out_of_memory: bool = False
    #: Memory of the run in bytes, if the memory of its job was raised; else 0. The allocator fills it in.
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0

    @property
    def key(self) -> JobKey:
        return JobKey(self.operation, self.index, self.attempt)

    @property
    def status(self) -> int:
        """Exit status as a shell reports it: the exit code, or 128 and the number of the signal that ended the job. 0: neither is known."""
        return self.exit_code or (128 + self.signal if self.signal else 0)

    @property
    def is_measured(self) -> bool:
        """True if the CPU time or the peak memory of the run was measured."""
        return self.cpu_ms > 0 or self.max_rss_bytes > 0


class SessionSpan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Sessions of one person with one run of a job. Sessions that follow each other closely are one span, so that a program that runs
    `headrace op exec` all the time does not fill the log.

    The agent reports a span twice: when it begins, and with all fields when it has ended. Each of the two reports is repeated
    until a `Forget` acknowledges it.
    """

    job: JobKey
    allocation: ToldAllocation
    #: Person who had the sessions.
    user: Annotated[str, msgspec.Meta(max_length=200)]
    began_at_ms: UnixMillis
    #: Unix time in milliseconds at which the last session of the span ended; 0 if the span has not ended.
    ended_at_ms: UnixMillis = 0
    #: Number of sessions; 0 until the span has ended.
    sessions: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0


class HeartbeatReason(enum.StrEnum):
    """Reasons for which an agent sends a heartbeat."""

    STARTED = "started"
    PERIOD = "period"
    JOB_ENDED = "job_ended"
    NUDGED = "nudged"
    STOPPING = "stopping"


class NodeState(enum.StrEnum):
    """The state that the agent wants for its node."""

    #: The node accepts jobs.
    OPEN = "open"
    #: The node accepts no new jobs; running jobs may end.
    DRAINING = "draining"
    #: The agent is stopping and interrupts its jobs.
    STOPPING = "stopping"


class Heartbeat(msgspec.Struct, frozen=True):
    """One heartbeat: the complete report of a node."""

    node: NodeName
    tree: TreeName
    incarnation: Incarnation
    #: Number of the heartbeat within the agent's incarnation, from 1; each heartbeat has the next number.
    seq: Counter
    #: `seq` of the heartbeat whose answer the agent obeyed last; 0 if it obeyed none in this incarnation.
    applied: Counter
    #: Highest allocator term that the agent has obeyed.
    term: Term
    reason: HeartbeatReason
    #: All resources that the node offers, used or free.
    total: Resources
    allocations: Annotated[list[AllocationReport], msgspec.Meta(max_length=MOST_REPORTS)] = []
    ends: Annotated[list[JobEnd], msgspec.Meta(max_length=MOST_ENDS_PER_HEARTBEAT)] = []
    #: Number of job ends that did not fit into this heartbeat.
    ends_waiting: Counter = 0
    state: NodeState = NodeState.OPEN
    #: How the host limits jobs to their resources: `cgroup2`, `rlimit` or `none`.
    isolation: ShortText = ""
    #: Why the node starts no jobs, such as too many unacknowledged ends or a missing log folder; empty if it starts jobs.
    trouble: ShortText = ""
    #: Identifies the machine on which the agent runs, to detect two machines that were given the same node name.
    machine: ShortText = ""
    #: CLOCK_BOOTTIME of the host when the heartbeat was sent, in milliseconds.
    boottime_ms: UnixMillis = 0
    #: Start records of allocations that were started before the present leader of the allocator took over. Each of the first
    #: heartbeats to a new leader carries some of them.
    starts: Annotated[dict[ToldAllocation, StartRecord], msgspec.Meta(max_length=MOST_STARTS_PER_HEARTBEAT)] = {}
    #: The GPU devices that jobs may get, each with the id of the allocation that holds the device, or with an empty text if no
    #: allocation holds it.
    gpus: Annotated[dict[GpuName, ToldAllocation], msgspec.Meta(max_length=MOST_GPUS)] = {}
    #: Spans of sessions of people with jobs of this node, each until a `Forget` says that it is recorded.
    sessions: Annotated[list[SessionSpan], msgspec.Meta(max_length=MOST_SESSION_SPANS)] = []

    def __post_init__(self) -> None:
        _check_amounts("total", self.total)


def _check_amounts(field: str, amounts: Resources) -> None:
    """Raise `ValueError` if an amount is larger than a node may report. When a message is decoded, this error becomes `BadMessage`."""
    name = amounts.name_above(MOST_OF_A_NODE)
    if name:
        amount, most = getattr(amounts, name), getattr(MOST_OF_A_NODE, name)
        raise ValueError(f"{field}.{name} is {amount}; at most {most} is accepted from a node")


#: Indexes of jobs as text, such as `1-99:7,200`.
IndexText = Annotated[str, msgspec.Meta(max_length=65_536)]
Lines = Annotated[list[Annotated[str, msgspec.Meta(max_length=131_072)]], msgspec.Meta(max_length=1_000_000)]
FileName = Annotated[str, msgspec.Meta(max_length=4_096)]
ImageName = Annotated[str, msgspec.Meta(max_length=1_024)]


class JobSpec(msgspec.Struct, frozen=True):
    """The command and limits of every job of an operation.

    An order carries this struct if the node holds no allocation of the operation yet.
    """

    operation: OperationId
    argv: Annotated[list[str], msgspec.Meta(min_length=1)]
    environment: dict[str, str] = {}
    #: Folder in which the jobs run. Empty: the folder of the operation's files, or a scratch folder of the agent if the operation has no
    #: files.
    working_directory: str = ""
    job_count: Annotated[int, msgspec.Meta(ge=1)] = 1
    pool: str = ""
    #: Person who owns the operation.
    user: str = ""
    #: Milliseconds from the interruption signal to the kill, when an allocation is taken back or the time limit is reached.
    interruption_timeout_ms: UnixMillis = 10_000
    log_cap_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: True if the jobs handle the interruption signal. A job that then ends with exit status 0 is completed; with 75 it has saved its state
    #: and is run again.
    interruptible: bool = False
    #: Signal that notifies a job of its preemption.
    interrupt_signal: InterruptSignal = InterruptSignal.SIGTERM
    #: Trace that the operation is part of; empty: none.
    trace: str = ""
    #: Archive of files that the jobs find on their node.
    files: Archive | None = None
    #: Indexes of the operation's jobs. `OperationSpec` describes this field, and the fields below that have no comment.
    indexes: IndexText = ""
    lines: Lines = []
    output: FileName = ""
    error: FileName = ""
    stdin: FileName = ""
    #: Milliseconds from the start of a job to the interruption signal; null: no limit.
    time_limit_ms: UnixMillis | None = None
    #: True if the job gets a terminal.
    terminal: bool = False
    image: ImageName = ""
    #: The tasks of the operation: the index of a job says which command it runs. Empty: all jobs run `argv`.
    tasks: Tasks = []
    #: Unix time of the operation's start in milliseconds. It distinguishes operations that had the same id one after the other. 0: not
    #: known, from an allocator of a former release.
    started_at_ms: UnixMillis = 0


class Start(msgspec.Struct, frozen=True, gc=False):
    """Order to start a new allocation."""

    allocation: AllocationId
    operation: OperationId
    resources: Resources
    slots: Annotated[list[JobSlot], msgspec.Meta(min_length=1, max_length=LARGEST_ALLOCATION_JOBS)]
    spec: JobSpec | None = None
    #: Milliseconds for which the allocation may wait on the node for free resources before the node gives it back; null: without limit.
    waiting_timeout_ms: UnixMillis | None = None
    #: How the allocation was started; the agent reports it with the end of each job.
    record: StartRecord | None = None

    def __post_init__(self) -> None:
        # Amounts above the bound for reports are refused here, because the agent could not report an allocation with such amounts.
        _check_amounts("resources", self.resources)


class Extend(msgspec.Struct, frozen=True, gc=False):
    """Order to add indexes to an existing allocation."""

    allocation: AllocationId
    slots: Annotated[list[JobSlot], msgspec.Meta(min_length=1, max_length=LARGEST_ALLOCATION_JOBS)]


class TakeBackReason(enum.StrEnum):
    """Reasons for which an allocation is taken back."""

    #: Another operation has been below its fair share for too long, and gets the resources.
    PREEMPTED = "preempted"
    #: The operation was aborted, has failed or is unknown.
    OPERATION_ENDED = "operation_ended"
    #: A limit of the node or of a pool is exceeded.
    LIMITS = "limits"
    #: The allocation ends with its running job, which is not interrupted, so that other operations get the resources.
    GIVEN_BACK = "given_back"
    NODE_DRAINED = "node_drained"
    #: The operation was suspended, and its running jobs must end as well.
    SUSPENDED = "suspended"
    #: Another job of the gang is missing: all jobs of the gang restart together.
    GANG = "gang"


class TakeBack(msgspec.Struct, frozen=True):
    """Order to close an allocation at once: no further job starts, unused indexes are returned, the running job is interrupted."""

    allocation: AllocationId
    reason: TakeBackReason
    #: Milliseconds from the interruption to the kill; null lets the running job end by itself.
    timeout_ms: UnixMillis | None = None
    #: Text that is added to the reason in the job's end, such as the operation for which the job was preempted.
    detail: ShortText = ""
    #: Preemption record, if the allocation is preempted.
    preemption: PreemptionRecord | None = None


class Forget(msgspec.Struct, frozen=True):
    """Ends and session spans that are recorded, and allocations that are released. The agent need not report them any more."""

    ends: list[JobKey] = []
    allocations: list[AllocationId] = []
    sessions: list[SessionSpan] = []


class Orders(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The answer to one heartbeat.

    The agent obeys this answer only if `node` and `incarnation` are those of the agent, if `seq` is the number of the agent's
    newest heartbeat, and if `term` is not lower than any term that the agent has obeyed.
    """

    node: NodeName
    incarnation: Incarnation
    seq: Counter
    term: Term
    #: Milliseconds until the next heartbeat, unless something causes an earlier one.
    next_heartbeat_ms: UnixMillis
    start: list[Start] = []
    extend: list[Extend] = []
    take_back: list[TakeBack] = []
    forget: Forget = Forget()
    #: Lease of the node in milliseconds. It begins when the node sends the heartbeat that this message answers. If no newer lease
    #: arrives, the runner ends all jobs 10 s before the lease is over, or after half of a lease shorter than 20 s, so that other
    #: nodes can get the jobs when the lease is over.
    lease_ms: UnixMillis = 600_000
    #: False if this tree's allocator does not know the node; the node must enrol first.
    enrolled: bool = True
    #: Why the allocator gives the node no jobs, even if the node has free resources; empty if the node may get jobs.
    left_out: ShortText = ""


class Nudge(msgspec.Struct, frozen=True):
    """allocator → agent, published: send a heartbeat now."""

    node: NodeName
    term: Term
