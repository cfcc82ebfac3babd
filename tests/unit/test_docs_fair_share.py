"""docs/why/fair-share.md says what the algorithm does: its plans are computed again, and every figure of its tables compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from docs.pictures.build import COMMITTED, committed_pictures, pictures_of
from docs.pictures.fair_share import PICTURES, draw
from docs.pictures.steps import PAGE, ROOT, Steps, by_resource, over_time, plans, sum_at, with_options
from headrace.resources import Share
from headrace.satisfaction import local_satisfaction
from headrace.wire.plan import Plan
from headrace.wire.pools import PoolView
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareItem
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from headrace_fair_share.plan.__main__ import plan_of
from tests.reference.update import compute
from tests.support.update_result import ElementShares, UpdateResult, update

TEXT = PAGE.read_text()
#: Mark of a table, and the lines of the table.
TABLE = re.compile(r"^<!-- table: (.+) -->\n((?:\|.*\n)+)", re.MULTILINE)
OPTIONS = {"improved", "fifo_reordering", "charge_skipped_relaxed_pools"}

#: Heads of columns without the resource, and what they show.
SHARES: dict[str, Callable[[ElementShares], Share]] = {
    "demand": lambda each: each.demand_share,
    "limit": lambda each: each.limits_share,
    "guarantee": lambda each: each.strong_guarantee_share,
    "grant": lambda each: each.integral_guarantee_share,
    "fair share": lambda each: each.fair_share,
    "strong": lambda each: each.strong_part,
    "integral": lambda each: each.integral_part,
    "by weight": lambda each: each.weight_proportional_part,
    "promised": lambda each: each.promised_guarantee_fair_share,
}
NUMBERS: dict[str, Callable[[ElementShares], float]] = {
    "weight": lambda each: each.weight,
    "burst ratio": lambda each: each.burst_ratio,
}


@dataclass(frozen=True)
class Table:
    kind: str
    arguments: list[str]
    heads: list[str]
    rows: list[list[str]]

    @property
    def tree(self) -> TreeInput:
        return with_options(plans()[self.arguments[0]], **dict.fromkeys(OPTIONS & set(self.arguments), True))

    @property
    def element(self) -> str:
        return self.arguments[1]

    def cells(self) -> Iterator[tuple[list[str], str, str]]:
        """Each row with the heads of its columns but the first, and what stands there."""
        for row in self.rows:
            for head, cell in zip(self.heads[1:], row[1:], strict=True):
                yield row, head, cell


def tables() -> list[Table]:
    found = []
    for mark, text in TABLE.findall(TEXT):
        lines = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in text.splitlines()]
        kind, *arguments = mark.split()
        found.append(Table(kind, arguments, lines[0], lines[2:]))
    return found


def of_kind(*kinds: str) -> pytest.MarkDecorator:
    chosen = [table for table in tables() if table.kind in kinds]
    return pytest.mark.parametrize(
        "table", chosen, ids=[" ".join((each.kind, *each.arguments, each.heads[-1])) for each in chosen]
    )


@cache
def steps(name: str) -> Steps:
    return Steps(plans()[name])


def elements(result: UpdateResult) -> dict[str, ElementShares]:
    return {ROOT: result.root, **result.pools, **result.operations}


def figure(shares: ElementShares, head: str) -> float:
    """What a column shows of an element."""
    if head in NUMBERS:
        return NUMBERS[head](shares)
    what, resource = head.rsplit(" ", 1)
    return SHARES[what](shares)[by_resource(resource)]


def assert_says(cell: str, actual: float, where: object) -> None:
    """The cell is the figure, rounded to as many places as it has."""
    places = len(cell.partition(".")[2])

    assert abs(float(cell) - actual) <= 0.5 * 10**-places + 1e-6, f"{where}: the page says {cell}, it is {actual:.6f}"


def test_every_marked_table_is_of_a_kind_that_is_checked_and_every_other_is_in_words() -> None:
    checked = {"figures", "by-fit", "by-suggestion", "handed", "savings", "satisfaction"}
    unmarked = re.findall(r"(?<!-->\n)(?:^\|.*\n)+", re.sub(TABLE, "", TEXT), re.MULTILINE)

    assert {table.kind for table in tables()} == checked
    assert len(unmarked) == 2
    assert not re.search(r"\| *[\d.]+ *\|", "".join(unmarked))


def test_every_plan_is_used_by_a_table() -> None:
    assert set(plans()) == {table.arguments[0] for table in tables()}


@of_kind("figures")
def test_figures_are_those_of_the_algorithm(table: Table) -> None:
    shares = elements(update(table.tree))

    for row, head, cell in table.cells():
        assert_says(cell, figure(shares[row[0]], head), (row[0], head))


@of_kind("handed")
def test_what_is_handed_down_is_what_the_algorithm_hands_down(table: Table) -> None:
    shares, way = elements(update(table.tree)), steps(table.arguments[0])

    assert {row[0] for row in table.rows} == set(shares)
    for row, head, cell in table.cells():
        suggestion, fit = way.handed[row[0]]
        on_the_way = {"suggestion": suggestion, "fit factor": fit}
        actual = on_the_way[head] if head in on_the_way else figure(shares[row[0]], head)
        assert_says(cell, actual, (row[0], head))


@of_kind("by-fit", "by-suggestion")
def test_points_of_functions_are_those_of_the_algorithm(table: Table) -> None:
    built = steps(table.arguments[0]).built[table.element]
    by_what = built.by_fit if table.kind == "by-fit" else built.shares

    for row, head, cell in table.cells():
        at = float(row[0])
        actual = built.fit.value(at) if head == "fit factor" else sum_at(by_what, at)[by_resource(head)]
        assert_says(cell, actual, (at, head))


@of_kind("savings")
def test_savings_move_as_the_algorithm_moves_them(table: Table) -> None:
    spans = [each.partition("x") for each in table.arguments[2:] if each not in OPTIONS] or [("600", "x", "1")]
    seconds = [float(length or count) for count, _, length in spans for _ in range(int(count) if length else 1)]
    results = over_time(table.tree, seconds)
    moments = {sum(seconds[:at]): result for at, result in enumerate(results)}

    for row, head, cell in table.cells():
        result = moments[float(row[0])]
        volume = result.integral[table.element].volume
        ratio = min(v / all_ for v, all_ in zip(volume, table.tree.total.as_tuple(), strict=True) if all_)
        actual = ratio if head == "ratio volume" else figure(result.pools[table.element], head)
        assert_says(cell, actual, (row[0], head))


@of_kind("satisfaction")
def test_satisfaction_is_what_all_services_take_it_for(table: Table) -> None:
    shares = update(table.tree).pools

    for name, cpu, memory, cell in table.rows:
        usage = (0.0, float(cpu), 0.0, float(memory), 0.0)
        assert_says(cell, local_satisfaction(usage, shares[name].fair_share, shares[name].demand_share), name)


@pytest.mark.parametrize("name", plans())
@pytest.mark.parametrize("improved", [False, True])
def test_the_curves_that_are_drawn_are_those_that_the_service_computes_with_and_those_of_the_definition(
    name: str, improved: bool
) -> None:
    tree = with_options(plans()[name], improved=improved)
    way, updater = Steps(tree), TreeUpdater(builds_always=True)
    layout = updater.update(tree).layout
    assert updater.functions is not None
    store, (twin, _) = updater.functions.store, compute(tree)
    rows = dict(zip((pool.name for pool in tree.pools), layout.of_pool.tolist(), strict=True))
    rows |= zip((operation.name for operation in tree.operations), layout.of_operation.tolist(), strict=True)
    defined = {each.name: each.made().fs for pool in (twin.root, *twin.pools) for each in pool.children}
    places = np.arange(98) / 97

    for element, row in rows.items():
        kept = slice(store.first[row], store.first[row] + store.count[row])
        assert store.suggestion[kept].tolist() == [s for s, _ in way.built[element].fit.points], element
        for r, function in enumerate(way.built[element].shares):
            assert store.shares[r, kept].tolist() == pytest.approx([y for _, y in function.points], abs=1e-12), element
        shares = store.shares_at(np.full(len(places), row), places)
        assert pytest.approx(np.array([defined[element].value(s) for s in places]), abs=1e-12) == shares.T, element


@pytest.mark.parametrize("name", plans())
def test_what_is_drawn_as_handed_out_is_what_the_algorithm_hands_out(name: str) -> None:
    way = steps(name)

    for element, (suggestion, _) in way.handed.items():
        if element != ROOT and (element in way.result.operations or way.children(element)):
            drawn = sum_at(way.built[element].shares, suggestion)
            assert drawn == pytest.approx(way.figures[element].fair_share, abs=1e-9), element


def test_every_picture_of_the_built_page_is_drawn_and_every_one_drawn_is_shown() -> None:
    assert sorted(pictures_of(TEXT)) == sorted(f"fair-share/{name}.svg" for name in PICTURES)


@pytest.mark.parametrize("name", sorted(set(PICTURES) - {"burst", "interrupted"}))
def test_every_picture_of_a_moment_can_be_drawn(name: str, tmp_path: Path) -> None:
    draw(name, tmp_path / "picture.svg")

    assert "</svg>" in (tmp_path / "picture.svg").read_text()


def test_few_and_small_pictures_are_committed_and_each_of_them_is_shown_as_it_is() -> None:
    shown = [PAGE.parent / path for path in re.findall(r"!\[[^\]]+\]\(([^)]+\.svg)\)", TEXT)]

    assert sorted(shown) == sorted(committed_pictures())
    assert [path.stem for path in shown if path.stem not in COMMITTED] == []
    assert sum(path.stat().st_size for path in shown) < 50_000


def test_every_field_of_the_glossary_is_one_that_pool_get_shows() -> None:
    glossary = TEXT.partition("## Which field shows what?")[2].partition("| term")[2]
    shown = {*PoolView.__struct_fields__, *ShareItem.__struct_fields__, *DetailedShare.__struct_fields__}

    assert set(re.findall(r"`(\w+)`", glossary)) <= shown


@pytest.mark.parametrize(("name", "text"), re.findall(r"```json plan=(\S+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
def test_the_command_that_computes_plans_takes_the_page_s_and_says_the_same(
    name: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)

    computed = plan_of(str(file))

    assert isinstance(computed, Plan)
    shares = {ROOT if each.kind is ElementKind.ROOT else each.name: each.share for each in computed.elements}
    for element, figures in elements(update(plans()[name])).items():
        assert shares[element].fair_share.total == pytest.approx(figures.fair_share, abs=1e-9), element
