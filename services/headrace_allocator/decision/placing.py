"""Placing: the free room of a node goes to the least satisfied operation whose jobs fit, again and again.

Cost: the sizes of jobs, plus the starts times the logarithm of the operations. Nothing is booked; all is written to the overlay.
"""

from __future__ import annotations

import heapq

import msgspec

from headrace_allocator.decision.job_length import jobs_ahead, spare_jobs
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.operations import Operation

__all__ = ["Placement", "place"]


class Placement(msgspec.Struct, frozen=True):
    """A new allocation of an operation on the node, with so many jobs."""

    operation: Operation
    jobs: int


def place(overlay: Overlay) -> list[Placement]:
    """Decides what starts in the free room, in the order of the decisions. Each placement is one allocation."""
    order = overlay.view.order
    placed: list[Placement] = []
    walks = [(size, order.walk(size)) for size in order.fitting(overlay.room)]
    #: The next of each walk, and whoever got a new place here.
    front = [(next(walk), number) for number, (_, walk) in enumerate(walks)]
    heapq.heapify(front)
    while front:
        (_, arrival, name), number = heapq.heappop(front)
        size, walk = walks[number]
        if not overlay.room.dominates(size):
            continue
        following = next(walk, None)
        if following is not None:
            heapq.heappush(front, (following, number))
        operation = overlay.view.operations[name]
        why_not = overlay.held_back(operation)
        if why_not is None:
            placed.append(_start(overlay, operation))
            why_not = overlay.held_back(operation)
        if why_not is not None:
            overlay.moved[name] = why_not
            continue
        place_after = overlay.moved[name] = (overlay.satisfaction(operation), arrival, name)
        heapq.heappush(front, (place_after, number))
    return placed


def _start(overlay: Overlay, operation: Operation) -> Placement:
    jobs = min(jobs_ahead(operation, overlay.view.pace_ms), overlay.ready(operation))
    if jobs > 1:
        jobs = max(1, min(jobs, spare_jobs(overlay, operation)))
    overlay.give_out(operation, jobs)
    overlay.use(operation, operation.spec.resources)
    return Placement(operation, jobs)
