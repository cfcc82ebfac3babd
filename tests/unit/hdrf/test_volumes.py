"""Savings: flow in, draws out, and overflow to whoever has room."""

import numpy as np
import pytest

from headrace.resources import Resources
from headrace_fair_share.hdrf.arrays import Floats, column
from headrace_fair_share.hdrf.model import IntegralKind, IntegralState, PoolInput, TreeInput, Volume
from headrace_fair_share.hdrf.update import update
from headrace_fair_share.hdrf.volumes import Refill, advanced, ratio_by_volume

TOTAL = Resources(100, 10_000, 0, 1000, 0)


def a_refill(seconds: float, *, flow: float = 0.1, drawn: float = 0.0) -> Refill:
    return Refill(column(TOTAL), seconds, 100.0, np.array([flow]), np.array([drawn]), np.array([True]))


def of_seconds(seconds: float) -> Floats:
    return column(TOTAL).astype(np.float64) * seconds


def test_a_minute_of_flow_lasts_for_a_smooth_period_at_the_flow() -> None:
    refilled = advanced(of_seconds(0.0), a_refill(60.0))

    assert pytest.approx([0.1]) == ratio_by_volume(refilled.volume, column(TOTAL), 60.0)


def test_draws_are_charged_and_never_leave_debts() -> None:
    assert advanced(of_seconds(0.0), a_refill(60.0, drawn=0.3)).volume.max() == 0.0


def test_savings_above_the_capacity_are_kept_but_grow_no_more() -> None:
    """The capacity is what flows in during the saturation period: ten cluster-seconds."""
    kept, filled = advanced(of_seconds(15.0), a_refill(60.0)), advanced(of_seconds(8.0), a_refill(60.0))

    assert of_seconds(15.0).tolist() == kept.volume.tolist()
    assert of_seconds(10.0).tolist() == filled.volume.tolist()
    assert of_seconds(4.0).tolist() == filled.overflow.tolist()


def test_cpu_is_kept_in_whole_hundredths() -> None:
    refilled = advanced(of_seconds(0.0), a_refill(0.001, flow=0.01))

    assert (refilled.volume[1, 0], refilled.volume[0, 0]) == (0.0, 0.001)


def an_integral_pool(name: str, parent: int) -> PoolInput:
    return PoolInput(name=name, parent=parent, integral=IntegralKind.RELAXED, resource_flow=Resources(0, 1000, 0, 0, 0))


def test_overflow_goes_to_hungry_siblings_as_far_as_they_have_room() -> None:
    """The first is full and gets ten units; of the others one has room for two, the other takes the rest."""
    parent = PoolInput(name="p", parent=-1, distribute_free_volume=True)
    pools = [parent, an_integral_pool("full", 0), an_integral_pool("nearly", 0), an_integral_pool("empty", 0)]
    capacity = 0.1 * 1000.0

    def volume(units: float) -> Volume:
        u, c, g, m, n = (amount * units for amount in TOTAL.as_tuple())
        return (u, float(round(c)), g, m, n)

    states = {
        "full": IntegralState(volume(capacity)),
        "nearly": IntegralState(volume(capacity - 0.03)),
        "empty": IntegralState(volume(0.0)),
    }
    tree = TreeInput(total=TOTAL, pools=pools, integral=states, dt_us=100_000)
    options = type(tree.options)(saturation_period_s=1000.0)

    got = update(TreeInput(total=TOTAL, pools=pools, integral=states, dt_us=100_000, options=options)).integral

    seconds = {name: state.volume[1] / TOTAL.cpu for name, state in got.items()}
    # Everybody's income is 0.01: full's all overflows, nearly has 0.02 to go, of which half an offer covers 0.005.
    assert pytest.approx({"full": capacity, "nearly": capacity - 0.015, "empty": 0.015}) == seconds
