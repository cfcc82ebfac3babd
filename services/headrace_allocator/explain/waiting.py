"""All reasons why jobs of an operation are pending, and what comes before the operation in the order, for users who ask."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from heapq import nsmallest
from itertools import compress, islice, pairwise
from typing import Final, TypeAlias

import msgspec

from headrace.ids import NodeName, OperationId, PoolName
from headrace.pools.node_filter import matches
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import EPS, RESOURCE_NAMES, ZERO, Resources
from headrace.runtime.engine import Moment
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace.wire.explanations import Ahead, Level
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.snapshots import ElementKind, PreemptionPriority
from headrace_allocator.decision.least_satisfied import LeastSatisfied, entry_of_pool, satisfaction
from headrace_allocator.decision.pool_order import Entry
from headrace_allocator.decision.start_limits import (
    demand_covered,
    fair_share_reached,
    fifo_count_reached,
    gang_never_fits,
    job_size_refused,
    no_share_yet,
    not_schedulable,
    own_limit_reached,
    pool_limits_reached,
)
from headrace_allocator.explain import reasons as why
from headrace_allocator.facts.allocations import waits_for_room
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node, NodeCondition
from headrace_allocator.facts.operations import (
    Operation,
    can_ever_start,
    held_by_gang,
    is_starving,
    members,
    names_in_gang,
    never_fits,
    pending_resources,
    waits_for_a_turn,
)
from headrace_allocator.gangs.gang import TOGETHER, Gang, GangPhase
from headrace_allocator.gangs.packing import Room, count_of, pack
from headrace_allocator.gangs.sizes import resources_of, together_by_size

_NoRoom: TypeAlias = (
    why.NoNodeAcceptsJobs
    | why.NoNodeMatches
    | why.LargerThanEveryNode
    | why.NoRoomOnAnyNode
    | why.RoomBeingMade
    | why.RoomReserved
    | why.RoomUnheard
)
#: Upper bound of the nodes that one reason lists.
_MOST_NODES: Final = 5
#: A heartbeat is overdue after the heartbeat timeout divided by this number. Even under load, the time between two heartbeats is not made
#: longer than that.
_HEARTBEATS_IN_TIMEOUT: Final = 4
#: Number of nodes and allocations that are examined between two pauses of a look for free resources; they take some 10 us.
_EXAMINED_AT_ONCE: Final = 100
#: A text about a node's problem is cut to this number of characters when a reason quotes it.
_TROUBLE_CHARACTERS: Final = 500
_MOST_POOLS: Final = 5
#: Upper bound of the held back nodes (nodes on which jobs fail) that are examined.
_MOST_HELD: Final = 64
_MOST_AHEAD: Final = 3
#: Upper bound of the nodes whose preemptive stages are examined. The nodes with the newest heartbeats are chosen.
MOST_TRIED: Final = 500


def waiting_reasons(facts: Facts, order: LeastSatisfied, operation: Operation, now: Moment) -> list[why.Reason]:
    """Return the reasons why the operation's jobs are pending, the most important first; empty if no job is pending."""
    reasons = reasons_in_turn(facts, order, operation, now)
    return [_with_nodes_away(facts, operation, reason) for reason in reasons if reason is not None]


def reasons_in_turn(
    facts: Facts, order: LeastSatisfied, operation: Operation, now: Moment
) -> Iterator[why.Reason | None]:
    """Yield each reason that holds, and None for each reason that does not. Each reason is computed only when the caller takes it.

    None is also yielded after each hundred nodes and allocations that are examined. So the work between two values is bounded, and a caller
    can do the rest of the work later.
    """
    not_running = not_schedulable(operation)
    if not_running is not None:
        yield not_running
        if operation.suspended and operation.slots.pending_count:
            # The operation would also wait for these reasons if it were resumed. While it is suspended it has no share, so reasons about
            # its share are left out.
            yield from reasons_before_start(facts, operation, now)
        return
    has_holds = operation.gang is not None and operation.gang.holds
    if not (operation.slots.pending_count or operation.slots.in_doubt_count or has_holds):
        return
    may_preempt = operation.preemption_priority is not PreemptionPriority.NONE or is_due_something(operation)
    fits = can_ever_start(operation)
    yield why.StartsPaused() if facts.starts_paused else None
    yield job_size_refused(operation)
    yield _recovering(facts, operation)
    yield _limits_unknown(facts)
    yield no_share_yet(operation)
    yield _gang_waits(facts, operation, now)
    yield gang_owed_too_little(facts, operation)
    yield _shares_old(facts, now)
    yield why.PreemptionPaused() if facts.preemption_paused and may_preempt else None
    yield _places_kept(facts) if may_preempt else None
    # The list is used again for `_places_exempt`: if the list is empty, a job fits on a node, so the operation does not wait until jobs
    # that started recently may be preempted.
    no_room: list[why.Reason] = []
    for reason in _no_room(facts, operation, now):
        if reason is None:
            yield None
        else:
            no_room.append(reason)
    if not operation.kinds:
        yield from pool_limits_reached(operation, facts.pools)
        yield own_limit_reached(operation, operation.held)
    yield _node_reserved(facts, operation, now)
    yield from _failing_nodes(facts, operation)
    yield _places_exempt(facts, operation, now) if may_preempt and no_room else None
    yield from no_room
    # `DemandCovered` promises that new demand counts from the next snapshot on. That is not true for jobs that fit on no node: they never
    # count as demand. So the reason is left out for them.
    yield demand_covered(operation, operation.held) if fits else None
    yield fifo_count_reached(operation)
    yield fair_share_reached(operation)
    yield from matching_nodes_owed(facts, operation)
    yield why.BlockBeingDrawn() if operation.drawing and not operation.slots.ready_count else None
    # Jobs that fit on no node do not count as demand, so the operation is owed no share for them. Reasons about its share would mislead.
    yield _behind_others(facts, order, operation) if fits else None


def is_due_something(operation: Operation) -> bool:
    """True if a YARN policy found that the operation lacks resources that it is owed."""
    share = operation.share
    return share is not None and (share.due_to_fair_share is not None or share.due_to_min_share is not None)


def reasons_before_start(facts: Facts, operation: Operation, now: Moment) -> list[why.Reason]:
    """Return the reasons that need no share, for an operation that has not been started yet."""
    reasons: list[why.Reason | None] = [
        why.StartsPaused() if facts.starts_paused else None,
        job_size_refused(operation),
        _recovering(facts, operation),
        _limits_unknown(facts),
        gang_never_fits(operation),
        *(() if operation.kinds else pool_limits_reached(operation, facts.pools)),
        None if operation.kinds else own_limit_reached(operation, operation.held),
        *_no_room(facts, operation, now),
    ]
    return [_with_nodes_away(facts, operation, reason) for reason in reasons if reason is not None]


def _with_nodes_away(facts: Facts, operation: Operation, reason: why.Reason) -> why.Reason:
    """Add to a reason the nodes that would suit the operation but accept no jobs now.

    Such nodes match the filters and, unless the reason is `NoNodeMatches`, are large enough. If any node accepts no jobs, all nodes are
    examined. Because of this cost, the function is called only to answer questions of users.
    """
    if isinstance(reason, why.TaskWaits):
        return msgspec.structs.replace(reason, reason=_with_nodes_away(facts, operation, reason.reason))
    if not isinstance(reason, why.LargerThanEveryNode | why.NoNodeMatches | why.NoRoomOnAnyNode):
        return reason
    if len(facts.shapes) == len(facts.nodes):
        return reason
    needed = ZERO if isinstance(reason, why.NoNodeMatches) else reason.needed
    filters = facts.pools.filters_of(operation.spec)
    away = [
        node
        for node in facts.nodes.values()
        if node.enrolled
        and not node.accepts_jobs
        and node.offered.dominates(needed)
        and all(matches(formula, node.record.tags) for formula in filters)
    ]
    if not away:
        return reason
    first = away[0]
    word = "in trouble" if first.condition is NodeCondition.ONLINE else _condition_words(first)
    return msgspec.structs.replace(reason, away=len(away), first_away=first.record.node, condition=word)


def _condition_words(node: Node) -> str:
    """Return the condition of a node, with the reason for which it is drained."""
    drain = node.record.drain
    why_drained = drain.reason if drain is not None and node.condition is NodeCondition.DRAINED else ""
    return node.condition.value + (f" ({why_drained})" if why_drained else "")


def _gang_waits(facts: Facts, operation: Operation, now: Moment) -> why.GangWaits | why.GangNeverFits | None:
    gang, gathering, slots = operation.gang, facts.gangs.gathering, operation.slots
    if gang is not None and not (slots.gang_pending_count or slots.gang_in_doubt_count or gang.holds):
        # Only other jobs of the operation wait.
        return None
    if gang is None or (never := gang_never_fits(operation)) is not None:
        return None if gang is None else never
    until_s, other = _turn_ends_s(facts, operation, gang), OperationId("")
    reserved = sorted(facts.reservations.of.get(operation.id, {}).values(), key=lambda one: one.expected_s)
    if gang.phase is GangPhase.WAITING and gathering is not None:
        other_gang, other = facts.gangs.of[gathering].gang, gathering
        until_s = None if other_gang is None else _turn_ends_s(facts, facts.gangs.of[gathering], other_gang)
    return why.GangWaits(
        gang.phase,
        operation.spec.gang_job_count,
        members(operation),
        held=len(gang.holds),
        nodes=len({one.node for one in gang.holds}),
        left_s=0.0 if until_s is None else until_s - now.steady_s,
        other=other,
        reserved=len(reserved),
        reserved_nodes=tuple(one.node.record.node for one in reserved[:_MOST_NODES]),
        expected_s=max(0.0, reserved[-1].expected_s - now.steady_s) if reserved else 0.0,
        tasks=names_in_gang(operation),
        beside=len(operation.allocations) - len(gang.allocations),
    )


def _turn_ends_s(facts: Facts, operation: Operation, gang: Gang) -> float | None:
    """Return the time at which the phase of a gang ends at the latest. The turn of a starving gang lasts longer if nodes are reserved for
    the gang.
    """
    if gang.until_s is None or not is_starving(operation):
        return gang.until_s
    return max([gang.until_s, *(one.until_s for one in facts.reservations.of.get(operation.id, {}).values())])


def gang_owed_too_little(facts: Facts, operation: Operation) -> why.GangOwedTooLittle | None:
    """Return the reason if a starving gang is owed less than all its jobs, so that nothing is preempted for it; else None."""
    gang, total = operation.gang, facts.pools.total
    if gang is None or gang.priority is PreemptionPriority.NONE or gang.phase in TOGETHER or never_fits(operation):
        return None
    jobs, beside = together_by_size(operation), operation.held - held_by_gang(operation)
    wanted = (resources_of(jobs) + beside).share_of(total)
    if all(fair > share - EPS for fair, share in zip(operation.fair_share, wanted, strict=True)):
        return None
    owed = Room(total.part(operation.fair_share) - beside, range(1))
    count, names = count_of(pack(jobs, [owed], ZERO, total)), names_in_gang(operation)
    return why.GangOwedTooLittle(sum(one.count for one in jobs), count, names)


def _places_kept(facts: Facts) -> why.PlacesKept | None:
    pools = [facts.pools.pool(name) for name in facts.pools.known]
    own = {pool: pool.used for pool in pools}
    for pool in pools:
        if pool.above in own:
            own[pool.above] = own[pool.above] - pool.used
    kept = {}
    for pool in [pool for pool in pools if own[pool] != ZERO and pool.preemption is not PreemptionSwitch.ON]:
        highest = pool
        while highest.above is not None and highest.above.preemption is pool.preemption:
            highest = highest.above
        kept[highest.name] = pool.preemption
    return why.PlacesKept(tuple(islice(kept.items(), _MOST_POOLS))) if kept else None


def _places_exempt(facts: Facts, operation: Operation, now: Moment) -> why.PlacesExempt | None:
    tries = (node.tries.get(operation.preemption_priority) for node in facts.last_heard.newest())
    found = [
        made
        for made in islice(tries, MOST_TRIED)
        if made is not None
        and made.exempt
        and made.exempt_until_s > now.steady_s
        and not (made.started or made.room.dominates(operation.min_needed))
    ]
    if not found:
        return None
    left_s = min(made.exempt_until_s for made in found) - now.steady_s
    return why.PlacesExempt(sum(made.exempt for made in found), len(found), left_s)


def _shares_old(facts: Facts, now: Moment) -> why.SharesOld | None:
    if facts.shares_heard_s is None or not facts.shares_are_old(now):
        return None
    return why.SharesOld(now.steady_s - facts.shares_heard_s)


def _limits_unknown(facts: Facts) -> why.LimitsUnknown | None:
    """Return the reason if limits are unknown and a node is online: fair_share reports limits only once it knows of nodes."""
    return why.LimitsUnknown() if facts.online_nodes and not facts.pools.limits_known else None


def _recovering(facts: Facts, operation: Operation) -> why.StillRecovering | None:
    in_doubt = operation.slots.in_doubt_count
    if facts.recovery.complete and not in_doubt:
        return None
    awaited = facts.recovery.awaited(_MOST_NODES) if in_doubt else []
    return why.StillRecovering(*facts.recovery.progress(), in_doubt, awaited)


def _no_room(facts: Facts, operation: Operation, now: Moment) -> Iterator[why.Reason | None]:
    """Yield the reason why no node has free resources for a job of the operation. If the operation has tasks, yield a reason for each task
    that waits. None is yielded now and then, after some nodes were examined.
    """
    spec, slots = operation.spec, operation.slots
    if not operation.kinds and (reason := (yield from _no_room_for(facts, operation, spec.resources, now))) is not None:
        yield reason
    for number, task in enumerate(operation.kinds):
        jobs, size = slots.pending_of(number), task.resources
        if jobs:
            of_task = (
                next(pool_limits_reached(operation, facts.pools, needed=size), None)
                or own_limit_reached(operation, operation.held, needed=size)
                or (yield from _no_room_for(facts, operation, size, now))
            )
            if of_task is not None:
                yield why.TaskWaits(
                    task.name if spec.tasks else "", jobs, of_task, memory=0 if spec.tasks else size.memory
                )


def _no_room_for(
    facts: Facts, operation: Operation, size: Resources, now: Moment
) -> Generator[None, None, _NoRoom | None]:
    """Return the reason why no node has free resources for a job of this size; None if a node has. Pause (yield) now and then."""
    filters = facts.pools.filters_of(operation.spec)
    spare = facts.pools.min_spare
    if not len(facts.shapes):
        first = tuple((node.record.node, _condition_words(node)) for node in islice(facts.nodes.values(), _MOST_NODES))
        nodes = facts.nodes.values()
        unisolated = (node.record for node in nodes if node.condition is NodeCondition.UNISOLATED)
        takes_none = (NodeCondition.ONLINE, NodeCondition.DRAINING)
        in_trouble = (node for node in nodes if node.condition in takes_none and node.trouble)
        return why.NoNodeAcceptsJobs(
            first,
            next(((record.node, record.isolation_detail) for record in unisolated), None),
            next(((node.record.node, node.trouble[:_TROUBLE_CHARACTERS]) for node in in_trouble), None),
        )
    matching = facts.shapes.count(filters)
    if not matching:
        named = next((NodeName(each) for each in filters if each in facts.nodes), NodeName(""))
        image = operation.spec.image if count_without_runtime(facts, operation.spec) else ""
        return why.NoNodeMatches(filters, len(facts.shapes), named, image)
    if not facts.shapes.count(filters, size):
        return why.LargerThanEveryNode(size, *facts.shapes.largest(filters))
    making_room = reserved = 0
    holder = OperationId("")
    late_s = facts.timing.node_heartbeat_timeout_s / _HEARTBEATS_IN_TIMEOUT
    unheard: list[tuple[float, NodeName]] = []
    examined = 0
    for node in facts.rooms.fitting(size.or_more(spare), filters):
        examined += 1 + len(node.allocations)
        while examined >= _EXAMINED_AT_ONCE:
            examined -= _EXAMINED_AT_ONCE
            yield None
        silent_s = now.steady_s - node.heard_s
        if waits_for_room(node.allocations.values()):
            making_room += 1
        elif node.reserved is not None and node.is_reserved_for_another(operation, size):
            reserved, holder = reserved + 1, node.reserved.operation
        elif silent_s > late_s:
            unheard.append((silent_s, node.record.node))
        else:
            return None
    if making_room:
        return why.RoomBeingMade(making_room)
    if reserved:
        return why.RoomReserved(reserved, holder)
    if unheard:
        silent_s, last = min(unheard)
        return why.RoomUnheard(len(unheard), last, silent_s)
    return why.NoRoomOnAnyNode(size, spare, matching, facts.rooms.emptiest(filters))


def count_without_runtime(facts: Facts, spec: OperationSpec) -> int:
    """Return the number of nodes that accept jobs and match an operation's filters, but have no container runtime for its image."""
    if not spec.image:
        return 0
    others = facts.pools.filters_of(msgspec.structs.replace(spec, image=""))
    return facts.shapes.count(others) - facts.shapes.count(facts.pools.filters_of(spec))


def _node_reserved(facts: Facts, operation: Operation, now: Moment) -> why.NodeReserved | None:
    if operation.gang is not None or operation.id not in facts.reservations.of:
        # A gang needs no further reason: `GangWaits` names its reserved nodes.
        return None
    (reservation,) = facts.reservations.of[operation.id].values()
    now_s, node = now.steady_s, reservation.node.record.node
    return why.NodeReserved(node, max(0.0, reservation.expected_s - now_s), max(0.0, reservation.until_s - now_s))


def _failing_nodes(facts: Facts, operation: Operation) -> Iterator[why.NodeHeldBack | why.NodeAvoided]:
    """Yield a reason for the nodes that could run the operation's jobs and are held back, and a reason for the nodes that the operation
    avoids.
    """
    size, filters = operation.min_needed, facts.pools.filters_of(operation.spec)
    could = [
        node
        for name in islice(facts.failing.held, _MOST_HELD)
        if (node := facts.nodes[name]).accepts_jobs
        and node.total.dominates(size)
        and all(matches(formula, node.record.tags) for formula in filters)
    ]
    could.sort(key=lambda node: node.record.node not in facts.failing.suspect)
    if could and (failures := could[0].failures) is not None:
        left_s = max(0.0, failures.run.until_s - facts.failing.now_s)
        is_suspect, count = failures.is_suspect, failures.run.failures
        yield why.NodeHeldBack(could[0].record.node, is_suspect, count, len(failures.of), left_s, len(could) - 1)
    pairs = {} if operation.outcomes is None else operation.outcomes.failing_on
    avoided = [
        (name, pair)
        for name, pair in pairs.items()
        if pair.is_held and name in facts.nodes and facts.failing.turns_away(facts.nodes[name], operation)
    ]
    if avoided:
        name, pair = avoided[0]
        left_s = max(0.0, pair.until_s - facts.failing.now_s)
        yield why.NodeAvoided(name, pair.failures, left_s, len(avoided) - 1)


def matching_nodes_owed(
    facts: Facts, operation: Operation
) -> Iterator[why.MatchingNodesShared | why.MatchingNodesOwed]:
    """Yield the reasons why the operation cannot get all that it wants from the nodes that match its tag filters.

    There are two possible reasons. Operations that can run nowhere else may be owed so much of these nodes that too little is left. Or the
    operation, or a pool above it, wants more than all these nodes have.
    """
    item, filters = operation.share, facts.pools.filters_of(operation.spec)
    if item is not None and item.tag_filter_limits is not None and item.short_of:
        owed = facts.pools.total.part(item.fair_share.total)
        yield why.MatchingNodesShared(filters, item.short_of, owed, item.tag_filter_limits)
    elements = [(PoolName(""), item, filters)]
    elements += [(pool.name, pool.item, pool.filters) for pool in facts.pools.pool(operation.spec.pool).path()]
    for name, item, filters in elements:
        if item is None or item.tag_filter_limits is None:
            continue
        shares = zip(item.fair_share.total, item.tag_filter_limits.share_of(facts.pools.total), strict=True)
        reached = [fair > most - EPS for fair, most in shares]
        wants = [want > fair + EPS for want, fair in zip(item.demand_share, item.fair_share.total, strict=True)]
        short = tuple(compress(RESOURCE_NAMES, map(all, zip(reached, wants, strict=True))))
        if short:
            yield why.MatchingNodesOwed(name, filters, short, item.tag_filter_limits)


def _behind_others(
    facts: Facts, order: LeastSatisfied, operation: Operation
) -> why.NoShare | why.PoolOverFairShare | why.OverFairShare | None:
    if operation.share is None:
        return None
    if max(operation.fair_share) == 0.0:
        wants = operation.held + pending_resources(operation)
        return why.NoShare(wants if operation.spec.is_gang else None)
    behind = {level.own.name for level in levels_of(facts, order, operation) if level.ahead}
    pools = list(facts.pools.pool(operation.spec.pool).path())
    for pool in reversed([pool for pool in pools if pool.follows_own_satisfaction and pool.name in behind]):
        ratio = entry_of_pool(pool, pool.used, facts.pools.total)[0]
        if 1 <= ratio < INFINITE_SATISFACTION:
            return why.PoolOverFairShare(pool.name, ratio)
    ratio = satisfaction(operation, operation.held)
    return why.OverFairShare(ratio) if ratio >= 1 and operation.id in behind else None


def levels_of(facts: Facts, order: LeastSatisfied, operation: Operation) -> Iterator[Level]:
    """For each pool from the root down to the operation's pool, yield what comes before the operation, or before the child pool that
    contains it.

    Yields nothing if the operation's own state holds it back. Also yields nothing for a gang that has a reserved node for each job that
    still lacks resources, because such a gang comes first on its reserved nodes.
    """
    order.settle()
    own = order.entry(operation.id)
    reserved = facts.reservations.count(operation.id)
    if own is None or (operation.gang is not None and reserved and reserved >= operation.slots.ready_count):
        return
    pools = [facts.pools.root, *reversed(list(facts.pools.pool(operation.spec.pool).path()))]
    for above, below in pairwise(pools):
        entry = order.pool(below.name).entry
        if entry is not None:
            yield _level(facts, order, above.name, entry)
    yield _level(facts, order, pools[-1].name, own)


def _level(facts: Facts, order: LeastSatisfied, pool: PoolName, own: Entry) -> Level:
    there = order.pool(pool)
    lists: list[Sequence[Entry]] = [there.children, *there.buckets.values()]
    ahead = sum(bisect_left(entries, own) for entries in lists)
    passed = _passed_while_a_gang_gathers(facts, order, pool)
    if passed:
        ahead -= sum(entry < own for entry in passed)
        lists = [[entry for entry in entries if entry not in passed] for entries in lists]
    first = nsmallest(_MOST_AHEAD, (entry for entries in lists for entry in islice(entries, _MOST_AHEAD)))
    return Level(
        pool, _ahead(facts, order, own), ahead, [_ahead(facts, order, entry) for entry in first if entry < own]
    )


def _passed_while_a_gang_gathers(facts: Facts, order: LeastSatisfied, pool: PoolName) -> set[Entry]:
    """Return the positions of the gangs of a pool that start nothing, since resources are held for another gang."""
    if facts.gangs.gathering is None:
        return set()
    waiting = (each for each in facts.gangs.of.values() if each.spec.pool == pool and waits_for_a_turn(each))
    return {entry for each in waiting if (entry := order.entry(each.id)) is not None}


def _ahead(facts: Facts, order: LeastSatisfied, entry: Entry) -> Ahead:
    operation = facts.operations.get(OperationId(entry[-1])) if OperationId(entry[-1]) in order else None
    if operation is not None:
        kind, item, held = ElementKind.OPERATION, operation.share, operation.held
    else:
        pool = facts.pools.pool(PoolName(entry[-1]))
        kind, item, held = ElementKind.POOL, pool.item, pool.used
    if item is None:
        return Ahead(kind, entry[-1], entry[0])
    name = item.dominant_resource
    owed = facts.pools.total.part(item.fair_share.total)
    return Ahead(kind, entry[-1], entry[0], name, getattr(held, name), getattr(owed, name))
