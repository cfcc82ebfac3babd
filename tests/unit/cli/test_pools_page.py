"""The reference of attributes, and how plans are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate.pools_page import pools_page
from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES
from headrace.wire.pool_changes import AttributeDifference, PoolDifference, PoolPlan
from headrace_cli.commands.pools.attributes import attribute_table, rows_of
from headrace_cli.show.configuration_changes import plan_lines

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "pools.md"


def test_the_reference_of_pools_is_the_table_of_attributes() -> None:
    assert PAGE.read_text() == pools_page(), "run: make docs-reference"
    for schema in (POOL_ATTRIBUTES, TREE_ATTRIBUTES):
        for attribute in schema.attributes.values():
            assert f"`{attribute.name}`" in PAGE.read_text()


def test_what_is_said_to_be_in_force_is_read_by_something() -> None:
    """Beyond the tables and Structs themselves, and beyond the rules of configuration."""
    pools, fair_share = ROOT / "shared/headrace/pools", ROOT / "services/headrace_fair_share"
    tables = {pools / "pool_config.py", pools / "tree_options.py", *(fair_share / "plan").glob("*.py")}
    tables |= {fair_share / "configuration" / "rules.py", fair_share / "configuration" / "draft.py"}
    sources = {*(ROOT / "services").rglob("*.py"), *pools.glob("*.py")} - tables
    text = "\n".join(source.read_text() for source in sources)
    in_force = {
        row["name"].rpartition("/")[2]
        for schema in (POOL_ATTRIBUTES, TREE_ATTRIBUTES)
        for row in rows_of(schema)
        if row["effect"] == "in force"
    }

    assert sorted(name for name in in_force if not re.search(rf"\.{name}\b", text, re.IGNORECASE)) == []


def test_one_attribute_is_found_by_any_of_its_names_or_a_part_of_one() -> None:
    assert [row["name"] for row in attribute_table(POOL_ATTRIBUTES, "min_share_resources")[0]] == [
        "strong_guarantee_resources"
    ]
    assert [row["name"] for row in attribute_table(POOL_ATTRIBUTES, "resource_flow")[0]] == [
        "integral_guarantees/resource_flow"
    ]
    with pytest.raises(BadInput, match="did you mean weight"):
        attribute_table(POOL_ATTRIBUTES, "wieght")


def test_a_default_that_is_a_map_is_told() -> None:
    defaults = {row["name"]: row["default"] for row in rows_of(TREE_ATTRIBUTES)}

    assert defaults["min_spare_allocation_resources_on_node"] == "user_slots 1, cpu 1, memory 256 MiB"
    assert defaults["non_preemptible_resource_usage_threshold"] == "none"


def test_a_plan_is_shown_pool_by_pool_with_figures_before_and_after() -> None:
    plan = PoolPlan(
        tree=TreeName("default"),
        created=[PoolDifference(PoolName("b"), "", "/a/b", [AttributeDifference("weight", "", "2.0")])],
        changed=[PoolDifference(PoolName("c"), "/c", "/a/c", [AttributeDifference("mode", '"fifo"', "")])],
        removed=[PoolDifference(PoolName("d"), "/d", "")],
        options=[AttributeDifference("main_resource", "", '"memory"')],
        left_out=3,
    )

    assert [line.plain for line in plan_lines(plan)] == [
        "~ options of tree default",
        '    main_resource: "memory"',
        "+ /a/b",
        "    weight: 2.0",
        "~ /c -> /a/c",
        '    mode: "fifo" -> not set',
        "- /d",
        "and 3 more pools",
    ]
    assert [line.plain for line in plan_lines(PoolPlan(tree=TreeName("default")))] == ["nothing changes"]
