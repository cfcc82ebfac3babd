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
    # Of whatever is owed cpu nothing else need be looked at. This runs for each place that a heartbeat gives out.
    if fair[1] <= EPS and max(fair) <= EPS:
        return INFINITE_SATISFACTION
    most = most_unblocked = 0.0
    least = INFINITE_SATISFACTION
    some_unblocked = False
    for used, owed, wanted in zip(usage, fair, demand):  # noqa: B905
        if owed > 0:
            ratio = used / owed
            if ratio < least:
                least = ratio
            if ratio > most:
                most = ratio
            if owed < wanted:
                some_unblocked = True
                if ratio > most_unblocked:
                    most_unblocked = ratio
        elif used > 0:
            return INFINITE_SATISFACTION
        elif owed < wanted:
            some_unblocked = True
    if most > 1:
        return min(most, INFINITE_SATISFACTION)
    return most_unblocked if some_unblocked else least
