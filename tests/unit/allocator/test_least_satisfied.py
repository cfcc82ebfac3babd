"""The scheduling order and satisfaction."""

from __future__ import annotations

from random import Random

import pytest

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.runtime.engine import run_checks
from headrace.satisfaction import INFINITE_SATISFACTION, local_satisfaction
from headrace_allocator.decision.least_satisfied import Candidate, LeastSatisfied
from headrace_allocator.facts.operations import Operation
from tests.support.allocating import an_operation

SMALL = Resources(user_slots=1, cpu=100)
LARGE = Resources(user_slots=1, cpu=400)
NONE = (0.0,) * 5


@pytest.mark.parametrize(
    ("usage", "fair", "demand", "expected"),
    [
        ((0.1, 0.1, 0, 0, 0), NONE, (1, 1, 0, 0, 0), INFINITE_SATISFACTION),
        ((0.1, 0.2, 0, 0, 0), (0.1, 0.4, 0, 0, 0), (0.2, 0.8, 0, 0, 0), 1.0),
        ((0.1, 0.2, 0, 0, 0), (0.2, 0.4, 0, 0, 0), (0.4, 0.8, 0, 0, 0), 0.5),
        # Some usage over its share: the largest ratio, and over nothing at all it is infinite.
        ((0.1, 0.6, 0, 0, 0), (0.2, 0.4, 0, 0, 0), (0.4, 0.8, 0, 0, 0), 1.5),
        ((0.1, 0.1, 0.1, 0, 0), (0.2, 0.4, 0, 0, 0), (0.4, 0.8, 0.2, 0, 0), INFINITE_SATISFACTION),
        # Everything that it asks for is owed to it: the smallest ratio.
        ((0.1, 0.1, 0, 0, 0), (0.2, 0.4, 0, 0, 0), (0.2, 0.4, 0, 0, 0), 0.25),
        # A resource whose demand is covered does not count beside one that is not.
        ((0.2, 0.1, 0, 0, 0), (0.2, 0.4, 0, 0, 0), (0.2, 0.8, 0, 0, 0), 0.25),
    ],
)
def test_satisfaction_is_usage_over_fair_share_by_the_resource_that_tells(
    usage: tuple[float, ...], fair: tuple[float, ...], demand: tuple[float, ...], expected: float
) -> None:
    assert local_satisfaction(usage, fair, demand) == pytest.approx(expected)  # type: ignore[arg-type]


def put(order: LeastSatisfied, name: str, size: Resources, satisfaction: float, arrival: int) -> None:
    order.put(Operation(an_operation(name, size=size), arrival, own_term=1), satisfaction)


def test_the_least_satisfied_comes_first_and_the_earlier_on_a_tie() -> None:
    order = LeastSatisfied()
    for arrival, (name, satisfaction) in enumerate([("c", 0.5), ("b", 0.1), ("a", 0.1)]):
        put(order, name, SMALL, satisfaction, arrival)

    assert list(order.walk(SMALL)) == [(0.1, 1, "b"), (0.1, 2, "a"), (0.5, 0, "c")]


def test_only_sizes_of_jobs_that_fit_are_offered() -> None:
    order = LeastSatisfied()
    put(order, "small", SMALL, 0.5, 1)
    put(order, "large", LARGE, 0.1, 2)

    assert order.fitting(Resources(user_slots=9, cpu=399)) == [SMALL]
    assert set(order.fitting(LARGE)) == {SMALL, LARGE}


def test_always_agrees_with_sorting_everything_however_often_places_change() -> None:
    random = Random(5)
    order = LeastSatisfied()
    truth: dict[OperationId, Candidate] = {}
    for number in range(5000):
        name = OperationId(f"o{random.randrange(40)}")
        if random.random() < 0.2:
            order.remove(name)
            truth.pop(name, None)
        else:
            truth[name] = (random.choice([0.0, 0.5, random.random()]), number, name)
            put(order, name, SMALL, truth[name][0], number)
        assert [order.place(name) for name in truth] == list(truth.values())
        assert [order.fitting(SMALL), order.sizes, len(order)] == ([[SMALL], 1, len(truth)] if truth else [[], 0, 0])
        assert run_checks(order.checks()) == []
        assert not truth or list(order.walk(SMALL)) == sorted(truth.values())
