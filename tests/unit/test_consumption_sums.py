"""Adding up records of consumption: by which keys, over which periods, and which rows count."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.consumption_sums import Adding, By, Line, Wanted, checked_keys, periods, total_of
from headrace.errors import BadInput
from headrace.wire.consumption import ConsumptionRecord, ConsumptionRow, Level, RunSums, StoredRecord, pack

EVERYTHING = Wanted("default")


def a_row(pool: str, user: str, core_s: float, operation: str = "", tree: str = "default") -> ConsumptionRow:
    return ConsumptionRow(tree, pool, user, operation, RunSums(1, 0, core_s))


MONDAY = [a_row("research/vision", "anna", 5.0, "one"), a_row("research", "ben", 2.0, "two"), a_row("x", "anna", 1.0)]
TUESDAY = [a_row("research/vision", "anna", 3.0, "three"), a_row("research", "ben", 9.0, "two", tree="other")]


def added(*keys: By, wanted: Wanted = EVERYTHING) -> list[Line]:
    adding = Adding(keys, wanted)
    adding.add(StoredRecord("days.2026.11.30.00", pack(ConsumptionRecord(1, MONDAY))))
    adding.add(StoredRecord("days.2026.12.01.00", pack(ConsumptionRecord(1, TUESDAY))))
    return adding.lines()


def shown(*keys: By, wanted: Wanted = EVERYTHING) -> list[tuple[str, float]]:
    lines = added(*keys, wanted=wanted)
    texts = (" ".join(filter(None, (line.day, line.user, line.pool, line.operation))) for line in lines)
    return [(text, line.sums.allotted_core_s) for text, line in zip(texts, lines, strict=True)]


def test_rows_are_added_up_by_the_keys_and_the_largest_comes_first() -> None:
    assert shown() == [("", 11.0)]
    assert shown(By.USER) == [("anna", 9.0), ("ben", 2.0)]
    assert shown(By.DAY) == [("2026-11-30", 8.0), ("2026-12-01", 3.0)]
    assert shown(By.POOL) == [("/research/vision", 8.0), ("/research", 2.0), ("/x", 1.0)]
    assert shown(By.USER, By.OPERATION) == [("anna one", 5.0), ("anna three", 3.0), ("ben two", 2.0), ("anna", 1.0)]


def test_a_pool_of_the_tree_has_all_that_is_below_it() -> None:
    assert shown(By.TREE) == [("/", 11.0), ("/research", 10.0), ("/research/vision", 8.0), ("/x", 1.0)]
    assert total_of(added(By.TREE, By.USER), (By.TREE, By.USER)) == RunSums(4, 0, 11.0)
    assert total_of(added(By.POOL), (By.POOL,)) == RunSums(4, 0, 11.0)


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (Wanted("other"), [("ben", 9.0)]),
        (Wanted("default", pool="research"), [("anna", 8.0), ("ben", 2.0)]),
        (Wanted("default", pool="vision"), [("anna", 8.0)]),
        (Wanted("default", pool="search"), []),
        (Wanted("default", user="ben"), [("ben", 2.0)]),
        (Wanted("default", operation="three"), [("anna", 3.0)]),
    ],
    ids=["tree", "pool and below", "pool", "part of a name", "person", "operation"],
)
def test_only_wanted_rows_count(wanted: Wanted, lines: list[tuple[str, float]]) -> None:
    assert shown(By.USER, wanted=wanted) == lines


def test_a_record_that_comes_again_replaces_the_earlier_one() -> None:
    adding = Adding((By.USER,), EVERYTHING)
    for core_s in (5.0, 7.0):
        adding.add(StoredRecord("days.2026.11.30.00", pack(ConsumptionRecord(1, [a_row("x", "anna", core_s)]))))
    adding.add(StoredRecord("days.2026.11.30.01", pack(ConsumptionRecord(1, [a_row("x", "anna", 1.0)]))))
    assert [(line.user, line.sums.allotted_core_s) for line in adding.lines()] == [("anna", 8.0)]


def test_nothing_adds_up_to_nothing() -> None:
    adding = Adding((By.USER,), EVERYTHING)
    assert adding.lines() == []
    adding.add(StoredRecord("years.2026.00", pack(ConsumptionRecord(1, []))))
    assert adding.lines() == []


@given(st.dates(date(1999, 1, 1), date(2003, 1, 1)), st.integers(0, 1500), st.sampled_from([*By, None]))
def test_periods_cover_each_day_once_in_as_large_steps_as_the_keys_allow(
    since: date, days: int, key: By | None
) -> None:
    until = since + timedelta(days)
    found = list(periods(since, until, [key] if key else [], EVERYTHING))
    covered = [day for _, period in found for day in days_of(period)]

    assert covered == [since + timedelta(n) for n in range(days)]
    levels = {level for level, _ in found}
    if key is By.DAY:
        assert levels <= {Level.DAYS}
    elif key is By.OPERATION:
        assert levels <= {Level.OPERATIONS}
    else:
        assert all(level == [Level.YEARS, Level.MONTHS, Level.DAYS][period.count(".")] for level, period in found)
    assert len(found) <= 2 * (30 + 11) + 5


def days_of(period: str) -> list[date]:
    year, month, day = (*(int(part) for part in period.split(".")), 0, 0)[:3]
    first, day_s = date(year, month or 1, day or 1), timedelta(1)
    found = []
    while first.year == year and month in (0, first.month) and day in (0, first.day):
        found.append(first)
        first += day_s
    return found


def test_the_last_year_of_the_calendar_has_an_end() -> None:
    assert list(periods(date(9999, 12, 30), date.max, [], EVERYTHING)) == [(Level.DAYS, "9999.12.30")]


@pytest.mark.parametrize("keys", [[By.USER, By.USER], [By.POOL, By.TREE]])
def test_keys_that_exclude_each_other_are_refused(keys: list[By]) -> None:
    with pytest.raises(BadInput, match="--by"):
        checked_keys(keys, "--by")
