"""Failures of nodes in a simulation: when each node fails and how long it is away. Pure: the same seed gives the same failures."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from math import log

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

    def next_of(node: NodeName, number: int, from_ms: int) -> tuple[Outage, int]:
        at_ms = from_ms + 1 + round(-mean_ms * log(_between_0_and_1(f"{seed}/{node}/{number}")))
        return Outage(at_ms, at_ms + repair_ms, node), number

    due = [next_of(node, 0, since_ms) for node in nodes]
    heapq.heapify(due)
    while due:
        outage, number = due[0]
        yield outage
        heapq.heapreplace(due, next_of(outage.node, number + 1, outage.until_ms))


def _between_0_and_1(text: str) -> float:
    """Return a number that depends on the text only, evenly distributed over all texts."""
    return (int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") + 0.5) / 2**48
