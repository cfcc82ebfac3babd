"""The satisfaction of an element: how well it is served against what it is owed.

It is one measure, for whoever orders by it and whoever shows it.
"""

from __future__ import annotations

from typing import Final

from headrace.resources import EPS, Share

__all__ = ["INFINITE_SATISFACTION", "local_satisfaction"]

#: Stands for «infinite»: only its being larger than everything matters.
INFINITE_SATISFACTION: Final = 1e9


def local_satisfaction(usage: Share, fair: Share, demand: Share) -> float:
    """Usage over fair share, by the resource that tells most. Above 1 means «has more than it is owed».

    A resource is blocked when its fair share covers its demand: more of it would not help. With no fair share at all the result is
    `INFINITE_SATISFACTION`, so that such an element comes last.
    """
    if max(fair) <= EPS:
        return INFINITE_SATISFACTION
    if any(u > f for u, f in zip(usage, fair, strict=True)):
        return max(_ratio(u, f) for u, f in zip(usage, fair, strict=True))
    unblocked = [(u, f) for u, f, d in zip(usage, fair, demand, strict=True) if f < d]
    if not unblocked:
        return min(u / f if f > 0 else 1.0 for u, f in zip(usage, fair, strict=True))
    return max((u / f for u, f in unblocked if f > 0), default=0.0)


def _ratio(usage: float, fair: float) -> float:
    if fair > 0:
        return min(usage / fair, INFINITE_SATISFACTION)
    return INFINITE_SATISFACTION if usage > 0 else 0.0
