"""What is told of integral guarantees, from the engine as it is."""

from __future__ import annotations

import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, PoolConfig
from headrace.wire.integral import Advance, Advanced, Downtime, PoolVolume, Volume
from headrace.wire.pools import GetPools, PoolList, PoolView
from headrace.wire.version import NEVER
from headrace_fair_share.effects import Compute
from headrace_fair_share.integral_guarantees import estimated_burst_usage_duration_seconds
from headrace_fair_share.view import pool_list
from headrace_integral.engine import IntegralEngine
from tests.support.clocks import NOW
from tests.support.fair_share import stored
from tests.support.tree_services import live
from tests.unit.fair_share.test_engine import TREE, Desk, uses

DAY_S = 86_400.0


def guaranteed(kind: IntegralType, flow: int, burst: int | None = None) -> PoolConfig:
    """Of so many hundredths of a core."""
    return PoolConfig(
        integral_guarantees=IntegralGuarantees(
            guarantee_type=kind,
            resource_flow=PartialResources(cpu=flow),
            burst_guarantee_resources=PartialResources(cpu=burst),
        )
    )


#: Of ten cores: a tenth flows in, three tenths may be drawn.
BURST = guaranteed(IntegralType.BURST, 100, 300)
RELAXED = guaranteed(IntegralType.RELAXED, 200)


def told(desk: Desk, volume: Volume | None = None, ratio: float = 0.0, downtime: Downtime | None = None) -> None:
    head = desk.engine.volumes.chain.head()
    assert head is not None
    volumes = [PoolVolume(PoolName("saver"), volume, ratio)] if volume is not None else []
    desk.engine.on_advance_answer(Advanced(TREE, head.version, volumes, downtime or Downtime()), desk.now)


def seen(desk: Desk, name: str) -> PoolView:
    answer = pool_list(desk.engine, GetPools(name=name), NEVER)
    assert isinstance(answer, PoolList)
    return answer.pools[0]


def test_a_pool_is_shown_with_its_ratios_capacity_and_how_long_a_burst_lasts() -> None:
    desk = Desk(("saver", ROOT_POOL, BURST))
    desk.update()
    told(desk, Volume(user_slots=6_000.0, cpu=60_000, memory=60.0 * 2**30), 60.0)
    view = seen(desk, "saver")

    assert (view.specified_resource_flow_ratio, view.specified_burst_ratio) == (0.1, 0.3)
    assert view.specified_resource_flow is not None
    assert view.specified_burst_guarantee_resources is not None
    assert (view.specified_resource_flow["cpu"], view.specified_resource_flow["user_slots"]) == (1.0, 10.0)
    assert view.specified_burst_guarantee_resources["cpu"] == 3.0
    assert view.accumulated_resource_volume is not None
    assert (view.accumulated_resource_volume["cpu"], view.accumulated_resource_ratio_volume) == (600.0, 60.0)
    assert view.integral_pool_capacity is not None
    assert (view.integral_pool_capacity["cpu"], view.integral_pool_capacity_ratio) == (DAY_S, 0.1 * DAY_S)
    assert view.estimated_burst_usage_duration_seconds == estimated_burst_usage_duration_seconds(60.0, 0.3, 0.1)


def test_a_relaxed_pool_has_no_end_of_its_burst() -> None:
    desk = Desk(("saver", ROOT_POOL, RELAXED))
    desk.update()
    view = seen(desk, "saver")

    assert view.estimated_burst_usage_duration_seconds is None
    assert (view.specified_resource_flow_ratio, view.specified_burst_ratio) == (0.2, 0.0)


def test_a_pool_without_an_integral_guarantee_has_none_of_these_fields_but_the_totals() -> None:
    budget = guaranteed(IntegralType.NONE, 300, 300)
    desk = Desk(("parent", ROOT_POOL, budget), ("saver", "parent", BURST), ("other", "parent", RELAXED))
    desk.update()
    view, root = seen(desk, "parent"), seen(desk, ROOT_POOL)

    absent = (view.specified_resource_flow_ratio, view.integral_pool_capacity, view.downtime)
    assert (*absent, view.accumulated_resource_volume, view.accumulated_resource_ratio_volume) == (None,) * 5
    assert abs(view.total_resource_flow_ratio - 0.3) < 1e-12
    assert (view.total_burst_ratio, view.total_resource_flow_ratio) == (
        root.total_burst_ratio,
        root.total_resource_flow_ratio,
    )
    assert view.resource_distribution_info is None


def test_the_root_tells_how_much_is_promised() -> None:
    strong = PoolConfig(strong_guarantee_resources=PartialResources(cpu=500))
    desk = Desk(("strong", ROOT_POOL, strong), ("saver", ROOT_POOL, BURST), ("other", ROOT_POOL, RELAXED))
    desk.update()
    info = seen(desk, ROOT_POOL).resource_distribution_info

    assert info is not None
    assert info.distributed_strong_guarantee_resources["cpu"] == 5.0
    assert abs(info.distributed_resource_flow["cpu"] - 3.0) < 1e-9
    assert abs(info.distributed_burst_guarantee_resources["cpu"] - 3.0) < 1e-9
    assert abs(info.undistributed_resources["cpu"] - 2.0) < 1e-9


def test_time_that_counted_for_nobody_is_shown_with_the_pool_and_with_the_tree() -> None:
    downtime = Downtime(1, 5_000, 1_000, 6_000)
    desk = Desk(("saver", ROOT_POOL, BURST))
    desk.update()
    told(desk, Volume(), 0.0, downtime)
    desk.update()

    assert seen(desk, "saver").downtime == downtime
    assert desk.engine.frame.downtime == downtime
    assert desk.figure("downtime") == 5_000


def test_the_saturation_period_of_the_tree_is_told_to_integral() -> None:
    desk = Desk(("saver", ROOT_POOL, BURST))
    options = desk.engine.configuration.pools.options
    integral = type(options.integral_guarantees)(pool_capacity_saturation_period=5_000)
    tree = msgspec.structs.replace(
        desk.engine.configuration.pools.tree, options=type(options)(integral_guarantees=integral)
    )
    desk.engine.on_stored_tree(stored(tree, desk.revision + 1), desk.now)
    desk.update()
    head = desk.engine.volumes.chain.head()

    assert head is not None
    assert head.saturation_period_s == 5.0
    assert seen(desk, "saver").integral_pool_capacity_ratio == 0.5


def test_what_was_granted_is_charged_and_known_to_the_next_update() -> None:
    """Savings of a minute of a fifth of the cluster, and a burst of three tenths."""
    desk = Desk(("saver", ROOT_POOL, BURST))
    desk.operations(live("operation-1", "saver", 10))
    desk.usage(uses("operation-1", running=0, pending=10))
    desk.update()
    told(desk, Volume(user_slots=1_200.0, cpu=12_000, memory=12.0 * 2**30), 12.0)
    desk.update()
    desk.update()
    newest = desk.engine.volumes.chain._waiting[-1]

    assert newest.pools[0].grant_ratio == 0.2
    (compute,) = desk.engine.on_advance_answer(None, desk.now).effects
    assert isinstance(compute, Compute)
    assert compute.cut.grants == {"saver": 0.2}


# Downtime, as integral reckons it.


def advanced(engine: IntegralEngine, advance: Advance) -> Downtime:
    outcome = engine.on_advance(advance, NOW)
    assert outcome.effects
    return engine.on_saved(outcome.effects[0].record, NOW).answer.downtime


def test_a_stretch_of_updates_without_time_is_one_gap() -> None:
    """Lives of fair_share at seconds 1, 2, 3, then from 10 on; the cluster is known again at 12."""
    engine = IntegralEngine(TreeName("default"), 1)
    reckoned: list[tuple[int, int]] = []
    for term, seconds, complete_from in ((1, (1, 2, 3), 0), (2, (10, 11, 12, 13), 11)):
        desk = Desk(("saver", ROOT_POOL, BURST), term=term)
        desk.usage(complete=False)
        for second in seconds:
            desk.now_ms = second * 1_000 - 200
            if second > complete_from:
                desk.usage()
            desk.update()
            head = desk.engine.volumes.chain.head()
            assert head is not None
            desk.engine.volumes.chain._waiting.clear()
            downtime = advanced(engine, head)
            reckoned.append((downtime.gaps, downtime.together_ms))

    assert reckoned == [(0, 0), (0, 0), (0, 0), (1, 7_000), (1, 8_000), (1, 9_000), (1, 9_000)]
    assert next(each.value for each in engine.figures() if each.name == "downtime") == 9_000
    assert engine.record.downtime.last_until_ms - engine.record.downtime.last_from_ms == 9_000
