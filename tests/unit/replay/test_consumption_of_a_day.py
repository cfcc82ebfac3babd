"""Over a replayed day, the consumption of all persons in a pool is the integral of the pool's usage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
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
    """Three persons start more in three pools than four cores can run, for 24 hours around midnight; some jobs fail and are retried."""
    random, day = Random(seed), Day()
    recorded: list[tuple[float, Callable[[], None]]] = []
    for number in range(48):
        name, began_s = f"operation-{number:02}", MIDNIGHT_S + random.randint(-43_000, 10_000)
        pool, user = random.choice(["adhoc", "research", "nightly"]), random.choice(["anna", "ben", "carl"])
        recorded.append((began_s, partial(day.start, name, pool, 3, began_s, user=user)))
        for index in range(3):
            ended_s = began_s + random.uniform(10, 3_000)
            fails = random.random() < 0.1
            result = JobResult.FAILED if fails else JobResult.COMPLETED
            recorded.append((ended_s, partial(day.end, name, index, began_s, ended_s, result)))
            if fails:
                again_s = ended_s + 700
                recorded.append((again_s, partial(day.end, name, index, ended_s, again_s, attempt=2)))
    for _, record in sorted(recorded, key=lambda each: each[0]):
        record()
    return day


@pytest.mark.long
def test_the_sum_over_persons_is_the_integral_of_usage() -> None:
    tree = a_tree(adhoc=1, research=2, nightly=1)
    task = a_day(1).task(tree, MIDNIGHT_S - 43_200, MIDNIGHT_S + 43_200, step_ms=60_000)
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
    assert sum(each.runs for each in sums.values()) >= 144
    assert len(persons) == 3
    assert len(sums) == 3
    assert len(days) == 2
