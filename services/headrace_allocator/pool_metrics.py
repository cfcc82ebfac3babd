"""Prometheus metrics of every pool: the jobs that its operations lost with nodes, and the preemptions of its operations. Pure."""

from __future__ import annotations

from collections.abc import Callable

from headrace.runtime.engine import Figure
from headrace_allocator.engine import AllocatorEngine


def pool_figures(engine: AllocatorEngine) -> Callable[[], list[Figure]]:
    """Copy the counts of each pool's lost jobs and preemptions. Return a function that makes metrics of the copy and may be called in any
    thread.
    """
    preempted, lost = engine.answers.preemptions.of_pools(), engine.lost_nodes.of_pools()
    return lambda: [*preempted(), *lost()]
