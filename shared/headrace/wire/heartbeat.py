"""Heartbeats and orders: the conversation of one node's agent with the allocator of its tree.

A heartbeat is always the whole picture of a node. An answer is valid only while it answers the agent's newest heartbeat.
When heartbeat n + 1 says `applied < n`, the orders of n never happened. So losing, repeating or overtaking any message
changes nothing. Orders name allocations, never jobs.
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
from headrace.wire.version import Counter, Term

#: Unacknowledged ends in one heartbeat; the others wait for the next.
MOST_ENDS_PER_HEARTBEAT = 500
#: Allocations in one heartbeat.
MOST_REPORTS = 100_000
#: Records of preemptions in one heartbeat, so that it stays a message though all allocations are preempted at once.
MOST_RECORDS_PER_HEARTBEAT = 300
#: Records of starts in one heartbeat, which only a new allocator is told.
MOST_STARTS_PER_HEARTBEAT = 50
#: Indexes that one allocation may run without asking.
LARGEST_ALLOCATION_JOBS = 64
#: All that a node holds must fit its heartbeat, by `picture_bytes`. The rest is for records of preemptions and reasons of allocations
#: that were given back, and for one end at least.
LARGEST_PICTURE_BYTES = 360 * 1024
#: Bytes of all records of preemptions and all reasons in one heartbeat.
LARGEST_REMARKS_BYTES = MOST_RECORDS_PER_HEARTBEAT * LARGEST_RECORD_BYTES


def picture_bytes(allocations: int, unstarted: int) -> int:
    """The most bytes of a number of allocations in a heartbeat, without records and reasons, with `unstarted` slots that have not begun."""
    return 270 * allocations + 12 * unstarted


#: Longer than any that Linux lets a host have.
LONGEST_ACCOUNT = 64
AccountName = Annotated[str, msgspec.Meta(max_length=LONGEST_ACCOUNT)]
#: Ids as a node tells them. Those that services make are shorter.
ToldOperation = Annotated[OperationId, msgspec.Meta(max_length=64)]
ToldAllocation = Annotated[AllocationId, msgspec.Meta(max_length=64)]
ExitNumber = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
#: Of a `ShortText`, in characters.
LONGEST_SHORT_TEXT = 4096
ShortText = Annotated[str, msgspec.Meta(max_length=LONGEST_SHORT_TEXT)]
Millis = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


def short_text(text: str, most_characters: int = 2_000) -> str:
    """Make a text from outside fit for a message: cut to `most_characters`, and without characters that UTF-8 does not have.

    Every error of the system, file name or output of a job that goes into a message of an agent or a runner passes through here.
    The default leaves room in a `ShortText` for the words around it.
    """
    return text[:most_characters].encode("utf-8", errors="replace").decode()


class JobSlot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One run of one job: the index of the job, and the number of this attempt at it (from 1)."""

    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1


class JobKey(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """A job is (operation, index, attempt)."""

    operation: OperationId
    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] = 1


class AllocationState(enum.StrEnum):
    """States of an allocation on its node."""

    #: Given, but the room is not free on the host yet: another job is still on its way out.
    WAITING = "waiting"
    RUNNING = "running"
    #: Taken back: the running job was interrupted, no next one starts.
    CLOSING = "closing"
    #: Nothing of it runs; kept in the picture until the allocator says forget.
    ENDED = "ended"


class RunningJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The job that an allocation runs now."""

    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    started_at_ms: Millis = 0
    #: When it began by CLOCK_BOOTTIME of its host, 0 before it did. It stays as it is while the job runs.
    started_boottime_ms: Millis = 0
    #: The account of the host as which it runs; empty: the agent's.
    account: AccountName = ""
    #: How far it is, in thousandths, if it says so.
    progress: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None

    def ran_ms(self, boottime_ms: int) -> int:
        """The time that it had run at that time of its host's CLOCK_BOOTTIME. 0 before it began."""
        return max(0, boottime_ms - self.started_boottime_ms) if self.started_boottime_ms else 0


class AllocationReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One allocation as the agent sees it."""

    id: ToldAllocation
    operation: ToldOperation
    state: AllocationState
    resources: Resources
    job: RunningJob | None = None
    #: Indexes it may still run; of a closing or ended allocation: indexes that it gives back, never run.
    unstarted: Annotated[list[JobSlot], msgspec.Meta(max_length=LARGEST_ALLOCATION_JOBS)] = []
    #: Jobs that ended in it so far, and the milliseconds that they took together.
    jobs_ended: Counter = 0
    jobs_ended_ms: Millis = 0
    #: Of a preempted one, from the order to take it back until it is forgotten. Of very many, some have none.
    preemption: PreemptionRecord | None = None
    #: Why the node gave it back by itself, before it ran or with the jobs that were to follow. Of very many, some have none.
    given_back_for: ShortText = ""

    def __post_init__(self) -> None:
        _check_amounts("resources", self.resources)


class JobResult(enum.StrEnum):
    """The kinds of ends of a run of a job."""

    COMPLETED = "completed"
    #: Exit code other than 0, a signal that we did not send, or it could not be started.
    FAILED = "failed"
    #: We ended it: taken back, aborted, the host or the service stopped. It counts against nobody.
    ABORTED = "aborted"
    #: Nobody knows: the node or its runner went away with it.
    LOST = "lost"


#: The exit status of a job that saved its state and is to be run again: EX_TEMPFAIL, `SAVED` in `headrace.checkpoint`.
EXIT_SAVED: Final = 75


class JobEnd(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The end of one run of one job, reported until it is acknowledged by a forget.

    What most ends have nothing to say of is left out: the log keeps one of every job.
    """

    operation: ToldOperation
    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    attempt: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    allocation: ToldAllocation
    result: JobResult
    exit_code: ExitNumber | None = None
    #: Number of the signal that ended it.
    signal: ExitNumber | None = None
    #: Why, in words, where an exit code does not say it: not started, interrupted, disk full.
    reason: ShortText = ""
    #: The last bytes of stderr, of a failed one.
    stderr_tail: ShortText = ""
    started_at_ms: Millis = 0
    ended_at_ms: Millis = 0
    cpu_ms: Millis = 0
    max_rss_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    #: Of a job that ended after it was told that its place is preempted.
    preemption: PreemptionRecord | None = None
    #: True if it failed before it had a process, for want of its program or its folder.
    not_started: bool = False
    #: The account of the host as which it ran, or was to run; empty: the agent's.
    account: AccountName = ""
    #: Where it happened, as admission tells it with the failures of an operation.
    node: Annotated[str, msgspec.Meta(max_length=63)] = ""
    #: How its allocation got its place; null where nobody knows, as in what was recorded by former versions.
    start: StartRecord | None = None

    @property
    def key(self) -> JobKey:
        return JobKey(self.operation, self.index, self.attempt)


class HeartbeatReason(enum.StrEnum):
    """Reasons for which the agent sent a heartbeat."""

    STARTED = "started"
    PERIOD = "period"
    JOB_ENDED = "job_ended"
    NUDGED = "nudged"
    STOPPING = "stopping"


class NodeState(enum.StrEnum):
    """Wishes of an agent as to its node."""

    OPEN = "open"
    #: No new jobs, please; what runs may end.
    DRAINING = "draining"
    #: The agent ends; jobs are being interrupted.
    STOPPING = "stopping"


class Heartbeat(msgspec.Struct, frozen=True):
    """The whole picture of one node."""

    node: NodeName
    tree: TreeName
    incarnation: Incarnation
    #: Rises by one with each heartbeat of an incarnation, from 1.
    seq: Counter
    #: The seq whose answer was last obeyed; 0 for none in this incarnation.
    applied: Counter
    #: The highest allocator term that the agent has obeyed.
    term: Term
    reason: HeartbeatReason
    #: What the node offers in all.
    total: Resources
    allocations: Annotated[list[AllocationReport], msgspec.Meta(max_length=MOST_REPORTS)] = []
    ends: Annotated[list[JobEnd], msgspec.Meta(max_length=MOST_ENDS_PER_HEARTBEAT)] = []
    #: Ends that are not in this heartbeat for lack of room.
    ends_waiting: Counter = 0
    state: NodeState = NodeState.OPEN
    #: How jobs are kept to what they were given on this host: `cgroup2`, `rlimit`, `none`.
    isolation: ShortText = ""
    #: Why the node starts nothing, when it does not (too many unacknowledged ends, no log folder).
    trouble: ShortText = ""
    #: The machine on which the agent runs. Two of them may have been given one name.
    machine: ShortText = ""
    #: CLOCK_BOOTTIME of the host when it was sent.
    boottime_ms: Millis = 0
    #: How allocations got their places that are older than their allocator, some with each of its first heartbeats.
    starts: Annotated[dict[ToldAllocation, StartRecord], msgspec.Meta(max_length=MOST_STARTS_PER_HEARTBEAT)] = {}

    def __post_init__(self) -> None:
        _check_amounts("total", self.total)


def _check_amounts(field: str, amounts: Resources) -> None:
    """Raises `ValueError`, which decoding turns into the defect of a message, where a node has more than any may have."""
    name = amounts.name_above(MOST_OF_A_NODE)
    if name:
        amount, most = getattr(amounts, name), getattr(MOST_OF_A_NODE, name)
        raise ValueError(f"{field}.{name} {amount}, at most {most} are accepted of a node")


class JobSpec(msgspec.Struct, frozen=True):
    """The command and limits of every job of an operation.

    It is sent with a start to a node that holds no allocation of the operation.
    """

    operation: OperationId
    argv: Annotated[list[str], msgspec.Meta(min_length=1)]
    environment: dict[str, str] = {}
    #: Empty: the folder of its files, or where it has none a scratch folder of the agent's.
    working_directory: str = ""
    job_count: Annotated[int, msgspec.Meta(ge=1)] = 1
    pool: str = ""
    #: The person whose operation it is.
    user: str = ""
    #: Between the request to end and the kill, when an allocation is taken back.
    interruption_timeout_ms: Millis = 10_000
    log_cap_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: Its jobs understand the signal: after it, exit status 0 is done, and 75 saved and to be run again.
    interruptible: bool = False
    #: The signal that tells a job that its place is taken back.
    interrupt_signal: InterruptSignal = InterruptSignal.SIGTERM
    #: The trace that the operation is part of; empty: none.
    trace: str = ""
    #: Files that its jobs find on their node.
    files: Archive | None = None


class Start(msgspec.Struct, frozen=True, gc=False):
    """A new allocation."""

    allocation: AllocationId
    operation: OperationId
    resources: Resources
    slots: Annotated[list[JobSlot], msgspec.Meta(min_length=1, max_length=LARGEST_ALLOCATION_JOBS)]
    spec: JobSpec | None = None
    #: How long it may wait on the node for room before it is given back; null: for ever.
    waiting_timeout_ms: Millis | None = None
    #: How it got its place, to be told with the end of each of its jobs.
    record: StartRecord | None = None

    def __post_init__(self) -> None:
        # The agent could not report an allocation with more.
        _check_amounts("resources", self.resources)


class Extend(msgspec.Struct, frozen=True, gc=False):
    """More indexes for an allocation that lives."""

    allocation: AllocationId
    slots: Annotated[list[JobSlot], msgspec.Meta(min_length=1, max_length=LARGEST_ALLOCATION_JOBS)]


class TakeBackReason(enum.StrEnum):
    """Why an allocation is taken back."""

    #: Somebody has been short of their fair share for too long.
    PREEMPTED = "preempted"
    #: Its operation was aborted, failed or is unknown.
    OPERATION_ENDED = "operation_ended"
    #: The node's or a pool's limits are violated.
    LIMITS = "limits"
    #: The place is wanted elsewhere at the next job's end; nothing running is harmed.
    GIVEN_BACK = "given_back"
    NODE_DRAINED = "node_drained"
    #: Its operation was suspended, and what runs of it is to end as well.
    SUSPENDED = "suspended"
    #: Another job of its gang is missing: all of them start anew together.
    GANG = "gang"


class TakeBack(msgspec.Struct, frozen=True):
    """The allocation becomes closing at once: no next job, unused indexes return, the running job is interrupted."""

    allocation: AllocationId
    reason: TakeBackReason
    #: From the interruption to the kill; null lets the running job end by itself.
    timeout_ms: Millis | None = None
    #: Words for the job's end, such as what it was preempted for.
    detail: ShortText = ""
    #: Of a preempted one.
    preemption: PreemptionRecord | None = None


class Forget(msgspec.Struct, frozen=True):
    """Things that the agent need not report any more: ends that are recorded, allocations that are booked out."""

    ends: list[JobKey] = []
    allocations: list[AllocationId] = []


class Orders(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The answer to one heartbeat. Obeyed only by `node`, only in `incarnation`, only if `seq` is its newest, only if `term`
    is not lower than one it has obeyed."""

    node: NodeName
    incarnation: Incarnation
    seq: Counter
    term: Term
    #: Until the next heartbeat, if nothing calls for one before.
    next_heartbeat_ms: Millis
    start: list[Start] = []
    extend: list[Extend] = []
    take_back: list[TakeBack] = []
    forget: Forget = Forget()
    #: Without an answered heartbeat for this long the runner ends all jobs, 10 s before the node's jobs are given to others.
    lease_ms: Millis = 600_000
    #: False: this tree's allocator does not know the node; it must enrol first.
    enrolled: bool = True
    #: Why the tree gives the node nothing, whatever room it has; empty if it may get jobs.
    left_out: ShortText = ""


class Nudge(msgspec.Struct, frozen=True):
    """allocator → agent, published: send a heartbeat now."""

    node: NodeName
    term: Term
