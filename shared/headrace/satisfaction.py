"""The satisfaction of an element: how well it is served against what it is owed.

It is one measure, for whoever orders by it and whoever shows it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import msgspec

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
#: All sets of resources as indexes, by the bits of their number. What is kept for each operation names one of these: objects of its
#: own would be looked at by the collector of cycles, thousands of them with each snapshot.
_SETS: Final = tuple(
    tuple(index for index in range(len(RESOURCE_NAMES)) if bits >> index & 1)
    for bits in range(1 << len(RESOURCE_NAMES))
)
_ALL: Final = _SETS[-1]


@lru_cache(16)
def divisors(total: Resources) -> tuple[float, ...]:
    """The amounts of a cluster that shares are parts of. What is held of a resource that it has not is no share of it."""
    return tuple(whole if whole > 0 else math.inf for whole in total.as_tuple())


def unblocked(fair: Share, demand: Share) -> tuple[int, ...]:
    """The indexes of resources of which more would help."""
    bits, bit = 0, 1
    for owed, wanted in zip(fair, demand):  # noqa: B905  # as above
        if owed < wanted:
            bits |= bit
        bit <<= 1
    return _SETS[bits]


class Owed(msgspec.Struct, frozen=True, gc=False):
    """The shares of an element in a cluster of `total`, prepared once for all of its satisfactions.

    Each start of a heartbeat asks for it several times. It gives the figures of `local_satisfaction` to the last bit.
    """

    total: Resources
    fair: Share
    wholes: tuple[float, ...]
    dominant: int
    is_nothing: bool
    more_helps: bool
    #: Resources that it is owed some of: those of which more would help, and the others.
    unblocked: tuple[int, ...]
    blocked: tuple[int, ...]
    #: Resources of which the cluster has some, and it is owed none.
    not_owed: tuple[int, ...]

    @staticmethod
    def of(fair: Share, demand: Share, dominant_resource: str, total: Resources) -> Owed:
        """Prepares an element that is owed so much, and wants so much."""
        wholes = divisors(total)
        helping = unblocked(fair, demand)
        more = blocked = not_owed = 0
        for index in _ALL:
            if fair[index] > 0:
                if index in helping:
                    more |= 1 << index
                else:
                    blocked |= 1 << index
            elif wholes[index] < math.inf:
                not_owed |= 1 << index
        return Owed(
            total,
            fair,
            wholes,
            _INDEX[dominant_resource],
            max(fair) <= EPS,
            bool(helping),
            _SETS[more],
            _SETS[blocked],
            _SETS[not_owed],
        )

    def place(self, held: Resources) -> tuple[float, float]:
        """The satisfaction of an element that holds so much, and its share of the dominant resource above the fair share.

        Example: fair share of half of 8 cores, 3 held: 3 / 4 = 0.75, and 3 / 8 - 1 / 2 = -0.125.
        """
        amounts, wholes, fair, index = held.as_tuple(), self.wholes, self.fair, self.dominant
        excess = amounts[index] / wholes[index] - fair[index]
        if self.is_nothing:
            return INFINITE_SATISFACTION, excess
        for index in self.not_owed:
            if amounts[index] > 0:
                return INFINITE_SATISFACTION, excess
        most = 0.0
        for index in self.unblocked:
            ratio = amounts[index] / wholes[index] / fair[index]
            if ratio > most:
                most = ratio
        above, least = most, INFINITE_SATISFACTION
        for index in self.blocked:
            ratio = amounts[index] / wholes[index] / fair[index]
            if ratio > above:
                above = ratio
            if ratio < least:
                least = ratio
        if above > 1:
            return min(above, INFINITE_SATISFACTION), excess
        return most if self.more_helps else least, excess
