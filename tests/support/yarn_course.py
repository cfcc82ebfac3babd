"""One host under YARN's policy or another, with the real allocator and the real fair share: who loses places, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from headrace.ids import PoolName
from headrace.resources import Resources
from headrace.wire.heartbeat import TakeBack
from tests.support.allocating import an_operation
from tests.support.preempting import Fleet
from tests.support.small_trees import a_tree

__all__ = ["GIB", "Comer", "Course", "Second", "course"]

GIB = 2**30


class Comer(msgspec.Struct, frozen=True):
    """An operation that comes at a moment, of jobs of one core and one GiB that do not end."""

    name: str
    pool: str
    jobs: int
    at_s: int = 0
    spec: dict[str, Any] = {}


class Second(msgspec.Struct, frozen=True):
    """How many jobs of each operation run at the end of a second, and how many of them were told to end."""

    running: Counter[str]
    told: Counter[str]
    #: By the older policy: told to nobody yet.
    warned: int


class Course(msgspec.Struct):
    """What happened: seconds since the beginning, the operation that lost a place, and the order."""

    fleet: Fleet
    taken: list[tuple[int, str, TakeBack]] = []
    seconds: list[Second] = []

    @property
    def losers(self) -> list[tuple[int, str]]:
        return [(at_s, name) for at_s, name, _ in self.taken]


def course(
    pools: Mapping[str, Mapping[str, Any]],
    comers: Sequence[Comer],
    options: Mapping[str, Any] | None = None,
    *,
    seconds: int = 60,
    cores: int = 12,
    saves_s: float | None = None,
) -> Course:
    """Lets time pass, a heartbeat each second. Timeouts of starvation are 0 unless given.

    Jobs that are told to end take `saves_s`, or any time that they have.
    """
    given = {
        "preemption_policy": "yarn",
        "yarn/enabled": True,
        "fair_share_starvation_timeout": 0,
        "fair_share_starvation_tolerance": 1,
        "min_spare_allocation_resources_on_node": {"user_slots": 1},
    }
    tree = a_tree(pools, given | dict(options or {}))
    fleet = Fleet(Random(1), {"n": Resources(99, cores * 100, 0, cores * GIB)}, tree.pools, tree.options)
    fleet.saves_s = saves_s
    made = Course(fleet)
    for second in range(seconds):
        for each in comers:
            if each.at_s == second:
                live = an_operation(each.name, each.jobs, Resources(1, 100, 0, GIB))
                spec = msgspec.structs.replace(live.spec, pool=PoolName(each.pool), **each.spec)
                fleet.begin(msgspec.structs.replace(live, spec=spec, started_at_ms=second * 1000), 1e6)
        fleet.pass_time(1.0)
        owner = {place.id: place.operation for place in fleet.places["n"].values() if place.preemption is None}
        for order in fleet.hear("n").take_back:
            if order.allocation in owner:
                made.taken.append((second, owner[order.allocation], order))
        running = [place for place in fleet.places["n"].values() if place.job is not None]
        told = Counter[str](place.operation for place in running if place.interrupted)
        warned = fleet.engine.yarn.rounds.warned
        made.seconds.append(Second(Counter[str](place.operation for place in running), told, warned))
        fleet.check_sums()
    return made
