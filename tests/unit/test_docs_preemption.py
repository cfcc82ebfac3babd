"""docs/why/preemption.md says what the services do: its cases are run again, and every figure of its tables compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from docs.pictures.build import pictures_of
from docs.pictures.cases import PAGE, Moment, cases, moments, with_pool_option
from docs.pictures.preemption import PICTURES, draw
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES
from headrace_allocator.settings import AllocatorSettings

TEXT = PAGE.read_text()
TABLE = re.compile(r"^<!-- table: (.+) -->\n((?:\|.*\n)+)", re.MULTILINE)
TABLES = [
    (mark, [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()[2:]])
    for mark, text in TABLE.findall(TEXT)
]


@cache
def course(name: str, *options: str) -> list[Moment]:
    case: dict[str, Any] = cases()[name]
    for option in options:
        pool, _, setting = option.partition(":")
        key, _, value = setting.partition("=")
        case = with_pool_option(case, pool, key, json.loads(value))
    return list(moments(case))


def heartbeats(name: str, *options: str) -> list[list[str]]:
    return [
        [f"{now.at_s:.1f}", now.beat.node, ", ".join(now.beat.started), ", ".join(now.beat.given_up)]
        for now in course(name, *options)
        if now.beat is not None
    ]


def statuses(name: str, operation: str) -> list[list[str]]:
    rows = []
    for at_s in dict.fromkeys(now.at_s for now in course(name)):
        item = next(now for now in course(name)[::-1] if now.at_s == at_s).items.get(operation)
        if item is not None:
            rows.append(
                [f"{at_s:.1f}", f"{item.fair_share.total[1]:.2f}", item.scheduling_status, item.starvation_status]
            )
    return rows


def groups(name: str, at_s: str, operation: str) -> list[list[str]]:
    last = next(now for now in course(name)[::-1] if now.at_s == float(at_s))
    rows, before = [], 0.0
    for held in last.held:
        if held.operation == operation:
            rows.append([held.name, f"{before:g}", held.group.name.lower()])
            before += held.cpu
    return rows


KINDS: dict[str, Callable[..., list[list[str]]]] = {"heartbeats": heartbeats, "statuses": statuses, "groups": groups}


@pytest.mark.parametrize(("mark", "rows"), TABLES, ids=[mark for mark, _ in TABLES])
def test_every_figure_of_a_table_is_what_the_engines_come_to(mark: str, rows: list[list[str]]) -> None:
    kind, *arguments = mark.split()
    happened = KINDS[kind](*arguments)

    # A table of statuses may leave moments out.
    assert rows == [row for row in happened if kind != "statuses" or row[0] in {each[0] for each in rows}]


def test_every_case_is_used_by_a_table_and_every_kind_of_table_is_there() -> None:
    assert {mark.split()[1] for mark, _ in TABLES} == set(cases())
    assert {mark.split()[0] for mark, _ in TABLES} == set(KINDS)


def test_every_option_that_the_page_names_can_be_set() -> None:
    known = {*POOL_ATTRIBUTES.names, *TREE_ATTRIBUTES.names, *AllocatorSettings.__struct_fields__}
    named = {name for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)[`=:]", TEXT)}

    assert len(named) > 12
    assert named <= known


def test_every_picture_of_the_built_page_is_drawn_and_every_one_drawn_is_shown(tmp_path: Path) -> None:
    assert sorted(pictures_of(TEXT)) == sorted(f"preemption/{name}.svg" for name in PICTURES)
    for name in PICTURES:
        draw(name, tmp_path / f"{name}.svg")
        assert "</svg>" in (tmp_path / f"{name}.svg").read_text()
