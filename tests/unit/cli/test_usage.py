"""`headrace usage`: what its options mean, what it prints, and that its page shows names and lets none of them act."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headrace.client.consumption import Consumed, Consumption
from headrace.consumption_sums import By, Line, total_of
from headrace.errors import BadInput
from headrace.ids import TreeName
from headrace.pools.tree_options import Prices
from headrace.wire.consumption import (
    ConsumptionPage,
    ConsumptionRecord,
    ConsumptionRow,
    GetConsumption,
    Level,
    RunSums,
    StoredRecord,
    pack,
)
from headrace_cli.commands.usage.command import read_days, read_keys
from headrace_cli.commands.usage.report import Report, page_of
from headrace_cli.commands.usage.tables import Shown, csv_text, left_out_words, notes, usage_json, usage_table
from tests.support.clocks import HandClock

NOON_MS = int(datetime(2026, 11, 28, 12, tzinfo=UTC).timestamp() * 1000)
HOUR = RunSums(3, 2, 7200.0, 3600.0 * 2**30, 0.0, 1800.0, 0.0, 720.0, 0.0, 0.0, 3600.0)
FEW = RunSums(1, 0, 3600.0)
EVIL = "<script>alert(1)</script>"


def consumed(*lines: Line, **fields: Any) -> Consumed:
    return Consumed(date(2026, 11, 1), date(2026, 12, 1), list(lines), **fields)


def printed(shown: Shown) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(usage_table(shown, ascii_only=True))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_table_has_hours_parts_and_bars_and_a_total() -> None:
    shown = Shown(consumed(Line("", "anna", "", "", HOUR), Line("", "", "", "", FEW)), (By.USER,), "cpu")
    head, anna, others, total = printed(shown)

    assert head.split() == ["user", "runs", "core-h", "used", "GiB-h", "GPU-h", "preempted", "failed", "cpu"]
    assert anna.split() == ["anna", "3", "2", "25%", "1", "0", "10%", "50%", "#" * 24]
    assert others.split() == ["(others)", "1", "1", "–", "0", "0", "0%", "0%", "#" * 12 + "." * 12]
    assert total.split() == ["total", "4", "3", "16.7%", "1", "0", "6.7%", "33.3%"]


def test_the_tree_is_drawn_and_has_no_total_of_its_own() -> None:
    lines = [Line("", "", pool, "", HOUR) for pool in ("/", "/research", "/research/vision", "/x")]
    shown = Shown(consumed(*lines), (By.TREE,), "cpu")

    assert [re.split(r" {2,}[0-9r]", line)[0] for line in printed(shown)] == [
        "pool and below",
        "/",
        "├─ research",
        "│  └─ vision",
        "└─ x",
    ]


def test_costs_are_those_of_what_was_allotted() -> None:
    prices = Prices(cpu=0.5, memory=0.25, gpu=2.0, currency="EUR")
    shown = Shown(consumed(Line("", "anna", "", "", HOUR)), (By.USER,), "cpu", prices)

    assert "1.25" in printed(shown)[1].split()
    assert "cost, EUR" in printed(shown)[0]
    total: Any = usage_json(shown)["total"]
    assert (total["cost"], total["currency"]) == (1.25, "EUR")


def test_bars_and_order_are_those_of_the_chosen_resource() -> None:
    wide = RunSums(1, 0, 1.0, 0.0, 7200.0)
    shown = Shown(consumed(Line("", "anna", "", "", HOUR), Line("", "ben", "", "", wide)), (By.USER,), "gpu")

    assert [line.split()[0] for line in printed(shown)[1:]] == ["ben", "anna", "total"]


def test_a_table_has_a_bounded_number_of_lines_and_the_total_of_all() -> None:
    lines = [Line("", f"user{number}", "", "", RunSums(1, 0, 3600.0)) for number in range(1_200)]
    shown = Shown(consumed(*lines), (By.USER,), "cpu")
    text = printed(shown)

    assert sum("user" in line for line in text[1:]) == 1_000
    assert next(line.split() for line in text if "total" in line)[:3] == ["total", "1200", "1,200"]
    assert left_out_words(shown) == "the table has the first 1,000 of 1,200 lines; --csv and --json print all lines"
    assert left_out_words(Shown(consumed(*lines[:1_000]), (By.USER,), "cpu")) == ""
    assert len(csv_text(shown).splitlines()) == 1_201
    assert len(usage_json(shown)["lines"]) == 1_200  # type: ignore[arg-type]


def test_csv_has_the_keys_and_every_sum_and_nothing_that_a_spreadsheet_computes() -> None:
    shown = Shown(consumed(Line("2026-11-28", "=cmd()", "/a,b", "", HOUR)), (By.DAY, By.USER, By.POOL), "cpu")
    head, row = csv.reader(io.StringIO(csv_text(shown)))

    assert head == ["day", "user", "pool", *RunSums.__struct_fields__]
    assert row[:5] == ["2026-11-28", "'=cmd()", "/a,b", "3", "2"]
    assert [float(cell) for cell in row[5:8]] == [7200.0, 3600.0 * 2**30, 0.0]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (consumed(), "a run counts when it has ended"),
        (consumed(begun=date(2026, 11, 5)), "counted since 2026-11-05"),
        (consumed(kept_since=date(2026, 11, 9)), "kept since 2026-11-09"),
        (consumed(lost_runs=7), "7 runs could not be counted"),
        (consumed(unreadable=2), "2 records could not be read"),
    ],
)
def test_what_the_sums_lack_is_said(found: Consumed, words: str) -> None:
    assert any(words in line for line in notes(Shown(found, (By.USER,), "cpu")))


@pytest.mark.parametrize(
    ("since", "until", "days"),
    [
        ("30d", "now", (date(2026, 10, 29), date(2026, 11, 29))),
        ("2026-10-01", "2026-11-01", (date(2026, 10, 1), date(2026, 11, 1))),
        ("2026-10-01", "2999-01-01", (date(2026, 10, 1), date(2026, 11, 30))),
        ("2026-11-28", "now", (date(2026, 11, 28), date(2026, 11, 29))),
    ],
)
def test_a_period_is_of_whole_days(since: str, until: str, days: tuple[date, date]) -> None:
    assert read_days(since, until, NOON_MS) == days


@pytest.mark.parametrize(
    ("read", "place"),
    [
        (lambda: read_days("2026-11-01", "2026-11-01", NOON_MS), "--since"),
        (lambda: read_days("yesterday", "now", NOON_MS), "--since"),
        (lambda: read_days("1d", "9999-99-99", NOON_MS), "--until"),
        (lambda: read_keys("usr"), "user"),
        (lambda: read_keys(""), "--by"),
        (lambda: read_keys("pool,tree"), "not both"),
        (lambda: read_keys("user,user"), "once"),
    ],
)
def test_bad_options_are_refused_with_what_is_accepted(read: Any, place: str) -> None:
    with pytest.raises(BadInput, match=place):
        read()


def a_report(*, days: int = 30, prices: Prices | None = None, count: int = 1) -> Report:
    users = [Line("", f"{EVIL}{number}", "", "", HOUR) for number in range(count)]
    by_day = [Line(date.fromordinal(739_000 + 3 * n).isoformat(), "", "", "", HOUR) for n in range(days)]
    found = Consumed(date.fromordinal(739_000), date.fromordinal(740_500), users)
    made = datetime(2026, 11, 28, tzinfo=UTC)
    tree = [Line("", "", "/", "", HOUR), Line("", "", f"/{EVIL}", "", HOUR)]

    def of(lines: list[Line]) -> Consumed:
        return Consumed(found.since, found.until, lines)

    return Report("default", made, of(tree), found, of([]), of(by_day), {"pool": EVIL, "user": ""}, prices)


@pytest.mark.parametrize("days", [0, 1, 20, 300])
def test_the_page_needs_nothing_else_and_runs_nothing(days: int) -> None:
    page = page_of(a_report(days=days))

    assert not re.search(r"<(script|link|img|iframe)|https?://|@import|url\(", page)
    assert "&lt;script&gt;" in page
    assert "prefers-color-scheme:dark" in page
    assert page.count("<rect") == {0: 0, 1: 2, 20: 2 * 58, 300: 2 * 31}[days]


def test_the_page_has_costs_only_with_prices_and_a_bounded_table() -> None:
    page = page_of(a_report(prices=Prices(cpu=0.5, currency="EUR"), count=1_000))

    assert "cost EUR" in page
    assert "cost" not in page_of(a_report())
    assert "800 more" in page
    assert "<tr><td>total</td><td>3000</td>" in page


class _Answers:
    """An asker that answers from records, a record on each page, and changes one record after the first page."""

    def __init__(self, records: dict[str, list[bytes]]) -> None:
        self.records = records
        self.asked: list[GetConsumption] = []

    async def ask(self, _verb: str, request: GetConsumption, _kind: Any) -> ConsumptionPage:
        self.asked.append(request)
        pages = [
            StoredRecord(key, data)
            for key, values in self.records.items()
            if key.startswith(f"{request.level}.{request.period}.")
            for data in values
        ]
        place = request.after
        following = place + 1 if place + 1 < len(pages) else None
        return ConsumptionPage(pages[place : place + 1], following, kept_days=400, begun_ms=NOON_MS, lost_runs=1)


async def test_the_client_adds_up_all_pages_and_takes_the_newest_of_a_record() -> None:
    def stored(user: str, core_s: float) -> bytes:
        rows = [ConsumptionRow("default", "a", user, "", RunSums(1, 0, core_s))]
        return pack(ConsumptionRecord(1, rows))

    answers = _Answers(
        {
            "days.2026.11.28.00": [stored("anna", 1.0), stored("anna", 2.0)],
            "days.2026.11.28.01": [stored("ben", 5.0), b"damaged"],
            "years.2026.00": [stored("carl", 9.0)],
        }
    )
    client = Consumption(answers, HandClock(NOON_MS), TreeName("default"))  # type: ignore[arg-type]
    found = await client.summed((By.USER,), since=date(2026, 11, 28), until=date(2026, 11, 29))
    year = await client.summed((By.USER,), since=date(2026, 1, 1), until=date(2026, 11, 29))

    assert {line.user: line.sums.allotted_core_s for line in found.lines} == {"anna": 2.0}
    assert (found.begun, found.lost_runs, found.unreadable) == (date(2026, 11, 28), 1, 1)
    # The year has no more days to come, so one record of the year is read instead of those of ten months and of days.
    assert [(each.level, each.period) for each in answers.asked][-1:] == [(Level.YEARS, "2026")]
    assert total_of(year.lines, (By.USER,)).allotted_core_s == 9.0


async def test_the_client_says_which_days_are_not_kept() -> None:
    client = Consumption(_Answers({}), HandClock(NOON_MS), TreeName("default"))  # type: ignore[arg-type]
    found = await client.summed((By.DAY,), since=date(2020, 2, 3), until=date(2026, 11, 29))
    recent = await client.summed((By.DAY,), since=date(2026, 11, 1), until=date(2026, 11, 29))

    assert found.kept_since == date(2025, 10, 24)
    assert recent.kept_since is None


async def test_the_client_asks_for_no_year_that_can_have_no_records() -> None:
    """A request for 4,234 years to come took longer than programs wait for an answer."""
    answers = _Answers({})
    client = Consumption(answers, HandClock(NOON_MS), TreeName("default"))  # type: ignore[arg-type]
    for since, until in ((date.min, date.max), (date(2029, 3, 30), date.max), (date.min, date(1969, 5, 5))):
        found = await client.summed((By.USER,), since=since, until=until)
        assert (found.since, found.until, found.lines) == (since, until, [])

    assert [each.period for each in answers.asked] == [str(year) for year in range(1970, 2027)]


async def test_a_report_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    from headrace_cli.commands.usage.report import write_report

    class Asked:
        place = type("Place", (), {"tree": "default"})
        consumption = Consumption(_Answers({}), HandClock(NOON_MS), TreeName("default"))  # type: ignore[arg-type]

    day = date(2026, 11, 1)
    with pytest.raises(BadInput, match="--report"):
        await write_report(Asked(), tmp_path / "none" / "page.html", day, date(2026, 11, 2), {}, None)  # type: ignore[arg-type]
    await write_report(Asked(), tmp_path / "page.html", day, date(2026, 11, 2), {}, None)  # type: ignore[arg-type]
    assert "Nothing was used." in (tmp_path / "page.html").read_text()
