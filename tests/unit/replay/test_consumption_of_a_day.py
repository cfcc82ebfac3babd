"""Over a replayed day, the consumption of all persons in a pool is the integral of the pool's usage."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from headrace.resources import RESOURCE_NAMES
from headrace.wire.consumption import RunSums
from headrace.wire.heartbeat import JobResult
from headrace_admission.consumption.facts import DAY_MS
from headrace_simulator.recording import Recording
from headrace_simulator.results import Counted, ReplayAccount, Stretches, hours
from headrace_simulator.world import World
from tests.support.recorded_day import NOON_MS, Day, a_tree

#: The next midnight (UTC), in seconds after the noon of recorded days.
MIDNIGHT_S = (-NOON_MS % DAY_MS) // 1000


def a_day(seed: int) -> Day:
    """Three persons start more in three pools than four cores can run, across midnight; some jobs fail and are retried."""
    random, day = Random(seed), Day()
    for number in range(12):
        name, began_s = f"operation-{number:02}", MIDNIGHT_S - random.randint(0, 60)
        day.start(
            name,
            random.choice(["adhoc", "research", "nightly"]),
            3,
            began_s,
            user=random.choice(["anna", "ben", "carl"]),
        )
        for index in range(3):
            ended_s = began_s + random.uniform(1, 20)
            if random.random() < 0.3:
                day.end(name, index, began_s, ended_s, JobResult.FAILED)
                day.end(name, index, ended_s, ended_s + 7, attempt=2)
            else:
                day.end(name, index, began_s, ended_s)
    return day


def test_the_sum_over_persons_is_the_integral_of_usage() -> None:
    tree = a_tree(adhoc=1, research=2, nightly=1)
    task = a_day(1).task(tree, MIDNIGHT_S - 60, MIDNIGHT_S + 240, step_ms=2_000)
    account = ReplayAccount(Stretches(task.since_ms, task.until_ms), Counted.of(task.resource))
    world = World(task, Recording(task), tree, account, lambda _: None)
    world.run()
    state = world.ledger.engine.state
    sums: defaultdict[str, RunSums] = defaultdict(RunSums)
    persons, days = set(), set()
    for fact in state.consumption.waiting:
        sums[state.path(fact.chain)] += fact.sums
        persons.add(fact.user)
        days.add(fact.day)

    usage = {pool: hours(series) for pool, series in account.usage.of.items()}
    assert task.resource == RESOURCE_NAMES[1]
    assert {pool: each.allotted_core_s / 3_600 for pool, each in sums.items()} == pytest.approx(usage, rel=1e-6)
    assert sum(each.runs for each in sums.values()) >= 36
    assert len(persons) == 3
    assert len(sums) == 3
    assert len(days) == 2
