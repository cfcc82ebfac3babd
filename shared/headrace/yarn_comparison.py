"""Comparisons of YARN's FairScheduler: of two amounts, and of siblings that wait for resources. Pure.

Queues with the policies fair and fifo compare memory only. Queues with drf compare dominant shares: the dominant share of an amount is the
largest fraction that the amount has of the cluster's total of any resource. Source: sections 1 and 3.6 of the specification of YARN's
FairScheduler.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final, NamedTuple

from headrace.resources import RESOURCE_NAMES, Resources, Share

_MEMORY: Final = RESOURCE_NAMES.index("memory")
#: Positions of the resources in the order that breaks ties: if an element has the same part of two resources, the resource that comes first
#: here is dominant.
_ORDER: Final = (_MEMORY, *(place for place in range(len(RESOURCE_NAMES)) if place != _MEMORY))


class QueuePolicy(enum.StrEnum):
    """The policy by which a queue compares its children and their amounts."""

    FAIR = "fair"
    DRF = "drf"
    FIFO = "fifo"


class ComparedChild(NamedTuple):
    """A child of a queue, with the values that the queue's policy compares."""

    name: str
    usage: Resources
    demand: Resources
    #: Minimum share of a queue; zero for an application.
    least: Resources
    weight: float
    #: Time at which the application started, or its position in a fifo queue; 0 for a queue.
    began: int = 0
    #: Priority of an application. It is 1 for all applications, because FairScheduler does not pass priorities on.
    priority: int = 1


def in_32_bits(number: float) -> float:
    """Return the number rounded to the nearest 32-bit float, as YARN stores thresholds and weights."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def is_below(usage: Resources, wanted: Resources, total: Resources, policy: QueuePolicy) -> bool:
    """True if `usage` is below `wanted`. Memory is compared; with drf, the dominant share."""
    if policy is not QueuePolicy.DRF:
        return usage.memory < wanted.memory
    return max(_parts(usage, total)) < max(_parts(wanted, total))


def is_less(one: Resources, other: Resources, total: Resources, policy: QueuePolicy) -> bool:
    """True if the amount `one` is smaller than `other`.

    With drf the largest parts of the cluster are compared; if they are equal, the second largest parts decide, and so
    on.
    """
    if policy is not QueuePolicy.DRF:
        return one.memory < other.memory
    return sorted(_parts(one, total), reverse=True) < sorted(_parts(other, total), reverse=True)


def larger(one: Resources, other: Resources, total: Resources, policy: QueuePolicy) -> Resources:
    """Return the larger of two amounts, or `other` if they are equal."""
    return one if is_less(other, one, total, policy) else other


def serving_key(
    policy: QueuePolicy, total: Resources, *, demand_counts: bool = True, needy_quirk: bool = False
) -> Callable[[ComparedChild], Any]:
    """Return the key by which siblings are sorted. The sibling that is served first comes first.

    Set `demand_counts` to False for the older engine, which does not consider demand. With `needy_quirk`, drf decides whether the second of
    two siblings is needy by the usage of the first sibling, as YARN does.
    """
    if policy is QueuePolicy.FIFO:
        return lambda one: (-one.priority, one.began, one.name)
    if policy is QueuePolicy.FAIR:
        return lambda one: _fair_key(one, demand_counts=demand_counts)
    if needy_quirk:
        return cmp_to_key(lambda one, other: _quirky(one, other, total))
    return lambda one: _drf_key(one, total)


def _parts(amount: Resources, total: Resources) -> Share:
    """Return the parts of the cluster by resource. The part of slots is 0, because YARN has no slots."""
    _, cpu, gpu, memory, network = amount.share_of(total)
    return 0.0, cpu, gpu, memory, network


def _fair_key(one: ComparedChild, *, demand_counts: bool) -> tuple[bool, bool, bool, float, int, str]:
    usage, least = one.usage.memory, min(one.least.memory, one.demand.memory)
    weight = in_32_bits(one.weight)
    needy, weighs = usage < least, weight > 0
    ratio = usage / max(least, 1) if needy else usage / weight if weighs else float(usage)
    return demand_counts and one.demand.memory <= 0, not needy, not (needy or weighs), ratio, one.began, one.name


def _drf_key(one: ComparedChild, total: Resources) -> tuple[bool, list[float], int, str]:
    dominance = _dominance(one, total)
    needy = _is_needy(one.usage, one, dominance[0])
    return not needy, _ratios(one, total, dominance, needy=needy), one.began, one.name


def _quirky(one: ComparedChild, other: ComparedChild, total: Resources) -> int:
    dominances = _dominance(one, total), _dominance(other, total)
    needy = _is_needy(one.usage, one, dominances[0][0]), _is_needy(one.usage, other, dominances[1][0])
    keys = [
        (not is_needy, _ratios(each, total, dominance, needy=is_needy), each.began, each.name)
        for each, dominance, is_needy in zip((one, other), dominances, needy, strict=True)
    ]
    return (keys[0] > keys[1]) - (keys[0] < keys[1])


def _dominance(one: ComparedChild, total: Resources) -> list[int]:
    """Return the indexes of resources, ordered by the part of the cluster that the sibling uses, largest first."""
    parts = _parts(one.usage, total)
    return sorted(_ORDER, key=lambda place: -parts[place])


def _is_needy(usage: Resources, one: ComparedChild, dominant: int) -> bool:
    return usage.as_tuple()[dominant] < one.least.as_tuple()[dominant]


def _ratios(one: ComparedChild, total: Resources, dominance: list[int], *, needy: bool) -> list[float]:
    """Return a ratio for each resource of `dominance`.

    For a needy sibling, which is below its minimum share, the ratio is its usage divided by its minimum share. For any other sibling, the
    ratio is the part of the cluster that the sibling uses, divided by the sibling's weight.
    """
    if needy:
        usage, least = one.usage.as_tuple(), one.least.as_tuple()
        return [usage[place] / least[place] if least[place] else float("inf") for place in dominance]
    parts, weight = _parts(one.usage, total), in_32_bits(one.weight)
    return [parts[place] / weight if weight > 0 else float("inf") for place in dominance]
