"""Figures of every pool, for Prometheus: what its operations lost. Pure."""

from __future__ import annotations

from collections.abc import Callable

from headrace.runtime.engine import Figure
from headrace_allocator.engine import AllocatorEngine


def pool_figures(engine: AllocatorEngine) -> Callable[[], list[Figure]]:
    """Takes a picture of what each pool lost. The call that is returned makes figures of it, in any thread."""
    preempted, lost = engine.answers.preemptions.of_pools(), engine.lost_nodes.of_pools()
    return lambda: [*preempted(), *lost()]
