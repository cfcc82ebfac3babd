"""Overflow that goes to siblings, with figures worked out by hand."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.integral import Advance, PoolFlow, PoolVolume, Volume
from headrace.wire.version import Version
from headrace_integral.engine import IntegralEngine, VolumesRecord
from tests.support.clocks import NOW

TREE = TreeName("default")
#: 1000 cores: a hundredth of it is 10.
TOTAL = Resources(cpu=100_000)
SATURATION_S = 1_000.0


def a_parent(parent: int = -1, *, accepts: bool = True, distributes: bool = True) -> PoolFlow:
    return PoolFlow(PoolName("p"), 0.0, 0.0, 0.0, "none", accepts, parent, distributes)


def a_flow(name: str, flow: float, parent: int = 0, *, accepts: bool = True) -> PoolFlow:
    return PoolFlow(PoolName(name), flow, 0.5, 0.0, "burst", accepts, parent)


def core_seconds_after(flows: list[PoolFlow], before: dict[str, int], seconds: int = 60) -> dict[str, float]:
    """Volumes of pools in core seconds."""
    saved = [PoolVolume(PoolName(name), Volume(cpu=volume * 100), 0.0) for name, volume in before.items()]
    engine = IntegralEngine(TREE, 1, VolumesRecord(tree=TREE, version=Version(1, 1), pools=saved))
    advance = Advance(TREE, Version(1, 2), Version(1, 1), seconds * 1_000_000, TOTAL, flows, SATURATION_S)
    outcome = engine.on_advance(advance, NOW)
    assert outcome.effects
    assert engine.out_of_bounds == 0
    return {pool.pool: pool.volume.cpu / 100 for pool in outcome.effects[0].record.pools}


#: Of a flow of 0.1 a minute is 6000 core-seconds, the capacity 100,000.
FULL = {"a": 100_000}


def test_overflow_goes_to_siblings_by_their_flows() -> None:
    flows = [a_parent(), a_flow("a", 0.1), a_flow("b", 0.1), a_flow("c", 0.2)]

    assert core_seconds_after(flows, FULL) == {"a": 100_000, "b": 6_000 + 2_000, "c": 12_000 + 4_000}


def test_whoever_is_nearest_to_the_capacity_is_filled_first() -> None:
    """c has room for 1000 after its own refill, so that b gets the other 5000."""
    flows = [a_parent(), a_flow("a", 0.1), a_flow("b", 0.1), a_flow("c", 0.2)]

    after = core_seconds_after(flows, {**FULL, "c": 200_000 - 13_000})

    assert after == {"a": 100_000, "b": 6_000 + 5_000, "c": 200_000}


def test_nothing_is_handed_on_where_the_parent_does_not() -> None:
    flows = [a_parent(distributes=False), a_flow("a", 0.1), a_flow("b", 0.1)]

    assert core_seconds_after(flows, FULL) == {"a": 100_000, "b": 6_000}


def test_the_root_hands_nothing_on() -> None:
    assert core_seconds_after([a_flow("a", 0.1, -1), a_flow("b", 0.1, -1)], FULL) == {"a": 100_000, "b": 6_000}


def test_pools_that_accept_nothing_get_nothing() -> None:
    flows = [a_parent(), a_flow("a", 0.1), a_flow("b", 0.1, accepts=False), a_flow("c", 0.2)]

    assert core_seconds_after(flows, FULL) == {"a": 100_000, "b": 6_000, "c": 12_000 + 6_000}


@pytest.mark.parametrize(("accepts", "received"), [(True, 6_000), (False, 0)])
def test_what_a_whole_family_cannot_keep_goes_to_the_next_one(accepts: bool, received: int) -> None:
    """top > (p > a, q > b): what a cannot keep overflows from p, and top offers it to q, which offers it to b."""
    top, inner = a_parent(), a_parent(0, accepts=accepts)
    flows = [
        msgspec.structs.replace(top, pool=PoolName("top")),
        a_parent(0),
        a_flow("a", 0.1, 1),
        msgspec.structs.replace(inner, pool=PoolName("q")),
        a_flow("b", 0.1, 3),
    ]

    assert core_seconds_after(flows, FULL) == {"a": 100_000, "b": 6_000 + received}


def test_what_nobody_has_room_for_is_lost() -> None:
    flows = [a_parent(), a_flow("a", 0.1), a_flow("b", 0.1)]

    assert core_seconds_after(flows, {"a": 100_000, "b": 99_000}) == {"a": 100_000, "b": 100_000}


def test_a_pool_below_another_integral_one_takes_no_part() -> None:
    """Configurations with such pools are refused; should one come all the same, it is as with upstream's."""
    flows = [a_parent(), a_flow("a", 0.1), a_flow("b", 0.0), a_flow("below", 0.1, 2)]

    assert core_seconds_after(flows, FULL)["below"] == 6_000


def test_offers_are_whole_hundredths_of_a_core_second() -> None:
    """600,000 hundredths by nine: 66,666.7."""
    flows = [a_parent(), a_flow("a", 0.1), *(a_flow(name, 0.7) for name in "bcdefghij")]

    after = core_seconds_after(flows, FULL)

    assert after["b"] == 42_000 + 666.67
