"""Nodes: what each has and holds, whether it accepts jobs, when it fell silent and when its lease is over."""

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
from headrace.wire.heartbeat import AllocationReport, AllocationState, Heartbeat, JobKey, NodeState, Orders
from headrace.wire.nodes import NodeRecord
from headrace.wire.refusals import BadRequest
from headrace.wire.snapshots import PreemptionPriority
from headrace.wire.start_stages import StartRecord
from headrace_allocator.facts.allocations import Allocation, Picture


class Timing(msgspec.Struct, frozen=True):
    """Lengths of time and switches by which nodes are judged."""

    #: No heartbeat for this long: offline, its room leaves the total.
    node_heartbeat_timeout_s: float = 60.0
    #: Told to nodes. No heartbeat for this long: its jobs are given to others.
    node_lease_s: float = 600.0
    #: Nodes may have been told so long a one before.
    longest_lease_s: float = 0.0
    #: More of a node may be used than it has for so long, before it is repaired.
    allowed_overcommit_s: float = 15.0
    #: The most allocations that start on one heartbeat; None: as many as fit.
    most_starts: int | None = None
    #: A node that says that it has no slots gives up at once what runs on it.
    abort_on_zero_user_slots: bool = True
    #: Nobody loses a place by shares that are older.
    shares_count_for_s: float = 10.0
    #: So long room is held for a gang that has not all its places.
    gang_hold_s: float = 30.0
    #: The shortest time between two heartbeats of a node.
    shortest_pace_ms: int = 1_000
    #: Heartbeats a second of all nodes together, above which the pace slows down.
    heartbeats_per_s: int = 2_000


class NodeCondition(enum.StrEnum):
    """The state of a node as people see it. Only an online one may accept jobs."""

    UNHEARD = "unheard"
    OFFLINE = "offline"
    #: Heard, and nothing of what follows holds.
    ONLINE = "online"
    #: It was taken out of the tree, and still holds something, or may.
    REMOVED = "removed"
    #: An administrator drains it.
    DRAINED = "drained"
    #: Its tags do not match the tree's node filter.
    OUTSIDE = "outside"
    #: Its jobs can reach the key of its agent, and the tree requires that they cannot.
    UNISOLATED = "unisolated"
    #: It says so itself.
    DRAINING = "draining"
    STOPPING = "stopping"


class NodeRules(msgspec.Struct, frozen=True):
    """The rules of a tree by which it uses a node."""

    #: A formula that the tags of the node match.
    node_filter: str = ""
    #: No job reaches the key of the node's agent.
    require_isolation: bool = False


#: Looked up once: the lookup of a member in its enumeration costs as much as ten comparisons.
_OPEN: Final = NodeState.OPEN
#: The clock of an honest host may be wrong, but not by so much.
_MOST_AHEAD_MS: Final = 10 * 366 * 86_400_000
#: Letters of a foreign text that are told back.
_TOLD_LETTERS: Final = 40
#: Nodes of which the order is checked at once.
_CHECKED_AT_ONCE: Final = 2_000


class PreemptiveTry(msgspec.Struct, frozen=True):
    """A preemptive stage that ran on a node, for those who ask why it gave them nothing."""

    at_s: float
    #: Allocations that could be taken.
    candidates: int
    #: All that there would be for a job with them.
    room: Resources
    #: The operation that started a job there, empty for none.
    started: OperationId
    #: So many more could be taken, had their jobs run for as long as their pools let them; the first can from that moment on.
    exempt: int = 0
    exempt_until_s: float = 0.0


class Reservation:
    """One node that is reserved for one operation."""

    __slots__ = ("expected_s", "job", "moves", "node", "operation", "since_s", "until_s")

    def __init__(
        self, operation: OperationId, job: Resources, node: Node, expected_s: float, since_s: float, until_s: float
    ) -> None:
        self.operation = operation
        #: The resources of the job that is to start there.
        self.job = job
        self.node = node
        #: The time at which the job is expected to fit, by what runs on the node.
        self.expected_s = expected_s
        #: The time at which this node was chosen, and the one at which the reservation ends at the latest.
        self.since_s = since_s
        self.until_s = until_s
        #: How often it was moved to another node.
        self.moves = 0


class Node:
    """An enrolled node."""

    # Each heartbeat is of another node: the less memory one takes, the sooner it is at hand.
    __slots__ = (
        "allocations", "boottime_ms", "drained_empty", "enrolled", "has_no_slots", "heard_s", "holds", "incarnation", "limits",
        "machine", "nudged", "offered", "online", "outside", "overcommitted_since_s", "picture", "preemptive_stages_s",
        "record", "recorded", "reported", "reporting", "reserved", "sent", "seq", "state", "total", "tries", "trouble", "used",
    )  # fmt: skip

    def __init__(self, record: NodeRecord, heard_s: float) -> None:
        self.record = record
        self.enrolled = True
        self.online = False
        #: True if it says that no job may be on it. Neither its room nor what is used of it counts then.
        self.has_no_slots = False
        #: The newest life of its agent that was heard; older ones are not listened to any more.
        self.incarnation: Incarnation | None = None
        self.seq = 0
        #: The machine from which it was heard last.
        self.machine = ""
        #: When it was heard last, or when the allocator began to listen for it.
        self.heard_s = heard_s
        #: CLOCK_BOOTTIME of its host then.
        self.boottime_ms = 0
        #: All that its agent offers, as it said last; as much of it as the node may offer; and all of that which the tree may use.
        self.offered = ZERO
        self.reported = ZERO
        self.total = ZERO
        #: The rule of the tree that leaves it out, None if none does: it gets nothing new.
        self.outside: NodeCondition | None = None
        #: True once it was heard to hold nothing while an administrator drains it.
        self.drained_empty = False
        #: The usage of all its allocations, and the room that is held on it.
        self.used = ZERO
        self.allocations: dict[AllocationId, Allocation] = {}
        #: Allocations of gangs that it was not told of.
        self.holds: dict[AllocationId, Allocation] = {}
        self.picture = Picture()
        #: The answer to its newest heartbeat, if it ordered anything: that is taken back as far as it is not obeyed.
        self.sent: Orders | None = None
        #: Ends told to the ledger and not confirmed yet; and confirmed ones that the node may forget.
        self.reporting: set[JobKey] = set()
        self.recorded: set[JobKey] = set()
        self.nudged = False
        #: The reservation of this node, None while it has none.
        self.reserved: Reservation | None = None
        #: When preemptive stages ran on it last, and since when more of it is used than it has.
        self.preemptive_stages_s: float | None = None
        self.overcommitted_since_s: float | None = None
        #: The newest preemptive stage of each priority.
        self.tries: dict[PreemptionPriority, PreemptiveTry] = {}
        self.state = NodeState.OPEN
        self.limits = ""
        self.trouble = ""

    def set_room(
        self, reported: Resources, *, online: bool, outside: NodeCondition | None, drained_empty: bool
    ) -> None:
        """Notes what it offers, and how much of that the tree may use: nothing of a node without slots."""
        self.reported, self.online, self.outside, self.drained_empty = reported, online, outside, drained_empty
        self.has_no_slots = online and reported.user_slots == 0
        unused = not online or outside is not None or drained_empty or self.has_no_slots
        self.total = ZERO if unused else reported

    @property
    def free(self) -> Resources:
        """Its room that no allocation has."""
        return self.total - self.used

    def is_reserved_for_another(self, name: OperationId, job: Resources) -> bool:
        """True if the node is reserved for another operation, and a job of this one does not fit beside."""
        return (
            self.reserved is not None
            and self.reserved.operation != name
            and not (self.free - self.reserved.job).dominates(job)
        )

    @property
    def condition(self) -> NodeCondition:
        """Its state in one word."""
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
        """True if all that runs on it is to end at once."""
        return self.has_no_slots and timing.abort_on_zero_user_slots

    @property
    def accepts_jobs(self) -> bool:
        """True if jobs may start on it."""
        # Written out, since each heartbeat asks twice.
        is_open = self.online and self.enrolled and not self.record.drained and self.outside is None
        return is_open and self.state is _OPEN and not self.trouble

    def left_out_by(self, rules: NodeRules) -> NodeCondition | None:
        """The rule of the tree that it does not meet, None if it meets all."""
        if not matches(rules.node_filter, self.record.tags):
            return NodeCondition.OUTSIDE
        return NodeCondition.UNISOLATED if rules.require_isolation and not self.record.isolated else None

    def is_silent(self, timing: Timing, moment: Moment) -> bool:
        """True if it was not heard for the heartbeat timeout."""
        return moment.steady_s - self.heard_s > timing.node_heartbeat_timeout_s

    def may_be_removed(self, timing: Timing, moment: Moment) -> bool:
        """True if it is silent, or nothing can run on it: it is drained, and was heard to hold nothing."""
        is_empty = self.online and not self.allocations and not self.reporting
        return self.is_silent(timing, moment) or (self.record.drained and is_empty)

    def may_change_machine(self, timing: Timing, moment: Moment) -> bool:
        """True if nothing runs on it that is known of, and its agent is silent or went in order."""
        is_gone = self.is_silent(timing, moment) or self.state is NodeState.STOPPING
        return is_gone and not self.allocations and not self.reporting

    def lease_is_over(self, lease_s: float, moment: Moment) -> bool:
        """True if it was not heard for the longest lease it may know. By then its runner has ended all jobs."""
        return moment.steady_s - self.heard_s > lease_s

    def is_newest(self, heartbeat: Heartbeat) -> bool:
        """True if the heartbeat is neither repeated nor overtaken nor of a former life of the agent.

        Lives on two machines have no order. One on another machine is not heard while anything may run on the one before.
        """
        if self.machine and heartbeat.machine not in ("", self.machine):
            return not self.allocations
        if heartbeat.incarnation == self.incarnation:
            return heartbeat.seq > self.seq
        return self.incarnation is None or heartbeat.incarnation > self.incarnation

    def may_begin_anew(self, heartbeat: Heartbeat, lease_s: float, moment: Moment) -> bool:
        """True if a former life may be heard: the newest was silent for a whole lease, and holds nothing.

        Else a life that somebody made up, with a number ahead of the clock, would shut out the node's own agent for as long as that.
        """
        is_another = heartbeat.incarnation != self.incarnation
        return is_another and not self.allocations and self.lease_is_over(lease_s, moment)

    def hear(self, heartbeat: Heartbeat) -> None:
        """Notes what a heartbeat says of the node itself, but for its room."""
        self.incarnation = heartbeat.incarnation
        self.seq = heartbeat.seq
        self.machine = heartbeat.machine
        self.boottime_ms = heartbeat.boottime_ms
        self.offered = heartbeat.total
        self.nudged = False
        self.state, self.limits, self.trouble = heartbeat.state, heartbeat.isolation, heartbeat.trouble

    def shows_nothing_new(self, reports: Collection[AllocationReport]) -> bool:
        """True if a picture is what is booked, in the same order, so that it names nothing twice."""
        if len(reports) != len(self.allocations):
            return False
        for report, known in zip(reports, self.allocations.values(), strict=True):
            # Most are the very same as in the heartbeat before.
            if report is not known.shown and (report.id != known.id or not known.shows_nothing_new(report)):
                return False
        return True

    def note_starts(self, starts: Mapping[AllocationId, StartRecord]) -> None:
        """Notes how allocations of former allocators got their places, as the node was told."""
        for name, record in starts.items():
            allocation = self.allocations.get(name)
            if allocation is not None:
                allocation.note_start(record)

    def note_overcommit(self, moment: Moment) -> None:
        """Notes whether more of it is used than it has, and since when."""
        if self.has_no_slots or self.reported.dominates(self.used):
            self.overcommitted_since_s = None
        elif self.overcommitted_since_s is None:
            self.overcommitted_since_s = moment.steady_s

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        broken = [words for one in self.allocations.values() for words in one.check()]
        if self.used != Resources.sum(one.usage for one in (*self.allocations.values(), *self.holds.values())):
            broken.append("used differs from its allocations")
        if self.sent is not None and not self.allocations:
            # Else a node that may still obey would count as one that runs nothing (`lost_nodes.runs_nothing`).
            broken.append("orders that it may obey are of no allocation in the books")
        if self.picture.booked is not None and not self.shows_nothing_new(self.picture.booked):
            broken.append("its allocations are not what the picture that is booked shows")
        if self.picture.booked is not None and self.picture.rests is not None and not self._rests():
            broken.append("an allocation that may need an order is remembered as one that needs none")
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


def refused_incarnation(incarnation: Incarnation, moment: Moment) -> BadRequest | None:
    """Refuse a heartbeat of a life that no agent has: its text is ill-formed, or its number is years ahead of the clock.

    Every later life of the node's agent would come before it, and would not be heard for a lease.
    """
    number = incarnation_number(incarnation)
    if number is None:
        return BadRequest("incarnation", incarnation[:_TOLD_LETTERS], "16 digits, a '-' and 8 hexadecimal digits")
    most = moment.wall_ms + _MOST_AHEAD_MS
    if number > most:
        return BadRequest("incarnation", incarnation, f"a number of at most {most}, ten years ahead of the clock")
    return None


class LastHeard:
    """Nodes in the order in which they were heard last. Who looks for silent ones looks at no other.

    Invariant (`check`): no node was heard before the one in front of it.
    """

    def __init__(self) -> None:
        self._nodes: OrderedDict[NodeName, Node] = OrderedDict()

    def note(self, node: Node, moment: Moment) -> None:
        """The node lives, or is awaited from now on."""
        node.heard_s = moment.steady_s
        self._nodes[node.record.node] = node
        self._nodes.move_to_end(node.record.node)

    def note_late(self, name: NodeName, moment: Moment) -> None:
        """A node of this name lives. One that is not enrolled is nobody's."""
        node = self._nodes.get(name)
        if node is not None:
            self.note(node, moment)

    def forget(self, node: Node) -> None:
        """The node is enrolled no more and holds nothing."""
        self._nodes.pop(node.record.node, None)

    def newest(self) -> Iterator[Node]:
        """The nodes, that which was heard last first."""
        return reversed(self._nodes.values())

    def silent(self, timing: Timing, lease_s: float, moment: Moment) -> list[Node]:
        """The nodes that are silent, or whose lease is over, the longest silence first."""
        least_s = min(timing.node_heartbeat_timeout_s, lease_s)
        return list(takewhile(lambda node: moment.steady_s - node.heard_s > least_s, self._nodes.values()))

    def checks(self) -> Iterator[Check]:
        """The order of all nodes, some of them at a time."""
        for first in range(0, len(self._nodes), _CHECKED_AT_ONCE):
            yield partial(self.check, first)

    def check(self, first: int = 0) -> list[str]:
        """Broken invariants in words, none if all hold for some nodes from the `first` on."""
        # The first of the others is looked at, too, so that no pair is left out.
        heard_s = [node.heard_s for node in islice(self._nodes.values(), first, first + _CHECKED_AT_ONCE + 1)]
        if heard_s == sorted(heard_s):
            return []
        return ["nodes do not stand in the order in which they were heard"]
