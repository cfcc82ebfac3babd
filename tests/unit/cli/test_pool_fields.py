"""Fields of pools: each that is shown has a place in the table, and the page says what the table says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from docs.generate.fields_page import fields_page
from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, PoolConfig
from headrace.resources import Resources
from headrace.wire.plain_values import plain
from headrace.wire.pools import PoolView, ResourceDistribution
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareItem
from headrace_cli.commands.pools.fields import FIELDS, field_of, read, words
from headrace_cli.commands.pools.get_page import integral_tables

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "fields.md"
TOTAL = Resources(user_slots=100, cpu=10_000, memory=2**40)
#: Fields of a share item for operations only, and fields that a pool's view has in a better place.
ELSEWHERE = {
    "kind",
    "limits",
    "owed_everything",
    "fifo_index",
    "effective_fifo_index",
    "accumulated_ratio_volume",
    "preemption_priority",
    "rank",
    "claims",
    "short_of",
}


def by_resource(cpu: float) -> dict[str, float]:
    return {"user_slots": 0.0, "cpu": cpu, "gpu": 0.0, "memory": 0.0, "network": 0.0}


def a_pool(kind: IntegralType = IntegralType.NONE, **changes: Any) -> PoolView:
    fair = DetailedShare(strong_guarantee=(0.0, 0.2, 0.0, 0.1, 0.0), total=(0.0, 0.5, 0.0, 0.1, 0.0))
    item = ShareItem(
        ElementKind.POOL, "nightly", ROOT_POOL, fair_share=fair, usage_share=(0.1, 0.25, 0.0, 0.3, 0.0), weight=2.0
    )
    view = PoolView(
        name=PoolName("nightly"),
        parent=ROOT_POOL,
        path="/nightly",
        ephemeral=False,
        settings=PoolConfig(integral_guarantees=IntegralGuarantees(kind, PartialResources(cpu=1_000))),
        share=item,
        fair_resources=Resources(cpu=5_000),
        usage=Resources(cpu=2_550, memory=2**30),
        demand=Resources(),
        operation_count=3,
        running_operation_count=2,
    )
    if kind is not IntegralType.NONE:
        changes = {
            "accumulated_resource_volume": by_resource(600.5),
            "integral_pool_capacity": by_resource(864_000.0),
            "specified_resource_flow": by_resource(10.0),
            "specified_burst_guarantee_resources": by_resource(0.0),
            **changes,
        }
    return msgspec.structs.replace(view, **changes)


def test_every_field_of_a_pool_that_is_shown_has_a_place_in_the_table() -> None:
    shown: Any = plain(a_pool())
    inside = {name for name in shown["share"] if name not in ELSEWHERE}
    covered = {(field.path or field.name).removeprefix("share/") for field in FIELDS}

    assert (set(shown) - {"share"}) | inside == {name for name in covered if not name.startswith("settings/")}


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_can_be_read_of_every_pool(field: Any) -> None:
    for kind in IntegralType:
        pool = a_pool(kind)
        value = read(pool, field.name)
        assert words(value)
        for alias in field.aliases:
            assert read(pool, alias) == value


def test_a_name_means_one_field_only() -> None:
    names = [name for field in FIELDS for name in (field.name, *field.aliases)]

    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("accumulated_resource_volume/cpu", "600.5"),
        ("accumulated_resource_volume.cpu", "600.5"),
        ("usage/cpu", "25.5"),
        ("usage/memory", "1073741824"),
        ("usage_ratio", "0.3"),
        ("share/usage_share/cpu", "0.25"),
        ("fair_share/total/cpu", "0.5"),
        ("fair_share_ratio", "0.5"),
        ("integral_guarantee_type", "relaxed"),
        ("settings/integral_guarantees/resource_flow/cpu", "10.0"),
        ("full_path", "/nightly"),
        ("ephemeral", "false"),
        ("weight", "2.0"),
        ("resource_distribution_info", "null"),
        ("resource_distribution_info/distributed_resources/cpu", "null"),
    ],
)
def test_a_path_leads_to_one_figure(key: str, shown: str) -> None:
    assert words(read(a_pool(IntegralType.RELAXED), key)) == shown


def test_what_only_other_pools_have_is_null_and_the_table_says_which() -> None:
    assert read(a_pool(), "accumulated_resource_volume/cpu") is None
    assert field_of("accumulated_resource_volume/cpu")[0].only == "pools with an integral guarantee"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("acumulated_resource_volume", "did you mean accumulated_resource_volume"),
        ("accumulated_resource_volume/cpus", "did you mean cpu?"),
        ("fair_share/totl", "did you mean total?"),
        ("weight/cpu", "weight alone, because this field has no parts"),
        ("", "one of name, parent"),
        ("share", "did you mean"),
    ],
)
def test_what_is_no_field_is_refused_with_the_nearest(key: str, said: str) -> None:
    with pytest.raises(BadInput, match=r"^field: ") as refused:
        read(a_pool(IntegralType.BURST), key)

    assert said in str(refused.value)


def test_the_page_says_what_the_table_says() -> None:
    assert PAGE.read_text() == fields_page(), "run: make docs-reference"


def shown(pool: PoolView) -> list[str]:
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(*integral_tables(pool, TOTAL), sep="\n")
    return [" ".join(line.split()) for line in captured.get().splitlines() if line.strip()]


def test_a_relaxed_pool_is_shown_without_a_burst() -> None:
    assert shown(a_pool(IntegralType.RELAXED)) == [
        "integral slots cpu memory",
        "flow 0 10 0 B",
        "saved 0·s 600.5·s 0 B·s",
        "capacity 0·s 240·h 0 B·s",
    ]


def test_the_root_is_shown_with_what_is_promised() -> None:
    zero = by_resource(0.0)
    promised = ResourceDistribution(
        distributed_resources=by_resource(120.0),
        undistributed_resources=by_resource(-20.0),
        distributed_strong_guarantee_resources=by_resource(20.0),
        distributed_resource_flow=by_resource(50.0),
        distributed_burst_guarantee_resources=by_resource(100.0),
        undistributed_resource_flow=by_resource(50.0),
        undistributed_burst_guarantee_resources=zero,
    )

    assert shown(a_pool(resource_distribution_info=promised)) == [
        "promised slots cpu memory",
        "strong guarantees 0 20 0 B",
        "flows 0 50 0 B",
        "bursts 0 100 0 B",
        "together 0 120 0 B",
        "not promised 0 -20 0 B",
        "bursts beyond flows 0 50 0 B",
        "flows beyond bursts 0 0 0 B",
    ]
    assert shown(a_pool()) == []
