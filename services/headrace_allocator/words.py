"""The English text of reasons, made from data here and in the `words_of_` modules of `telling`."""

from __future__ import annotations

from typing import Final, assert_never

from headrace.ids import OperationId, PoolName
from headrace.resources import RESOURCE_NAMES, ZERO, Resources, format_amount
from headrace.runtime.engine import Moment
from headrace.wire.heartbeat import JobEnd
from headrace.wire.ledger import ReportedEnd
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationSpec
from headrace_allocator.decision import reasons as why
from headrace_allocator.facts.lost_jobs import LostJob, LostNodeInDoubt, NodeSilent, PlaceTaken, UnknownToNode
from headrace_allocator.facts.nodes import Node, NodeCondition
from headrace_allocator.gangs.gang import GangPhase
from headrace_allocator.telling.words_of_kept_places import cure_of_protected, typed, words_of_protected
from headrace_allocator.telling.words_of_reservations import words_of_reserved

#: The text for nodes whose agent is of an older release.
_UNSAID: Final = "its agent does not say who can reach its key"


def words_of(reason: why.Reason) -> str:
    """Return the text of a reason for which jobs wait, with its figures."""
    match reason:
        case why.OperationSuspended():
            return "the operation is suspended"
        case why.OperationNotRunning():
            return f"the operation is {reason.state.value}"
        case why.DemandCovered():
            return "it wants more since shares were computed last; the next computation is due within a second"
        case why.FifoCountReached():
            return "as many operations of its fifo pool as may take part stand before it (max_schedulable_element_count_in_fifo_pool)"
        case why.FairShareReached():
            return "it is a graceful operation that has its fair share, and gets no more"
        case why.GangWaits() | why.GangNeverFits() | why.GangOwedTooLittle():
            return _words_of_gang(reason)
        case why.NoJobReady():
            return "no job of it can be given out at this moment"
        case why.StartsPaused():
            return "starts are paused in this tree; `headrace resume starts` ends it"
        case why.StillRecovering():
            words = f"the allocator is recovering: {reason.heard} of {reason.enrolled} nodes have reported"
            if not reason.in_doubt:
                return words
            others = reason.enrolled - reason.heard - len(reason.awaited)
            nodes = ", ".join(reason.awaited) + (f" and {others} others" if others else "")
            return words + f"; {reason.in_doubt} jobs may still be running on {nodes}"
        case why.LimitsUnknown():
            return "the allocator has started anew and waits for fair_share to report the limits of pools"
        case why.PoolLimitReached() | why.OperationLimitReached():
            return _words_of_limit(reason)
        case (
            why.NoNodeAcceptsJobs()
            | why.NoNodeMatches()
            | why.MatchingNodesOwed()
            | why.MatchingNodesShared()
            | why.LargerThanEveryNode()
            | why.NoRoomOnAnyNode()
            | why.RoomBeingMade()
            | why.RoomUnheard()
        ):
            return _words_of_nodes(reason)
        case why.NodeReserved() | why.RoomReserved():
            return words_of_reserved(reason)
        case why.BlockBeingDrawn():
            return "more of its jobs are being recorded as given out; the log has not answered yet"
        case why.PreemptionPaused() | why.PlacesKept() | why.PlacesExempt() | why.PlacesProtected():
            return f"it starves, and {_words_of_places(reason)}"
        case why.SharesOld():
            return f"fair_share has told no shares for {reason.age_s:.0f} s; nothing is preempted until it does"
        case why.NoShareYet():
            return "fair_share has not told of it in its pool; it does so with its next snapshot"
        case why.NoShare():
            return _no_share(reason)
        case why.PoolOverFairShare():
            return f"its pool {reason.pool} has {reason.satisfaction:.2f} times its fair share already; pools below theirs go first"
        case why.OverFairShare():
            return f"it has {reason.satisfaction:.2f} times its fair share already; those below theirs go first"
        case _:
            assert_never(reason)


def _words_of_places(
    reason: why.PreemptionPaused | why.PlacesKept | why.PlacesExempt | why.PlacesProtected,
) -> str:
    """Return the text of why allocations of other operations are not preempted."""
    match reason:
        case why.PreemptionPaused():
            return "preemption is paused in this tree: nothing is taken back for it"
        case why.PlacesKept():
            pools = ", ".join(f"{pool} ({switch.value})" for pool, switch in reason.pools)
            return f"nothing is taken from pools that do not let it: {pools}"
        case why.PlacesExempt():
            places = "1 place is" if reason.places == 1 else f"{reason.places} places are"
            nodes = "1 node" if reason.nodes == 1 else f"{reason.nodes} nodes"
            age = "have not run for their pool's preemption_exempt_time"
            return f"{places} not to be had yet on {nodes}: jobs there {age}; the first will in {reason.left_s:.0f} s"
        case why.PlacesProtected():
            return words_of_protected(reason)
        case _:
            assert_never(reason)


def _words_of_gang(reason: why.GangWaits | why.GangNeverFits | why.GangOwedTooLittle) -> str:
    """Return the text of why jobs of a gang wait for each other."""
    if isinstance(reason, why.GangNeverFits):
        return _words_of_too_large_gang(reason)
    if isinstance(reason, why.GangOwedTooLittle):
        owed = f"a gang of {reason.jobs} that is owed room for {reason.owed}: no job of others is preempted for it"
        return f"{owed}, and it starts when enough of them have ended"
    gang, left = f"a gang of {reason.jobs}", f"{max(0.0, reason.left_s):.0f} s"
    match reason.phase:
        case GangPhase.WAITING if reason.other:
            return (
                f"{gang}: room is being held for another gang, {reason.other}, for {left} more at most; one at a time"
            )
        case GangPhase.WAITING:
            return f"{gang}: it starts when all of its jobs have room at once"
        case GangPhase.GATHERING:
            nodes = "1 node" if reason.nodes == 1 else f"{reason.nodes} nodes"
            there = f"room for {reason.held} on {nodes} is held" if reason.held else "room is being looked for"
            return f"{gang}: {there} for {left} more; all start when all have room"
        case GangPhase.PAUSED:
            return f"{gang}: not all had room in time; others may have it, and it is held for this one again in {left}"
        case GangPhase.YIELDING:
            return f"{gang}: room was held in vain for one of its pool, and those of other pools go first for {left}"
        case GangPhase.STARTING:
            return f"{gang}: all have room, and their nodes are being told"
        case GangPhase.RUNNING | GangPhase.BREAKING:
            return f"{gang} that lacks a job: the others are taken back, {reason.running} still are on nodes; then all start anew"
        case _:
            assert_never(reason.phase)


def _words_of_too_large_gang(reason: why.GangNeverFits) -> str:
    """Return the text of why a gang cannot start, whatever other jobs end."""
    words = f"a gang of {reason.jobs} that cannot start, whatever ends"
    if reason.limit_of is None:
        return f"{words}: all nodes that take its jobs have room for {reason.most} of them"
    whose = f"resource_limits of pool {reason.limit_of}" if reason.limit_of else "its own resource_limits"
    return f"{words}: {whose} leave room for {reason.most} of its jobs"


def _no_share(reason: why.NoShare) -> str:
    if reason.gang_wants is None:
        return "its fair share is zero; it is served after all others"
    return f"it is a gang, owed all of {_amounts(reason.gang_wants)} or nothing, and so much is not left for it"


def _words_of_nodes(
    reason: why.NoNodeAcceptsJobs
    | why.NoNodeMatches
    | why.MatchingNodesOwed
    | why.MatchingNodesShared
    | why.LargerThanEveryNode
    | why.NoRoomOnAnyNode
    | why.RoomBeingMade
    | why.RoomUnheard,
) -> str:
    """Return the text of a reason that lies with the nodes."""
    match reason:
        case why.NoNodeAcceptsJobs():
            nodes = ", ".join(f"{node} {condition.value}" for node, condition in reason.nodes)
            words = "no node takes jobs" + (f" ({nodes})" if nodes else ": none is enrolled")
            if reason.in_trouble is not None:
                node, detail = reason.in_trouble
                words += f"; {node} starts nothing: {detail}"
            if reason.unisolated is not None:
                node, detail = reason.unisolated
                words += f"; the tree requires isolation, and {node} has none: {detail or _UNSAID}"
            return words
        case why.NoNodeMatches() if reason.away:
            filters = " and ".join(reason.filters)
            if reason.away == 1:
                return f"1 node matches {filters}, and it is {reason.condition}: {reason.first_away}"
            return (
                f"{reason.away} nodes match {filters}, and none takes jobs: {reason.first_away} is {reason.condition}"
            )
        case why.NoNodeMatches():
            take = "1 node that takes jobs has" if reason.nodes == 1 else f"{reason.nodes} nodes that take jobs have"
            words = f"no node matches {' and '.join(reason.filters)}: {take} other tags"
            return words + (f"; {reason.named} is a node's name, and filters are over tags" if reason.named else "")
        case why.MatchingNodesOwed():
            who = f"its pool {reason.pool}" if reason.pool else "it"
            have = ", ".join(f"{name} {format_amount(name, getattr(reason.most, name))}" for name in reason.resources)
            return f"{who} is owed all that the nodes have which match {' and '.join(reason.filters)}: {have}"
        case why.MatchingNodesShared():
            name = reason.resource
            owed, most = (format_amount(name, getattr(each, name)) for each in (reason.owed, reason.most))
            matching = f"the nodes that match {' and '.join(reason.filters)} have {name} {most} together"
            return f"{matching}: it is owed {owed} of that, and others that can run nowhere else the rest"
        case why.LargerThanEveryNode():
            return _larger_than_every_node(reason)
        case why.NoRoomOnAnyNode():
            take = "1 node takes jobs" if reason.nodes == 1 else f"{reason.nodes} nodes take jobs"
            needed, free = _amounts(reason.needed), _amounts(reason.free, wanted=reason.needed)
            words = f"no node has room for a job of {needed}: {take}, the emptiest has {free} free"
            if reason.needed.dominates(reason.spare):
                return words
            return f"{words}; nothing starts where less than {_amounts(reason.spare)} is free"
        case why.RoomBeingMade():
            nodes = "1 node has" if reason.nodes == 1 else f"{reason.nodes} nodes have"
            return f"{nodes} room for a job, and a start that waits there until another job has gone"
        case why.RoomUnheard():
            nodes = "1 node has" if reason.nodes == 1 else f"{reason.nodes} nodes have"
            return f"{nodes} room for a job and should have been heard by now: {reason.last}, heard last, {reason.silent_s:.0f} s ago"
        case _:
            assert_never(reason)


def words_of_isolation(record: NodeRecord) -> str:
    """Return the text of why jobs of a node can, or cannot, reach the key of its agent."""
    return record.isolation_detail or _UNSAID


def words_of_left_out(node: Node) -> str:
    """Return the text of why the tree gives a node no jobs; empty if it may get jobs."""
    match node.outside:
        case None:
            return ""
        case NodeCondition.UNISOLATED:
            return f"the tree requires isolation (require_isolation), and the node has none: {words_of_isolation(node.record)}"
        case _:
            return "its tags do not match the tree's node_filter"


_CURES: Final[dict[type[why.Reason], str]] = {
    why.OperationSuspended: "`headrace op resume {operation}`",
    why.OperationNotRunning: "a running slot, if it is pending; one that is ending starts nothing more",
    why.DemandCovered: "the next computation of shares",
    why.FairShareReached: "a larger fair share: others that want less, more weight, or `--preemption-mode normal`",
    why.FifoCountReached: "an end of an operation before it, or a higher max_schedulable_element_count_in_fifo_pool",
    why.GangWaits: "room for all of its jobs at once: fewer or smaller jobs, more nodes, or a larger fair share",
    why.GangOwedTooLittle: "a larger fair share: more weight or a guarantee for pool {pool}, or a gang of fewer or smaller jobs",
    why.GangNeverFits: "more or larger nodes, or a gang of fewer or smaller jobs",
    why.NoJobReady: "the ledger's word on more of its jobs, which was asked for",
    why.StartsPaused: "`headrace resume starts`",
    why.StillRecovering: "a heartbeat of these nodes, or the end of their leases; `headrace node remove` for a host that is off for good",
    why.LimitsUnknown: "the first snapshot of fair_share; `headrace service list` shows if it leads",
    why.PreemptionPaused: "`headrace resume preemption`",
    why.PlacesKept: "`preemption=on` for them, by `headrace pool set` or `headrace tree set`",
    why.PlacesExempt: "that time, or a shorter preemption_exempt_time for them, by `headrace pool set` or `headrace tree set`",
    why.PlacesProtected: "{rule}",
    why.RoomBeingMade: "the end of the job that goes, at its interruption timeout at the latest",
    why.NodeReserved: "ends of jobs on that node",
    why.RoomReserved: "a start of those operations, or an end of their reservations",
    why.RoomUnheard: "a heartbeat; `headrace node list` shows which agents are silent, and one that stays so is offline after its timeout",
    why.SharesOld: "a snapshot of fair_share; `headrace service list` shows if it leads",
    why.PoolLimitReached: "an end of a job below pool {pool}, or `headrace pool set {pool}` with a higher limit",
    why.OperationLimitReached: "an end of one of its own jobs; its limits stay as it was started with, such as `--max-cpu`",
    why.NoNodeAcceptsJobs: "a node that takes jobs: `headrace node list` says what each lacks",
    why.NoNodeMatches: "a node with such tags, or another scheduling_tag_filter",
    why.MatchingNodesOwed: "more nodes with such tags, or another scheduling_tag_filter",
    why.MatchingNodesShared: "more nodes with such tags, another scheduling_tag_filter, or more weight or a guarantee for pool {pool}",
    why.LargerThanEveryNode: "a larger node, or an operation with smaller jobs",
    why.NoRoomOnAnyNode: "ends of jobs on one node, or preemption while it starves; `headrace pool explain {pool}` says who has it",
    why.BlockBeingDrawn: "the log's answer",
    why.NoShareYet: "the next snapshot of fair_share; `headrace service list` shows if it leads",
    why.NoShare: "a fair share: more weight, a guarantee, or others that want less",
    why.PoolOverFairShare: "those below their share getting theirs, or more weight or a guarantee for pool {pool}",
    why.OverFairShare: "those below their share getting theirs, or more weight for it",
}


def cure_of(reason: why.Reason, spec: OperationSpec, operation: OperationId) -> str:
    """Return the text of what would end a reason for an operation."""
    if isinstance(reason, why.PoolLimitReached):
        small = [one.resource for one in reason.exceeded if one.needed > one.limit]
        if small:
            higher = f"`headrace pool set {typed(reason.pool)} resource_limits/{small[0]}=…`"
            return f"a higher limit, since one job needs more than all of it: {higher}"
    if isinstance(reason, why.LargerThanEveryNode | why.NoNodeMatches) and reason.away:
        return f"{_CURES[type(reason)]}; or {reason.first_away} accepting jobs again: `headrace node list`"
    if isinstance(reason, why.GangNeverFits) and reason.limit_of is not None:
        if not reason.limit_of:
            return "a gang of fewer or smaller jobs; its limits stay as it was started with, such as `--max-cpu`"
        return f"a higher limit, `headrace pool set {typed(reason.limit_of)}`, or a gang of fewer or smaller jobs"
    if isinstance(reason, why.NoShare) and reason.gang_wants is not None:
        explain = f"`headrace pool explain {typed(spec.pool)}`"
        return f"a smaller gang, a guarantee for its pool, or others that want less: {explain}"
    pool = PoolName(getattr(reason, "pool", "")) or spec.pool
    rule = cure_of_protected(reason, typed(pool)) if isinstance(reason, why.PlacesProtected) else ""
    return _CURES[type(reason)].format(operation=operation, pool=typed(pool), rule=rule)


def _words_of_loss(lost: LostJob) -> str:
    """Return the text of why no node reports the end of a job."""
    match lost.why:
        case UnknownToNode():
            words = f"node {lost.node} does not know this job any more"
            return words if lost.why.has_begun else f"{words}, and never told that it began"
        case NodeSilent():
            return f"node {lost.node} was silent for {lost.why.lease_s:g} s"
        case LostNodeInDoubt():
            return f"node {lost.node} may have run it and is lost"
        case PlaceTaken():
            return "its place was preempted before it began"
        case _:
            assert_never(lost.why)


def _words_of_limit(reason: why.PoolLimitReached | why.OperationLimitReached) -> str:
    """Return the text of a reason that lies with a limit.

    A limit that is smaller than a single job gets a text of its own, since no end of a job would help.
    """
    whose = (
        f"resource_limits of pool {reason.pool}"
        if isinstance(reason, why.PoolLimitReached)
        else "its own resource_limits"
    )
    above = [each for each in reason.exceeded if each.needed > each.limit]
    if not above:
        return f"{whose} leave no room for another job: {_exceeded(reason)}"
    needs, has = (
        ", ".join(f"{one.resource} {format_amount(one.resource, getattr(one, name))}" for one in above)
        for name in ("needed", "limit")
    )
    return f"each job is larger than {whose}: it asks for {needs}, and at most {has} may be used"


def _exceeded(reason: why.PoolLimitReached | why.OperationLimitReached) -> str:
    return ", ".join(
        f"{format_amount(each.resource, each.used)} of {format_amount(each.resource, each.limit)} {each.resource} in use"
        for each in reason.exceeded
    )


def _larger_than_every_node(reason: why.LargerThanEveryNode) -> str:
    figures = zip(RESOURCE_NAMES, reason.needed.as_tuple(), reason.most.as_tuple(), strict=True)
    short = [
        f"{name} {format_amount(name, needed)} (the most any node has is {format_amount(name, most)})"
        for name, needed, most in figures
        if needed > most
    ]
    asks = ", ".join(short) if short else f"{_amounts(reason.needed)}, and no single node has all of it"
    largest = f"the largest node, {reason.largest}, has {_amounts(reason.largest_total)}"
    if not reason.away:
        return f"each job is larger than every node: it asks for {asks}; {largest}"
    away = "1 larger node accepts" if reason.away == 1 else f"{reason.away} larger nodes accept"
    named = f"{away} no jobs now: {reason.first_away} is {reason.condition}"
    return f"each job is larger than every node that accepts jobs: it asks for {asks}; {largest}; {named}"


def _amounts(amount: Resources, *, wanted: Resources = ZERO) -> str:
    """Return the amounts that are not zero, and those that are less than `wanted`, as text."""
    figures = zip(RESOURCE_NAMES, amount.as_tuple(), wanted.as_tuple(), strict=True)
    named = [
        f"{name} {format_amount(name, figure)}"
        for name, figure, want in figures
        if figure < want or (figure > 0 and name != "user_slots")
    ]
    return ", ".join(named) or "nothing"


def ends_of_lost(lost: list[LostJob], moment: Moment) -> list[ReportedEnd]:
    """Return the ends of jobs that no node reports."""
    return [
        ReportedEnd(
            each.node,
            JobEnd(
                operation=each.operation,
                index=each.slot.index,
                attempt=each.slot.attempt,
                allocation=each.allocation,
                result=each.result,
                reason=_words_of_loss(each),
                ended_at_ms=moment.wall_ms,
                preemption=each.preemption,
                start=each.start,
            ),
        )
        for each in lost
    ]
