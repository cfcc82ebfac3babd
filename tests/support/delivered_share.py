"""What pools have of what they are owed, by the clock: real services, agents and processes, without any preemption."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import anyio
import msgspec

import headrace
from headrace.client import Client
from headrace.ids import ROOT_POOL, PoolName
from headrace.resources import ZERO, Resources
from headrace.runtime.clock import SystemClock
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.snapshots import UsageItem
from headrace_cli.demo.usage_watch import watch_usage
from tests.support.headrace_up import Up

__all__ = ["SHAPES", "SINGLE_S", "UNIT_S", "Delivered", "Shape", "Team", "delivered_shares"]

_TOLD_S = 0.25
#: Until the services know all operations.
_KNOWN_S = 20.0
#: Until teams that are late come.
_ALONE_S = 4.0


class Team(msgspec.Struct, frozen=True):
    """A pool with operations that are alike but for the lengths of their jobs."""

    pool: str
    operations: int
    #: Of each operation.
    jobs: int
    seconds: tuple[float, ...]
    settings: dict[str, object] = {}
    parent: str = ROOT_POOL
    cpu: tuple[float, ...] = (1.0,)
    gang: bool = False
    #: True: it comes when the others have had all nodes for a while.
    is_late: bool = False


class Shape(msgspec.Struct, frozen=True):
    """Pools that all want more than there is for a while."""

    teams: tuple[Team, ...]
    #: Pools above, from the top down, each with its parent.
    above: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ("alpha:cpu=4,memory=4G",)
    #: Of the tree, beside those that `headrace up` gives it.
    options: dict[str, object] = {}
    #: Seconds after the first usage that are not measured.
    start_up_s: float = 0.0


_SECONDS = (0.5, 1.0, 3.0, 1.5, 2.0)
_FAST: dict[str, object] = {"scheduling_tag_filter": "ssd"}
#: Length of the longest single job, and of the shortest unit of a pool that comes late, in seconds: in `whole_gangs` a unit is a gang, in
#: `guarantees_on_tagged_nodes` it is a job that needs a tagged node.
SINGLE_S = 1.0
UNIT_S = 4.0
_SINGLES_S = (SINGLE_S, SINGLE_S / 2)
_UNITS_S = (UNIT_S, UNIT_S + 1)


def _guaranteed(cores: int) -> dict[str, object]:
    return {"strong_guarantee_resources": {"cpu": cores}}


def _whole_nodes(*, operations: int, jobs: int) -> Shape:
    """Jobs that fit on a node only once everything else there has ended: the first of them waits for that."""
    return Shape(
        (
            Team("stream", 4, 400, (1.0, 0.5, 2.0, 1.5), {"weight": 2}),
            Team("whole", operations, jobs, (5.0,), cpu=(4.0,), is_late=True),
        ),
        nodes=("alpha:cpu=4,memory=4G", "beta:cpu=4,memory=4G", "gamma:cpu=4,memory=4G"),
        options={"fair_share_starvation_timeout": "1s"},
    )


def _whole_gangs(*, cores: int, jobs: int) -> Shape:
    """Gangs whose jobs need so many cores. The guarantees are all cores, and that of the pool with gangs is a whole number of gangs."""
    return Shape(
        (
            Team("left", 20, 30, _SINGLES_S, _guaranteed(6)),
            Team("right", 20, 30, _SINGLES_S, _guaranteed(6)),
            Team("gangs", 40, jobs, _UNITS_S, _guaranteed(6), cpu=(cores,), gang=True, is_late=True),
        ),
        nodes=("alpha:cpu=6,memory=4G", "beta:cpu=6,memory=4G", "gamma:cpu=6,memory=4G"),
        start_up_s=5.0,
    )


SHAPES = {
    "many_against_one": Shape(
        (
            Team("many", 60, 1, _SECONDS),
            Team("one", 1, 300, (2.0,), {"weight": 3, "strong_guarantee_resources": {"cpu": 12}}),
        ),
        nodes=("alpha:cpu=16,memory=4G",),
    ),
    "two_below_production": Shape(
        (
            Team("production", 2, 60, (1.0, 1.5), {"weight": 3}),
            Team("research", 60, 1, _SECONDS),
        )
    ),
    "three_levels": Shape(
        (
            Team("small-a", 40, 1, _SECONDS, parent="left-team"),
            Team("small-b", 40, 1, _SECONDS, parent="left-team"),
            Team("large", 1, 200, (1.0,), parent="right-team"),
        ),
        (("left", ROOT_POOL), ("right", ROOT_POOL), ("left-team", "left"), ("right-team", "right")),
        ("alpha:cpu=4,memory=4G", "beta:cpu=4,memory=4G"),
    ),
    "sizes": Shape(
        (
            Team("halves", 20, 6, _SECONDS, cpu=(0.5,)),
            Team("doubles", 10, 6, _SECONDS, {"weight": 2}, cpu=(2.0,)),
            Team("mixed", 20, 6, _SECONDS, cpu=(0.5, 1.0)),
        ),
        nodes=("alpha:cpu=4,memory=4G", "beta:cpu=4,memory=4G"),
    ),
    "tagged_nodes": Shape(
        (
            Team("promised", 1, 200, (1.0,), {**_FAST, "strong_guarantee_resources": {"cpu": 2}}),
            Team("fast", 40, 2, _SECONDS, _FAST),
            Team("anywhere", 40, 2, _SECONDS),
        ),
        nodes=("alpha:cpu=4,memory=4G", "beta:cpu=4,memory=4G,tag=ssd"),
    ),
    "gangs": Shape(
        (
            Team("together", 20, 4, (3.0, 4.0), gang=True),
            Team("alone", 40, 2, _SECONDS),
        ),
        nodes=("alpha:cpu=4,memory=4G", "beta:cpu=4,memory=4G"),
    ),
    "fifo": Shape(
        (
            Team("queue", 20, 4, (1.0, 0.5, 2.0), {"mode": "fifo"}),
            Team("fair", 40, 2, _SECONDS),
        )
    ),
    "whole_nodes": _whole_nodes(operations=1, jobs=30),
    "whole_nodes_of_many_operations": _whole_nodes(operations=10, jobs=3),
    "whole_gangs": _whole_gangs(cores=1, jobs=3),
    "gangs_of_wide_jobs": _whole_gangs(cores=2, jobs=3),
    # The guarantees are all cores. Those of the pools with a filter are 6 of 8 tagged cores, and the pool without a filter needs the rest.
    "guarantees_on_tagged_nodes": Shape(
        (
            Team("anywhere", 20, 30, _SINGLES_S, _guaranteed(6)),
            Team("fast", 40, 1, _UNITS_S, {**_FAST, **_guaranteed(3)}, is_late=True),
            Team("faster", 40, 1, _UNITS_S, {**_FAST, **_guaranteed(3)}, is_late=True),
        ),
        nodes=("alpha:cpu=4,memory=4G", "beta:cpu=4,memory=4G,tag=ssd", "gamma:cpu=4,memory=4G,tag=ssd"),
        start_up_s=5.0,
    ),
}


class Delivered(msgspec.Struct):
    """One pool over the time in which all wanted more."""

    #: Sums over that time of cores times seconds: owed, used, and the distance between both at each moment.
    owed: float = 0.0
    used: float = 0.0
    distance: float = 0.0

    @property
    def error(self) -> float:
        """The mean distance of usage from the fair share, as a part of that."""
        return self.distance / self.owed


class _Watch:
    """Adds up what the allocator publishes, as long as jobs of every pool wait."""

    def __init__(self, operations: Mapping[str, str], shape: Shape, clock: SystemClock) -> None:
        self._pool_of = operations
        self._clock = clock
        self._start_up_s = shape.start_up_s
        self._with_gangs = {team.pool for team in shape.teams if team.gang}
        #: Steady-clock seconds up to which usage is added up; None before the first usage.
        self._settled_s: float | None = None
        self._used: dict[str, float] = {}
        self.fair: dict[str, float] = {}
        self.pools = {pool: Delivered() for pool in operations.values()}
        self.over = anyio.Event()

    def settle(self) -> None:
        """Add up the time since the last call, in which usage was as last published."""
        now_s = self._clock.steady_s()
        if self._settled_s is None or now_s < self._settled_s:
            return
        if self.fair.keys() >= self.pools.keys():
            length_s = now_s - self._settled_s
            for pool, sums in self.pools.items():
                had, owed = self._used[pool], self.fair[pool]
                sums.owed += owed * length_s
                sums.used += had * length_s
                sums.distance += abs(had - owed) * length_s
        self._settled_s = now_s

    def on_usage(self, items: Mapping[str, UsageItem]) -> None:
        self.settle()
        used = dict.fromkeys(self.pools, 0.0)
        waiting: set[str] = set()
        for name, pool in self._pool_of.items():
            item = items.get(name)
            if item is not None:
                # Resources held for a gang that has not started are idle, so they are not delivered.
                held = ZERO if pool in self._with_gangs else item.precommit
                used[pool] += (item.usage.cpu + held.cpu) / 100
                waiting |= {pool} if item.pending_jobs else set()
        self._used = used
        if self._settled_s is None and any(used.values()):
            self._settled_s = self._clock.steady_s() + self._start_up_s
        if self._settled_s is not None and waiting != self.pools.keys():
            self.over.set()


async def delivered_shares(shape: Shape, window_s: float) -> dict[str, Delivered]:
    """Runs the shape from the start of its first job on, for so long or until some pool has nothing more to start."""
    with Up(nodes=shape.nodes) as up:
        async with headrace.connect(state=up.state) as client:
            await client.trees.set("default", {"pause_starts": True, "preemption": "off", **shape.options})
            operations = await _start(client, shape, late=False)
            if any(team.is_late for team in shape.teams):
                await client.trees.set("default", {"pause_starts": False})
                await anyio.sleep(_ALONE_S)
                operations |= await _start(client, shape, late=True)
            await _known(client, shape)
            clock = SystemClock()
            watch = _Watch(operations, shape, clock)
            async with watch_usage(up.state, clock, watch.on_usage):
                await client.trees.set("default", {"pause_starts": False})
                with anyio.move_on_after(window_s):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(_tell_fair_shares, client, watch)
                        await watch.over.wait()
                        tasks.cancel_scope.cancel()
    return watch.pools


async def _start(client: Client, shape: Shape, *, late: bool) -> dict[str, str]:
    """Makes the pools and starts all operations of teams that come now, whose ids it answers with their pools."""
    for pool, parent in () if late else shape.above:
        await client.pools.create(pool, parent=parent)
    operations: dict[str, str] = {}
    for team in [team for team in shape.teams if team.is_late is late]:
        await client.pools.create(team.pool, parent=team.parent, attributes=team.settings)
        for _, seconds, cpu in zip(range(team.operations), cycle(team.seconds), cycle(team.cpu), strict=False):
            spec = OperationSpec(
                PoolName(team.pool),
                ["sleep", str(seconds)],
                team.jobs,
                Resources(user_slots=1, cpu=round(cpu * 100)),
                working_directory="/",
                is_gang=team.gang,
            )
            operations[(await client.start(spec)).id] = team.pool
    return operations


async def _known(client: Client, shape: Shape) -> None:
    """Waits until every pool is owed something."""
    with anyio.fail_after(_KNOWN_S):
        while True:
            fair = await _fair_shares(client)
            if all(fair.get(team.pool, 0.0) > 0 for team in shape.teams):
                return
            await anyio.sleep(_TOLD_S)


async def _tell_fair_shares(client: Client, watch: _Watch) -> None:
    while True:
        fair = await _fair_shares(client)
        watch.settle()
        watch.fair = fair
        await anyio.sleep(_TOLD_S)


async def _fair_shares(client: Client) -> dict[str, float]:
    answer = await client.pools.list()
    return {pool.name: pool.fair_resources.cpu / 100 for pool in answer.pools}
