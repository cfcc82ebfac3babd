"""Plans, trees and shares on wide and narrow screens."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.ids import PoolName, TreeName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, PoolConfig
from headrace.resources import Resources, percent
from headrace.wire.integral import Downtime
from headrace.wire.plan import Bound, BoundKind, Plan, PlanElement, Scaled
from headrace.wire.pools import PoolList, PoolView
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareComplaint, ShareFrame, ShareItem, StarvationStatus
from headrace.wire.version import Version
from headrace_cli.commands.plans.plan_table import plan_notes, plan_table, plan_title
from headrace_cli.commands.pools.get_page import pool_facts
from headrace_cli.commands.pools.tables import tree_table
from headrace_cli.show.amounts import compact
from headrace_cli.show.shares import share_facts
from headrace_cli.show.tables import bar, branches

TOTAL = Resources(cpu=10_000, memory=100 * 1024**3)
SCALED = Scaled("strong_guarantee_resources", "memory", 8 * 1024**3, 6 * 1024**3)
COMPLAINT = ShareComplaint("overcommit_burst", "the cluster is too small: cpu by 20 of 100", [PoolName("research")])


def shown(width: int, *things: Table | Text) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(*things, sep="\n", markup=False)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def an_item(kind: ElementKind, name: str, parent: str, fair: float = 0.25) -> ShareItem:
    share = (0.0, fair, 0.0, 0.01, 0.0)
    strong = (0.0, 0.2, 0.0, 0.01, 0.0)
    rest = (0.0, fair - 0.2, 0.0, 0.0, 0.0)
    return ShareItem(
        kind=kind,
        name=name,
        parent=PoolName(parent),
        fair_share=DetailedShare(strong, (0.0,) * 5, rest, share),
        usage_share=(0.0, 0.1, 0.0, 0.0, 0.0),
        demand_share=(0.0, 1.5, 0.0, 0.05, 0.0),
        strong_guarantee_share=strong,
    )


def an_element(kind: ElementKind, name: str, parent: str, bound: Bound) -> PlanElement:
    return PlanElement(
        kind=kind,
        name=name,
        path=f"/{name}",
        line=1,
        share=an_item(kind, name, parent),
        bound=bound,
        guarantee=Resources(cpu=2000),
        fair_resources=Resources(cpu=2500, memory=1024**3),
        demand=Resources(cpu=15_000, memory=5 * 1024**3),
        scaled=[SCALED] if (kind, name) == (ElementKind.POOL, "research") else [],
    )


def a_plan() -> Plan:
    return Plan(
        file="tree.yaml",
        total=TOTAL,
        elements=[
            an_element(ElementKind.ROOT, "<Root>", "", Bound(BoundKind.FULL, "cpu")),
            an_element(ElementKind.POOL, "research", "<Root>", Bound(BoundKind.LIMIT, "cpu")),
            an_element(ElementKind.POOL, "vision", "research", Bound(BoundKind.LIMIT, "cpu", "research")),
            an_element(ElementKind.OPERATION, "operation", "vision", Bound(BoundKind.FIFO, pool="vision")),
        ],
        complaints=[COMPLAINT],
        warnings=["children promise more"],
    )


def test_a_plan_is_drawn_as_a_tree_that_fits_80_columns() -> None:
    lines = shown(80, plan_table(a_plan(), None, 80))

    assert max(map(len, lines)) <= 80
    assert lines[2:] == [
        "<Root>             cpu    150    20    25   25%    20%     0%     5% cpu",
        "└─ research !      cpu    150    20    25   25%    20%     0%     5% limit",
        "   └─ vision       cpu    150    20    25   25%    20%     0%     5% limit",
        "      └─ operation cpu    150    20    25   25%    20%     0%     5% fifo",
    ]


def test_on_a_wide_screen_what_binds_is_told_in_words() -> None:
    lines = shown(120, plan_table(a_plan(), None, 120))

    assert [line.split("5% ")[-1] for line in lines[2:]] == [
        "cpu is used up",
        "its limit: cpu",
        "limit of research: cpu",
        "operations ahead of it in vision",
    ]


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound(BoundKind.IDLE), "wants nothing"),
        (Bound(BoundKind.MET), "met"),
        (Bound(BoundKind.ABSENT, "gpu"), "the cluster has no gpu"),
        (Bound(BoundKind.GANG, "cpu"), "all or nothing, by cpu"),
        (Bound(BoundKind.SHAPE), "what is left does not fit"),
    ],
)
def test_every_bound_has_its_words(bound: Bound, words: str) -> None:
    plan = Plan("f", TOTAL, [an_element(ElementKind.ROOT, "<Root>", "", bound)])

    assert shown(120, plan_table(plan, None, 120))[-1].endswith(words)
    assert len(shown(80, plan_table(plan, None, 80))) == 3


def test_one_resource_is_shown_where_it_is_asked_for() -> None:
    lines = shown(80, plan_title(a_plan(), "memory"), plan_table(a_plan(), "memory", 80))

    assert lines[0] == "tree.yaml: cpu 100, memory 100 GiB; figures in memory"
    assert lines[3] == "<Root>                 5G     –    1G    1%     1%     0%     0% cpu"


def test_complaints_name_pools_and_what_was_scaled_to_what() -> None:
    assert shown(120, *plan_notes(a_plan())) == [
        "! the cluster is too small: cpu by 20 of 100",
        "  concerns: research",
        "! not in force as configured:",
        "  /research: strong_guarantee_resources.memory 8G scaled to 6G (75%)",
        "warning: children promise more",
    ]


def pool_view(item: ShareItem) -> PoolView:
    return PoolView(
        name=PoolName(item.name),
        parent=item.parent,
        path=f"/{item.name}",
        ephemeral=False,
        settings=PoolConfig(
            strong_guarantee_resources=PartialResources(cpu=3000),
            integral_guarantees=IntegralGuarantees(
                IntegralType.BURST, PartialResources(cpu=1000), PartialResources(cpu=4000)
            ),
        ),
        share=item,
        fair_resources=Resources(),
        usage=Resources(),
        demand=Resources(),
        operation_count=3,
        running_operation_count=2,
        accumulated_resource_volume={"cpu": 600.0, "memory": 6.0 * 2**30},
        accumulated_resource_ratio_volume=6.0,
        integral_pool_capacity={"cpu": 864_000.0, "memory": 10.0 * 86_400 * 2**30},
        integral_pool_capacity_ratio=8_640.0,
        specified_resource_flow_ratio=0.1,
        specified_burst_ratio=0.4,
        specified_resource_flow={"cpu": 10.0, "memory": 10.0 * 2**30},
        specified_burst_guarantee_resources={"cpu": 40.0, "memory": 40.0 * 2**30},
        estimated_burst_usage_duration_seconds=20.0,
        downtime=Downtime(2, 90_000, 1, 60_001),
    )


def test_a_pool_is_told_with_all_parts_of_its_share() -> None:
    pool = pool_view(an_item(ElementKind.POOL, "research", "<Root>"))

    wide = shown(120, *pool_facts(pool, ShareFrame(total=TOTAL, complaints=[COMPLAINT]), 120))
    narrow = shown(60, *pool_facts(pool, ShareFrame(total=TOTAL, complaints=[COMPLAINT]), 60))

    told = [" ".join(line.split()) for line in wide]
    assert {
        "fair share 25 (25%) 1 GiB (1%)",
        "guarantee 20 (20%) 1 GiB (1%)",
        "as configured 30 –",
        "error the cluster is too small: cpu by 20 of 100",
        "burst guarantee 40% of the cluster",
        "flow 10 10 GiB",
        "burst guarantee 40 40 GiB",
        "saved 600·s 6 GiB·s",
        "capacity 240·h 240 GiB·h",
        "saved 6 cluster-seconds, 0.1% of 8,640",
        "neither saved nor spent 2 times, 1m30s together",
        "lasts at full burst 20s",
    } <= set(told)
    assert "fair share 25 1 GiB" in [" ".join(line.split()) for line in narrow]
    assert max(map(len, narrow)) <= 60


def test_places_in_a_fifo_pool_and_starvation_are_told() -> None:
    item = ShareItem(
        kind=ElementKind.OPERATION,
        name="o",
        parent=PoolName("p"),
        fifo_index=3,
        effective_fifo_index=1,
        starvation_status=StarvationStatus.STARVING,
    )

    lines = shown(80, share_facts(item, [COMPLAINT]))

    assert "position in fifo pool  3, in force 1" in lines
    assert "status                 normal, starving" in lines
    assert "satisfaction           – (its own –)" in lines
    assert not any("error" in line for line in lines)


def a_list() -> PoolList:
    items = [
        an_item(ElementKind.ROOT, "<Root>", ""),
        an_item(ElementKind.POOL, "research", "<Root>"),
    ]
    operation = an_item(ElementKind.OPERATION, "6b018a65-7a4d9e5bf660", "research")
    views = [pool_view(item) for item in items]
    return PoolList(TreeName("default"), views, ShareFrame(total=TOTAL), Version(1, 1), 1, operations=[operation])


def test_the_live_tree_has_bars_where_there_is_room() -> None:
    lines = shown(90, tree_table(a_list(), 90, bars=True, ascii_only=True))

    assert lines[1].split() == ["<Root>", "cpu", "#......", "10%", "##.....", "25%", "######>", "150%"]
    assert lines[3].startswith("   └─ 6b018a65-7a4d9e5bf660")
    assert max(map(len, lines)) <= 90


def test_the_live_tree_is_figures_where_there_is_none() -> None:
    for width, bars in ((10_000, False), (60, True)):
        assert shown(width, tree_table(a_list(), width, bars=bars))[2].split() == (
            ["└─", "research", "cpu", "10%", "25%", "150%"]
        )


def test_branches_are_drawn_for_any_depth_and_for_several_tops() -> None:
    deep = [("0", ""), *((str(n), str(n - 1)) for n in range(1, 3000))]

    assert branches(deep)[2] == "   └─ "
    assert branches([("a", ""), ("b", ""), ("c", "a"), ("d", "a"), ("e", "c")]) == ["", "", "├─ ", "└─ ", "│  └─ "]


def test_bars_fill_by_eighths_and_are_cut_at_the_whole() -> None:
    assert bar(0.5, 4, ascii_only=False) == "██  "
    assert bar(0.001, 4, ascii_only=False) == "▏   "
    assert bar(0.0, 4, ascii_only=True) == "...."
    assert bar(1.0, 4, ascii_only=False) == "████"
    assert bar(7.0, 4, ascii_only=False) == "███▶"


def test_figures_are_short() -> None:
    assert [percent(share) for share in (0.0, 1e-12, 0.0001, 1 / 3, 1.0, 25.0)] == [
        "0%",
        "0%",
        "<0.1%",
        "33.3%",
        "100%",
        "2500%",
    ]
    assert [compact("memory", amount) for amount in (0, 512, 1536 * 1024**2)] == ["0", "512", "1.5G"]
    assert compact("cpu", 150) == "1.5"
