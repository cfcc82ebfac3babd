"""Counts running jobs that would be preempted because they exceed the resource limits of their pools. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict

from headrace.ids import OperationId, PoolName
from headrace.pools.amounts import PartialResources
from headrace.resources import ZERO, Resources
from headrace.wire.what_if import JobsOverLimits
from headrace_fair_share.update.elements import Elements
from headrace_fair_share.update.update_facts import UpdateFacts


def jobs_over_limits(cut: UpdateFacts, elements: Elements, usage: dict[OperationId, Resources]) -> list[JobsOverLimits]:
    """Return the pools that use more than their resource limits, each with the smallest number of its jobs that must end.

    The limits of child pools are considered before the limits of their parents. A job that must end for the limit of a child pool is
    counted for the child pool only. `usage` has only operations that run jobs.
    """
    below: dict[PoolName, list[OperationId]] = defaultdict(list)
    names = [PoolName(name) for name in elements.names[: elements.pools]]
    above = dict(zip(names, elements.parents, strict=False))
    for operation in usage:
        pool = cut.operations[operation].pool
        while pool in above:
            below[pool].append(operation)
            pool = above[pool]
    jobs = {operation: _job_count(cut.operations[operation].job, used) for operation, used in usage.items()}
    found = []
    for name, limit in reversed(list(zip(names, elements.limits, strict=True))):
        running = sum(jobs[operation] for operation in below[name])
        if ended := _ended(cut, below[name], jobs, limit):
            jobs = {operation: count - ended[operation] for operation, count in jobs.items()}
            found.append(JobsOverLimits(name, ended.total(), running))
    return found[::-1]


def _ended(
    cut: UpdateFacts, operations: list[OperationId], jobs: dict[OperationId, int], limit: PartialResources
) -> Counter[OperationId]:
    """Return how many jobs of each operation must end so that the operations together are within the limit. The largest jobs end first."""
    ended = Counter[OperationId]()
    for resource, most in limit.named().items():
        sizes = {operation: getattr(cut.operations[operation].job, resource) for operation in operations}
        used = sum(size * (jobs[operation] - ended[operation]) for operation, size in sizes.items())
        for operation in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if used <= most or not sizes[operation]:
                break
            count = min(jobs[operation] - ended[operation], -((most - used) // sizes[operation]))
            ended[operation] += count
            used -= count * sizes[operation]
    return +ended


def _job_count(job: Resources, used: Resources) -> int:
    """Return how many jobs of the size `job` together use `used`."""
    return (
        max((amount // size for amount, size in zip(used.as_tuple(), job.as_tuple(), strict=True) if size), default=0)
        if job != ZERO
        else 0
    )
