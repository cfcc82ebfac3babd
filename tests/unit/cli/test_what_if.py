"""What `plan --live` and dry runs show of shares before and after."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from headrace.ids import PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.pool_changes import AttributeDifference, PoolPlan
from headrace.wire.snapshots import ElementKind
from headrace.wire.what_if import ComparedElement, ElementShares, WhatIfAnswer
from headrace_cli.commands.plans.what_if import what_if_lines


def element(kind: ElementKind, name: str, parent: str, after: float) -> ComparedElement:
    before, later = (ElementShares(fair_share=(share, 0.0, 0.0, 0.0, 0.0)) for share in (0.1, after))
    return ComparedElement(kind, name, PoolName(parent), before, later, differs=True)


def drawn(*elements: ComparedElement) -> list[str]:
    total = Resources(user_slots=9, cpu=900)
    answer = WhatIfAnswer(PoolPlan(TreeName("default")), total, total, list(elements))
    out = Console(file=StringIO(), width=100)
    out.print(*what_if_lines(answer, 100), sep="\n")
    assert isinstance(out.file, StringIO)
    return [re.split(r"\s+10%", line)[0].rstrip() for line in out.file.getvalue().splitlines()]


def test_each_pool_is_followed_by_what_stands_in_it_though_pools_are_told_before_operations() -> None:
    pool, operation = ElementKind.POOL, ElementKind.OPERATION

    lines = drawn(
        element(pool, "<Root>", "", 0.5),
        element(pool, "first", "<Root>", 0.2),
        element(pool, "second", "<Root>", 0.3),
        element(operation, "one", "second", 0.3),
        element(operation, "two", "first", 0.2),
    )

    assert lines[1:6] == ["<Root>", "├─ first", "│  └─ two", "└─ second", "   └─ one"]


@pytest.mark.parametrize(
    ("options", "words"),
    [([], "nothing changes"), ([AttributeDifference("pause_starts", "", "true")], "no share changes")],
)
def test_nothing_changes_is_said_where_no_setting_changes_either(
    options: list[AttributeDifference], words: str
) -> None:
    total = Resources(user_slots=9, cpu=900)
    same = ComparedElement(ElementKind.POOL, "<Root>", PoolName(""), ElementShares(), ElementShares(), differs=False)
    answer = WhatIfAnswer(PoolPlan(TreeName("default"), options=options), total, total, [same])

    assert [str(line) for line in what_if_lines(answer, 100)] == [words]
