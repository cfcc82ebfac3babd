"""A stream of small jobs beside a job that needs a whole node, with the real allocator and the real fair share in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec

from headrace.ids import ROOT_POOL, NodeName, OperationId, PoolName
from headrace.pools import Pool, PoolConfig, PoolMode, TreeOptions
from headrace.pools.amounts import PartialResources
from headrace.resources import Resources
from headrace.wire.heartbeat import Orders
from headrace_allocator.facts.nodes import Node, Reservation
from tests.support.allocating import an_operation, cores
from tests.support.preempting import Fleet

__all__ = ["LARGE", "STREAM", "StreamFleet"]

STREAM: Final = OperationId("stream-of-small")
LARGE: Final = OperationId("whole-node")
_CORES: Final = 4


class StreamFleet(Fleet):
    """Nodes of four cores that `STREAM` keeps full, and one `LARGE` job that is owed a whole node."""

    def __init__(
        self,
        random: Random,
        lengths_s: tuple[float, float],
        *,
        nodes: int = 3,
        mode: PoolMode = PoolMode.FAIR_SHARE,
        **options: Any,
    ) -> None:
        names = [f"n{number}" for number in range(nodes)]
        guaranteed = PoolConfig(strong_guarantee_resources=PartialResources(cpu=_CORES * 100))
        pools = [
            Pool(PoolName("small"), ROOT_POOL, PoolConfig(mode=mode)),
            Pool(PoolName("whole"), ROOT_POOL, guaranteed),
        ]
        usual: dict[str, Any] = {
            "min_spare_allocation_resources_on_node": PartialResources(user_slots=1),
            "use_pool_satisfaction_for_scheduling": True,
            "node_reservation_time": 3_600_000,
        }
        super().__init__(
            random, {name: cores(_CORES, slots=16) for name in names}, pools, TreeOptions(**usual | options)
        )
        self.saves_s = 0.0
        self.lengths_s = lengths_s
        #: When the first job of `LARGE` began.
        self.began_s: float | None = None
        #: Each node that was reserved for `LARGE`, when, and the moment at which the last job that ran there then will have ended.
        self.chosen: list[tuple[NodeName, float, float]] = []

    def stream(self, seconds: float, started_at_ms: int = 1) -> None:
        """The stream begins. It has jobs for so long a time."""
        cpus = len(self.nodes) * _CORES
        jobs = cpus + int(1.3 * cpus * seconds / (sum(self.lengths_s) / 2))
        self.work(STREAM, "small", jobs, cores(1), started_at_ms)

    def work(
        self, name: OperationId, pool: str, jobs: int, size: Resources, started_at_ms: int = 1, **changes: Any
    ) -> None:
        """An operation begins. All of its jobs may be given out at once."""
        live = an_operation(name, jobs, size, block=jobs, done=bytes((jobs + 7) // 8), started_at_ms=started_at_ms)
        spec = msgspec.structs.replace(live.spec, pool=PoolName(pool), **changes)
        self.begin(msgspec.structs.replace(live, spec=spec), 60.0)
        self.update_shares()

    def _next_job(self, place: Any) -> None:
        if place.operation == STREAM:
            self.job_s[STREAM] = self.random.uniform(*self.lengths_s)
        super()._next_job(place)

    def second(self) -> None:
        """A second passes, in which each node is heard once and the allocator looks around."""
        self.pass_time(1.0)
        self.engine.on_tick(self.now)
        for host in self.nodes:
            self.hear(host)

    def seconds_until_it_starts(self, most: int) -> int | None:
        """Lets time pass until the large job has its place, at most so many seconds."""
        for second in range(most):
            self.second()
            if self.operation(LARGE).allocations:
                return second
        return None

    def hear(self, host: str, **changes: Any) -> Orders:
        """Notes which node is reserved, and what runs there then."""
        reservation = self.reservation
        before = None if reservation is None else reservation.node.record.node
        orders = super().hear(host, **changes)
        reservation = self.reservation
        if reservation is not None and reservation.node.record.node != before:
            there = self.places[reservation.node.record.node].values()
            last_s = max((place.ends_s for place in there if place.job is not None), default=self.now_s)
            self.chosen.append((reservation.node.record.node, self.now_s, last_s))
        return orders

    @property
    def reservation(self) -> Reservation | None:
        """The reservation for the large job."""
        return next(iter(self.facts.reservations.of.get(LARGE, {}).values()), None)

    def reserved_nodes(self) -> Sequence[Node]:
        """The nodes that are reserved."""
        return [node for node in self.facts.nodes.values() if node.reserved is not None]
