"""The search of YARN's newer policy: for each missing container, find the node on which the victims include the fewest
masters. Pure.

A master is a job without which all other jobs of its operation are useless. No operation falls below its fair share through the search. The
set of victims need not be the smallest one: the first set that fits is taken.

Source: sections 5.1 to 5.3 of the specification of YARN's FairScheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple

from headrace.resources import ZERO, Resources
from headrace_allocator.preemption.yarn.containers import Container, Id, Owner


class NodeContainers(NamedTuple, Generic[Id]):
    """A node, its free resources, and the containers on it that may be victims."""

    name: str
    room: Resources
    containers: Sequence[Container[Id]]


class Victims(NamedTuple, Generic[Id]):
    """Containers on one node. Once they have ended, a container that an application lacks fits there."""

    node: str
    containers: list[Container[Id]]

    @property
    def masters(self) -> int:
        """The number of masters among the victims."""
        return sum(one.is_master for one in self.containers)


def missing_containers(
    requests: Iterable[tuple[Resources, int]], left: Resources, *, by_memory: bool = False
) -> list[Resources]:
    """List the sizes of the containers to search for.

    `requests` has the sizes and numbers of containers that an operation requests, and `left` is the amount that the operation is due. Each
    request counts as often as its size fits into what is left of this amount. Slots do not count, and neither does a resource of which
    nothing is due. With `by_memory` only memory counts, which suits a queue that compares memory only. (YARN counts only memory in every
    queue.)
    """
    found: list[Resources] = []
    for size, count in requests:
        pairs = list(zip(size.as_tuple(), left.as_tuple(), strict=True))[1:]
        if by_memory:
            pairs = [(size.memory, left.memory)]
        times = min(count, min((due // needed for needed, due in pairs if needed > 0 and due > 0), default=0))
        found += [size] * times
        left = (left - size * times).or_more(ZERO)
    return found


def smallest_first(due: Resources) -> tuple[int, ...]:
    """Return the sort key of a claim. If one claim fits into another, the smaller claim comes first."""
    return due.as_tuple()


def victims_on(node: NodeContainers[Id], size: Resources, total: Resources) -> Victims[Id] | None:
    """Choose containers of a node as victims, masters last, until a further container of this size fits. Return None if it never fits.

    The set of victims is empty if the size fits without victims. For a node without containers the result is None.
    """
    room, found, taken = node.room.or_more(ZERO), Victims[Id](node.name, []), dict[Owner, Resources]()
    for one in sorted(node.containers, key=lambda each: each.is_master):
        gone = taken.get(one.owner, ZERO) + one.size
        if not room.dominates(size) and one.owner.may_fall_to(one.owner.kept - gone, total):
            found.containers.append(one)
            taken[one.owner], room = gone, room + one.size
        if room.dominates(size):
            return found
    return None


class FewestMasters(Generic[Id]):
    """The best victims for one missing container among all nodes examined so far."""

    def __init__(self, size: Resources, total: Resources) -> None:
        self.size = size
        self._total = total
        self.best: Victims[Id] | None = None

    def look_at(self, node: NodeContainers[Id]) -> bool:
        """Examine one more node. Its victims become the best if they include fewer masters than `best`. True if no node can be better."""
        found = victims_on(node, self.size, self._total)
        if found is not None and (self.best is None or found.masters < self.best.masters):
            self.best = found
        return self.best is not None and not self.best.masters
