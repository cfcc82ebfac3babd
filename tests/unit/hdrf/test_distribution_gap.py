"""A pool whose share came out a little short of a jump of its children, and the option that hands out the jump all the same."""

from __future__ import annotations

import msgspec
import pytest

from headrace.pools import PoolMode
from headrace_fair_share.hdrf.model import UpdateOptions
from tests.support.distribution_gap import share_of_a_gang_in_a_pool_that_is_short_by

IMPROVED = UpdateOptions(gang_step_function=True, improved=True)


@pytest.mark.parametrize("mode", list(PoolMode))
def test_a_jump_that_is_short_by_rounding_is_handed_out_with_the_distribution_gap_only(mode: PoolMode) -> None:
    with_gap = msgspec.structs.replace(IMPROVED, distribution_gap=True)

    assert share_of_a_gang_in_a_pool_that_is_short_by(5e-10, IMPROVED, mode) == 0.0
    assert share_of_a_gang_in_a_pool_that_is_short_by(5e-10, with_gap, mode) == 0.6


@pytest.mark.parametrize("mode", list(PoolMode))
def test_a_jump_that_is_short_by_more_is_not_handed_out(mode: PoolMode) -> None:
    with_gap = msgspec.structs.replace(IMPROVED, distribution_gap=True)

    assert share_of_a_gang_in_a_pool_that_is_short_by(2e-9, with_gap, mode) == 0.0
