"""The demo's averages over time."""

from __future__ import annotations

from headrace_cli.demo.averages import Averages, Sample


def busy(usage: float, fair_share: float) -> Sample:
    return Sample(usage, fair_share, waiting=True)


def test_a_sample_holds_until_the_next_one() -> None:
    averages = Averages(["a"])
    averages.on_sample(0.0, {"a": busy(1.0, 2.0)})
    averages.on_sample(3.0, {"a": busy(5.0, 2.0)})
    averages.on_sample(4.0, {"a": busy(9.0, 2.0)})

    assert (averages.usage("a"), averages.fair_share("a"), averages.seconds) == (2.0, 2.0, 4.0)


def test_time_in_which_nothing_of_a_pool_waits_does_not_count() -> None:
    averages = Averages(["a", "b"])
    averages.on_sample(0.0, {"a": busy(1.0, 1.0)})
    averages.on_sample(1.0, {"a": busy(1.0, 1.0), "b": busy(2.0, 2.0)})
    averages.on_sample(2.0, {"a": busy(7.0, 1.0), "b": Sample(2.0, 2.0, waiting=False)})
    averages.on_sample(9.0, {})

    assert (averages.usage("a"), averages.usage("b"), averages.seconds) == (1.0, 2.0, 1.0)


def test_the_time_before_every_pool_has_had_its_first_place_does_not_count() -> None:
    """Whoever came first has all that was free until its first jobs end; a moment without a job later on does count."""
    averages = Averages(["a", "b"])
    averages.on_sample(0.0, {"a": busy(3.0, 1.5), "b": busy(0.0, 1.5)})
    averages.on_sample(5.0, {"a": busy(1.0, 1.5), "b": busy(2.0, 1.5)})
    averages.on_sample(6.0, {"a": busy(3.0, 1.5), "b": busy(0.0, 1.5)})
    averages.on_sample(7.0, {})

    assert (averages.usage("a"), averages.usage("b"), averages.seconds) == (2.0, 1.0, 2.0)


def test_nothing_counted_is_zero() -> None:
    assert Averages(["a"]).usage("a") == 0.0
