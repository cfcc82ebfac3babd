"""Bounds of the groups, one by one."""

from __future__ import annotations

import math

import pytest

from headrace.resources import Resources
from headrace_allocator.facts.preemption_groups import Group, GroupBorder, Protection

CORE = Resources(1, 100, 0, 0)


@pytest.mark.parametrize("fair", [0.5, math.nextafter(0.5, 1), math.nextafter(0.5, 0)])
@pytest.mark.parametrize(("before", "is_covered"), [(3, True), (4, False)])
@pytest.mark.parametrize("demand", [0.8, 0.5])
def test_the_last_bit_of_a_fair_share_protects_no_allocation_more_and_none_less(
    fair: float, before: int, is_covered: bool, demand: float
) -> None:
    """Four of eight cores are owed. The fifth allocation begins where four end."""
    protection = Protection((0.0, fair, 0.0, 0.0, 0.0), (0.0, demand, 0.0, 0.0, 0.0), CORE * 8)

    border = GroupBorder.of(protection, (0.0, fair, 0.0, 0.0, 0.0))
    assert protection.covers(border, CORE * before, CORE) is is_covered
    assert protection.bound(Group.AGGRESSIVELY_PREEMPTIBLE) == (0.0, 0.5 * fair, 0.0, 0.0, 0.0)
