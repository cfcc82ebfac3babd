"""How long a pool that comes back is without its guarantee, with the real allocator and the real fair share in simulated time.

`research` has every core of all hosts when `production` comes. Its clock begins with the first update that finds it short, and it starves
with the first that finds the clock beyond the timeout. From then on each host starts one job of it whenever its preemptive stages run.
So it has its guarantee within timeout + update + k looks at each host, where k jobs must start on the same host. With k = 1 that is one
period. Jobs end as soon as they are told, and a look is a heartbeat on which the stages run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

import msgspec
import pytest

from headrace.ids import ROOT_POOL, NodeName, OperationId, PoolName
from headrace.pools import Pool, PoolConfig, TreeOptions
from headrace.pools.amounts import PartialResources
from headrace.resources import EPS
from headrace.wire.snapshots import StarvationStatus
from headrace_allocator.facts.preemption_groups import Group
from tests.support.allocating import an_operation, cores
from tests.support.effort import seeds
from tests.support.preempting import Fleet

pytestmark = pytest.mark.long

RESEARCH, PRODUCTION = OperationId("train"), OperationId("serve")
CORES: Final = 4
TIMEOUT_S: Final = 2.0
#: Of `fair_share_starvation_tolerance`.
TOLERANCE: Final = 0.8
#: Moments are multiples of this, so that sums of them are exact.
_GRAIN_S: Final = 1 / 64
_FOR_EVER_S: Final = 1e6


class Course(msgspec.Struct):
    """What happened from the return on."""

    #: The first update that found the pool short, and the first that found it starving.
    short_s: float = 0.0
    starving_s: float = 0.0
    #: By host: places that may be taken when it begins to starve.
    preemptible: list[int] = []
    #: The moments of its starts.
    starts_s: list[float] = []

    def looks(self, jobs: int) -> int:
        """The least number of looks at each host that so many jobs need, one for each job that must start on the same."""
        return next(k for k in range(1, jobs + 1) if sum(min(k, places) for places in self.preemptible) >= jobs)


class ReturnFleet(Fleet):
    """Hosts of four cores that speak at moments of their own, and updates, each in its period."""

    def __init__(
        self,
        random: Random,
        hosts: int,
        guarantee: int,
        *,
        update_s: float,
        heartbeat_s: float,
        backoff_s: float = 0.0,
        spread: bool = False,
        **of_production: Any,
    ) -> None:
        options = TreeOptions(
            fair_share_starvation_timeout=int(TIMEOUT_S * 1000),
            preemptive_scheduling_backoff=int(backoff_s * 1000),
            min_spare_allocation_resources_on_node=PartialResources(user_slots=1),
        )
        strong = PartialResources(cpu=guarantee * 100)
        # Its weight brings it nothing beside its guarantee.
        production = PoolConfig(weight=0.001, strong_guarantee_resources=strong, **of_production)
        pools = [Pool(PoolName("research"), ROOT_POOL), Pool(PoolName("production"), ROOT_POOL, production)]
        names = [f"n{number}" for number in range(hosts)]
        super().__init__(random, dict.fromkeys(names, cores(CORES, slots=2 * CORES)), pools, options)
        self.saves_s = 0.0
        if spread:
            # One start on a heartbeat, so that the jobs of each host begin in turn.
            self.facts.timing = msgspec.structs.replace(self.facts.timing, most_starts=1)
        self.update_s, self.heartbeat_s = update_s, heartbeat_s
        #: Stages run on a host once more than the pause is over, and only when it speaks.
        self.look_s = heartbeat_s * (backoff_s // heartbeat_s + 1)
        self._due: list[tuple[float, int, str]] = []

    def fill(self) -> None:
        """`research` takes every core: host by host in any order, or one on each in turn where it is to be spread."""
        self._work(RESEARCH, "research", CORES * len(self.nodes))
        self.update_shares()
        order = self.random.sample(list(self.nodes), len(self.nodes))
        for _ in range(CORES + 1):
            for host in order:
                self.hear(host)
                self.now_s += 1.0
        assert self.running(RESEARCH) == CORES * len(self.nodes)

    def come_back(self, wanted: int) -> None:
        """`production` has work for so many cores."""
        self._work(PRODUCTION, "production", wanted)

    def schedule(self, phases: list[float], *, update_phase: float) -> None:
        """From now on each host and the update come in their periods, first after their phase. Of one moment the hosts come first."""
        heappush(self._due, (self.now_s + update_phase, 1, ""))
        for host, phase in zip(self.nodes, phases, strict=True):
            heappush(self._due, (self.now_s + phase, 0, host))

    def happen(self) -> Iterator[str]:
        """Everything that comes, one after the other: the host that spoke, or the empty name for an update."""
        while True:
            self.now_s, number, host = heappop(self._due)
            period_s = self.heartbeat_s if host else self.update_s
            heappush(self._due, (self.now_s + period_s, number, host))
            if host:
                self.hear(host)
            else:
                self.update_shares()
            yield host

    def running(self, operation: OperationId) -> int:
        """Jobs that truly run."""
        places = (place for there in self.places.values() for place in there.values())
        return sum(place.operation == operation and place.job is not None for place in places)

    def starves(self) -> bool:
        item = self.operation(PRODUCTION).share
        return item is not None and item.starvation_status is not StarvationStatus.NON_STARVING

    def preemptible(self) -> list[int]:
        """By host: allocations of `research` beyond its fair share."""
        groups = self.operation(RESEARCH).cut_groups(self.facts.pools)
        allocations = [[*self.facts.nodes[NodeName(host)].allocations.values()] for host in self.nodes]
        return [sum(groups.group(one) is Group.PREEMPTIBLE for one in there) for there in allocations]

    def _work(self, name: OperationId, pool: str, jobs: int) -> None:
        live = an_operation(name, jobs)
        spec = msgspec.structs.replace(live.spec, pool=PoolName(pool))
        self.begin(msgspec.structs.replace(live, spec=spec), _FOR_EVER_S)


def course_of(fleet: ReturnFleet, seconds: float) -> Course:
    """`production` is back, and so much time passes."""
    until_s, course = fleet.now_s + seconds, Course()
    for host in fleet.happen():
        if fleet.now_s > until_s:
            return course
        if not host and not course.short_s:
            course.short_s = fleet.now_s
        if not course.starving_s and fleet.starves():
            course.starving_s, course.preemptible = fleet.now_s, fleet.preemptible()
        course.starts_s += [fleet.now_s] * (fleet.running(PRODUCTION) - len(course.starts_s))
    raise AssertionError


def check_bound(course: Course, fleet: ReturnFleet, jobs: int) -> None:
    """So many jobs have started, the last of them neither later nor sooner than the rules let it."""
    assert course.short_s + TIMEOUT_S < course.starving_s <= course.short_s + TIMEOUT_S + fleet.update_s
    assert len(course.starts_s) >= jobs
    looks, reached_s = course.looks(jobs), course.starts_s[jobs - 1]
    assert reached_s <= course.short_s + TIMEOUT_S + fleet.update_s + looks * fleet.look_s
    assert course.starving_s + (looks - 1) * fleet.look_s <= reached_s <= course.starving_s + looks * fleet.look_s


@pytest.mark.parametrize(("spread", "looks"), [(True, 1), (False, CORES)])
@pytest.mark.parametrize(("phase_s", "late_s"), [(0.5, 1.0), (0.5 + _GRAIN_S, _GRAIN_S)])
def test_where_each_host_gives_one_place_it_takes_one_look_and_else_one_for_each_place_of_a_host(
    spread: bool, looks: int, phase_s: float, late_s: float
) -> None:
    """The latest and the soonest that it may be: hosts speak right before the update that finds it starving, or right behind it."""
    fleet = ReturnFleet(Random(1), CORES, CORES, update_s=0.5, heartbeat_s=1.0, spread=spread)
    fleet.fill()
    fleet.schedule([phase_s] * CORES, update_phase=0.0)

    fleet.come_back(CORES)
    course = course_of(fleet, 20.0)

    check_bound(course, fleet, CORES)
    assert course.looks(CORES) == looks
    # The timeout is over with the update at which the clock shows more than that.
    assert course.starving_s == course.short_s + TIMEOUT_S + fleet.update_s
    assert course.starts_s[CORES - 1] - course.starving_s == looks - 1 + late_s


@pytest.mark.parametrize("seed", seeds(15, 300))
def test_a_pool_that_wants_more_than_it_is_owed_is_helped_up_to_the_tolerance_and_for_its_guarantee_up_to_that(
    seed: int,
) -> None:
    random = Random(seed)
    hosts = random.randint(2, 5)
    guarantee = random.randint(3, CORES * hosts - 1)
    own_clock = random.random() < 0.5
    clock = {"min_share_preemption_timeout": int(TIMEOUT_S * 1000)} if own_clock else {}
    fleet = a_random_fleet(random, hosts, guarantee, **clock)

    fleet.come_back(CORES * hosts)
    course = course_of(fleet, TIMEOUT_S + 2 * fleet.update_s + (CORES + 2) * fleet.look_s)

    helped_to = guarantee if own_clock else math.ceil(TOLERANCE * guarantee - EPS)
    check_bound(course, fleet, helped_to)
    assert helped_to <= fleet.running(PRODUCTION) == sum(fleet.preempted.values()) <= guarantee


@pytest.mark.parametrize("seed", seeds(25, 600))
def test_a_pool_that_returns_has_its_guarantee_within_timeout_update_and_one_look_for_each_job_on_a_host(
    seed: int,
) -> None:
    random = Random(seed)
    hosts = random.randint(1, 5)
    guarantee = random.randint(1, CORES * hosts)
    fleet = a_random_fleet(random, hosts, guarantee)

    fleet.come_back(guarantee)
    course = course_of(fleet, TIMEOUT_S + 2 * fleet.update_s + (CORES + 2) * fleet.look_s)

    check_bound(course, fleet, guarantee)
    # Nobody gives up more than that.
    assert fleet.running(PRODUCTION) == sum(fleet.preempted.values()) == guarantee


def a_random_fleet(random: Random, hosts: int, guarantee: int, **of_production: Any) -> ReturnFleet:
    """Full hosts that speak at any moments, often at that of an update, and rest from preemptive stages for long or not at all."""
    heartbeat_s = random.choice([0.5, 1.0])
    backoff_s = random.choice([0.0, 0.75, 1.0, 2.5])
    fleet = ReturnFleet(
        random,
        hosts,
        guarantee,
        update_s=random.choice([0.25, 0.5, 1.0]),
        heartbeat_s=heartbeat_s,
        backoff_s=backoff_s,
        **of_production,
    )
    fleet.fill()
    phases = [random.randrange(4) * heartbeat_s / 4 for _ in range(hosts)]
    fleet.schedule(phases, update_phase=random.choice([0.0, fleet.update_s / 4, fleet.update_s]))
    return fleet
