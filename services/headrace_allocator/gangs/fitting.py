"""Counts the jobs of an operation that would fit if nothing else ran: on one node, and on all nodes together."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.ids import PoolName
from headrace.pools.amounts import PartialResources
from headrace.pools.tree_options import PreemptionPolicy
from headrace.resources import ZERO, Resources
from headrace.wire.operations import OperationSpec
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import tolerant_limit
from headrace_allocator.gangs.gang import JobsAtOnce


def judge_size(facts: Facts, operation: Operation) -> None:
    """Compute whether the pools of an operation accept the sizes of its jobs, and for which sizes some node is large enough.

    For a gang, also compute how many of its jobs could run at once.
    """
    refused, fits = facts.pools.refused_size(operation.spec), fitting_sizes(facts, operation.spec)
    gang = operation.gang
    at_once = None if gang is None else jobs_at_once(facts, operation.spec)
    if (fits, refused) == (operation.fitting, operation.refused_size) and (gang is None or at_once == gang.at_once):
        return
    operation.fitting, operation.refused_size = fits, refused
    if gang is not None:
        gang.at_once = at_once
    facts.touch(operation.id)


def fitting_sizes(facts: Facts, spec: OperationSpec) -> tuple[bool, ...]:
    """Return for each size of jobs whether some node could run such a job if the node were empty. True if there is no node."""
    filters = facts.pools.filters_of(spec)
    return tuple(facts.shapes.may_fit(size, filters) for size in spec.sizes)


def jobs_at_once(facts: Facts, spec: OperationSpec) -> JobsAtOnce | None:
    """Return the lowest bound on the jobs that can run at once, from all limits and from the nodes.

    Return None while limits or nodes are not completely known, or if there is no node.
    """
    pools = facts.pools
    if not (pools.limits_known and facts.recovery.complete and len(facts.shapes)):
        return None
    # A start by a YARN plan need not leave spare resources on the node.
    spare = pools.min_spare if pools.options.preemption_policy is PreemptionPolicy.YTSAURUS else ZERO
    on_nodes = JobsAtOnce(facts.shapes.jobs_at_once(pools.filters_of(spec), spec.resources, spare))
    return min([on_nodes, *_by_limits(facts, spec)], key=lambda bound: bound.most)


def bounds_of_gangs(facts: Facts) -> tuple[int, ...]:
    """Return numbers that change whenever nodes or limits may bound gangs differently."""
    return facts.shapes.changes, facts.pools.limits_changes, facts.pools.rules, int(facts.recovery.complete)


def _by_limits(facts: Facts, spec: OperationSpec) -> Iterator[JobsAtOnce]:
    pools = facts.pools
    own = tolerant_limit(spec.resource_limits, spec.resource_limits_overcommit_tolerance, pools.options)
    limits = [(PoolName(""), own)]
    limits += [(pool.name, pool.limit(pools.options, tolerant=True)) for pool in pools.above(spec.pool)]
    for name, limit in limits:
        if (most := _most(limit, spec.resources)) is not None:
            yield JobsAtOnce(most, name)


def _most(limit: PartialResources, size: Resources) -> int | None:
    pairs = zip(limit.as_tuple(), size.as_tuple(), strict=True)
    return min((most // each for most, each in pairs if most is not None and each), default=None)
