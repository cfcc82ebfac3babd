"""Counts the jobs of an operation that would fit if nothing else ran: on one node, and on all nodes together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from headrace.ids import PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.tree_options import PreemptionPolicy
from headrace.resources import LARGEST_SUM, ZERO, Resources
from headrace.retry_rules import sizes_of_retries
from headrace.wire.operations import OperationSpec
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation, kinds_by_size, sizes_of
from headrace_allocator.facts.pool_tree import tolerant_limit
from headrace_allocator.gangs.gang import Gang, JobsAtOnce
from headrace_allocator.gangs.packing import Jobs, Room, count_of, pack
from headrace_allocator.gangs.sizes import together_by_size


def judge_size(facts: Facts, operation: Operation) -> None:
    """Compute whether the pools of an operation accept the sizes of its jobs, and for which sizes some node is large enough.

    For a gang, also compute how many of its jobs could run at once.
    """
    if operation.slots.memory_steps:
        operation.kinds = kinds_by_size(operation.spec, _raised_sizes(facts, operation.spec))
    refused, fits = facts.pools.refused_size(operation.spec), fitting_sizes(facts, operation)
    has_changed = (fits, refused) != (operation.fitting, operation.refused_size)
    operation.fitting, operation.refused_size = fits, refused
    if operation.gang is not None:
        has_changed = judge_gang(facts, operation, operation.gang) or has_changed
    if has_changed:
        facts.touch(operation.id)


def judge_gang(facts: Facts, operation: Operation, gang: Gang) -> bool:
    """Compute how many jobs of a gang could run at once. Return True if the result differs from the former result."""
    before = gang.at_once, gang.scale, gang.judged_for
    if operation.kinds:
        gang.scale = facts.shapes.most(facts.pools.filters_of(operation.spec))
        gang.judged_for = together_by_size(operation)
    gang.at_once = jobs_at_once(facts, operation.spec, gang.judged_for)
    return before != (gang.at_once, gang.scale, gang.judged_for)


def fitting_sizes(facts: Facts, operation: Operation) -> tuple[bool, ...]:
    """Return for each size of jobs whether some node could run such a job if the node were empty. All are True if there is no node."""
    filters = facts.pools.filters_of(operation.spec)
    return tuple(facts.shapes.may_fit(size, filters) for size in sizes_of(operation))


def _raised_sizes(facts: Facts, spec: OperationSpec) -> list[Resources]:
    """Return the size of a job at first, and after it ran out of memory once, twice, and so on.

    The memory is capped by the largest node that could run the job, by the pools' bounds of one job, and by all limits of resources.
    """
    pools, size = facts.pools, spec.resources
    limits = [spec.resource_limits, *(pool.most for pool in pools.above(spec.pool)), *pools.most_of_one_job(spec.pool)]
    most = [limit.memory for limit in limits if limit.memory is not None]
    most += facts.shapes.most_memory(size, pools.filters_of(spec))
    return [
        msgspec.structs.replace(each, memory=max(size.memory, min([each.memory, *most])))
        for each in sizes_of_retries(spec)
    ]


def jobs_at_once(facts: Facts, spec: OperationSpec, jobs: Sequence[Jobs] = ()) -> JobsAtOnce | None:
    """Return the lowest bound on the jobs that can run at once, from all limits and from the nodes.

    With tasks, the bound is the number of those of `jobs` for which nodes or limits suffice, the largest jobs first.
    Return None while limits or nodes are not completely known, or if there is no node.
    """
    pools = facts.pools
    if not (pools.limits_known and facts.recovery.complete and len(facts.shapes)):
        return None
    # A start by a YARN plan need not leave spare resources on the node.
    spare = pools.min_spare if pools.options.preemption_policy is PreemptionPolicy.YTSAURUS else ZERO
    filters = pools.filters_of(spec)
    if spec.tasks:
        on_nodes = JobsAtOnce(_placed(facts, filters, jobs, spare))
    else:
        on_nodes = JobsAtOnce(facts.shapes.jobs_at_once(filters, spec.resources, spare))
    return min([on_nodes, *_by_limits(facts, spec, jobs)], key=lambda bound: bound.most)


def _placed(facts: Facts, filters: tuple[str, ...], jobs: Sequence[Jobs], spare: Resources) -> int:
    """Return for how many of the jobs nodes are found if all nodes are empty."""
    count = 0
    for one in jobs:
        count += one.count
        if facts.shapes.count(filters, spare.or_more(one.size)) < count:
            break
    else:
        # Each job and all larger jobs could have a node of their own, so all jobs fit. In a large cluster, packing takes much longer.
        return count
    rooms = (Room(size, range(count)) for size, count in facts.shapes.sizes(filters))
    return count_of(pack(jobs, rooms, spare, facts.shapes.most(filters)))


def bounds_of_gangs(facts: Facts) -> tuple[int, ...]:
    """Return version numbers of everything that bounds gangs: while none of the numbers changes, no bound changes."""
    return facts.shapes.changes, facts.pools.limits_changes, facts.pools.rules, int(facts.recovery.complete)


def _by_limits(facts: Facts, spec: OperationSpec, jobs: Sequence[Jobs]) -> Iterator[JobsAtOnce]:
    pools = facts.pools
    own = tolerant_limit(spec.resource_limits, spec.resource_limits_overcommit_tolerance, pools.options)
    limits = [(PoolName(""), own)]
    limits += [(pool.name, pool.limit(pools.options, tolerant=True)) for pool in pools.above(spec.pool)]
    for name, limit in limits:
        most = _most_of(limit, jobs) if spec.tasks else _most(limit, spec.resources)
        if most is not None:
            yield JobsAtOnce(most, name)


def _most_of(limit: PartialResources, jobs: Sequence[Jobs]) -> int | None:
    """Return how many of the jobs a limit allows, the largest jobs first."""
    if limit == NOTHING:
        return None
    room = Resources(*(LARGEST_SUM if most is None else most for most in limit.as_tuple()))
    return count_of(pack(jobs, [Room(room, range(1))], ZERO, room))


def _most(limit: PartialResources, size: Resources) -> int | None:
    pairs = zip(limit.as_tuple(), size.as_tuple(), strict=True)
    return min((most // each for most, each in pairs if most is not None and each), default=None)
