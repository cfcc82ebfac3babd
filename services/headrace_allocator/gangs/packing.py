"""Choose nodes for the jobs of a gang whose jobs have several sizes: the largest jobs first, each where it leaves the least free.

Jobs of one size are placed on the nodes in any order with the same result. For several sizes the best choice is not found in general,
because the problem is bin packing. This choice finds nodes for all jobs whenever any choice does in two cases: all jobs have one size, or
each size is a multiple of the next smaller size in every resource. (In the second case, slots must not be scarce, and the smallest job must
not be smaller than the resources that a start must find free.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from headrace.resources import RESOURCE_NAMES, Resources

Name = TypeVar("Name")


class Jobs(msgspec.Struct, frozen=True):
    """Jobs of one size."""

    size: Resources
    count: int
    #: Number of their task; None if all jobs of the operation have one size.
    task: int | None = None


class Room(msgspec.Struct, Generic[Name], frozen=True):
    """Nodes that have the same free resources."""

    free: Resources
    nodes: Sequence[Name]


class Packed(msgspec.Struct, Generic[Name], frozen=True):
    """A choice of nodes for jobs of one size."""

    nodes: Sequence[Name]
    #: Number of jobs on each of the nodes.
    each: int
    #: Size and task of the jobs; the count is that of all nodes together.
    jobs: Jobs


def largest_first(jobs: Iterable[Jobs], scale: Resources) -> list[Jobs]:
    """Return the sizes in the order in which their jobs are placed. A size is compared with `scale`, in the resource of which it needs
    the largest part.
    """

    def largeness(one: Jobs) -> tuple[float, tuple[int, ...]]:
        return one.size.share_of(scale)[_main(one.size, scale)], one.size.as_tuple()

    return sorted(jobs, key=largeness, reverse=True)


def jobs_in(room: Resources, size: Resources, spare: Resources) -> int:
    """Return how many jobs can start in `room` one after another. No job starts in fewer free resources than `spare`."""
    least = spare.or_more(size)
    return 1 + size.times_that_fit(room - least) if room.dominates(least) else 0


def pack(jobs: Iterable[Jobs], rooms: Iterable[Room[Name]], spare: Resources, scale: Resources) -> list[Packed[Name]]:
    """Choose nodes for as many jobs as possible. `jobs` must be in the order of `largest_first`.

    A job goes to the node that has the least free of the resource of which the job needs the largest part of `scale`.
    """
    left, packed = list(rooms), list[Packed[Name]]()
    for one in jobs:
        at, count = _main(one.size, scale), one.count
        fitting = [room for room in left if room.free.dominates(spare.or_more(one.size))]
        for room in sorted(fitting, key=lambda room: (room.free.as_tuple()[at], room.free.as_tuple())):
            if not count:
                break
            left.remove(room)
            for nodes, each in _shared_out(room, jobs_in(room.free, one.size, spare), count):
                left.append(Room(room.free - one.size * each, nodes))
                if each:
                    packed.append(Packed(nodes, each, Jobs(one.size, each * len(nodes), one.task)))
                    count -= each * len(nodes)
    return packed


def tightness(room: Resources, size: Resources, scale: Resources) -> int:
    """Return the amount in `room` of the resource of which a job needs the largest part of `scale`."""
    return room.as_tuple()[_main(size, scale)]


def count_of(packed: Iterable[Packed[Name]]) -> int:
    """Return the number of jobs for which nodes were found."""
    return sum(one.jobs.count for one in packed)


def _shared_out(room: Room[Name], most: int, count: int) -> list[tuple[Sequence[Name], int]]:
    """Share out `count` jobs among alike nodes, `most` at most on each. Return groups of nodes with the number of jobs on each node."""
    full, rest = divmod(count, most)
    if full >= len(room.nodes):
        return [(room.nodes, most)]
    some = full + (rest > 0)
    groups = [(room.nodes[:full], most), (room.nodes[full:some], rest), (room.nodes[some:], 0)]
    return [(nodes, each) for nodes, each in groups if nodes]


def _main(size: Resources, scale: Resources) -> int:
    """Return the number of the resource of which a job needs the largest part. Slots do not count: each job has a slot."""
    return max(range(1, len(RESOURCE_NAMES)), key=size.share_of(scale).__getitem__)
