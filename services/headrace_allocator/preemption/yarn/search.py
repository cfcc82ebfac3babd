"""The search of YARN's newer engine. Pure.

For each missing container it finds a set of victims on one node, with the fewest masters.

No operation falls below its fair share by what is taken. The sets are not the smallest ones: the first that fits is taken.
Source: sections 5.1 to 5.3 of the specification of YARN's FairScheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple

from headrace.resources import ZERO, Resources
from headrace_allocator.preemption.yarn.containers import Container, Id, Owner


class NodeContainers(NamedTuple, Generic[Id]):
    """A node, the room that nobody has on it, and what may be looked at there."""

    name: str
    room: Resources
    containers: Sequence[Container[Id]]


class Victims(NamedTuple, Generic[Id]):
    """Containers on one node that make room for a missing one."""

    node: str
    containers: list[Container[Id]]

    @property
    def masters(self) -> int:
        """The number of masters among them."""
        return sum(one.is_master for one in self.containers)


def missing_containers(
    requests: Iterable[tuple[Resources, int]], left: Resources, *, by_memory: bool = False
) -> list[Resources]:
    """Lists the containers to be sought, by what an operation asks for and what it is due.

    As many of a size as fit into what is left of that. A resource that is not due does not count, nor do slots. With `by_memory` memory
    alone does, as in a queue that compares nothing else, and in YARN everywhere.
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
    """The key by which claims are sorted: one that fits into another comes before it."""
    return due.as_tuple()


def victims_on(node: NodeContainers[Id], size: Resources, total: Resources) -> Victims[Id] | None:
    """Takes containers of a node, masters last, until one of a size fits there. Returns None if it never does.

    Where it fits without any, nobody need lose one. A node without containers has nothing to look at.
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
    """The best victims for one missing container of all nodes that were looked at so far."""

    def __init__(self, size: Resources, total: Resources) -> None:
        self.size = size
        self._total = total
        self.best: Victims[Id] | None = None

    def look_at(self, node: NodeContainers[Id]) -> bool:
        """Looks at one more node, which must be better to be taken. True if none can be better than what was found."""
        found = victims_on(node, self.size, self._total)
        if found is not None and (self.best is None or found.masters < self.best.masters):
            self.best = found
        return self.best is not None and not self.best.masters
