"""A plain preemption that takes too much is counted, whatever chose its victims."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import PoolName
from headrace.pools.tree_options import VictimRules
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareItem
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.audit.overreach import Overreach
from tests.support.allocating import an_operation
from tests.unit.allocator.test_preemption import FOUR, Host, a_share


def too_much(counted: Host | Overreach) -> dict[str, float]:
    """The counts by what was left, without those that are zero."""
    figures = counted.engine.figures() if isinstance(counted, Host) else counted.figures()
    found = {one.labels["left"]: one.value for one in figures if one.family == "preempted_too_much"}
    assert len(found) == 2
    return {left: float(value) for left, value in found.items() if isinstance(value, int | float) and value}


def guaranteed(pool: str, cores: float) -> ShareItem:
    share = (cores / 4, cores / 4, 0.0, 0.0, 0.0)
    whole = (1.0, 1.0, 0.0, 0.0, 0.0)
    return ShareItem(
        ElementKind.POOL,
        pool,
        PoolName("<Root>"),
        fair_share=DetailedShare(total=share),
        demand_share=whole,
        strong_guarantee_share=share,
    )


def after_a_preemption(*told: ShareItem) -> Host:
    """`rich` has had four cores, is owed two, and has just lost one."""
    poor = an_operation("poor")
    host = Host(msgspec.structs.replace(poor, spec=msgspec.structs.replace(poor.spec, pool=PoolName("elsewhere"))))
    host.next_beat()
    starving = a_share("poor", 2, starves=True)
    host.tell([a_share("rich", 2), msgspec.structs.replace(starving, parent=PoolName("elsewhere")), *told], total=FOUR)
    assert len(host.next_beat().take_back) == 1
    return host


def test_what_the_rules_take_is_not_too_much() -> None:
    assert too_much(after_a_preemption(guaranteed("p", 3))) == {}


def test_a_pool_that_is_left_with_less_than_its_guarantee_is_counted() -> None:
    assert too_much(after_a_preemption(guaranteed("p", 3.5))) == {"pool_below_guarantee": 1}


@pytest.mark.parametrize(
    ("owed", "demand", "reason", "rules", "counted"),
    [
        (3.5, 8, PreemptionReason.PREEMPTION, VictimRules.CURRENT, 1),
        (3.0, 8, PreemptionReason.PREEMPTION, VictimRules.CURRENT, 0),
        (3.5, 8, PreemptionReason.AGGRESSIVE_PREEMPTION, VictimRules.CURRENT, 0),
        (3.5, 8, PreemptionReason.PREEMPTION, VictimRules.LEGACY, 0),
    ],
)
def test_an_operation_that_is_left_with_less_than_it_is_owed_is_counted(
    owed: float, demand: float, reason: PreemptionReason, rules: VictimRules, counted: int
) -> None:
    host = after_a_preemption()
    host.tell([a_share("rich", owed, demand=demand)], total=FOUR)
    host.facts.pools.options = msgspec.structs.replace(host.facts.pools.options, victim_rules=rules)
    overreach = Overreach()
    overreach.note(host.facts.pools, host.operation("rich"), reason, Group.PREEMPTIBLE)
    assert too_much(overreach) == ({"operation_below_fair_share": counted} if counted else {})


def test_what_crosses_a_bound_is_not_counted_where_the_tree_lets_it_go() -> None:
    host = after_a_preemption()
    host.tell([a_share("rich", 3.5, demand=8)], total=FOUR)
    options = msgspec.structs.replace(host.facts.pools.options, preempt_at_bound_for_owed_jobs=True)
    host.facts.pools.options = options
    overreach, reason = Overreach(), PreemptionReason.PREEMPTION

    overreach.note(host.facts.pools, host.operation("rich"), reason, Group.AGGRESSIVELY_PREEMPTIBLE)
    assert too_much(overreach) == {}

    overreach.note(host.facts.pools, host.operation("rich"), reason, Group.PREEMPTIBLE)
    assert too_much(overreach) == {"operation_below_fair_share": 1}
