"""Courses that are aimed: work of one kind, and a fault that befalls it where and when it hurts.

Chance alone seldom brings the two together. Seeds take the aims in turn; the last of each turn is left to chance.
"""

from __future__ import annotations

from typing import Final

import anyio
import msgspec

from headrace.ids import OperationId
from headrace.wire import subjects
from tests.simulation.faults import (
    Fault,
    deafen,
    freeze_until_succeeded,
    kill_a_leader,
    kill_an_agent,
    lose,
    lose_an_agent,
)
from tests.simulation.world import World, a_spec

__all__ = ["Aim", "aim_of", "befall_aimed", "want_aimed"]

_OPERATION: Final = OperationId("operation-aimed")
#: The work of an aim has begun within this, or other faults keep it from it.
_BEGUN_WITHIN_S: Final = 10.0


class Aim(msgspec.Struct, frozen=True):
    """Jobs of one core, and what befalls while some of them run."""

    fault: Fault
    #: None: as long as the longest that anybody wants.
    seconds: str | None
    jobs: int


AIMS: Final = (
    # Two allocators hand out jobs of the same block, and none of them hears who leads.
    Aim(deafen("allocator"), "0.4", 120),
    # An allocator's successor finds allocations that took on jobs since they began.
    Aim(kill_a_leader("allocator"), "0.4", 120),
    # A superseded admission wakes with ends to record.
    Aim(freeze_until_succeeded("admission"), "0.2", 150),
    # Two admissions record at once, until the first finds its lease taken.
    Aim(lose(subjects.LEASES_BUCKET), "0.2", 150),
    # A new life of an agent finds jobs of its former one.
    Aim(kill_an_agent, "3", 12),
    # Jobs outlast the lease of a node.
    Aim(lose_an_agent, None, 6),
    # An allocator wakes beside its successor.
    Aim(freeze_until_succeeded("allocator"), "0.4", 120),
)


def aim_of(seed: int) -> Aim | None:
    """The aim of a seed."""
    return (*AIMS, None)[seed % (len(AIMS) + 1)]


async def want_aimed(world: World, aim: Aim) -> None:
    """Starts the work and waits for its end."""
    jobs = min(aim.jobs, world.length.aimed_jobs)
    await world.run_operation(
        _OPERATION, a_spec("production", jobs, ["work", aim.seconds or str(world.length.longest_job_s)])
    )


async def befall_aimed(world: World, aim: Aim) -> None:
    """Breaks something while the work runs."""
    with anyio.move_on_after(_BEGUN_WITHIN_S):
        while not _runs(world):  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.05)
    await anyio.sleep(world.random.uniform(0, 1.5))
    await aim.fault(world)


def _runs(world: World) -> bool:
    return any(key.operation == _OPERATION for host in world.hosts.values() for key in host.living)
