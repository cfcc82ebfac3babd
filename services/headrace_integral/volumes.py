"""Spending and refilling one pool's savings: the arithmetic of integral guarantees, exact to the last bit.

An amount times a real number is rounded to whole units, halves away from zero. A volume times a real number is rounded in its cpu
part only (hundredths of a core-second); the other parts are plain doubles. Every product is rounded by itself, in this order.
"""

from __future__ import annotations

import math

import msgspec

from headrace.resources import Resources
from headrace.wire.integral import PoolFlow, Volume

__all__ = ["EMPTY", "Refilled", "advance", "capacity_of", "ratio_volume", "round_half_away"]

EMPTY = Volume()
_MICROSECONDS = 1_000_000


def round_half_away(value: float) -> int:
    """The nearest whole number; of two equally near ones that farther from zero."""
    size = abs(value)
    whole = math.floor(size)
    if size - whole >= 0.5:
        whole += 1
    return whole if value >= 0 else -whole


def _amount_times(amount: Resources, factor: float) -> Resources:
    user_slots, cpu, gpu, memory, network = (round_half_away(part * factor) for part in amount.as_tuple())
    return Resources(user_slots, cpu, gpu, memory, network)


def _times(volume: Volume, factor: float) -> Volume:
    return Volume(
        volume.user_slots * factor,
        round_half_away(volume.cpu * factor),
        volume.gpu * factor,
        volume.memory * factor,
        volume.network * factor,
    )


def _as_volume(amount: Resources, seconds: float) -> Volume:
    return _times(
        Volume(float(amount.user_slots), amount.cpu, float(amount.gpu), float(amount.memory), float(amount.network)),
        seconds,
    )


def _plus(a: Volume, b: Volume) -> Volume:
    return Volume(a.user_slots + b.user_slots, a.cpu + b.cpu, a.gpu + b.gpu, a.memory + b.memory, a.network + b.network)


def _minus(a: Volume, b: Volume) -> Volume:
    return Volume(a.user_slots - b.user_slots, a.cpu - b.cpu, a.gpu - b.gpu, a.memory - b.memory, a.network - b.network)


def _greater(a: Volume, b: Volume) -> Volume:
    return Volume(
        max(a.user_slots, b.user_slots),
        max(a.cpu, b.cpu),
        max(a.gpu, b.gpu),
        max(a.memory, b.memory),
        max(a.network, b.network),
    )


def _smaller(a: Volume, b: Volume) -> Volume:
    return Volume(
        min(a.user_slots, b.user_slots),
        min(a.cpu, b.cpu),
        min(a.gpu, b.gpu),
        min(a.memory, b.memory),
        min(a.network, b.network),
    )


class Refilled(msgspec.Struct, frozen=True):
    """A pool's savings after some time. What flows over is lost until siblings may take it; what could be taken is told for then."""

    volume: Volume
    overflow: Volume
    acceptable: Volume


def capacity_of(flow: PoolFlow, total: Resources, saturation_period_s: float) -> Volume:
    """The most that accrues: the flow's amount for the whole saturation period."""
    return _as_volume(_amount_times(total, flow.flow_ratio), saturation_period_s)


def advance(old: Volume, flow: PoolFlow, total: Resources, dt_us: int, saturation_period_s: float) -> Refilled:
    """Lets `dt_us` pass: the flow comes in, the share granted by the update before is charged, savings stop at capacity.

    Savings that are above capacity already (the flow was lowered) are kept but grow no more.
    """
    capacity = capacity_of(flow, total, saturation_period_s)
    passed = _as_volume(total, dt_us / _MICROSECONDS)
    volume = _plus(old, _times(passed, flow.flow_ratio))
    volume = _minus(volume, _times(passed, flow.grant_ratio))
    volume = _greater(volume, EMPTY)
    upper = _greater(old, capacity)
    overflow = _greater(_minus(volume, upper), EMPTY)
    acceptable = _greater(_minus(capacity, volume), EMPTY) if flow.can_accept_free_volume else EMPTY
    return Refilled(volume=_smaller(volume, upper), overflow=overflow, acceptable=acceptable)


def ratio_volume(volume: Volume, total: Resources) -> float:
    """Share times seconds: the smallest of volume over total, over the resources that there are; 0 where there are none."""
    parts = (volume.user_slots, volume.cpu, volume.gpu, volume.memory, volume.network)
    ratios = [part / whole for part, whole in zip(parts, total.as_tuple(), strict=True) if whole > 0]
    return min(ratios, default=0.0)
