"""The satisfaction of an element: how well it is served against what it is owed.

It is one measure, for whoever orders by it and whoever shows it.
"""

from __future__ import annotations

import math
from typing import Final

from headrace.resources import EPS, RESOURCE_NAMES, Resources, Share

#: Stands for «infinite»: only its being larger than everything matters.
INFINITE_SATISFACTION: Final = 1e9


def local_satisfaction(usage: Share, fair: Share, demand: Share) -> float:
    """Usage over fair share, by the resource that tells most. Above 1 means «has more than it is owed».

    A resource is blocked when its fair share covers its demand: more of it would not help. With no fair share at all the result is
    `INFINITE_SATISFACTION`, so that such an element comes last.
    """
    if max(fair) <= EPS:
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


_INDEX: Final = {name: index for index, name in enumerate(RESOURCE_NAMES)}


class Owed:
    """The shares of an element in a cluster of `total`, prepared once for all of its satisfactions.

    Each start of a heartbeat asks for it several times. It gives the figures of `local_satisfaction` to the last bit.
    """

    __slots__ = ("_blocked", "_dominant", "_is_nothing", "_more_helps", "_not_owed", "_unblocked", "total")

    def __init__(self, fair: Share, demand: Share, dominant_resource: str, total: Resources) -> None:
        self.total = total
        #: By index: the cluster's amount and the fair share of resources of which more would help, and of the others.
        self._unblocked: list[tuple[int, float, float]] = []
        self._blocked: list[tuple[int, float, float]] = []
        #: Resources of which the cluster has some, and it is owed none.
        self._not_owed: list[int] = []
        self._more_helps = False
        # Of a resource that the cluster has not all that is held is no share.
        wholes = [whole if whole > 0 else math.inf for whole in total.as_tuple()]
        for index, (share, wanted) in enumerate(zip(fair, demand)):  # noqa: B905  # as above
            helps = share < wanted
            self._more_helps |= helps
            if share > 0:
                (self._unblocked if helps else self._blocked).append((index, wholes[index], share))
            elif wholes[index] < math.inf:
                self._not_owed.append(index)
        self._is_nothing = max(fair) <= EPS
        dominant = _INDEX[dominant_resource]
        self._dominant = dominant, wholes[dominant], fair[dominant]

    def place(self, held: Resources) -> tuple[float, float]:
        """The satisfaction of an element that holds so much, and its share of the dominant resource above the fair share.

        Example: fair share of half of 8 cores, 3 held: 3 / 4 = 0.75, and 3 / 8 - 1 / 2 = -0.125.
        """
        amounts = held.as_tuple()
        index, whole, share = self._dominant
        excess = amounts[index] / whole - share
        if self._is_nothing:
            return INFINITE_SATISFACTION, excess
        for index in self._not_owed:
            if amounts[index] > 0:
                return INFINITE_SATISFACTION, excess
        most = 0.0
        for index, whole, share in self._unblocked:
            ratio = amounts[index] / whole / share
            if ratio > most:
                most = ratio
        above, least = most, INFINITE_SATISFACTION
        for index, whole, share in self._blocked:
            ratio = amounts[index] / whole / share
            if ratio > above:
                above = ratio
            if ratio < least:
                least = ratio
        if above > 1:
            return min(above, INFINITE_SATISFACTION), excess
        return most if self._more_helps else least, excess
