"""The scheduling order and satisfaction."""

from __future__ import annotations

from random import Random

import pytest

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.satisfaction import INFINITE_SATISFACTION, local_satisfaction
from headrace_allocator.decision.least_satisfied import SchedulingOrder

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


def test_the_least_satisfied_comes_first_and_the_earlier_on_a_tie() -> None:
    order = SchedulingOrder()
    for arrival, (name, satisfaction) in enumerate([("c", 0.5), ("b", 0.1), ("a", 0.1)]):
        order.put(OperationId(name), SMALL, satisfaction, arrival)

    (size_class,) = order.fitting(SMALL)

    assert size_class.best() == (0.1, 1, "b")


def test_only_classes_whose_jobs_fit_are_offered() -> None:
    order = SchedulingOrder()
    order.put(OperationId("small"), SMALL, 0.5, 1)
    order.put(OperationId("large"), LARGE, 0.1, 2)

    assert [c.size for c in order.fitting(Resources(user_slots=9, cpu=399))] == [SMALL]
    assert {c.size for c in order.fitting(LARGE)} == {SMALL, LARGE}


def test_always_agrees_with_sorting_everything_however_often_places_change() -> None:
    """The heap keeps stale entries; they must never show, and must not pile up."""
    random = Random(5)
    order = SchedulingOrder()
    truth: dict[str, tuple[float, int]] = {}
    for number in range(5000):
        name = f"o{random.randrange(40)}"
        if random.random() < 0.2:
            order.remove(OperationId(name))
            truth.pop(name, None)
        else:
            key = (random.choice([0.0, 0.5, random.random()]), number)
            order.put(OperationId(name), SMALL, *key)
            truth[name] = key
        classes = order.fitting(SMALL)
        best = classes[0].best() if classes else None
        assert best == (min((*key, other) for other, key in truth.items()) if truth else None)
        assert len(order) == len(truth)
        assert all(len(c._heap) <= max(64, 4 * len(c)) + 1 for c in classes)
