"""Nodes: how they are enrolled, and what people see of them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from headrace.ids import NodeName, OperationId, TreeName
from headrace.resources import ZERO, Amount, Resources
from headrace.wire.log import IndexRun
from headrace.wire.start_stages import StartRecord, StartStage
from headrace.wire.version import Counter, Term

#: Of a node.
MOST_TAGS: Final = 100
#: In characters.
LONGEST_TAG: Final = 64
LONGEST_MACHINE: Final = 200
LONGEST_ISOLATION_DETAIL: Final = 500
#: In one question about their progress.
_MOST_OPERATIONS: Final = 1_000

Tags = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TAG)]], msgspec.Meta(max_length=MOST_TAGS)
]

#: The machine on which an agent runs, and its state folder behind a comma. Empty: of an agent that does not say.
Machine = Annotated[str, msgspec.Meta(max_length=LONGEST_MACHINE)]

#: Why jobs can reach the key of their agent, or why not, in words. Empty: of an agent that does not say.
IsolationDetail = Annotated[str, msgspec.Meta(max_length=LONGEST_ISOLATION_DETAIL)]

#: The public key of a user of NATS, as it is written.
PublicKey = Annotated[str, msgspec.Meta(max_length=80)]


class NodeTerms(msgspec.Struct, frozen=True):
    """All that an administrator lets a node be. What its agent says beyond that is cut."""

    tags: Tags = []
    #: The most that it may offer, in the units of `Resources`; None: whatever it has.
    cpu: Amount | None = None
    memory: Amount | None = None
    #: Missing in the terms of tokens of former versions, as all that follow.
    user_slots: Amount | None = None
    gpu: Amount | None = None
    network: Amount | None = None

    def cut(self, offered: Resources) -> Resources:
        """As much of an offer as the node may make."""
        most = (self.user_slots, self.cpu, self.gpu, self.memory, self.network)
        amounts = zip(offered.as_tuple(), most, strict=True)
        u, c, g, m, n = (amount if limit is None else min(amount, limit) for amount, limit in amounts)
        return Resources(u, c, g, m, n)


class NodeRecord(msgspec.Struct, frozen=True):
    """An enrolled node, as JSON in the bucket of nodes, keyed by its name."""

    node: NodeName
    tree: TreeName = TreeName("default")
    tags: Tags = []
    #: Takes no new jobs.
    drained: bool = False
    enrolled_at_ms: Counter = 0
    #: No other one may speak for the node, as long as anything may run here.
    machine: Machine = ""
    #: The public key with which it joined, and what its token says of it; nothing of a node that joined by no token.
    key: PublicKey = ""
    terms: NodeTerms | None = None
    #: Tags that its agent claims and the token does not give.
    cut_tags: Tags = []
    #: True if its agent says that no job can reach its key or its runner.
    isolated: bool = False
    isolation_detail: IsolationDetail = ""

    def is_of(self, machine: str) -> bool:
        """True if an agent on this machine may speak for the node.

        A record that names no state folder is of any folder there.
        """
        return machine in ("", self.machine) or (self.machine != "" and machine.startswith(f"{self.machine}, "))


class Enrol(msgspec.Struct, frozen=True):
    """agent → admission: this node wants to take part. Enrolling again changes nothing but the tags and the isolation.

    From another machine it is refused while anything may run on the one before.
    """

    node: NodeName
    tree: TreeName = TreeName("default")
    tags: Tags = []
    machine: Machine = ""
    #: True if no job can reach the key of its agent or the runner.
    isolated: bool = False
    isolation_detail: IsolationDetail = ""


class Enrolled(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The node is recorded. `revision` is that of the bucket of nodes."""

    node: NodeName
    tree: TreeName
    revision: Counter


class NodeChange(enum.StrEnum):
    """Changes of an enrolled node by an administrator."""

    #: Nothing more starts on it, and what runs goes on to its end.
    DRAIN = "drain"
    UNDRAIN = "undrain"
    #: Its key counts no more, whatever it runs. Its jobs go on to the end of its lease.
    SHUT_OUT = "shut_out"
    #: It is enrolled no more. What it ran counts as lost.
    REMOVE = "remove"


class ChangeNode(msgspec.Struct, frozen=True):
    """person → admission."""

    node: NodeName
    change: NodeChange


class ChangedNode(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The change is recorded, or had been before."""

    node: NodeName


class GiveUpNode(msgspec.Struct, frozen=True):
    """admission → allocator: a node is to be removed. Is it silent, or drained and empty? Then its jobs are lost."""

    node: NodeName
    #: The machine that is to have its name instead. No job is lost for that: it is refused while any may run.
    to_machine: Machine = ""


class GivenUpNode(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The allocator counts on the node no more."""

    node: NodeName
    lost_jobs: Counter


class LongestLeaseRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The longest lease that nodes of a tree may have been told, and more that an allocator leaves to the next one."""

    term: Term = 0
    lease_ms: Counter = 0
    #: Nodes that run nothing. None of them gets a job before it is taken out of this list.
    empty_nodes: list[NodeName] = []
    #: Jobs that no allocator ever gave out, or of which the start never happened. Written as the last word of an allocator that stops
    #: in order, and taken out by the next one before it gives anything out.
    not_given_out: dict[OperationId, list[IndexRun]] = {}


class ListNodes(msgspec.Struct, frozen=True):
    """person → allocator."""

    first: Counter = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1000


class NodeView(msgspec.Struct, frozen=True):
    """A node as the allocator sees it."""

    node: NodeName
    #: `online`, `offline` (no heartbeat for the timeout), `unheard` (none since the allocator started), `draining`.
    state: str
    tags: list[str]
    total: Resources = ZERO
    usage: Resources = ZERO
    allocations: Counter = 0
    running_jobs: Counter = 0
    #: Since the last heartbeat.
    heartbeat_age_ms: Counter | None = None
    #: `full` if no job can reach the key of its agent, else `none`; and why.
    isolation: str = ""
    isolation_detail: str = ""
    #: How jobs are kept to what they were given: `cgroup2`, `rlimit`, `none`.
    limits: str = ""
    trouble: str = ""
    #: All that its agent offers and claims beyond what the node's token gives. It counts for nothing.
    cut: Resources = ZERO
    cut_tags: list[str] = []
    #: Why the tree gives it nothing, whatever room it has; empty if it may get jobs.
    left_out: str = ""
    #: The operation for which the node is reserved, and when its job is expected to fit, in words. Empty: it is not reserved.
    reserved: str = ""


class NodeList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """All nodes of the tree, by name. `recovering` is «heard/enrolled» while the allocator is recovering, else empty."""

    nodes: list[NodeView]
    recovering: str = ""
    more: bool = False


class WhereRequest(msgspec.Struct, frozen=True):
    """person → allocator: which jobs of an operation run where, and why others do not."""

    operation: str


class JobPlace(msgspec.Struct, frozen=True, array_like=True):
    """A job that runs now."""

    index: int
    attempt: int
    node: NodeName
    allocation: str
    ran_ms: Counter
    #: The account of the node as which it runs; empty: its agent's.
    account: str = ""
    #: How far it is, in thousandths, if it says so.
    progress: int | None = None
    #: What its node keeps it to: `cgroup2`, `rlimit` or `none`; empty: not told.
    limits: str = ""
    #: The stage in which its allocation got its place; None: it is older than its allocator, and its node did not tell.
    stage: StartStage | None = None
    #: The stage with the shares at that moment; None as well.
    start: StartRecord | None = None


class OperationProgress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of the running jobs of an operation that say how far they are."""

    operation: OperationId
    #: Running jobs that say it, and what they say together, in thousandths of a job.
    jobs: Counter
    thousandths: Counter

    @staticmethod
    def joined(parts: Sequence[OperationProgress]) -> OperationProgress | None:
        """The same of all trees together."""
        if not parts:
            return None
        jobs, thousandths = sum(each.jobs for each in parts), sum(each.thousandths for each in parts)
        return OperationProgress(parts[0].operation, jobs, thousandths)

    def done(self, completed_jobs: int, job_count: int) -> float:
        """The part of an operation that is done, with what its running jobs have done so far."""
        return min(1.0, (completed_jobs + self.thousandths / 1000) / job_count)


class OperationPlaces(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Running jobs (at most 1,000 are told) and the words on why pending ones wait."""

    operation: str
    running: list[JobPlace]
    running_jobs: Counter
    pending_jobs: Counter
    in_doubt_jobs: Counter
    #: Every reason that holds, the heaviest first, each with its figures.
    reasons: list[str]
    #: How far all running jobs are that say so. None: none does.
    progress: OperationProgress | None = None

    @staticmethod
    def joined(places: Sequence[OperationPlaces]) -> OperationPlaces:
        """The same of several trees together."""
        return OperationPlaces(
            operation=places[0].operation,
            running=[place for each in places for place in each.running],
            running_jobs=sum(each.running_jobs for each in places),
            # Jobs that no tree has wait in each of them.
            pending_jobs=max(each.pending_jobs for each in places),
            in_doubt_jobs=sum(each.in_doubt_jobs for each in places),
            reasons=list(dict.fromkeys(reason for each in places for reason in each.reasons)),
            progress=OperationProgress.joined([each.progress for each in places if each.progress is not None]),
        )


class ListProgress(msgspec.Struct, frozen=True):
    """person → allocator: how far are the running jobs of these operations."""

    operations: Annotated[list[OperationId], msgspec.Meta(max_length=_MOST_OPERATIONS)]


class ProgressList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Those of the operations of which some running job says how far it is."""

    operations: Annotated[list[OperationProgress], msgspec.Meta(max_length=_MOST_OPERATIONS)]


class StopMode(enum.StrEnum):
    """Fates of the jobs of an agent that stops, from the gentlest to the most urgent."""

    #: They run on to their end, then the agent ends.
    WAIT = "wait"
    #: They run on at the runner, under the lease they have; the next agent on this host adopts them.
    LEAVE = "leave"
    #: They are interrupted and get their timeout; they count as aborted, and others run in their place later.
    INTERRUPT = "interrupt"
    #: They are killed at once, and nothing is waited for.
    KILL = "kill"
