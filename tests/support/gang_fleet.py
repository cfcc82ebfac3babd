"""Hosts full of gangs and others, with the real allocator and the real fair share in simulated time; every host speaks once a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import TREE_ATTRIBUTES, Pool, TreeOptions
from headrace.pools.amounts import PartialResources
from headrace.pools.new_tree import NEW_TREE_OPTIONS
from headrace.resources import Resources
from headrace.wire.heartbeat import JobResult
from headrace.wire.preemption import PreemptionRecord
from tests.support.allocating import an_operation, cores, with_task_sizes
from tests.support.preempting import Fleet

__all__ = ["THREE_HOSTS", "GangFleet", "gangs_that_take_turns", "new_tree"]

THREE_HOSTS: Final = {name: cores(4, slots=100) for name in ("n0", "n1", "n2")}
#: Short, so that tests are.
_SOON: Final[Mapping[str, Any]] = {"fair_share_starvation_timeout": 3_000, "preemptive_scheduling_backoff": 1_000}


def new_tree(**changes: object) -> TreeOptions:
    """The options of a tree that Headrace makes, with timeouts of seconds."""
    options: TreeOptions = TREE_ATTRIBUTES.changed(TreeOptions(), dict(NEW_TREE_OPTIONS)).value
    return msgspec.structs.replace(options, **{**_SOON, **changes})


def gangs_that_take_turns(options: Mapping[str, object], seconds: int) -> GangFleet:
    """Two gangs of eight in twelve places, each of which is owed six. Their jobs take 12 s. Such options and time."""
    pools = [Pool(PoolName(name), ROOT_POOL) for name in ("left", "right")]
    of_tree = TREE_ATTRIBUTES.changed(
        TreeOptions(**_SOON, min_spare_allocation_resources_on_node=PartialResources(user_slots=1)), dict(options)
    ).value
    fleet = GangFleet(Random(1), THREE_HOSTS, pools, of_tree)
    for pool in ("left", "right"):
        fleet.run_gang(f"{pool}-gang", pool, 8, 12.0, cores(1))
    for _ in range(seconds):
        fleet.second()
    return fleet


class GangFleet(Fleet):
    """Counts what completes, what is preempted, and for whom."""

    def __init__(
        self, random: Random, hosts: dict[str, Resources], pools: Sequence[Pool], options: TreeOptions
    ) -> None:
        super().__init__(random, hosts, pools, options)
        self.completed: dict[OperationId, int] = {}
        #: Of these, the jobs of gangs.
        self.completed_in_gang: dict[OperationId, int] = {}
        #: Every preemption that was ordered, by allocation, with the operation that lost it.
        self.taken: dict[str, tuple[OperationId, PreemptionRecord]] = {}
        #: The part of all answers that is lost.
        self.loses = 0.0

    def run_gang(self, name: str, pool: str, jobs: int, seconds: float, size: Resources, **spec: Any) -> None:
        """A gang begins."""
        self._run(name, pool, jobs, seconds, size, is_gang=True, **spec)

    def run_gang_of_tasks(self, name: str, pool: str, seconds: float, *tasks: tuple[int, Resources]) -> None:
        """A gang begins, whose tasks have these numbers and sizes of jobs."""
        self._run(name, pool, 1, seconds, cores(1), tasks, is_gang=True)

    def run_beside(
        self, name: str, pool: str, seconds: float, gang: tuple[int, Resources], *others: tuple[int, Resources]
    ) -> None:
        """An operation begins whose first task is a gang. The jobs of its other tasks start one by one."""
        self._run(name, pool, 1, seconds, cores(1), (gang, *others), of_gang=(0,))

    def run(self, name: str, pool: str, jobs: int, seconds: float, size: Resources) -> None:
        """An operation begins that is no gang."""
        self._run(name, pool, jobs, seconds, size, is_gang=False)

    def _run(
        self,
        name: str,
        pool: str,
        jobs: int,
        seconds: float,
        size: Resources,
        tasks: Sequence[tuple[int, Resources]] = (),
        of_gang: Sequence[int] = (),
        **spec: Any,
    ) -> None:
        live = an_operation(name, jobs, size)
        live = with_task_sizes(live, *tasks, of_gang=of_gang) if tasks else live
        replaced = msgspec.structs.replace(live.spec, pool=PoolName(pool), **spec)
        self.begin(msgspec.structs.replace(live, spec=replaced, started_at_ms=int(self.now_s * 1000)), seconds)

    def second(self) -> None:
        """A second passes, in which every host speaks."""
        self.pass_time(1.0)
        self.engine.on_tick(self.now)
        for host in self.nodes:
            self._hear(host)

    def is_told_again(self, record: PreemptionRecord) -> bool:
        """Room for a gang is taken on many nodes at once."""
        return record.beneficiary in self.live and self.live[record.beneficiary].spec.has_gang

    def running(self, operation: str) -> int:
        """Its jobs that run."""
        return len(self.indexes(operation))

    def in_gang(self, operation: str) -> int:
        """The jobs of its gang that run."""
        return sum(map(self.live[OperationId(operation)].spec.is_of_gang, self.indexes(operation)))

    def indexes(self, operation: str) -> list[int]:
        """The indexes of its jobs that run."""
        there = (one for there in self.places.values() for one in there.values() if one.operation == operation)
        return sorted(one.job.index for one in there if one.job is not None)

    def is_done(self, operation: str) -> bool:
        """True if all of its jobs completed."""
        return self.completed.get(OperationId(operation), 0) == self.live[OperationId(operation)].spec.job_count

    def _hear(self, host: str) -> None:
        before = dict(self.ends[host])
        answered = self.random.random() >= self.loses
        orders = self.hear(host, answered=answered)
        for key in before.keys() - self.ends[host].keys():
            if before[key].result is JobResult.COMPLETED:
                name, index = before[key].operation, before[key].index
                self.completed[name] = self.completed.get(name, 0) + 1
                of_gang = self.live[name].spec.is_of_gang(index)
                self.completed_in_gang[name] = self.completed_in_gang.get(name, 0) + of_gang
        for order in orders.take_back:
            if order.preemption is not None and order.allocation in self.places[host]:
                self.taken[order.allocation] = (self.places[host][order.allocation].operation, order.preemption)
