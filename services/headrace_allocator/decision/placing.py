"""Placing: the free room of a node goes to the least satisfied operation whose jobs fit, again and again.

Cost: the starts times the walks down the order. Nothing is booked; all is written to the overlay.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.resources import ZERO, Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.job_length import jobs_ahead, spare_jobs
from headrace_allocator.decision.view import Overlay
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.operations import Operation

__all__ = ["Choice", "Placement", "place"]

#: Chooses who gets the next place in a room: the overlay, the room, and whose priority alone takes part.
Choice = Callable[[Overlay, Resources, PreemptionPriority | None], Operation | None]


class Placement(msgspec.Struct, frozen=True):
    """A new allocation of an operation on the node, with so many jobs."""

    operation: Operation
    jobs: int


def place(
    overlay: Overlay,
    priority: PreemptionPriority | None = None,
    *,
    discount: Resources = ZERO,
    held: Resources = ZERO,
    most: int | None = None,
    choose: Choice = next_in_line,
) -> list[Placement]:
    """Decides what starts in the free room, in the order of the decisions. Each placement is one allocation.

    A preemptive stage lets only operations of its priority take part, counts `discount` as room, and stops after `most` starts. By the
    older rules it may start more while some operation, for which so much more is `held`, could.
    """
    placed: list[Placement] = []
    while most is None or len(placed) < most:
        room = overlay.room + discount
        operation = choose(overlay, room, priority) if (room + held).dominates(overlay.view.min_spare) else None
        if operation is None:
            break
        placed.append(_start(overlay, operation))
    return placed


def _start(overlay: Overlay, operation: Operation) -> Placement:
    jobs = min(jobs_ahead(operation, overlay.view.pace_ms), overlay.ready(operation))
    if jobs > 1:
        jobs = max(1, min(jobs, spare_jobs(overlay, operation)))
    overlay.give_out(operation, jobs)
    overlay.use(operation, operation.spec.resources)
    return Placement(operation, jobs)
