"""Adding up records of consumption: by which keys, over which periods, and which rows count."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, timedelta
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.consumption_sums import Adding, By, Line, Wanted, _added_up, checked_keys, periods, total_of
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
        assert levels <= {Level.POOLS}
    elif key is By.OPERATION:
        assert levels <= {Level.OPERATIONS}
    else:
        assert all(level == [Level.YEARS, Level.MONTHS, Level.DAYS][period.count(".")] for level, period in found)
    assert len(found) <= 2 * (30 + 11) + 5


@pytest.mark.parametrize(
    ("keys", "wanted", "level"),
    [
        ((By.DAY, By.TREE), EVERYTHING, Level.POOLS),
        ((By.DAY, By.POOL), Wanted("default", pool="x"), Level.POOLS),
        ((By.DAY, By.USER), EVERYTHING, Level.DAYS),
        ((By.DAY,), Wanted("default", user="anna"), Level.DAYS),
        ((By.DAY, By.USER), Wanted("default", operation="one"), Level.OPERATIONS),
    ],
)
def test_the_smallest_records_of_days_that_have_the_wanted_rows_are_read(
    keys: tuple[By, ...], wanted: Wanted, level: Level
) -> None:
    assert {each for each, _ in periods(date(2026, 1, 1), date(2026, 3, 9), keys, wanted)} == {level}


_AMOUNTS = st.floats(0, 1e15, allow_nan=False)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "a", "a/b", "a/b/c", "d"]),
            st.sampled_from(["", "anna", "ben", "carl"]),
            st.sampled_from(["", "one", "two"]),
            _AMOUNTS,
            _AMOUNTS,
        ),
        max_size=40,
    ),
    st.lists(st.sampled_from(list(By)), max_size=4, unique=True).filter(lambda keys: not {By.POOL, By.TREE} <= {*keys}),
    st.sampled_from([3, 2**63 - 1]),
)
def test_sums_and_their_order_are_those_of_plain_additions(
    rows: list[tuple[str, str, str, float, float]], keys: list[By], largest: int
) -> None:
    adding = Adding(keys, EVERYTHING)
    sums: dict[tuple[str, str, str, str], RunSums] = defaultdict(RunSums)
    for place, (pool, user, operation, core_s, byte_s) in enumerate(rows):
        row = ConsumptionRow("default", pool, user, operation, RunSums(1, place, core_s, byte_s))
        adding.add(StoredRecord(f"days.2026.11.2{place % 3}.{place:02}", pack(ConsumptionRecord(1, [row]))))
        names = pool.split("/") if pool else []
        above = ["/".join(names[:depth]) for depth in range(len(names) + 1)] if By.TREE in keys else [pool]
        for path in above:
            day = f"2026-11-2{place % 3}" if By.DAY in keys else ""
            named = f"/{path}" if {By.POOL, By.TREE} & {*keys} else ""
            sums[day, user if By.USER in keys else "", named, operation if By.OPERATION in keys else ""] += row.sums
    with mock.patch("headrace.consumption_sums._LARGEST", largest):
        lines = adding.lines()

    found = {(line.day, line.user, line.pool, line.operation): line.sums for line in lines}
    assert len(found) == len(lines)
    assert found.keys() == sums.keys()
    for key, expected in sums.items():
        assert msgspec.structs.astuple(found[key]) == pytest.approx(msgspec.structs.astuple(expected), rel=1e-9)
    order = [
        (
            line.day,
            line.pool if By.TREE in keys else "",
            -line.sums.allotted_core_s,
            -line.sums.allotted_byte_s,
            line.pool,
            line.user,
            line.operation,
        )
        for line in lines
    ]
    assert order == sorted(order)


def test_keys_of_many_texts_are_not_mixed_up() -> None:
    keys = np.array([(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 0, 0), (0, 1, 0, 0)], np.int64)
    found, sums = _added_up(keys, np.array([[1.0, 2.0, 4.0, 8.0]]), 2**40)

    assert found.tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    assert sums.tolist() == [[4.0, 10.0, 1.0]]


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
