"""Formulas of integral guarantees, as displayed for pools and for a tree. Pure.

Ratios are fractions of the tree's total. Volumes are amounts times seconds, cpu in cores (not hundredths) as in everything displayed. Ratio
volumes are shares times seconds. A guarantee has one ratio for each resource, and the largest of them is called the ratio of the guarantee.
A volume has one ratio volume for each resource, and the smallest of them is called the ratio volume of the volume.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.resources import EPS, RESOURCE_NAMES, Resources
from headrace.wire.integral import Volume
from headrace.wire.pools import ResourceDistribution

_CENTS = 100


def specified_ratio(amount: Resources, total: Resources) -> float:
    """Return the largest quotient of amount and total over all resources; 0 in a cluster without resources.

    With the flow as amount, this is a pool's `specified_resource_flow_ratio`; with the burst, its `specified_burst_ratio`.
    """
    return max(
        (part / whole for (_, part), (_, whole) in zip(_plain(amount), _plain(total), strict=True) if whole > 0),
        default=0.0,
    )


def resources_of_ratio(total: Resources, ratio: float) -> dict[str, float]:
    """Return the total multiplied by the ratio, for each resource; cpu in cores.

    This computes `specified_resource_flow` and `specified_burst_guarantee_resources`. For the resource from which the ratio was computed,
    the result is the configured amount. For every other resource, it is the amount that the pool effectively has.
    """
    return {name: whole * ratio for name, whole in _plain(total)}


def accumulated_resource_volume(volume: Volume) -> dict[str, float]:
    """Return the volume by resource as amounts times seconds, cpu in core-seconds."""
    parts = (volume.user_slots, volume.cpu / _CENTS, volume.gpu, volume.memory, volume.network)
    return dict(zip(RESOURCE_NAMES, parts, strict=True))


def integral_pool_capacity(total: Resources, flow_ratio: float, saturation_period_s: float) -> dict[str, float]:
    """Return the volume of a full pool by resource, cpu in core-seconds: total times flow ratio times saturation period."""
    return {name: whole * flow_ratio * saturation_period_s for name, whole in _plain(total)}


def integral_pool_capacity_ratio(flow_ratio: float, saturation_period_s: float) -> float:
    """Return the ratio volume of a full pool, as share times seconds: flow ratio times saturation period."""
    return flow_ratio * saturation_period_s


def estimated_burst_usage_duration_seconds(ratio_volume: float, burst_ratio: float, flow_ratio: float) -> float | None:
    """Return the seconds that a volume lasts at full burst: ratio volume / (burst ratio - flow ratio).

    None if the volume lasts forever, because the burst exceeds the flow by no more than a rounding error.
    """
    drain = burst_ratio - flow_ratio
    return ratio_volume / drain if drain > EPS else None


def distribution(
    total: Resources, strong: Iterable[Resources], total_flow_ratio: float, total_burst_ratio: float
) -> ResourceDistribution:
    """Return how much of the total is guaranteed: by the strong guarantees of the top pools, and by the flows and bursts of all pools."""
    promised = dict(_plain(Resources.sum(strong)))
    flow, burst = resources_of_ratio(total, total_flow_ratio), resources_of_ratio(total, total_burst_ratio)
    distributed = {name: promised[name] + max(flow[name], burst[name]) for name in RESOURCE_NAMES}
    return ResourceDistribution(
        distributed_resources=distributed,
        undistributed_resources={name: whole - distributed[name] for name, whole in _plain(total)},
        distributed_strong_guarantee_resources=promised,
        distributed_resource_flow=flow,
        distributed_burst_guarantee_resources=burst,
        undistributed_resource_flow={name: max(burst[name] - flow[name], 0.0) for name in RESOURCE_NAMES},
        undistributed_burst_guarantee_resources={name: max(flow[name] - burst[name], 0.0) for name in RESOURCE_NAMES},
    )


def _plain(amount: Resources) -> list[tuple[str, float]]:
    """Return the amounts by resource, cpu in cores."""
    user_slots, cpu, gpu, memory, network = amount.as_tuple()
    return list(zip(RESOURCE_NAMES, (user_slots, cpu / _CENTS, gpu, memory, network), strict=True))
