"""The satisfaction of an element: its usage in relation to its fair share.

All code that orders elements by satisfaction, or shows satisfaction, uses this measure.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import msgspec

from headrace.resources import EPS, RESOURCE_NAMES, Resources, Share

#: Stands for infinity. It only needs to be larger than every other satisfaction.
INFINITE_SATISFACTION: Final = 1e9


def local_satisfaction(usage: Share, fair: Share, demand: Share) -> float:
    """Return the ratio of usage to fair share for the resource that matters most. Above 1 the element has more than its fair share.

    If the ratio of any resource is above 1, the result is the largest ratio. Otherwise it is the largest ratio among the
    resources that are not blocked, or the smallest of all ratios if every resource is blocked. A resource is blocked if the
    element's fair share of it covers the demand, so that more of the resource would not help. If the element has no fair share at
    all, or uses a resource of which its fair share is 0, the result is `INFINITE_SATISFACTION`, so that the element comes last.
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
#: All sets of resource indexes, each as a tuple. The bits of a set's position here say which indexes the set contains. All
#: operations share these tuples: if each operation had tuples of its own, Python's cycle collector would examine thousands of
#: tuples with each snapshot.
_SETS: Final = tuple(
    tuple(index for index in range(len(RESOURCE_NAMES)) if bits >> index & 1)
    for bits in range(1 << len(RESOURCE_NAMES))
)
_ALL: Final = _SETS[-1]


@lru_cache(16)
def divisors(total: Resources) -> tuple[float, ...]:
    """Return the amount of each resource in a cluster, by which a used amount is divided to get a share. For a resource that the
    cluster lacks the divisor is infinity.
    """
    return tuple(whole if whole > 0 else math.inf for whole in total.as_tuple())


def unblocked(fair: Share, demand: Share) -> tuple[int, ...]:
    """Return the indexes of the resources whose fair share is below the demand, so that more of them would help."""
    bits, bit = 0, 1
    for owed, wanted in zip(fair, demand):  # noqa: B905  # as above
        if owed < wanted:
            bits |= bit
        bit <<= 1
    return _SETS[bits]


class Owed(msgspec.Struct, frozen=True, gc=False):
    """The fair share of an element in a cluster of `total`, prepared once for all computations of its satisfaction.

    Preparing it saves time, because each start of a job in a heartbeat computes satisfactions several times. The results are
    equal to those of `local_satisfaction` to the last bit.
    """

    total: Resources
    fair: Share
    wholes: tuple[float, ...]
    dominant: int
    is_nothing: bool
    more_helps: bool
    #: Indexes of resources with a fair share above 0 and below the demand, so that more of them would help.
    unblocked: tuple[int, ...]
    #: Indexes of resources with a fair share above 0 that covers the demand.
    blocked: tuple[int, ...]
    #: Indexes of resources that the cluster has, but of which the element's fair share is 0.
    not_owed: tuple[int, ...]

    @staticmethod
    def of(fair: Share, demand: Share, dominant_resource: str, total: Resources) -> Owed:
        """Prepare the computation for an element with this fair share and this demand."""
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
        """Return the satisfaction that the element has if it holds `held`, and its held share of the dominant resource minus its
        fair share.

        Example: with a fair share of half of 8 cores and 3 cores held, the results are 3 / 4 = 0.75 and 3 / 8 - 1 / 2
        = -0.125.
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
