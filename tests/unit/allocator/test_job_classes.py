"""Classes of jobs: which of them fit is what asking each would say."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from headrace.pools.amounts import PartialResources
from headrace.pools.node_filter import matches
from headrace.resources import Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.job_classes import JobClass, JobClasses


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)


def test_always_those_fit_that_fit_when_each_is_asked_though_classes_come_and_go() -> None:
    random = Random(1)
    classes = JobClasses()
    numbers: dict[JobClass, int] = {}
    for _ in range(3000):
        amounts = (
            random.randint(0, 3),
            random.choice([50, 100, random.randint(1, 999)]),
            0,
            random.choice([0, 2**34]),
            0,
        )
        filters = random.choice([(), ("fast",), ("fast", "!large")])
        priority, lasts_ms = random.choice(list(PreemptionPriority)), random.choice([0, 0, 7, random.randint(1, 99)])
        job_class = JobClass(Resources(*amounts), filters, priority, lasts_ms=lasts_ms)
        if len(numbers) > random.choice([20, 200, 300]):
            for gone in random.sample(list(numbers), len(numbers) // 2):
                classes.leave(numbers.pop(gone))
        if job_class not in numbers:
            numbers[job_class] = classes.enter(job_class)
        room = Resources(random.randint(0, 3), random.randint(0, 999), 0, random.choice([0, 2**35]), 0)
        tags = random.choice([(), ("fast",), ("fast", "large")])
        used, most = random.randint(0, 99), random.randint(0, 999)
        fit = _bits(number for each, number in numbers.items() if room.dominates(each.size))
        match = _bits(number for each, number in numbers.items() if all(matches(one, tags) for one in each.filters))
        below = _bits(number for each, number in numbers.items() if each.size.cpu + used <= most)
        normal = _bits(number for each, number in numbers.items() if each.priority is PreemptionPriority.NORMAL)

        mine = _bits(numbers.values())

        assert len(set(numbers.values())) == len(numbers) == len(classes)
        assert classes.fitting(room) & mine == fit
        assert classes.matching(tags) & mine == match
        assert classes.below(PartialResources(cpu=most), Resources(cpu=used)) & mine == below
        assert classes.of_priority(PreemptionPriority.NORMAL) & mine == normal
        in_time = _bits(number for each, number in numbers.items() if 0 < each.lasts_ms <= most // 10)
        assert classes.ending_within(most // 10) & mine == in_time
        for each, number in numbers.items():
            assert classes.bucket(each).classes >> number & 1


def test_sizes_in_one_bucket_differ_by_less_than_a_fifth() -> None:
    classes = JobClasses()
    buckets: dict[int, list[int]] = {}
    for cpu in range(1, 3000):
        job_class = JobClass(Resources(1, cpu))
        classes.enter(job_class)
        buckets.setdefault(id(classes.bucket(job_class)), []).append(cpu)

    assert len(buckets) < 50
    assert all(max(each) < 1.2 * min(each) for each in buckets.values())
