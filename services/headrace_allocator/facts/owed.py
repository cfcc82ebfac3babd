"""What an element is owed of a cluster, prepared once, so that its satisfaction costs little for whatever it holds.

Each start of a heartbeat asks for it several times. The rule is `headrace.satisfaction.local_satisfaction`; this gives its figures to
the last bit.
"""

from __future__ import annotations

import math

from headrace.resources import EPS, RESOURCE_NAMES, Resources, Share
from headrace.satisfaction import INFINITE_SATISFACTION

__all__ = ["Owed"]

_INDEX = {name: index for index, name in enumerate(RESOURCE_NAMES)}


class Owed:
    """The shares of an operation or a pool in a cluster of `total`."""

    __slots__ = ("_blocked", "_dominant", "_is_nothing", "_more_helps", "_not_owed", "_unblocked", "total")

    def __init__(self, fair: Share, demand: Share, dominant_resource: str, total: Resources) -> None:
        self.total = total
        # Of a resource that the cluster has not all that is held is no share.
        wholes = [whole if whole > 0 else math.inf for whole in total.as_tuple()]
        owed = [(index, wholes[index], share) for index, share in enumerate(fair) if share > 0]
        #: By index: the cluster's amount and the fair share of resources of which more would help, and of the others.
        self._unblocked = tuple(each for each in owed if each[2] < demand[each[0]])
        self._blocked = tuple(each for each in owed if each[2] >= demand[each[0]])
        self._more_helps = any(share < wanted for share, wanted in zip(fair, demand, strict=True))
        #: Resources of which the cluster has some, and it is owed none.
        self._not_owed = tuple(index for index, share in enumerate(fair) if share <= 0 and wholes[index] < math.inf)
        self._is_nothing = max(fair) <= EPS
        dominant = _INDEX[dominant_resource]
        self._dominant = dominant, wholes[dominant], fair[dominant]

    def place(self, held: Resources) -> tuple[float, float]:
        """The satisfaction of who holds so much, and the share above its fair share of the dominant resource, negative below it.

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
