"""What a heartbeat costs the allocator's engine, and that it does not cost more for there being more operations."""

from __future__ import annotations

import time

from headrace.runtime.engine import Moment, Outcome
from headrace.wire.heartbeat import AllocationReport, AllocationState, Heartbeat, JobEnd, JobResult, Orders, Start
from headrace_allocator.effects import Effect
from headrace_allocator.engine import AllocatorEngine
from tests.bench.registry import REGISTRY, Figure
from tests.support.allocating import Desk, a_share, an_operation, cores

NODES = 50
ROUNDS = 6
MANY = 10_000


def a_busy_desk(operations: int) -> Desk:
    """Fifty nodes of 32 cores, and operations of five sizes of job that all want more than there is."""
    desk = Desk({f"n{number}": cores(32, slots=100) for number in range(NODES)})
    names = [f"operation-{number}" for number in range(operations)]
    desk.engine.on_operations(
        [an_operation(name, jobs=1000, size=cores(1 + number % 5 * 0.25)) for number, name in enumerate(names)],
        desk.now,
    )
    desk.tell(a_share(name, 1 / operations) for name in names)
    return desk


class _Timed:
    """Stands between the desk and its engine, and takes the time of each heartbeat."""

    def __init__(self, engine: AllocatorEngine) -> None:
        self._on_heartbeat = engine.on_heartbeat
        self.taken_us: list[float] = []

    def __call__(self, heartbeat: Heartbeat, now: Moment) -> Outcome[Orders | None, Effect]:
        begun = time.perf_counter()
        outcome = self._on_heartbeat(heartbeat, now)
        self.taken_us.append((time.perf_counter() - begun) * 1e6)
        return outcome


def heartbeats_us(operations: int) -> list[float]:
    """Microseconds of heartbeats that each end all jobs of a node and start as many others, some 21."""
    desk = a_busy_desk(operations)
    timed = _Timed(desk.engine)
    desk.engine.on_heartbeat = timed  # type: ignore[method-assign]
    desk.engine.check = list  # type: ignore[method-assign]  # checking everything is no part of a heartbeat
    held: dict[str, list[Start]] = {}
    for _ in range(ROUNDS):
        for node in desk.nodes:
            over = [
                AllocationReport(one.allocation, one.operation, AllocationState.ENDED, one.resources)
                for one in held.get(node, [])
            ]
            orders, _ = desk.beat(node, allocations=over, ends=[an_end(one) for one in held.get(node, [])])
            held[node] = orders.start
        # As the service does between heartbeats: in the first round all nodes came, so that every place was to be found anew.
        desk.refresh()
    return timed.taken_us[NODES:]


def an_end(start: Start) -> JobEnd:
    """The end of a job of ten minutes. Of shorter ones an allocation has several, and all but this one would be lost."""
    slot = start.slots[0]
    return JobEnd(
        start.operation,
        slot.index,
        slot.attempt,
        start.allocation,
        JobResult.COMPLETED,
        started_at_ms=1000,
        ended_at_ms=601_000,
    )


@REGISTRY.add("heartbeat_us", "a heartbeat that ends some 21 jobs and starts as many, 10,000 operations", 1000)
def heartbeat() -> Figure:
    return Figure.of(heartbeats_us(MANY), "us")
