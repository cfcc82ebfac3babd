"""The scheduling order and satisfaction."""

from __future__ import annotations

from random import Random

import pytest

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.satisfaction import INFINITE_SATISFACTION, local_satisfaction
from headrace_allocator.decision.buckets import Bucket, Candidate
from headrace_allocator.decision.least_satisfied import LeastSatisfied, OrderOverlay
from headrace_allocator.decision.reasons import NoJobReady
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

    (bucket,) = order.fitting(SMALL)

    assert bucket.best() == (0.1, 1, "b")


def test_only_buckets_whose_jobs_fit_are_offered() -> None:
    order = LeastSatisfied()
    put(order, "small", SMALL, 0.5, 1)
    put(order, "large", LARGE, 0.1, 2)

    assert [bucket.size for bucket in order.fitting(Resources(user_slots=9, cpu=399))] == [SMALL]
    assert {bucket.size for bucket in order.fitting(LARGE)} == {SMALL, LARGE}


def test_always_agrees_with_sorting_everything_however_often_places_change() -> None:
    """The heap keeps stale entries; they must never show, and must not pile up."""
    random = Random(5)
    bucket = Bucket(SMALL)
    truth: dict[str, Candidate] = {}
    for number in range(5000):
        name = OperationId(f"o{random.randrange(40)}")
        if random.random() < 0.2:
            bucket.remove(name)
            truth.pop(name, None)
        else:
            truth[name] = (random.choice([0.0, 0.5, random.random()]), number, name)
            bucket.put(truth[name])
        assert bucket.best() == min(truth.values(), default=None)
        assert bucket.check() == []
        assert len(bucket) == len(truth)
        assert len(bucket._heap) <= max(64, 4 * len(bucket)) + 1
        assert list(bucket.walk()) == sorted(truth.values())


def test_an_overlay_shows_the_order_as_it_would_be_and_leaves_it_as_it_is() -> None:
    """Against sorting everything, with overlays made and thrown away."""
    random = Random(6)
    order = LeastSatisfied()
    for number in range(60):
        put(order, f"o{number}", SMALL, random.choice([0.0, 0.5, random.random()]), number)
    (bucket,) = order.buckets()
    before = list(bucket.walk())
    for _ in range(30):
        overlay = OrderOverlay(order)
        truth = {candidate[2]: candidate for candidate in before}
        for _ in range(random.randrange(80)):
            best = overlay.best(bucket)
            assert best == min(truth.values(), default=None)
            if best is None:
                break
            if random.random() < 0.3:
                overlay.leave(best[2], NoJobReady())
                del truth[best[2]]
            else:
                truth[best[2]] = (best[0] + random.random(), *best[1:])
                overlay.put(bucket, truth[best[2]])

    assert list(bucket.walk()) == before
