"""Formulas of integral guarantees, as people see them on pools and on a tree. Pure.

Ratios are fractions of the tree's total. Volumes are resource times seconds, cpu in cores (not hundredths) as everywhere where people
read. Ratio volumes are shares times seconds. A guarantee counts by its largest ratio over the resources, a volume by its smallest.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.resources import EPS, RESOURCE_NAMES, Resources
from headrace.wire.integral import Volume
from headrace.wire.pools import ResourceDistribution

_CENTS = 100


def specified_ratio(amount: Resources, total: Resources) -> float:
    """`specified_resource_flow_ratio`, `specified_burst_ratio`: max over resources of amount / total, 0 in a cluster of nothing."""
    return max(
        (part / whole for (_, part), (_, whole) in zip(_plain(amount), _plain(total), strict=True) if whole > 0),
        default=0.0,
    )


def resources_of_ratio(total: Resources, ratio: float) -> dict[str, float]:
    """`specified_resource_flow`, `specified_burst_guarantee_resources`: total times the ratio, by resource, cpu in cores.

    Of resources other than the one that the ratio comes from this is not what was configured, but what the pool has.
    """
    return {name: whole * ratio for name, whole in _plain(total)}


def accumulated_resource_volume(volume: Volume) -> dict[str, float]:
    """Resource times seconds by resource, cpu in core-seconds."""
    parts = (volume.user_slots, volume.cpu / _CENTS, volume.gpu, volume.memory, volume.network)
    return dict(zip(RESOURCE_NAMES, parts, strict=True))


def integral_pool_capacity(total: Resources, flow_ratio: float, saturation_period_s: float) -> dict[str, float]:
    """The most that accrues, resource times seconds by resource, cpu in core-seconds: total times flow ratio times the period."""
    return {name: whole * flow_ratio * saturation_period_s for name, whole in _plain(total)}


def integral_pool_capacity_ratio(flow_ratio: float, saturation_period_s: float) -> float:
    """The same as one number, share times seconds: flow ratio times the saturation period."""
    return flow_ratio * saturation_period_s


def estimated_burst_usage_duration_seconds(ratio_volume: float, burst_ratio: float, flow_ratio: float) -> float | None:
    """The seconds that a volume lasts at full burst: ratio volume / (burst ratio - flow ratio).

    None where they last for ever, that is where the burst is not above the flow, rounding aside.
    """
    drain = burst_ratio - flow_ratio
    return ratio_volume / drain if drain > EPS else None


def distribution(
    total: Resources, strong: Iterable[Resources], total_flow_ratio: float, total_burst_ratio: float
) -> ResourceDistribution:
    """Sums up the strong guarantees of the top pools beside the flows and bursts of all pools."""
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
    """The amounts by resource, cpu in cores."""
    user_slots, cpu, gpu, memory, network = amount.as_tuple()
    return list(zip(RESOURCE_NAMES, (user_slots, cpu / _CENTS, gpu, memory, network), strict=True))
