"""What a heartbeat costs at 10,000 operations and 10,000 nodes with twenty running allocations each, and at a hundredth of that."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from typing import Any, Final

import msgspec
import numpy as np

from headrace.ids import ROOT_POOL, AllocationId, Incarnation, NodeName, OperationId, PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.tree_options import TreeOptions
from headrace.resources import Resources
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    Heartbeat,
    HeartbeatReason,
    JobEnd,
    JobResult,
    Orders,
    RunningJob,
    Start,
)
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import JobsEnded, LoggedEnd
from headrace.wire.snapshots import ElementKind, PreemptionPriority, ShareItem
from tests.bench.registry import REGISTRY, Figure
from tests.support.allocating import TERM, TREE, Desk, a_share, an_operation, cores

FEW, MANY = 100, 10_000
#: Heartbeats that are measured, each of another node where there are as many. Half of them find the caches of the core cold.
_MEASURED: Final = 300
_ROUNDS: Final = 3
#: More than the caches of a core hold.
_OTHER_WORK: Final = np.zeros(48 * 2**20 // 8)
_PLACES: Final = 20
_FULL, _HALF_FREE = cores(_PLACES, slots=_PLACES), cores(2 * _PLACES, slots=200)
_OPTIONS: Final = EffectiveOptions(use_pool_satisfaction_for_scheduling=True)


class Taken(msgspec.Struct, frozen=True):
    """What heartbeats took, in microseconds.

    A hundred nodes stay in the caches of a core when nothing else runs, 10,000 do not. A service does other work between two
    heartbeats, so that growth compares those that found the caches cold at both sizes.
    """

    warm: list[float]
    cold: list[float]


class Fleet(Desk):
    """Nodes full of allocations of some operations, beside as many operations that wait.

    There are ten operations in each pool, and ten pools in each pool above.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        #: True if other work comes before each heartbeat.
        self.cold = False
        super().__init__({f"n{number}": _FULL for number in range(count)})
        self.engine.check = list  # type: ignore[method-assign]  # checking everything is no part of a heartbeat
        self.working = [
            in_pool(an_operation(f"works-{number}", 1000, small(number)), number) for number in range(count)
        ]
        self.shown: dict[str, list[Start]] = {node: [] for node in self.nodes}
        self.taken: dict[str, set[AllocationId]] = {node: set() for node in self.nodes}
        self.only(self.working)
        # All nodes are known before the first start, so that each operation gets twenty places.
        self.engine.on_options(TreeOptions(pause_starts=True), self.now)
        for node in self.nodes:
            self.show(node)
        self.refresh()
        self.engine.on_options(TreeOptions(), self.now)
        for node in self.nodes:
            self.show(node)
            self.show(node)
        assert {len(starts) for starts in self.shown.values()} == {_PLACES}

    def only(
        self,
        demanding: list[LiveOperation],
        limit: PartialResources = NOTHING,
        starving: Collection[OperationId] = (),
    ) -> None:
        """From now on these operations alone want more, and some of them starve; the lowest pools have this limit."""
        names = {each.operation for each in demanding}
        others = [msgspec.structs.replace(each, suspended=each.operation not in names) for each in self.working]
        operations = [*others, *(each for each in demanding if each not in self.working)]
        self.engine.on_operations(operations, self.now)
        items = [
            msgspec.structs.replace(
                a_share(each.operation, 0.5 / self.count),
                parent=each.spec.pool,
                preemption_priority=(PreemptionPriority.NONE, PreemptionPriority.NORMAL)[each.operation in starving],
            )
            for each in operations
        ]
        pools = [
            a_pool(f"pool-{number}", f"above-{number // 10}", 10 / self.count, limit)
            for number in range(self.count // 10)
        ]
        above = [a_pool(f"above-{number}", ROOT_POOL, 100 / self.count) for number in range(self.count // 100)]
        self.tell([*above, *pools, *items], total=_FULL * self.count)

    def free_half(self, *, free: bool) -> None:
        """Half of each node is free from now on, or none of it."""
        for node in self.nodes:
            self.nodes[node] = _HALF_FREE if free else _FULL
            self.show(node)
        self.refresh()

    def heartbeat(self, node: str, ended: int | None = None) -> Heartbeat:
        """The heartbeat of a node on which all goes on, but for one allocation that ended and those that were taken back."""
        self.seq[node] += 1
        reports, ends = [], []
        for place, start in enumerate(self.shown[node]):
            slot = start.slots[0]
            if place == ended or start.allocation in self.taken[node]:
                reports.append(
                    AllocationReport(start.allocation, start.operation, AllocationState.ENDED, start.resources)
                )
                ends.append(an_end(start))
            else:
                job = RunningJob(slot.index, slot.attempt, 1, 10 * self.seq[node])
                reports.append(
                    AllocationReport(start.allocation, start.operation, AllocationState.RUNNING, start.resources, job)
                )
        return Heartbeat(
            NodeName(node), TREE, Incarnation("life-1"), self.seq[node], self.seq[node] - 1, TERM,
            HeartbeatReason.PERIOD, total=self.nodes[node], allocations=reports, ends=ends,
        )  # fmt: skip

    def show(self, node: str, ended: int | None = None) -> tuple[Orders, float]:
        """Sends the heartbeat of a node. The answer, and the microseconds that it took."""
        heartbeat = self.heartbeat(node, ended)
        over = {one.allocation for one in heartbeat.ends}
        if self.cold:
            _OTHER_WORK.__iadd__(1)
        begun = time.perf_counter()
        orders = self.engine.on_heartbeat(heartbeat, self.now).answer
        taken_us = (time.perf_counter() - begun) * 1e6
        assert orders is not None
        self.shown[node] = [one for one in self.shown[node] if one.allocation not in over] + orders.start
        self.taken[node] = {order.allocation for order in orders.take_back}
        return orders, taken_us

    def measured(self, most: int = _MEASURED, beginning: int = 0) -> Iterator[str]:
        """The nodes whose heartbeats are measured, after a few that do not count. Those before the beginning are left out."""
        names = list(self.nodes)[beginning:]
        step = max(1, len(names) // most)
        for node in names[::step][:20]:
            self.show(node)
        gc.collect()
        gc.freeze()
        for number in range(most):
            self.cold = number >= most // 2
            yield names[number * step % len(names)]
        self.cold = False
        gc.unfreeze()


def in_pool(live: LiveOperation, number: int, **spec: Any) -> LiveOperation:
    return msgspec.structs.replace(
        live, spec=msgspec.structs.replace(live.spec, pool=PoolName(f"pool-{number // 10}"), **spec)
    )


def a_pool(name: str, parent: str, cpu: float, limit: PartialResources = NOTHING) -> ShareItem:
    share = a_share(name, cpu)
    item = ShareItem(ElementKind.POOL, name, PoolName(parent), share.fair_share, demand_share=share.demand_share)
    return msgspec.structs.replace(item, options=_OPTIONS, limits=limit)


def _taken(each: list[float]) -> Taken:
    half = len(each) // 2
    return Taken(each[:half], each[half:])


def _running(start: Start) -> AllocationReport:
    job = RunningJob(start.slots[0].index, start.slots[0].attempt, 1, 10)
    return AllocationReport(start.allocation, start.operation, AllocationState.RUNNING, start.resources, job)


def an_end(start: Start) -> JobEnd:
    slot = start.slots[0]
    return JobEnd(
        start.operation, slot.index, slot.attempt, start.allocation, JobResult.COMPLETED,
        started_at_ms=1000, ended_at_ms=601_000,
    )  # fmt: skip


def small(number: int) -> Resources:
    """Sixteen sizes of the jobs that run."""
    return cores(0.85 + number % 16 * 0.01)


@cache
def fleet(count: int) -> Fleet:
    return Fleet(count)


def idle_us(count: int) -> Taken:
    """Of heartbeats with nothing new, of full nodes, while every operation wants more."""
    desk = fleet(count)
    desk.only(desk.working)
    return _taken([desk.show(node)[1] for node in desk.measured()])


def start_us(count: int) -> Taken:
    """Of heartbeats in which one allocation ended and one starts in its place."""
    desk = fleet(count)
    desk.only(desk.working)
    taken = []
    for node in desk.measured():
        orders, taken_us = desk.show(node, ended=0)
        assert len(orders.start) == 1
        taken.append(taken_us)
        desk.show(node)
    return _taken(taken)


def preemptive_us(count: int) -> Taken:
    """Of heartbeats of full nodes on which one of many starving operations starts a job in the place of another's."""
    desk = fleet(count)
    starving = [
        in_pool(an_operation(f"starves-{number}", 1000, small(number)), number) for number in range(0, count, 10)
    ]
    desk.only([*desk.working, *starving], starving={each.operation for each in starving})
    taken = []
    # The allocation that started last is above the share of its operation, and may be preempted.
    for node in desk.measured(100, count * 3 // 4):
        # As if the pause between two preemptive stages on it were over. Were the time to pass, all other nodes would fall silent.
        desk.facts.nodes[NodeName(node)].preemptive_stages_s = None
        orders, taken_us = desk.show(node)
        assert len(orders.start) == len(orders.take_back) == 1
        taken.append(taken_us)
        desk.show(node)
    # Other operations get the places of those that starved.
    desk.only(desk.working)
    for node in desk.nodes:
        desk.show(node)
        desk.show(node)
    return _taken(taken)


#: By case: the size of the jobs of an operation, more of its wishes, and the limit of its pool in hundredths of a core.
UNFIT: Final[dict[str, tuple[Callable[[int], Resources], Callable[[int], dict[str, Any]], PartialResources]]] = {
    "sixteen sizes": (lambda number: cores(_PLACES + 6 + number % 16), lambda _: {}, NOTHING),
    "10,000 sizes": (
        lambda number: Resources(1, _PLACES * 100 + 600 + number, 0, (number * 7919) % 10_000 * 2**20),
        lambda _: {},
        NOTHING,
    ),
    "two tag filters": (small, lambda number: {"scheduling_tag_filter": ("ssd", "fast & !old")[number % 2]}, NOTHING),
    "every pool at its limit": (small, lambda _: {}, PartialResources(cpu=0)),
}


def unfit_us(count: int, case: str) -> Taken:
    """Of heartbeats of nodes with half their cpu free, where none of the operations that want more has a job that fits."""
    desk = fleet(count)
    size, spec, limit = UNFIT[case]
    desk.only([])
    desk.free_half(free=True)
    desk.only(
        [
            in_pool(an_operation(f"waits-{number}", 1000, size(number)), number, **spec(number))
            for number in range(count)
        ],
        limit,
    )
    taken = []
    for node in desk.measured():
        orders, taken_us = desk.show(node)
        assert not orders.start
        taken.append(taken_us)
    desk.only([])
    desk.free_half(free=False)
    return _taken(taken)


_UNFIT_US: Final[list[Callable[[int], Taken]]] = [partial(unfit_us, case=case) for case in UNFIT]


@cache
def _once(measure: Callable[[int], Taken]) -> list[float]:
    return measure(MANY).warm


def _growth(measure: Callable[[int], Taken]) -> list[float]:
    """The ratios of some rounds. Large and small are measured in turn, so that a slow minute of the machine hits both."""
    each = [(measure(FEW).cold, measure(MANY).cold) for _ in range(_ROUNDS)]
    return [statistics.median(many) / statistics.median(few) for few, many in each]


@REGISTRY.add("heartbeat_idle_us", "a heartbeat with nothing new of a full node, 10,000 operations and nodes", 60)
def heartbeat_idle() -> Figure:
    return Figure.of(_once(idle_us), "us")


@REGISTRY.add(
    "heartbeat_start_us", "one in which an allocation ended and another starts, 10,000 operations and nodes", 200
)
def heartbeat_start() -> Figure:
    return Figure.of(_once(start_us), "us")


@REGISTRY.add(
    "heartbeat_preemptive_us",
    "one of a full node on which a starving operation gets the place of another, 10,000 operations and nodes",
    600,
)
def heartbeat_preemptive() -> Figure:
    return Figure.of(_once(preemptive_us), "us")


@REGISTRY.add(
    "heartbeat_unfit_us",
    "one of a half-free node where no job fits: sixteen sizes, 10,000, filters, full pools; the worst",
    400,
)
def heartbeat_unfit() -> Figure:
    return Figure.of(max(map(_once, _UNFIT_US), key=statistics.median), "us")


@REGISTRY.add(
    "heartbeat_growth",
    "the worst ratio of these at 10,000 operations and nodes over those at 100, each with cold caches, of three rounds",
    1.3,
)
def heartbeat_growth() -> Figure:
    measures = [idle_us, start_us, preemptive_us, *_UNFIT_US]
    return Figure.of(max(map(_growth, measures), key=statistics.median), "times")


@REGISTRY.add(
    "limit_full_ms", "the heartbeat by which a limited pool of 10,000 operations becomes full, and the next", 20
)
def limit_full() -> Figure:
    taken = []
    for _ in range(5):
        desk = Desk({"n": cores(2 * _PLACES, slots=200)})
        desk.engine.check = list  # type: ignore[method-assign]
        names = [f"operation-{number}" for number in range(MANY)]
        desk.engine.on_operations(
            [an_operation(name, 10, small(number)) for number, name in enumerate(names)], desk.now
        )
        pool = a_pool("p", ROOT_POOL, 1.0, PartialResources(cpu=_PLACES * 100))
        desk.tell([pool, *(a_share(name, 1 / MANY) for name in names)], total=cores(_PLACES, slots=200))
        # The node and its room are known before the first start.
        desk.engine.on_options(TreeOptions(pause_starts=True), desk.now)
        desk.beat("n")
        desk.refresh()
        desk.engine.on_options(TreeOptions(), desk.now)
        begun = time.perf_counter()
        started = desk.beat("n")[0].start
        desk.refresh()
        assert not desk.beat("n", obeyed=True, allocations=[_running(start) for start in started])[0].start
        taken.append((time.perf_counter() - begun) * 1e3)
    return Figure.of(taken, "ms")


@REGISTRY.add("jobs_ended_ms", "the log tells of an end while 10,000 nodes are full", 1)
def jobs_ended() -> Figure:
    desk = fleet(MANY)
    desk.only(desk.working)
    taken = []
    for node in desk.measured():
        start = desk.shown[node][0]
        event = JobsEnded(start.operation, [LoggedEnd(an_end(start), NodeName(node))], at_ms=1)
        begun = time.perf_counter()
        desk.engine.on_events([event], desk.now)
        taken.append((time.perf_counter() - begun) * 1e3)
    return Figure.of(taken, "ms")
