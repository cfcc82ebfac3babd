"""The English text of reasons, made from data here and in the `words_of_` modules beside this one."""

from __future__ import annotations

from typing import Final, assert_never

from headrace.counted import counted
from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.images import runtimes_of
from headrace.resources import RESOURCE_NAMES, ZERO, Resources, format_amount
from headrace.runtime.engine import Moment
from headrace.wire.heartbeat import JobEnd
from headrace.wire.ledger import ReportedEnd
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationSpec
from headrace_allocator.explain import reasons as why
from headrace_allocator.explain.words_of_failing import words_of_held_back
from headrace_allocator.explain.words_of_protected import cure_of_protected, typed, words_of_protected
from headrace_allocator.explain.words_of_reservations import words_of_reserved
from headrace_allocator.facts.lost_jobs import LostJob, LostNodeInDoubt, NodeSilent, PlaceTaken, UnknownToNode
from headrace_allocator.facts.nodes import Node, NodeCondition
from headrace_allocator.gangs.gang import GangPhase

#: The text for a node whose agent is of an older release, which does not report whether jobs can reach the agent's key.
_UNSAID: Final = "its agent does not say who can reach its key"


def words_of(reason: why.Reason) -> str:
    """Return the text of a reason for which jobs wait, with its figures."""
    match reason:
        case why.OperationIsSuspended():
            return "the operation is suspended"
        case why.OperationNotRunning():
            return f"the operation is {reason.state.value}"
        case why.DemandCovered():
            return "the operation wants more than at the last update of shares; the next update follows within a second"
        case why.FifoCountReached():
            return "the operations ahead of it in its fifo pool reach max_schedulable_element_count_in_fifo_pool"
        case why.FairShareReached():
            return "the operation is graceful and has its fair share, so it gets no more"
        case why.GangWaits() | why.GangNeverFits() | why.GangOwedTooLittle():
            return _words_of_gang(reason)
        case why.NoJobReady():
            return "no pending job of the operation is ready to start now"
        case why.StartsPaused():
            return "starts are paused in this tree; `headrace resume starts` ends the pause"
        case why.StillRecovering():
            return _words_of_recovery(reason)
        case why.TaskWaits():
            kind = f"task {reason.task}" if reason.task else f"{format_amount('memory', reason.memory)} a job"
            return f"{kind} ({counted(reason.jobs, 'pending job')}): {words_of(reason.reason)}"
        case why.LimitsUnknown():
            return "the allocator has restarted and waits for fair_share to report the limits of pools"
        case why.PoolLimitReached() | why.OperationLimitReached() | why.JobSizeRefused():
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
        case why.NodeReserved() | why.RoomReserved() | why.NodeHeldBack() | why.NodeAvoided():
            return _words_of_withheld(reason)
        case why.BlockBeingDrawn():
            return "the ledger is recording a lease of more of its jobs; the log has not confirmed it yet"
        case why.PreemptionPaused() | why.PlacesKept() | why.PlacesExempt() | why.PlacesProtected():
            return f"it starves, and {_words_of_places(reason)}"
        case why.SharesOld():
            return f"fair_share has published no shares for {reason.age_s:.0f} s; nothing is preempted until it publishes shares again"
        case why.NoShareYet():
            return "fair_share has not reported a share of the operation in its pool yet; the next snapshot does"
        case why.NoShare():
            return _no_share(reason)
        case why.PoolOverFairShare():
            return f"its pool {reason.pool} has {reason.satisfaction:.2f} times its fair share; pools below their fair share go first"
        case why.OverFairShare():
            return f"it has {reason.satisfaction:.2f} times its fair share; operations below their fair share go first"
        case _:
            assert_never(reason)


def _words_of_recovery(reason: why.StillRecovering) -> str:
    words = f"the allocator is recovering: {reason.heard} of {reason.enrolled} nodes have reported"
    if not reason.in_doubt:
        return words
    others = reason.enrolled - reason.heard - len(reason.awaited)
    nodes = ", ".join(reason.awaited) + (f" and {counted(others, 'other node')}" if others else "")
    return words + f"; {counted(reason.in_doubt, 'job')} may still be running on {nodes}"


def _words_of_withheld(
    reason: why.NodeReserved | why.RoomReserved | why.NodeHeldBack | why.NodeAvoided,
) -> str:
    """Return the text of a reason for which free resources of nodes are withheld from the operation."""
    if isinstance(reason, why.NodeHeldBack | why.NodeAvoided):
        return words_of_held_back(reason)
    return words_of_reserved(reason)


def _words_of_places(
    reason: why.PreemptionPaused | why.PlacesKept | why.PlacesExempt | why.PlacesProtected,
) -> str:
    """Return a text that says why allocations of other operations are not preempted."""
    match reason:
        case why.PreemptionPaused():
            return "preemption is paused in this tree: nothing is preempted for it"
        case why.PlacesKept():
            pools = ", ".join(f"{pool} ({switch.value})" for pool, switch in reason.pools)
            return f"nothing is preempted in pools that do not allow it: {pools}"
        case why.PlacesExempt():
            places = "1 allocation" if reason.places == 1 else f"{reason.places} allocations"
            nodes = "1 node" if reason.nodes == 1 else f"{reason.nodes} nodes"
            age = "have run for less than their pool's preemption_exempt_time"
            return f"{places} on {nodes} cannot be preempted yet: jobs there {age}; the first may be preempted in {reason.left_s:.0f} s"
        case why.PlacesProtected():
            return words_of_protected(reason)
        case _:
            assert_never(reason)


def _words_of_gang(reason: why.GangWaits | why.GangNeverFits | why.GangOwedTooLittle) -> str:
    """Return a text that says why jobs of a gang wait for each other."""
    if isinstance(reason, why.GangNeverFits):
        return _words_of_too_large_gang(reason)
    if isinstance(reason, why.GangOwedTooLittle):
        owed = f"{_gang(reason)} that is owed resources for {reason.owed}: nothing is preempted for it"
        return f"{owed}, and it starts when enough other jobs have ended"
    gang, left = _gang(reason), f"{max(0.0, reason.left_s):.0f} s"
    words = _words_of_phase(reason, gang, left)
    others = f"; {counted(reason.beside, 'other job')} of the operation run and count under the same fair share"
    return words + others if reason.beside else words


def _gang(reason: why.GangWaits | why.GangNeverFits | why.GangOwedTooLittle) -> str:
    """Return the text of the jobs of a gang. The tasks are named if the operation has other jobs, too."""
    words = f"a gang of {reason.jobs} jobs"
    return f"{words} (task{'s' * (len(reason.tasks) > 1)} {', '.join(reason.tasks)})" if reason.tasks else words


def _words_of_phase(reason: why.GangWaits, gang: str, left: str) -> str:
    match reason.phase:
        case GangPhase.WAITING if reason.other:
            return f"{gang}: resources are held for another gang, {reason.other}, for at most {left} more, and for one gang at a time"
        case GangPhase.WAITING:
            return f"{gang}: no resources are held for it yet; they are, job by job, once it comes first for free resources"
        case GangPhase.GATHERING:
            return f"{gang}: {_words_of_gathering(reason, left)}; they start when all have resources"
        case GangPhase.PAUSED:
            return f"{gang}: not all got resources in time; other operations may use them, and the gang tries again in {left}"
        case GangPhase.YIELDING:
            return f"{gang}: resources were held in vain for a gang of its pool, so gangs of other pools go first for {left}"
        case GangPhase.STARTING:
            return f"{gang}: all have resources, and the orders to start them are being sent to the nodes"
        case GangPhase.RUNNING | GangPhase.BREAKING:
            return f"{gang} that lacks a job: the other jobs are being ended, {reason.running} are still on nodes; then all start again"
        case _:
            assert_never(reason.phase)


def _words_of_gathering(reason: why.GangWaits, left: str) -> str:
    """Return the text of what is held for a gang, which nodes are reserved for it, and for how much longer."""
    words = f"resources for {reason.held} of them on {counted(reason.nodes, 'node')} are held for {left} more"
    if not reason.reserved:
        return words if reason.held else f"nodes are searched for free resources for {left} more"
    more = reason.reserved - len(reason.reserved_nodes)
    names = ", ".join(reason.reserved_nodes) + (f" and {counted(more, 'other node')}" if more else "")
    verb = "is" if reason.reserved == 1 else "are"
    reserved = f"{counted(reason.reserved, 'node')} ({names}) {verb} reserved for it for {left} more"
    fits = f"one of its jobs is expected to fit on each within {reason.expected_s:.0f} s"
    return f"{words}; {reserved}, and {fits}" if reason.held else f"{reserved}, and {fits}"


def _words_of_too_large_gang(reason: why.GangNeverFits) -> str:
    """Return a text that says why a gang could not start even if all other jobs ended."""
    words = f"{_gang(reason)} that cannot start, even if all other jobs end"
    if reason.limit_of is None:
        return f"{words}: all nodes that take its jobs together have resources for {reason.most} of its jobs"
    whose = f"resource_limits of pool {reason.limit_of}" if reason.limit_of else "the operation's own resource_limits"
    return f"{words}: {whose} allow {reason.most} of its jobs"


def _no_share(reason: why.NoShare) -> str:
    if reason.gang_wants is None:
        return "its fair share is zero, so all other operations go first"
    return (
        f"it is a gang that is owed all of {_amounts(reason.gang_wants)} or nothing, and less than that is left for it"
    )


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
    """Return the text of a reason that is about the nodes, for example that no node matches the filters or has enough free resources."""
    match reason:
        case why.NoNodeAcceptsJobs():
            nodes = ", ".join(f"{node} {condition}" for node, condition in reason.nodes)
            words = "no node takes jobs" + (f" ({nodes})" if nodes else ": no node is enrolled")
            if reason.in_trouble is not None:
                node, detail = reason.in_trouble
                words += f"; {node} starts nothing: {detail}"
            if reason.unisolated is not None:
                node, detail = reason.unisolated
                words += f"; the tree requires isolation, and {node} has none: {detail or _UNSAID}"
            return words
        case why.NoNodeMatches() if reason.away:
            filters, away = " and ".join(reason.filters), reason.first_away
            if reason.away == 1:
                return f"1 node matches {filters}, and it is {reason.condition}: {away}"
            return f"{reason.away} nodes match {filters}, and none takes jobs: {away} is {reason.condition}"
        case why.NoNodeMatches() if reason.image:
            runtimes = " or ".join(runtimes_of(reason.image))
            return f"no container runtime: no node that takes jobs and matches the other filters has {runtimes} for the image"
        case why.NoNodeMatches():
            take = "1 node that takes jobs has" if reason.nodes == 1 else f"{reason.nodes} nodes that take jobs have"
            named = f"; {reason.named} is the name of a node, and a filter compares tags" if reason.named else ""
            return f"no node matches {' and '.join(reason.filters)}: {take} other tags{named}"
        case why.MatchingNodesOwed():
            who = f"its pool {reason.pool}" if reason.pool else "the operation"
            have = ", ".join(f"{name} {format_amount(name, getattr(reason.most, name))}" for name in reason.resources)
            return f"{who} is owed everything that the nodes matching {' and '.join(reason.filters)} have: {have}"
        case why.MatchingNodesShared():
            name = reason.resource
            owed, most = (format_amount(name, getattr(each, name)) for each in (reason.owed, reason.most))
            matching = f"the nodes that match {' and '.join(reason.filters)} have {name} {most} together"
            return f"{matching}: the operation is owed {owed} of that, and operations that can run nowhere else are owed the rest"
        case why.LargerThanEveryNode():
            return _larger_than_every_node(reason)
        case why.NoRoomOnAnyNode():
            return _no_room_on_any_node(reason)
        case why.RoomBeingMade():
            nodes = "1 node has" if reason.nodes == 1 else f"{reason.nodes} nodes have"
            return f"{nodes} free resources for a job, but a start already waits there until another job has ended"
        case why.RoomUnheard():
            nodes = "1 node has" if reason.nodes == 1 else f"{reason.nodes} nodes have"
            return (
                f"{nodes} free resources for a job, but heartbeats are overdue: "
                f"the last came from {reason.last} {reason.silent_s:.0f} s ago"
            )
        case _:
            assert_never(reason)


def words_of_isolation(record: NodeRecord) -> str:
    """Return a text that says why jobs of a node can, or cannot, reach the key of its agent."""
    return record.isolation_detail or _UNSAID


def words_of_left_out(node: Node) -> str:
    """Return a text that says why the tree gives a node no jobs; empty if it may get jobs."""
    match node.outside:
        case None:
            return ""
        case NodeCondition.UNISOLATED:
            return f"the tree requires isolation (require_isolation), and the node has none: {words_of_isolation(node.record)}"
        case _:
            return "its tags do not match the tree's node_filter"


_CURES: Final[dict[type[why.Reason], str]] = {
    why.OperationIsSuspended: "`headrace op resume {operation}`",
    why.OperationNotRunning: "if it is pending, wait for a running slot; an operation that is ending starts no more jobs",
    why.DemandCovered: "wait for the next update of shares",
    why.FairShareReached: "give the operation a larger fair share (more weight, or less demand of other operations), "
    "or start it with `--preemption-mode normal`",
    why.FifoCountReached: "wait until an operation ahead of it ends, or raise max_schedulable_element_count_in_fifo_pool",
    why.GangWaits: "start a gang of fewer or smaller jobs, add nodes, or give the operation a larger fair share, "
    "so that all of its jobs fit at once",
    why.GangOwedTooLittle: "give pool {pool} more weight or a guarantee, or start a gang of fewer or smaller jobs",
    why.GangNeverFits: "add nodes or larger nodes, or start a gang of fewer or smaller jobs",
    why.JobSizeRefused: "move the operation to another pool, or start it with jobs of another size",
    why.NoJobReady: "wait until the ledger leases more of its jobs; the allocator has asked for them",
    why.StartsPaused: "`headrace resume starts`",
    why.StillRecovering: "wait for heartbeats of these nodes or the end of their leases; "
    "`headrace node remove` forgets a host that is off for good",
    why.LimitsUnknown: "wait for the first snapshot of fair_share; `headrace service list` shows whether fair_share has a leader",
    why.PreemptionPaused: "`headrace resume preemption`",
    why.PlacesKept: "set `preemption=on` for these pools with `headrace pool set` or `headrace tree set`",
    why.PlacesExempt: "wait until the jobs have run that long, or set a shorter preemption_exempt_time "
    "with `headrace pool set` or `headrace tree set`",
    why.PlacesProtected: "{rule}",
    why.RoomBeingMade: "wait for the end of the preempted job, at the latest at its interruption timeout",
    why.NodeReserved: "wait until jobs on that node end",
    why.RoomReserved: "wait until those operations start a job or their reservations end",
    why.NodeHeldBack: "look at the host; a completed job or `headrace node undrain {node}` clears it",
    why.NodeAvoided: "read why the jobs fail there: `headrace op get {operation} --jobs`; `headrace node undrain {node}` clears it",
    why.RoomUnheard: "wait for a heartbeat; `headrace node list` shows which agents are silent; a silent node is offline after its timeout",
    why.SharesOld: "wait for a snapshot of fair_share; `headrace service list` shows whether fair_share has a leader",
    why.PoolLimitReached: "wait until a job below pool {pool} ends, or raise the limit with `headrace pool set {pool}`",
    why.OperationLimitReached: "wait until one of its own jobs ends; limits of an operation, such as `--max-cpu`, are fixed at its start",
    why.NoNodeAcceptsJobs: "make a node take jobs; `headrace node list` says why each node takes none",
    why.NoNodeMatches: "give a node such tags, or use another scheduling_tag_filter (run --node-filter)",
    why.MatchingNodesOwed: "add nodes with such tags, or use another scheduling_tag_filter (run --node-filter)",
    why.MatchingNodesShared: "add nodes with such tags, use another scheduling_tag_filter (run --node-filter), or "
    "give pool {pool} more weight or a guarantee",
    why.LargerThanEveryNode: "add a larger node, or start an operation with smaller jobs",
    why.NoRoomOnAnyNode: "wait until jobs on a node end, or are preempted while it starves; "
    "`headrace pool explain {pool}` shows which operations have the resources",
    why.BlockBeingDrawn: "wait until the log confirms the lease of more jobs",
    why.NoShareYet: "wait for the next snapshot of fair_share; `headrace service list` shows whether fair_share has a leader",
    why.NoShare: "give the operation a fair share: more weight, a guarantee, or less demand of other operations",
    why.PoolOverFairShare: "wait until those pools have their fair share, or give pool {pool} more weight or a guarantee",
    why.OverFairShare: "wait until those operations have their fair share, or give this operation more weight",
}


def cure_of(reason: why.Reason, spec: OperationSpec, operation: OperationId) -> str:
    """Return a text that says what would end a reason for which an operation waits."""
    if isinstance(reason, why.TaskWaits):
        return cure_of(reason.reason, spec, operation)
    if isinstance(reason, why.PoolLimitReached):
        small = [one.resource for one in reason.exceeded if one.needed > one.limit]
        if small:
            higher = f"`headrace pool set {typed(reason.pool)} resource_limits/{small[0]}=…`"
            return f"raise the limit, since a single job needs more than all of it: {higher}"
    if isinstance(reason, why.JobSizeRefused):
        level = "tree set" if reason.pool == ROOT_POOL else f"pool set {typed(reason.pool)}"
        change = f"`headrace {level} {_bound_of_size(reason)}/{reason.resource}=…`"
        return f"change the bound with {change}, or {_CURES[type(reason)]}"
    if isinstance(reason, why.NoNodeMatches) and reason.image and not reason.away:
        return f"install {' or '.join(runtimes_of(reason.image))} on a node, and restart its agent"
    if isinstance(reason, why.LargerThanEveryNode | why.NoNodeMatches) and reason.away:
        return f"{_CURES[type(reason)]}, or make {reason.first_away} take jobs again: `headrace node list`"
    if isinstance(reason, why.GangNeverFits) and reason.limit_of is not None:
        if not reason.limit_of:
            return "start a gang of fewer or smaller jobs; limits of an operation, such as `--max-cpu`, are fixed at its start"
        return f"raise the limit with `headrace pool set {typed(reason.limit_of)}`, or start a gang of fewer or smaller jobs"
    if isinstance(reason, why.NoRoomOnAnyNode) and spec.has_gang:
        return f"wait until jobs on nodes end; `headrace pool explain {typed(spec.pool)}` shows which operations have the resources"
    if isinstance(reason, why.NoShare) and reason.gang_wants is not None:
        explain = f"`headrace pool explain {typed(spec.pool)}`"
        return f"start a smaller gang, give its pool a guarantee, or have other operations want less: {explain}"
    pool = PoolName(getattr(reason, "pool", "")) or spec.pool
    rule = cure_of_protected(reason, typed(pool)) if isinstance(reason, why.PlacesProtected) else ""
    node = getattr(reason, "node", "")
    return _CURES[type(reason)].format(operation=operation, pool=typed(pool), rule=rule, node=node)


def _words_of_loss(lost: LostJob) -> str:
    """Return a text that says why no node reports the end of a job."""
    match lost.why:
        case UnknownToNode():
            words = f"node {lost.node} does not know this job any more"
            return words if lost.why.has_begun else f"{words}, and never reported that it began"
        case NodeSilent():
            return f"node {lost.node} was silent for {lost.why.lease_s:g} s"
        case LostNodeInDoubt():
            return f"node {lost.node} may have run the job and is lost"
        case PlaceTaken():
            return "its allocation was preempted before it began"
        case _:
            assert_never(lost.why)


def _words_of_limit(reason: why.PoolLimitReached | why.OperationLimitReached | why.JobSizeRefused) -> str:
    """Return the text of a reason that is about a limit of a pool or operation.

    If the limit is smaller than a single job, the text differs: in that case the operation would wait even if all other jobs ended.
    """
    if isinstance(reason, why.JobSizeRefused):
        return _words_of_size(reason)
    whose = (
        f"resource_limits of pool {reason.pool}"
        if isinstance(reason, why.PoolLimitReached)
        else "the operation's own resource_limits"
    )
    above = [each for each in reason.exceeded if each.needed > each.limit]
    if not above:
        return f"{whose} allow no further job: {_exceeded(reason)}"
    needs, has = (
        ", ".join(f"{one.resource} {format_amount(one.resource, getattr(one, name))}" for one in above)
        for name in ("needed", "limit")
    )
    words = f"each job is larger than {whose}: it asks for {needs}, and at most {has} may be used"
    if isinstance(reason, why.PoolLimitReached) and reason.is_limiting:
        words += "; the operation fails if that lasts for minutes (enable_limiting_ancestor_check)"
    return words


def _words_of_size(reason: why.JobSizeRefused) -> str:
    asks, bound = (format_amount(reason.resource, amount) for amount in (reason.needed, reason.bound))
    whose = "the tree" if reason.pool == ROOT_POOL else f"pool {reason.pool}"
    words = f"{_bound_of_size(reason)} of {whose}: it asks for {reason.resource} {asks}"
    if reason.is_above:
        return f"each job is larger than {words}, and at most {bound} is accepted; running jobs continue"
    return f"each job is smaller than {words}, and at least {bound} is accepted; running jobs continue"


def _bound_of_size(reason: why.JobSizeRefused) -> str:
    return "max_job_resource_limits" if reason.is_above else "min_job_resource_limits"


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
    away = "1 larger node takes" if reason.away == 1 else f"{reason.away} larger nodes take"
    named = f"{away} no jobs now: {reason.first_away} is {reason.condition}"
    return f"each job is larger than every node that takes jobs: it asks for {asks}; {largest}; {named}"


def _no_room_on_any_node(reason: why.NoRoomOnAnyNode) -> str:
    take = "1 node takes jobs" if reason.nodes == 1 else f"{reason.nodes} nodes take jobs"
    needed, free = _amounts(reason.needed), _amounts(reason.free, wanted=reason.needed)
    words = f"no node has free resources for a job of {needed}: {take}, and the emptiest has {free} free"
    if reason.away:
        more = "1 more node takes" if reason.away == 1 else f"{reason.away} more nodes take"
        words += f"; {more} no jobs now: {reason.first_away} is {reason.condition}"
    if reason.needed.dominates(reason.spare):
        return words
    return f"{words}; nothing starts on a node with less than {_amounts(reason.spare)} free"


def _amounts(amount: Resources, *, wanted: Resources = ZERO) -> str:
    """Return the amounts as text. An amount below `wanted` is always named. Other amounts are named unless they are zero or user slots."""
    figures = zip(RESOURCE_NAMES, amount.as_tuple(), wanted.as_tuple(), strict=True)
    named = [
        f"{name} {format_amount(name, figure)}"
        for name, figure, want in figures
        if figure < want or (figure > 0 and name != "user_slots")
    ]
    return ", ".join(named) or "nothing"


def ends_of_lost(lost: list[LostJob], now: Moment) -> list[ReportedEnd]:
    """Return the ends of lost jobs, which the allocator itself reports to the ledger."""
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
                started_at_ms=each.started_at_ms,
                ended_at_ms=now.wall_ms,
                preemption=each.preemption,
                start=each.start,
            ),
        )
        for each in lost
    ]
