"""Nodes: what each node offers and holds, whether it accepts jobs, when it fell silent and when its lease is over."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import islice, takewhile
from typing import Final

import msgspec

from headrace.ids import AllocationId, Incarnation, NodeName, OperationId, incarnation_number
from headrace.pools.node_filter import matches
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Check, Moment
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    Heartbeat,
    JobKey,
    NodeState,
    Orders,
    SessionSpan,
)
from headrace.wire.nodes import NodeRecord
from headrace.wire.refusals import BadRequest
from headrace.wire.snapshots import PreemptionPriority
from headrace.wire.start_stages import StartRecord
from headrace_allocator.facts.allocations import AgreedReport, Allocation
from headrace_allocator.facts.job_outcomes import NodeFailures
from headrace_allocator.facts.operations import Operation, lasts_ms


class Timing(msgspec.Struct, frozen=True):
    """Durations and switches by which nodes are judged."""

    #: Seconds without a heartbeat after which a node is offline: its resources leave the total.
    node_heartbeat_timeout_s: float = 60.0
    #: Seconds without a heartbeat after which a node's jobs are given to other nodes. This lease is sent to nodes.
    node_lease_s: float = 600.0
    #: Seconds of the longest lease that an earlier allocator may have sent to nodes.
    longest_lease_s: float = 0.0
    #: Seconds for which a node's usage may exceed its resources before allocations are taken back.
    allowed_overcommit_s: float = 15.0
    #: Upper bound of the allocations started on one heartbeat; None for as many as fit.
    most_starts: int | None = None
    #: True if a node that reports no slots must end at once all that runs on it.
    abort_on_zero_user_slots: bool = True
    #: Seconds after which shares are too old to justify a preemption.
    shares_count_for_s: float = 10.0
    #: Seconds for which resources are held for a gang whose jobs do not all have an allocation.
    gang_hold_s: float = 30.0
    #: Shortest time between two heartbeats of a node, in milliseconds.
    shortest_pace_ms: int = 1_000
    #: Upper bound of the heartbeats per second of all nodes together. The more nodes share this bound, the longer is the time between two
    #: heartbeats of a node, up to a quarter of the heartbeat timeout.
    heartbeats_per_s: int = 2_000


class NodeCondition(enum.StrEnum):
    """The state of a node as users see it. Only an online node may accept jobs."""

    UNHEARD = "unheard"
    OFFLINE = "offline"
    #: The node sends heartbeats, and none of the conditions below holds.
    ONLINE = "online"
    #: The node was taken out of the tree, but it still holds allocations or may hold some.
    REMOVED = "removed"
    #: An administrator drains the node.
    DRAINED = "drained"
    #: The node's tags do not match the tree's node filter.
    OUTSIDE = "outside"
    #: Jobs on the node can reach the key of its agent, and the tree requires that they cannot.
    UNISOLATED = "unisolated"
    #: The agent of the node drains it.
    DRAINING = "draining"
    STOPPING = "stopping"


class NodeRules(msgspec.Struct, frozen=True):
    """The rules by which a tree uses nodes."""

    #: Formula that the tags of a node must match.
    node_filter: str = ""
    #: True if no job may be able to reach the key of its node's agent.
    require_isolation: bool = False


#: The enum member is looked up only once here, because a look-up costs as much as ten comparisons.
_OPEN: Final = NodeState.OPEN
#: Upper bound of the milliseconds by which an incarnation number may be ahead of the clock: ten years. An honest host's clock is not wrong
#: by that much.
_MOST_AHEAD_MS: Final = 10 * 366 * 86_400_000
#: A text from a node is cut to this number of characters when a refusal quotes it.
_TOLD_LETTERS: Final = 40
#: Number of nodes that one check of the order covers.
_CHECKED_AT_ONCE: Final = 2_000


class PreemptiveTry(msgspec.Struct, frozen=True):
    """A preemptive stage that ran on a node, kept to explain why an operation got nothing from it."""

    at_s: float
    #: Number of allocations that the stage could have preempted.
    candidates: int
    #: Resources that would have been free for a job if all allocations counted in `candidates` had been preempted.
    room: Resources
    #: The operation that started a job in the stage; empty if no job started.
    started: OperationId
    #: Number of other allocations that the stage could not preempt only because their jobs had not run long enough
    #: (`preemption_exempt_time`).
    exempt: int = 0
    #: Time from which the first of the allocations counted in `exempt` may be preempted.
    exempt_until_s: float = 0.0


#: Margin in seconds for a job on a reserved node: it must end this long before the node is needed, so that there is time for its start and
#: for the report of its end.
_START_S: Final = 1.0


class Reservation:
    """The reservation of one node for one operation."""

    __slots__ = ("expected_s", "job", "lent_until_s", "moves", "node", "operation", "since_s", "until_s")

    def __init__(
        self, operation: OperationId, job: Resources, node: Node, expected_s: float, since_s: float, until_s: float
    ) -> None:
        self.operation = operation
        #: Resources of the job that is to start on the node.
        self.job = job
        self.node = node
        #: Time at which the job is expected to fit, judged by what runs on the node.
        self.expected_s = expected_s
        #: Time until which other jobs may use what is free on the node. It is computed like `expected_s`, but with another guess for
        #: running jobs of unknown length: such a job is expected to run only for as long again as it has run so far.
        self.lent_until_s = 0.0
        #: Time at which this node was chosen for the reservation.
        self.since_s = since_s
        #: Time at which the reservation ends at the latest.
        self.until_s = until_s
        #: Number of times the reservation was moved to another node.
        self.moves = 0


class Node:
    """A node that is enrolled, or that was enrolled and may still hold allocations."""

    # The slots make the object smaller. This saves time, too: each heartbeat is about another node, and a smaller object is loaded faster
    # into the CPU cache.
    __slots__ = (
        "allocations", "boottime_ms", "drained_empty", "enrolled", "failures", "gpus", "has_no_slots", "heard_s", "holds", "incarnation",
        "limits", "machine", "nudged", "offered", "online", "outside", "overcommitted_since_s", "picture", "preemptive_stages_s",
        "record", "recorded", "reported", "reporting", "reserved", "sent", "seq", "sessions", "state", "total", "tries", "trouble", "used",
    )  # fmt: skip

    def __init__(self, record: NodeRecord, heard_s: float) -> None:
        self.record = record
        self.enrolled = True
        self.online = False
        #: True if the node reports zero user slots, which means that no job may be on it. Then neither its resources nor its usage count.
        self.has_no_slots = False
        #: The newest incarnation of the node's agent. Heartbeats of older incarnations are ignored.
        self.incarnation: Incarnation | None = None
        self.seq = 0
        #: The machine that sent the node's last heartbeat.
        self.machine = ""
        #: Time of the last heartbeat, or time at which the allocator began to expect heartbeats (steady clock, seconds).
        self.heard_s = heard_s
        #: CLOCK_BOOTTIME of the node's host at the last heartbeat, in milliseconds.
        self.boottime_ms = 0
        #: Resources that the agent offered in its last heartbeat.
        self.offered = ZERO
        #: The part of `offered` that the terms of the node's enrolment allow.
        self.reported = ZERO
        #: The part of `reported` that the tree may use.
        self.total = ZERO
        #: The rule of the tree that excludes the node, so that no job starts on it; None if no rule does.
        self.outside: NodeCondition | None = None
        #: True once the node reported that it holds nothing while an administrator drains it.
        self.drained_empty = False
        #: Usage of all allocations of the node, resources held for gangs included.
        self.used = ZERO
        self.allocations: dict[AllocationId, Allocation] = {}
        #: Allocations of gangs that are booked on the node and were not sent to it yet.
        self.holds: dict[AllocationId, Allocation] = {}
        self.picture = AgreedReport()
        #: The answer to the newest heartbeat, if it contained orders. Orders that the node does not obey are taken back.
        self.sent: Orders | None = None
        #: Ends that were reported to the ledger and are not confirmed yet.
        self.reporting: set[JobKey] = set()
        #: Ends that the ledger has confirmed, so that the node may forget them.
        self.recorded: set[JobKey] = set()
        #: The session spans that the node reports, and whether the ledger has recorded them.
        self.sessions: dict[SessionSpan, bool] = {}
        self.nudged = False
        #: Failures of jobs on the node; None before the first job has ended there.
        self.failures: NodeFailures | None = None
        #: The reservation of this node; None if the node is not reserved.
        self.reserved: Reservation | None = None
        #: Time of the last preemptive stages on the node; None if there were none.
        self.preemptive_stages_s: float | None = None
        #: Time since which the node's usage exceeds its resources; None if its usage does not exceed them.
        self.overcommitted_since_s: float | None = None
        #: The last preemptive stage of each priority.
        self.tries: dict[PreemptionPriority, PreemptiveTry] = {}
        self.state = NodeState.OPEN
        self.limits = ""
        self.trouble = ""
        #: The node's GPU devices, each with the allocation that holds it, as the node reported last.
        self.gpus: dict[str, AllocationId] = {}

    def set_room(
        self, reported: Resources, *, online: bool, outside: NodeCondition | None, drained_empty: bool
    ) -> None:
        """Record what the node offers and how much of it the tree may use. A node without slots offers nothing."""
        self.reported, self.online, self.outside, self.drained_empty = reported, online, outside, drained_empty
        self.has_no_slots = online and reported.user_slots == 0
        unused = not online or outside is not None or drained_empty or self.has_no_slots
        self.total = ZERO if unused else reported

    @property
    def free(self) -> Resources:
        """The node's resources that no allocation uses."""
        return self.total - self.used

    @property
    def lent_ms(self) -> int:
        """If the node is reserved: milliseconds, counted from its last heartbeat, within which a job of another operation must end to use
        its free resources; else 0.
        """
        if self.reserved is None:
            return 0
        return max(0, int((self.reserved.lent_until_s - _START_S - self.heard_s) * 1000))

    def is_reserved_for_another(self, operation: Operation, job: Resources) -> bool:
        """True if the node is reserved for another operation, and the job neither fits beside the reserved job nor ends before that job
        needs the node.
        """
        return (
            self.reserved is not None
            and self.reserved.operation != operation.id
            and not (self.free - self.reserved.job).dominates(job)
            and not 0 < lasts_ms(operation) <= self.lent_ms
        )

    @property
    def condition(self) -> NodeCondition:
        """The node's state for users."""
        if not self.online:
            return NodeCondition.UNHEARD if self.incarnation is None else NodeCondition.OFFLINE
        if not self.enrolled:
            return NodeCondition.REMOVED
        if self.record.drained:
            return NodeCondition.DRAINED
        if self.outside is not None:
            return self.outside
        return NodeCondition.ONLINE if self.state is _OPEN else NodeCondition(self.state.value)

    def ends_all(self, timing: Timing) -> bool:
        """True if all that runs on the node must end at once."""
        return self.has_no_slots and timing.abort_on_zero_user_slots

    @property
    def accepts_jobs(self) -> bool:
        """True if nothing in the state of the node itself prevents jobs from starting there."""
        # The conditions are written out to save time, because this property is read twice for each heartbeat.
        is_open = self.online and self.enrolled and not self.record.drained and self.outside is None
        return is_open and self.state is _OPEN and not self.trouble

    def left_out_by(self, rules: NodeRules) -> NodeCondition | None:
        """Return the rule of the tree that the node does not meet; None if it meets all."""
        if not matches(rules.node_filter, self.record.tags):
            return NodeCondition.OUTSIDE
        return NodeCondition.UNISOLATED if rules.require_isolation and not self.record.isolated else None

    def is_silent(self, timing: Timing, now: Moment) -> bool:
        """True if the node sent no heartbeat for the heartbeat timeout."""
        return now.steady_s - self.heard_s > timing.node_heartbeat_timeout_s

    def may_be_removed(self, timing: Timing, now: Moment) -> bool:
        """True if the node is silent, or is drained and reported that it holds nothing."""
        is_empty = self.online and not self.allocations and not self.reporting
        return self.is_silent(timing, now) or (self.record.drained and is_empty)

    def may_change_machine(self, timing: Timing, now: Moment) -> bool:
        """True if no job is known to run on the node, and its agent is silent or reported that it stops."""
        is_gone = self.is_silent(timing, now) or self.state is NodeState.STOPPING
        return is_gone and not self.allocations and not self.reporting

    def lease_is_over(self, lease_s: float, now: Moment) -> bool:
        """True if the node was silent for `lease_s`, the longest lease that it may have been given. By then the node's runner has ended all
        jobs.
        """
        return now.steady_s - self.heard_s > lease_s

    def is_newest(self, heartbeat: Heartbeat) -> bool:
        """True if the heartbeat is not repeated, not overtaken, and not of an earlier incarnation of the agent.

        Incarnations on two machines cannot be compared. So a heartbeat from another machine is accepted unless the node still holds
        allocations.
        """
        if self.machine and heartbeat.machine not in ("", self.machine):
            return not self.allocations
        if heartbeat.incarnation == self.incarnation:
            return heartbeat.seq > self.seq
        return self.incarnation is None or heartbeat.incarnation > self.incarnation

    def may_begin_anew(self, heartbeat: Heartbeat, lease_s: float, now: Moment) -> bool:
        """True if a heartbeat may be accepted although it is not of the incarnation that is known as the newest.

        This is the case if the node was silent for a whole lease and holds nothing. Without this rule, a forged incarnation with a number
        ahead of the clock would shut out the node's own agent until the clock reaches that number.
        """
        is_another = heartbeat.incarnation != self.incarnation
        return is_another and not self.allocations and self.lease_is_over(lease_s, now)

    def hear(self, heartbeat: Heartbeat) -> None:
        """Take over what a heartbeat reports of the node itself, except its resources."""
        self.incarnation = heartbeat.incarnation
        self.seq = heartbeat.seq
        self.machine = heartbeat.machine
        self.boottime_ms = heartbeat.boottime_ms
        self.offered = heartbeat.total
        self.nudged = False
        self.state, self.limits, self.trouble = heartbeat.state, heartbeat.isolation, heartbeat.trouble
        self.gpus = heartbeat.gpus

    def shows_nothing_new(self, reports: Collection[AllocationReport]) -> bool:
        """True if a node report shows exactly the booked allocations and jobs, in the same order. It follows that such a report names no
        allocation twice.
        """
        if len(reports) != len(self.allocations):
            return False
        for report, known in zip(reports, self.allocations.values(), strict=True):
            # For most allocations, the report is the same object as in the previous heartbeat, so it need not be compared.
            if report is not known.shown and (report.id != known.id or not known.shows_nothing_new(report)):
                return False
        return True

    def note_starts(self, starts: Mapping[AllocationId, StartRecord]) -> None:
        """Record how allocations of earlier allocators were started, as the node reports it."""
        for name, record in starts.items():
            allocation = self.allocations.get(name)
            if allocation is not None:
                allocation.note_start(record)

    def note_overcommit(self, now: Moment) -> None:
        """Record whether the node's usage exceeds its resources, and since when."""
        if self.has_no_slots or self.reported.dominates(self.used):
            self.overcommitted_since_s = None
        elif self.overcommitted_since_s is None:
            self.overcommitted_since_s = now.steady_s

    def check(self) -> list[str]:
        """Return a text for each broken invariant; empty if all hold."""
        broken = [words for one in self.allocations.values() for words in one.check()]
        if self.used != Resources.sum(one.usage for one in (*self.allocations.values(), *self.holds.values())):
            broken.append("used differs from the sum of its allocations")
        if self.sent is not None and not self.allocations:
            # The orders are checked because a node that may still obey an order would otherwise count as a node that runs nothing
            # (`lost_nodes.runs_nothing`).
            broken.append("orders that it may still obey belong to no known allocation")
        if self.picture.booked is not None and not self.shows_nothing_new(self.picture.booked):
            broken.append("its allocations differ from the last node report that was recorded")
        if self.picture.booked is not None and self.picture.rests is not None and not self._rests():
            broken.append("an allocation that may need an order is marked as needing none")
        return [f"node {self.record.node}: {words}" for words in broken]

    def _rests(self) -> bool:
        rests = self.picture.rests or {}
        return all(
            one.rest in rests
            and rests[one.rest].place >= one.place
            and one.take_back is None
            and one.state is AllocationState.RUNNING
            and len(one.slots) <= 1
            for one in self.allocations.values()
        )


def refused_incarnation(incarnation: Incarnation, now: Moment) -> BadRequest | None:
    """Return a refusal of a heartbeat with an impossible incarnation: an ill-formed text, or a number years ahead of the clock.

    If such an incarnation were accepted, all real incarnations of the node's agent would count as older, and their heartbeats would be
    ignored until a lease is over. Returns None if the incarnation is possible.
    """
    number = incarnation_number(incarnation)
    if number is None:
        return BadRequest("incarnation", incarnation[:_TOLD_LETTERS], "16 digits, a '-' and 8 hexadecimal digits")
    most = now.wall_ms + _MOST_AHEAD_MS
    if number > most:
        return BadRequest("incarnation", incarnation, f"a number of at most {most}, ten years ahead of the clock")
    return None


class LastHeard:
    """Nodes in the order of their last heartbeats, so that a search for silent nodes looks at silent nodes only.

    Invariant (`check`): the last heartbeat of each node is not older than the last heartbeat of the node in front of it.
    """

    def __init__(self) -> None:
        self._nodes: OrderedDict[NodeName, Node] = OrderedDict()

    def note(self, node: Node, now: Moment) -> None:
        """Record that a heartbeat of the node arrived, or that the node's heartbeats are expected from now on."""
        node.heard_s = now.steady_s
        self._nodes[node.record.node] = node
        self._nodes.move_to_end(node.record.node)

    def note_late(self, name: NodeName, now: Moment) -> None:
        """Record that a heartbeat of a node arrived too late to be answered. Nodes that are not enrolled are ignored."""
        node = self._nodes.get(name)
        if node is not None:
            self.note(node, now)

    def forget(self, node: Node) -> None:
        """Remove a node that is no longer enrolled and holds nothing."""
        self._nodes.pop(node.record.node, None)

    def newest(self) -> Iterator[Node]:
        """Return the nodes, the node with the newest heartbeat first."""
        return reversed(self._nodes.values())

    def silent(self, timing: Timing, lease_s: float, now: Moment) -> list[Node]:
        """Return the nodes that are silent or whose lease is over, the longest silence first."""
        least_s = min(timing.node_heartbeat_timeout_s, lease_s)
        return list(takewhile(lambda node: now.steady_s - node.heard_s > least_s, self._nodes.values()))

    def checks(self) -> Iterator[Check]:
        """Yield checks that the nodes are in the order of their last heartbeats. Each check covers some of the nodes."""
        for first in range(0, len(self._nodes), _CHECKED_AT_ONCE):
            yield partial(self.check, first)

    def check(self, first: int = 0) -> list[str]:
        """Check the order of the nodes from position `first` on. Returns a list with one message if the order is broken, else an empty
        list.
        """
        # The first node of the next check is included, so that each pair of neighbours is compared.
        heard_s = [node.heard_s for node in islice(self._nodes.values(), first, first + _CHECKED_AT_ONCE + 1)]
        if heard_s == sorted(heard_s):
            return []
        return ["nodes are not in the order of their last heartbeats"]
