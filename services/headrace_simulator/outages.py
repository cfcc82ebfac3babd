"""Failures of nodes in a simulation: when each node fails and how long it is away. Pure: the same seed gives the same failures."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from random import Random

import msgspec

from headrace.ids import NodeName

__all__ = ["Outage", "outages_of"]


class Outage(msgspec.Struct, frozen=True, order=True):
    """One failure of a node: all its jobs are lost at `at_ms`, and the node is back, empty, at `until_ms` (Unix milliseconds)."""

    at_ms: int
    until_ms: int
    node: NodeName


def outages_of(nodes: Sequence[NodeName], since_ms: int, mean_ms: int, repair_ms: int, seed: int) -> Iterator[Outage]:
    """Yield the failures of all nodes in the order of their times, without end.

    The times between the return of a node and its next failure are exponentially distributed with the mean `mean_ms`. Each repair takes
    `repair_ms`.
    """
    random = Random(seed)

    def next_of(node: NodeName, from_ms: int) -> Outage:
        at_ms = from_ms + 1 + round(random.expovariate(1 / mean_ms))
        return Outage(at_ms, at_ms + repair_ms, node)

    due = [next_of(node, since_ms) for node in nodes]
    heapq.heapify(due)
    while due:
        outage = due[0]
        yield outage
        heapq.heapreplace(due, next_of(outage.node, outage.until_ms))
