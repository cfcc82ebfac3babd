"""The jobs of a gang by size, the largest size first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.resources import Resources
from headrace_allocator.facts.operations import Operation, together
from headrace_allocator.gangs.packing import Jobs, largest_first


def together_by_size(operation: Operation) -> list[Jobs]:
    """Return the jobs of a gang that have not ended. They start together, or they have started together."""
    slots = operation.slots
    if not operation.kinds:
        return [Jobs(operation.spec.resources, together(operation))]
    return _in_order(operation, lambda n: slots.pending_of(n) + slots.in_doubt_of(n) + slots.out_of(n))


def ready_by_size(operation: Operation) -> list[Jobs]:
    """Return the jobs of a gang for which no resources are held yet, and that can be given out now."""
    if not operation.kinds:
        return [Jobs(operation.spec.resources, operation.slots.ready_count)]
    return _in_order(operation, operation.slots.ready_of)


def resources_of(jobs: Iterable[Jobs]) -> Resources:
    """Return the resources of all these jobs together."""
    return Resources.sum(one.size * one.count for one in jobs)


def _in_order(operation: Operation, count_of: Callable[[int], int]) -> list[Jobs]:
    assert operation.gang is not None
    of_gang = range(len(operation.kinds)) if operation.slots.gang_tasks is None else operation.slots.gang_tasks
    jobs = [Jobs(operation.kinds[n].resources, count, n) for n in of_gang if (count := count_of(n))]
    return largest_first(jobs, operation.gang.scale)
