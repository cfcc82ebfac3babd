"""How far two results of an update are apart."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace_fair_share.hdrf.model import ErrorKind
from tests.support.update_result import ElementShares, UpdateResult

__all__ = ["Difference", "elements_of", "largest_difference"]

_VECTORS: Final = (
    "fair_share",
    "strong_part",
    "integral_part",
    "weight_proportional_part",
    "promised_guarantee_fair_share",
    "demand_share",
    "usage_share",
    "limits_share",
    "strong_guarantee_share",
    "integral_guarantee_share",
    "estimated_guarantee_share",
)
_NUMBERS: Final = ("weight", "flow_ratio", "burst_ratio", "total_flow_ratio", "total_burst_ratio")
_PLACES: Final = ("dominant_resource", "fifo_index", "effective_fifo_index")
#: Stands for a difference that no tolerance covers.
_OTHER: Final = 1e9


class Difference(msgspec.Struct, frozen=True, order=True):
    """The size of a difference (numbers above 1 relatively) and where it is."""

    size: float = 0.0
    where: str = ""


def elements_of(result: UpdateResult) -> dict[str, ElementShares]:
    """All elements by name."""
    return {"<root>": result.root, **result.pools, **result.operations}


def largest_difference(one: UpdateResult, other: UpdateResult) -> Difference:
    """Of all figures the one in which both differ most. What errors say in words may differ."""
    found = [Difference()]
    elements, others = elements_of(one), elements_of(other)
    if elements.keys() != others.keys():
        found.append(Difference(_OTHER, "elements"))
    for name in elements.keys() & others.keys():
        found += _between(name, elements[name], others[name])
    if one.integral.keys() != other.integral.keys():
        found.append(Difference(_OTHER, "integral states"))
    for name in one.integral.keys() & other.integral.keys():
        state, another = one.integral[name], other.integral[name]
        found += [Difference(_apart(a, b), f"{name} volume") for a, b in zip(state.volume, another.volume, strict=True)]
        found.append(Difference(abs(state.last_share_ratio - another.last_share_ratio), f"{name} last_share_ratio"))
    if _complaints(one) != _complaints(other):
        found.append(Difference(_OTHER, f"errors: {one.errors} and {other.errors}"))
    return max(found)


def _between(name: str, one: ElementShares, other: ElementShares) -> list[Difference]:
    found = [
        Difference(abs(a - b), f"{name} {field}")
        for field in _VECTORS
        for a, b in zip(getattr(one, field), getattr(other, field), strict=True)
    ]
    found += [Difference(_apart(getattr(one, field), getattr(other, field)), f"{name} {field}") for field in _NUMBERS]
    found += [
        Difference(_OTHER, f"{name} {field}") for field in _PLACES if getattr(one, field) != getattr(other, field)
    ]
    return found


def _apart(a: float, b: float) -> float:
    return abs(a - b) / max(1.0, abs(a))


def _complaints(result: UpdateResult) -> set[tuple[ErrorKind, frozenset[str]]]:
    about_pools = (ErrorKind.NESTED_PROMISED_GUARANTEE, ErrorKind.PRIORITY_WITHOUT_DONOR)
    return {(each.kind, frozenset(each.pools if each.kind in about_pools else ())) for each in result.errors}
