"""Adding up records of consumption by person, pool, operation and day. Pure.

A year has hundreds of thousands of rows, so numpy adds them up. Importing numpy takes longer than most commands, so it is imported
only when it is needed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from headrace.errors import BadInput
from headrace.wire.consumption import (
    FIGURES_OF_ROW,
    KEYS_OF_ROW,
    BadRecord,
    Level,
    RunSums,
    StoredRecord,
    unpack_columns,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Columns of the keys of a row.
_TREE, _POOL, _USER, _OPERATION = range(KEYS_OF_ROW)
#: Column of the pool in the keys of a sum. The columns are day, pool, person and operation.
_POOL_OF_SUM: Final = 1
#: Largest number in a key of a sum.
_LARGEST: Final = 2**63 - 1
#: Column of the allotted core-seconds among the figures of a row.
_CORE_S: Final = RunSums.__struct_fields__.index("allotted_core_s")


class By(enum.StrEnum):
    """The keys by which consumption is added up."""

    DAY = "day"
    USER = "user"
    #: Each pool without the pools below it.
    POOL = "pool"
    #: Each pool with all pools below it, up to the whole tree.
    TREE = "tree"
    OPERATION = "operation"


#: The columns of the keys of a sum: day, pool, person, operation. Each item has the column of a row from which the key is taken (None: the
#: key is the day of the record), and the values of `By` that need this key.
_COLUMNS: Final[tuple[tuple[int | None, frozenset[By]], ...]] = (
    (None, frozenset({By.DAY})),
    (_POOL, frozenset({By.POOL, By.TREE})),
    (_USER, frozenset({By.USER})),
    (_OPERATION, frozenset({By.OPERATION})),
)


class Wanted(NamedTuple):
    """The rows of consumption that are added up. An empty text selects all rows."""

    tree: str
    #: Name of a pool. It selects the rows of the pool and of all pools that were below it.
    pool: str = ""
    user: str = ""
    operation: str = ""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One sum of consumption. The day, user, pool or operation is empty if the sum is not made for each of them separately."""

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
    """Split the days from `since` to before `until` into years, months and days, as large as possible. Yield each of these periods with the
    level of the records to read for it.
    """
    of_persons = Level.DAYS if By.USER in keys or wanted.user else Level.POOLS
    by_operation = By.OPERATION in keys or bool(wanted.operation)
    only = Level.OPERATIONS if by_operation else of_persons if By.DAY in keys else None
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
    """Adds up records by the given keys."""

    def __init__(self, keys: Sequence[By], wanted: Wanted) -> None:
        self._keys = frozenset(keys)
        self._wanted = wanted
        #: Maps each text (day, user, pool or operation) to the number that stands for it in the keys of sums.
        self._numbers: dict[str, int] = {}
        #: Selected rows of each record, by the key of the record. Each row has the numbers (see `_numbers`) of its day, pool, person and
        #: operation in the first array, and its figures in the second array.
        self._parts: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}

    def add(self, record: StoredRecord) -> None:
        """Add a stored record, or replace the record with the same key. Raises `BadRecord`."""
        import numpy as np

        self._parts.pop(record.key, None)
        columns = unpack_columns(record.data)
        keys = np.frombuffer(columns.keys, "<u4").reshape(-1, KEYS_OF_ROW)
        figures = np.frombuffer(columns.figures, "<f8").reshape(-1, FIGURES_OF_ROW)
        if keys.size and int(keys.max()) >= len(columns.names):
            raise BadRecord("a row names a text that the record lacks")
        if not (np.isfinite(figures).all() and (figures >= 0).all()):
            raise BadRecord("a figure is negative or no number")
        counted = self._counting(columns.names, keys)
        if not counted.all():
            keys, figures = keys[counted], figures[counted]
        # Each name of a record is looked up once, and not once for each row of the record.
        numbers = np.array([self._number(name) for name in columns.names], np.int64)
        part = np.full((len(keys), len(_COLUMNS)), self._number(""), np.int64)
        for place, (column, chosen) in enumerate(_COLUMNS):
            if self._keys & chosen:
                part[:, place] = self._number(_day_of(record.key)) if column is None else numbers[keys[:, column]]
        self._parts[record.key] = part, figures

    def lines(self) -> list[Line]:
        """Return the sums, ordered by day, then (with `TREE`) by pool, then by allotted core-seconds, the largest first."""
        import numpy as np

        if not any(len(part) for part, _ in self._parts.values()):
            return []
        parts, all_figures = zip(*self._parts.values(), strict=True)
        keys, figures = np.concatenate(parts), np.ascontiguousarray(np.concatenate(all_figures).T)
        if By.TREE in self._keys:
            keys, figures = self._with_pools_above(*_added_up(keys, figures, len(self._numbers)))
        # The texts get new numbers in alphabetical order, so that lines with equal sums are in the order of their texts.
        names = sorted(self._numbers)
        ranks = np.empty(len(names), np.int64)
        ranks[[self._numbers[name] for name in names]] = np.arange(len(names))
        keys, sums = _added_up(ranks[keys], figures, len(names))
        # For `lexsort` the last key is the most important key. It keeps the order of rows that are equal in all keys.
        pools = [keys[:, _POOL_OF_SUM]] if By.TREE in self._keys else []
        order = np.lexsort((-sums[_CORE_S + 1], -sums[_CORE_S], *pools, keys[:, 0]))
        prefix = "/" if self._keys & {By.POOL, By.TREE} else ""
        paths = [prefix + name for name in names]
        day, pool, user, operation = keys[order].T.tolist()
        runs, measured, *amounts = sums[:, order]
        columns = (runs.astype(np.int64), measured.astype(np.int64), *amounts)
        # `map` makes a hundred thousand lines in half the time that a Python expression for each line would take.
        figures_of_lines = map(RunSums, *(column.tolist() for column in columns))
        texts = (map(names.__getitem__, column) for column in (day, user))
        return list(
            map(Line, *texts, map(paths.__getitem__, pool), map(names.__getitem__, operation), figures_of_lines)
        )

    def _with_pools_above(
        self, keys: NDArray[np.int64], sums: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return each row once for its pool, once for each pool above it and once for the whole tree, whose path is empty."""
        import numpy as np

        names = list(self._numbers)
        paths, group = np.unique(keys[:, _POOL_OF_SUM], return_inverse=True)
        chains = [[self._number(path) for path in _pool_and_above(names[number])] for number in paths.tolist()]
        rows = np.repeat(np.arange(len(keys)), np.array([len(chain) for chain in chains])[group])
        keys = keys[rows]
        keys[:, _POOL_OF_SUM] = [number for place in group.tolist() for number in chains[place]]
        return keys, sums[:, rows]

    def _counting(self, names: Sequence[str], keys: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Return for each row of `keys` whether `self._wanted` selects the row."""
        import numpy as np

        wanted = self._wanted
        counted = np.ones(len(keys), np.bool_)
        for column, name in ((_TREE, wanted.tree), (_USER, wanted.user), (_OPERATION, wanted.operation)):
            if name:
                counted &= keys[:, column] == (names.index(name) if name in names else len(names))
        if wanted.pool:
            within: list[bool] = [wanted.pool in name.split("/") for name in names]
            counted &= np.array(within or [False])[keys[:, _POOL]]
        return counted

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))


def _added_up(
    keys: NDArray[np.int64], figures: NDArray[np.float64], names: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return each distinct row of `keys` once, in ascending order, with the sums of the figures of all rows that are equal to it.

    All numbers in `keys` are below `names`. `figures` and the returned sums have a row for each figure.
    """
    import numpy as np

    joined, largest = keys[:, 0], names
    for column in keys.T[1:]:
        if largest > _LARGEST // names:
            _, joined = np.unique(joined, return_inverse=True)
            largest = len(keys)
        joined, largest = joined * names + column, largest * names
    _, first, group = np.unique(joined, return_index=True, return_inverse=True)
    return keys[first], np.stack([np.bincount(group, column, len(first)) for column in figures])


def _day_of(key: str) -> str:
    """Return the day in the key of a record of a day, such as `2026-11-28`."""
    return "-".join(key.split(".")[1:-1])


def _pool_and_above(path: str) -> list[str]:
    """Return the paths of a pool and of all pools above it, and the empty path."""
    names = path.split("/") if path else []
    return ["/".join(names[:depth]) for depth in range(len(names) + 1)]


def total_of(lines: Iterable[Line], keys: Sequence[By]) -> RunSums:
    """Return the sum of lines. With `TREE` only the lines of the whole tree are added up, because they contain all other lines."""
    counted = [line.sums for line in lines if By.TREE not in keys or line.pool == "/"]
    # Each figure is added up by itself: a new object for each line would take a fifth of a second for 100,000 lines.
    return RunSums(*(sum(map(attrgetter(name), counted)) for name in RunSums.__struct_fields__))


def _next_year(day: date) -> date | None:
    return date(day.year + 1, 1, 1) if day.year < date.max.year else None


def _next_month(day: date) -> date | None:
    return date(day.year, day.month + 1, 1) if day.month < 12 else _next_year(day)
