"""Configured pools as the algorithm reads them; pure."""

from __future__ import annotations

from headrace.wire.pools import Pool
from headrace_fair_share.hdrf.model import IntegralKind, PoolInput

__all__ = ["pool_input"]


def pool_input(pool: Pool, parent: int) -> PoolInput:
    """A configured pool; `parent` is the place of its parent among the pools, -1 for the root."""
    settings, integral = pool.settings, pool.settings.integral_guarantees
    # A figure that is left out cannot be told from a zero here; the one that means something is to infer it.
    slots, cpu, gpu, memory, network = (amount or None for amount in settings.strong_guarantee_resources.as_tuple())
    return PoolInput(
        name=pool.name,
        parent=parent,
        weight=settings.weight,
        strong_guarantee=(slots, cpu, gpu, memory, network),
        integral=IntegralKind(integral.guarantee_type.value),
        resource_flow=integral.resource_flow,
        burst_guarantee=integral.burst_guarantee_resources,
    )
