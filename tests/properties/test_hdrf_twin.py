"""The engine computes what its plain twin does, but for rounding, and but for ties.

A tie is a tree whose shares hang on the last bit (`tests.reference.ties`): the twin itself gives other shares when figures move by a ten
thousand millionth. There each engine may take another side of a jump; such trees are counted, and must be few.
"""

from __future__ import annotations

from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from headrace.pools.pool_config import IntegralType
from headrace.resources import Resources
from headrace_fair_share.hdrf.model import IntegralState, OperationInput, PoolInput, TreeInput, UpdateOptions
from tests.reference import update as twin
from tests.reference.comparing import largest_difference
from tests.reference.ties import is_tie
from tests.support.effort import few_or_many
from tests.support.savings import after
from tests.support.trees import standard_and_improved, trees
from tests.support.update_result import update

TREES: Final = few_or_many(20, 400)
#: How far the engines may be apart.
STANDARD: Final = 1e-9
IMPROVED: Final = 1e-7
#: The part of all trees that may end in different shares for being ties.
TIES: Final = 0.03

pytestmark = pytest.mark.timeout(180)


def compared(tree: TreeInput, tolerance: float) -> bool:
    """False for a tie that each engine decides in its own way."""
    result = update(tree)
    difference = largest_difference(twin.update(tree), result)
    if difference.size <= tolerance:
        return True
    assert is_tie(tree, result), f"{difference.where} differs by {difference.size}"
    return False


@pytest.mark.both
@pytest.mark.parametrize(("mode", "tolerance"), [("standard", STANDARD), ("improved", IMPROVED)])
def test_always_the_shares_are_those_of_the_twin(mode: str, tolerance: float) -> None:
    agreed: list[bool] = []

    @settings(max_examples=TREES, suppress_health_check=[HealthCheck.too_slow])
    @given(trees())
    def compare(tree: TreeInput) -> None:
        standard, improved = standard_and_improved(tree)
        agreed.append(compared(standard if mode == "standard" else improved, tolerance))

    compare()

    # Two ties among few trees are chance.
    assert agreed.count(False) <= max(2, TIES * len(agreed))


@settings(max_examples=few_or_many(5, 50), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(trees(max_pools=20, max_operations=60))
def test_always_the_shares_of_larger_trees_are_those_of_the_twin(tree: TreeInput) -> None:
    compared(tree, IMPROVED if tree.options.improved else STANDARD)


def test_a_jump_across_the_end_of_the_cluster_is_not_begun() -> None:
    """The second pool's slots are used up at 0.7 %. From there on its cpu jumps, further than the cluster has."""
    tree = TreeInput(
        total=Resources(1000, 100_000, 0, 4_000_000_000, 0),
        options=UpdateOptions(main_resource=2),
        pools=[
            PoolInput(name="guaranteed", parent=-1, strong_guarantee=(500, 50_000, 0, 2_000_000_000, 0)),
            PoolInput(name="busy", parent=-1, strong_guarantee=(None, 74_539, None, None, None)),
        ],
        operations=[
            OperationInput(name="waits", pool=0, demand=Resources(500, 50_000, 0, 2_000_000_000, 0)),
            OperationInput(
                name="runs",
                pool=1,
                demand=Resources(1000, 100_000, 0, 4_000_000_000, 0),
                usage=Resources(7, 62_045, 0, 816_000, 0),
            ),
        ],
    )
    assert compared(tree, STANDARD)


def test_weights_far_apart_make_a_share_of_what_is_rounding() -> None:
    """All slots are taken. What the engine takes for rounding of them is a share of its own for a weight a million millions as large."""
    tree = TreeInput(
        total=Resources(1000, 100_000, 0, 4_000_000_000, 0),
        options=UpdateOptions(main_resource=1),
        pools=[
            PoolInput(name="all-slots", parent=-1, weight=1.0, strong_guarantee=(1000, 0, 0, 0, 0)),
            PoolInput(name="light", parent=-1, weight=1e-6),
            PoolInput(name="heavy", parent=-1, weight=1e6),
        ],
        operations=[
            OperationInput(name="slots", pool=0, demand=Resources(1000, 0, 0, 0, 0)),
            OperationInput(name="both", pool=1, demand=Resources(500, 50_000, 0, 2_000_000_000, 0)),
            OperationInput(name="memory", pool=2, demand=Resources(0, 50_000, 0, 4_000_000_000, 0)),
        ],
    )
    assert not compared(tree, STANDARD)


@pytest.mark.parametrize(
    ("weights", "first", "later"),
    [((5.541430107638973, 5.0), 334, 723), ((3.017016884047819, 3.0), 441, 793), ((6.484681605052648, 5.0), 492, 632)],
)
def test_a_gang_keeps_its_share_where_the_next_does_not_fit(
    weights: tuple[float, float], first: int, later: int
) -> None:
    """The search ends at the jump of the second gang, whose place among the fit factors is a quotient that is rounded up."""

    def gang(pool: int, slots: int) -> OperationInput:
        demand = Resources(slots, slots * 100, 0, slots * 4_000_000, 0)
        return OperationInput(name=f"gang{pool}", pool=pool, gang=True, demand=demand)

    tree = TreeInput(
        total=Resources(1000, 100_000, 0, 4_000_000_000, 0),
        options=UpdateOptions(gang_step_function=True),
        pools=[
            PoolInput(name=f"pool{number}", parent=-1, weight=weight) for number, weight in enumerate((*weights, 1.0))
        ],
        operations=[gang(0, first), gang(1, later)],
    )
    assert compared(tree, STANDARD)
    assert update(tree).operations["gang0"].fair_share[0] == first / 1000


@pytest.mark.parametrize("burst_memory", [8_316, 100_000_000])
def test_a_burst_that_amounts_round_to_nothing_gets_no_more_than_is_left(burst_memory: int) -> None:
    """A strong guarantee has all 3 slots. A burst of 1 % is no whole slot, so the amounts fit together, but the shares do not."""
    total = Resources(user_slots=3, cpu=300, gpu=8, memory=8_316_576_848, network=100)
    tree = TreeInput(
        total=total,
        pools=[
            PoolInput(
                name="bursting",
                parent=-1,
                integral=IntegralType.BURST,
                burst_guarantee=Resources(memory=burst_memory),
            ),
            PoolInput(name="owner", parent=-1, strong_guarantee=(3, 0, 0, 0, 0)),
        ],
        operations=[
            OperationInput(name="one", pool=0, demand=Resources(user_slots=1)),
            OperationInput(name="three", pool=1, demand=Resources(user_slots=3)),
        ],
        integral={"bursting": IntegralState(volume=(0.3, 30.0, 0.8, 831_657_684.8, 10.0))},
    )

    assert compared(tree, STANDARD)
    assert update(tree).operations["three"].fair_share[0] == 1.0


def test_what_the_rounding_of_a_used_up_resource_gives_is_a_tie() -> None:
    """All cpu is guaranteed. Of more cpu by rounding the light pool gets its part, and the heavy one ten million times as much memory."""
    tree = TreeInput(
        total=Resources(1000, 100_000, 0, 4_000_000_000, 0),
        pools=[
            PoolInput(name="all", parent=-1, strong_guarantee=(None, 100_000, None, None, None)),
            PoolInput(name="light", parent=-1, weight=1e-6),
            PoolInput(name="heavy", parent=-1, weight=17.0),
        ],
        operations=[
            OperationInput(name="runs", pool=0, demand=Resources(0, 100_000), usage=Resources(0, 100_000)),
            OperationInput(name="waits", pool=1, demand=Resources(187, 12_500, 0, 748_936_000, 0)),
            OperationInput(name="asks", pool=2, demand=Resources(5, 0, 0, 44_120_000, 0)),
        ],
    )
    assert not compared(tree, STANDARD)


@settings(max_examples=few_or_many(15, 150), suppress_health_check=[HealthCheck.too_slow])
@given(trees(overflowing=True))
def test_always_update_after_update_the_savings_are_those_of_the_twin(tree: TreeInput) -> None:
    """To the bit, whatever was granted in between."""
    for dt_us in (None, 1_000, 60_000_000, 3_600_000_000):
        wanted = {name: state.volume for name, state in twin.update(tree, dt_us=dt_us).integral.items()}
        tree = after(tree, dt_us)
        assert wanted == {name: state.volume for name, state in tree.integral.items()}
        tree = msgspec.structs.replace(tree, integral=update(tree).integral)


@settings(max_examples=few_or_many(10, 100), suppress_health_check=[HealthCheck.too_slow])
@given(trees())
def test_always_both_ways_through_a_fifo_pool_are_one_to_the_bit(tree: TreeInput) -> None:
    slow, _ = twin.compute(tree, fast_fifo=False)
    quick, _ = twin.compute(tree, fast_fifo=True)

    assert [each.fair for each in (*slow.pools, *slow.operations)] == [
        each.fair for each in (*quick.pools, *quick.operations)
    ]
    assert [len(pool.made().ff.xs) for pool in slow.pools] == [len(pool.made().ff.xs) for pool in quick.pools]
