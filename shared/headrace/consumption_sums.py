"""Adding up rows of consumption by person, pool, operation and day. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple

import msgspec

from headrace.errors import BadInput
from headrace.wire.consumption import ConsumptionRow, Level, RunSums


class By(enum.StrEnum):
    """The keys by which consumption is added up."""

    DAY = "day"
    USER = "user"
    #: Each pool without the pools below it.
    POOL = "pool"
    #: Each pool with all pools below it, up to the whole tree.
    TREE = "tree"
    OPERATION = "operation"


class Wanted(NamedTuple):
    """The rows that count. An empty text selects all."""

    tree: str
    #: Name of a pool; its rows are those of the pool and of all pools that were below it.
    pool: str = ""
    user: str = ""
    operation: str = ""


class Line(msgspec.Struct, frozen=True):
    """One sum. A key by which nothing is added up is empty."""

    #: A day (UTC), such as `2026-11-28`.
    day: str
    user: str
    #: Path of the pool, such as `/research/vision`; `/` is the whole tree.
    pool: str
    operation: str
    sums: RunSums


def checked_keys(keys: Sequence[By], place: str) -> tuple[By, ...]:
    """Return the keys. Raises `BadInput` for a key that comes twice, and for `pool` beside `tree`."""
    if len(set(keys)) < len(keys):
        raise BadInput(place, ",".join(keys), "each key once")
    if By.POOL in keys and By.TREE in keys:
        raise BadInput(
            place, ",".join(keys), "pool (each pool alone) or tree (each pool with the pools below it), not both"
        )
    return tuple(keys)


def periods(since: date, until: date, keys: Sequence[By], wanted: Wanted) -> Iterator[tuple[Level, str]]:
    """Yield the largest periods that cover the days from `since` to before `until`, each with the level to read."""
    by_operation = By.OPERATION in keys or bool(wanted.operation)
    only = Level.OPERATIONS if by_operation else Level.DAYS if By.DAY in keys else None
    day = since
    while day < until:
        year, month = _next_year(day), _next_month(day)
        if day.month == day.day == 1 and year is not None and year <= until:
            yield only or Level.YEARS, f"{day.year:04}"
            day = year
        elif day.day == 1 and month is not None and month <= until:
            yield only or Level.MONTHS, f"{day.year:04}.{day.month:02}"
            day = month
        else:
            yield only or Level.DAYS, day.strftime("%Y.%m.%d")
            day += timedelta(1)


class Adding:
    """Adds up rows by the given keys."""

    def __init__(self, keys: Sequence[By], wanted: Wanted) -> None:
        self._keys = frozenset(keys)
        self._wanted = wanted
        self._sums: dict[tuple[str, str, str, str], list[float]] = {}

    def add(self, period: str, rows: Iterable[ConsumptionRow]) -> None:
        """Add the rows of a period, such as `2026.11.28`."""
        day = period.replace(".", "-") if By.DAY in self._keys else ""
        by_user, by_operation = By.USER in self._keys, By.OPERATION in self._keys
        for row in rows:
            if not self._counts(row):
                continue
            figures = msgspec.structs.astuple(row.sums)
            for pool in self._pools(row.pool):
                key = (day, row.user if by_user else "", pool, row.operation if by_operation else "")
                known = self._sums.get(key)
                if known is None:
                    self._sums[key] = list(figures)
                else:
                    for place, figure in enumerate(figures):
                        known[place] += figure

    def lines(self) -> list[Line]:
        """Return the sums: in order of days, then of pools with `TREE`, then the largest first."""

        def order(line: Line) -> tuple[str, str, float, float, str, str, str]:
            largest = -line.sums.allotted_core_s, -line.sums.allotted_byte_s
            return line.day, line.pool if By.TREE in self._keys else "", *largest, line.pool, line.user, line.operation

        lines = [Line(*key, RunSums(int(sums[0]), int(sums[1]), *sums[2:])) for key, sums in self._sums.items()]
        return sorted(lines, key=order)

    def _counts(self, row: ConsumptionRow) -> bool:
        wanted = self._wanted
        return (
            row.tree == wanted.tree
            and (not wanted.user or row.user == wanted.user)
            and (not wanted.operation or row.operation == wanted.operation)
            and (not wanted.pool or wanted.pool in row.pool.split("/"))
        )

    def _pools(self, path: str) -> Sequence[str]:
        if By.POOL in self._keys:
            return (f"/{path}",)
        if By.TREE not in self._keys:
            return ("",)
        names = path.split("/") if path else []
        return ["/", *("/" + "/".join(names[:depth]) for depth in range(1, len(names) + 1))]


def total_of(lines: Iterable[Line], keys: Sequence[By]) -> RunSums:
    """Return the sum of lines. With `TREE` only the lines of the whole tree count, which contain all others."""
    counted = (line.sums for line in lines if By.TREE not in keys or line.pool == "/")
    return sum(counted, _NOTHING)


_NOTHING: Final = RunSums()


def _next_year(day: date) -> date | None:
    return date(day.year + 1, 1, 1) if day.year < date.max.year else None


def _next_month(day: date) -> date | None:
    return date(day.year, day.month + 1, 1) if day.month < 12 else _next_year(day)
