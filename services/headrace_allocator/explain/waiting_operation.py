"""The explanation of why an operation waits: every reason, and what would end it, computed when a user asks.

Decisions on heartbeats store only one thing for this explanation: the newest preemptive stage of each node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools.amounts import PartialResources
from headrace.pools.node_filter import matches, parse_formula
from headrace.resources import RESOURCE_NAMES, Resources
from headrace.runtime.engine import Moment
from headrace.wire.explanations import Cause, NodesFit, PoolRoom, ProtectedAllocations, Tries, Try, WaitingExplained
from headrace.wire.ledger import LiveOperation
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import OperationState
from headrace.wire.start_plans import OperationFit
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.explain import reasons as why
from headrace_allocator.explain.protected import places_kept, places_protected
from headrace_allocator.explain.waiting import (
    MOST_TRIED,
    count_without_runtime,
    is_due_something,
    levels_of,
    reasons_before_start,
    waiting_reasons,
)
from headrace_allocator.explain.words import cure_of, words_of
from headrace_allocator.explain.words_of_protected import words_of_rule
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node, PreemptiveTry
from headrace_allocator.facts.operations import Operation
from headrace_allocator.gangs.fitting import jobs_at_once, judge_gang

_MOST_TRIES: Final = 3


def explain_waiting(
    facts: Facts, order: LeastSatisfied, operation: Operation, preempted: Mapping[int, int], now: Moment
) -> WaitingExplained:
    """Explain why an operation waits. `preempted`: number of preemptions within the last hour, by job index.

    Cost: a look at the newest preemptive stages, and at the operations that come before this one in its pools.
    """
    return WaitingExplained(
        tree=facts.tree,
        operation=operation.id,
        running_jobs=operation.running_jobs,
        pending_jobs=operation.pending_jobs,
        in_doubt_jobs=operation.slots.in_doubt_count,
        needed=operation.min_needed,
        causes=[_cause(reason, operation) for reason in _reasons(facts, order, operation, now)],
        nodes=_nodes_fit(facts, operation),
        limits=list(_limits(facts, operation)),
        levels=list(levels_of(facts, order, operation)),
        tries=_tries(facts, order, operation, now),
        preempted=sum(preempted.values()),
        preempted_most=max(preempted.values(), default=0),
        mean_job_ms=round(operation.mean_job_ms) if math.isfinite(operation.mean_job_ms) else None,
    )


def fit_of(facts: Facts, spec: OperationSpec, now: Moment) -> OperationFit:
    """Explain whether and where the jobs of an operation would fit if the operation were started now. An unknown pool is treated as a new
    pool directly below the root.

    Raises `BadInput` for a filter that is not a formula.
    """
    _check_filter(spec)
    if spec.pool not in facts.pools.pools:
        spec = msgspec.structs.replace(spec, pool=ROOT_POOL)
    live = LiveOperation(OperationId(""), "", spec, OperationState.RUNNING, False, False, 0, 0, 0, b"")
    operation = Operation(live, 0, facts.term)
    operation.refused_size = facts.pools.refused_size(spec)
    at_once = None if spec.tasks else jobs_at_once(facts, spec)
    if operation.gang is not None:
        judge_gang(facts, operation, operation.gang)
    return OperationFit(
        tree=facts.tree,
        needed=operation.min_needed,
        causes=[_cause(reason, operation) for reason in reasons_before_start(facts, operation, now)],
        nodes=_nodes_fit(facts, operation),
        limits=list(_limits(facts, operation)),
        jobs_at_once=None if at_once is None else at_once.most,
    )


def _check_filter(spec: OperationSpec) -> None:
    """Raise `BadInput` if the filter is not a formula. The error names the path of the filter in the spec, in the same way as the error
    when an operation is started.
    """
    try:
        parse_formula(spec.scheduling_tag_filter)
    except BadInput as error:
        raise error.at("spec.scheduling_tag_filter") from None


def _cause(reason: why.Reason, operation: Operation) -> Cause:
    figures = msgspec.to_builtins(reason)
    kind = figures.pop("type")
    return Cause(kind, words_of(reason), cure_of(reason, operation.spec, operation.id), figures)


def _nodes_fit(facts: Facts, operation: Operation) -> NodesFit:
    size, filters = operation.min_needed, facts.pools.filters_of(operation.spec)
    spare = facts.pools.options.min_spare_allocation_resources_on_node.whole
    matching, large = facts.shapes.count(filters), facts.shapes.count(filters, size)
    roomy = sum(1 for _ in facts.rooms.fitting(size.or_more(spare), filters))
    without = count_without_runtime(facts, operation.spec)
    return NodesFit(len(facts.nodes), len(facts.shapes), matching, large, roomy, without)


def _limits(facts: Facts, operation: Operation) -> Iterator[PoolRoom]:
    """Yield the limits that apply to the operation: its own first, then those of its pools from the lowest to the highest."""
    yield from _rooms(PoolName(""), operation.spec.resource_limits, operation.charged, operation)
    for pool in facts.pools.above(operation.spec.pool):
        yield from _rooms(pool.name, pool.most, pool.charged, operation)


def _rooms(pool: PoolName, limits: PartialResources, used: Resources, operation: Operation) -> Iterator[PoolRoom]:
    figures = (limits.as_tuple(), used.as_tuple(), operation.min_needed.as_tuple())
    for name, limit, there, more in zip(RESOURCE_NAMES, *figures, strict=True):
        if limit is not None:
            yield PoolRoom(pool, name, there, limit, holds=there + more > limit)


def _reasons(facts: Facts, order: LeastSatisfied, operation: Operation, now: Moment) -> Iterator[why.Reason]:
    """Yield every reason why jobs of the operation are pending.

    After the reason that no node has enough free resources, yield the rules that protect other operations' allocations.
    """
    for reason in waiting_reasons(facts, order, operation, now):
        yield reason
        # Protected allocations are a reason to wait only if no job fits on any node.
        of_task = reason.reason if isinstance(reason, why.TaskWaits) else reason
        if isinstance(of_task, why.NoRoomOnAnyNode):
            yield from places_protected(facts, order, _nodes_tried_in_vain(facts, operation), operation)


def _nodes_tried_in_vain(facts: Facts, operation: Operation) -> Iterator[Node]:
    """Yield the nodes on which the newest preemptive stage, of the operation's preemption priority, found too little to preempt. The node
    with the newest heartbeat comes first.
    """
    size, priority = operation.min_needed, operation.preemption_priority
    by_yarn = is_due_something(operation)
    for node in _matching_nodes(facts, operation):
        made = node.tries.get(priority)
        # A pass of a YARN policy examines all nodes, so each of them counts as tried in vain.
        if by_yarn or not (made is None or made.started or made.room.dominates(size)):
            yield node


def _matching_nodes(facts: Facts, operation: Operation) -> Iterator[Node]:
    """Examine the `MOST_TRIED` nodes with the newest heartbeats, the newest first, and yield the nodes whose tags match the operation's
    filters.
    """
    filters = facts.pools.filters_of(operation.spec)
    for node in islice(facts.last_heard.newest(), MOST_TRIED):
        if all(matches(formula, node.record.tags) for formula in filters):
            yield node


def _kept_from_pass(facts: Facts, order: LeastSatisfied, operation: Operation) -> list[ProtectedAllocations]:
    """Return the allocations that a YARN policy protects, if the policy has found the operation to be short of resources."""
    if not is_due_something(operation):
        return []
    found = places_kept(facts, order, _matching_nodes(facts, operation), operation)
    return [ProtectedAllocations(rule.value, words_of_rule(rule), places) for rule, places in found]


def _tries(facts: Facts, order: LeastSatisfied, operation: Operation, now: Moment) -> Tries:
    """Return the newest preemptive stages of the operation's priority.

    Stages that ran before the operation began to starve were run for other operations. They are returned too, because they describe the
    same nodes.
    """
    size, priority = operation.min_needed, operation.preemption_priority
    filters = facts.pools.filters_of(operation.spec)
    newest = islice(facts.last_heard.newest(), MOST_TRIED)
    tries = [(node, made) for node in newest if (made := node.tries.get(priority)) is not None]
    matching = [one for one in tries if all(matches(formula, one[0].record.tags) for formula in filters)]
    # All stages are compared in one table, because a large cluster may have one stage for each node.
    rooms = np.array([made.room.as_tuple() for _, made in matching]).reshape(-1, len(RESOURCE_NAMES))
    needed = np.array(size.as_tuple())
    missing = (1 - np.minimum(rooms / np.maximum(needed, 1), 1))[:, needed > 0].max(axis=1, initial=0.0)
    is_short = (rooms < needed).any(axis=1)
    is_idle = np.array([not made.started for _, made in matching], dtype=bool)
    nearest = np.lexsort(([-made.at_s for _, made in matching], missing))[:_MOST_TRIES]
    return Tries(
        priority,
        facts.pools.options.preemption_policy,
        nodes=len(tries),
        started=sum(made.started == operation.id for _, made in tries),
        started_others=sum(made.started not in ("", operation.id) for _, made in matching),
        short=int((is_short & is_idle).sum()),
        unmatched=len(tries) - len(matching),
        held_back=int((is_idle & ~is_short).sum()),
        nearest=[
            _try(node, made, size, now, _kept(facts, order, node, operation) if not made.started else [])
            for node, made in map(matching.__getitem__, nearest)
        ],
        kept=_kept_from_pass(facts, order, operation),
    )


def _kept(facts: Facts, order: LeastSatisfied, node: Node, operation: Operation) -> list[ProtectedAllocations]:
    """Return the protected allocations of a node, by rule. The node is examined again now, because its allocations may have changed since
    the preemptive stage ran.
    """
    found = places_kept(facts, order, [node], operation)
    return [ProtectedAllocations(rule.value, words_of_rule(rule), places) for rule, places in found]


def _try(node: Node, made: PreemptiveTry, size: Resources, now: Moment, kept: list[ProtectedAllocations]) -> Try:
    return Try(
        node=node.record.node,
        age_ms=int((now.steady_s - made.at_s) * 1000),
        candidates=made.candidates,
        room=made.room,
        short=(size - size.within(made.room)).within_wire(),
        started=made.started,
        tags_match=True,
        exempt=made.exempt,
        exempt_ms=max(0, int((made.exempt_until_s - now.steady_s) * 1000)),
        kept=kept,
    )
