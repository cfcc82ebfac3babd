"""Memory and times in files have units, as everywhere where people write them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Defects, PoolConfig, Schema, TreeOptions
from headrace.tree_file.pools import read_tree_file
from headrace.tree_file.problems import Problems
from headrace.tree_file.values import parse

POOL = "pools: {a: {%s}}"
OPTIONS = "options: {%s}"


def attributes_of(text: str) -> tuple[Schema, Any, dict[str, Any]]:
    problems = Problems("f")
    file = read_tree_file(parse(text.encode(), problems), problems)
    assert problems.found == []
    if file.options is not None:
        return TREE_ATTRIBUTES, TreeOptions(), file.options
    return POOL_ATTRIBUTES, PoolConfig(), file.pools[0].attributes


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (POOL % "resource_limits: {cpu: 4, memory: 8}", "resource_limits.memory"),
        (POOL % "resource_limits/memory: 8", "resource_limits.memory"),
        (POOL % "integral_guarantees: {resource_flow: {memory: 8}}", "integral_guarantees.resource_flow.memory"),
        (POOL % "integral_guarantees/resource_flow/memory: 8", "integral_guarantees.resource_flow.memory"),
        (POOL % "preemption_exempt_time: 5", "preemption_exempt_time"),
        (OPTIONS % "fair_share_starvation_timeout: 30.5", "fair_share_starvation_timeout"),
        (OPTIONS % "integral_guarantees: {smooth_period: 60}", "integral_guarantees.smooth_period"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_number_of_memory_or_time_without_a_unit_is_refused(text: str, place: str, as_json: bool) -> None:
    if as_json:
        text = "{" + re.sub(r"([\w/]+):", r'"\1":', text) + "}"
    schema, before, attributes = attributes_of(text)
    with pytest.raises(Defects) as refused:
        schema.changed(before, attributes)
    (problem,) = refused.value.problems
    assert problem.place == place
    assert "with a unit, such as" in problem.expected


def test_with_a_unit_or_zero_it_is_what_it_says() -> None:
    schema, before, attributes = attributes_of(
        POOL
        % "resource_limits: {cpu: 4, memory: 8G}, strong_guarantee_resources: {memory: 0}, preemption_exempt_time: 0"
    )
    read = schema.changed(before, attributes).value
    assert read.resource_limits.memory == 8 * 1024**3
    assert (read.strong_guarantee_resources.memory, read.preemption_exempt_time) == (0, 0)


def test_other_numbers_stay_numbers() -> None:
    _, _, attributes = attributes_of(POOL % "weight: 2, resource_limits: {cpu: 0.5}, metering_tags: {memory: 8}")
    assert attributes == {"weight": 2, "resource_limits": {"cpu": 0.5}, "metering_tags": {"memory": 8}}
