"""Finished operations as a whole table: CSV, or Parquet. A file is replaced when the whole table is on disk."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, get_type_hints

import msgspec

from headrace.client.finished import FinishedOperation
from headrace.files.durable import keep_names, open_new
from headrace.installation.extras import require
from headrace_cli.show.screen import harmless_cell

_COLUMNS: Final = FinishedOperation.__struct_fields__
#: Rows that are written to a Parquet file at once.
_ROWS_OF_A_GROUP: Final = 20_000
#: Adds rows to a table.
AddRows = Callable[[Sequence[FinishedOperation]], None]


@contextmanager
def csv_table(path: Path | None) -> Iterator[AddRows]:
    """Write CSV with a head to a file, or to stdout. Raises OSError."""
    if path is None:
        yield _csv_rows(sys.stdout)
        return
    with _replaced(path) as file:
        text = open(file.fileno(), "w", encoding="utf-8", newline="", closefd=False)  # noqa: SIM115
        yield _csv_rows(text)
        text.flush()


@contextmanager
def parquet_table(path: Path) -> Iterator[AddRows]:
    """Write a Parquet file. Raises `MissingExtra`, OSError."""
    require("parquet", "--format parquet")
    import pyarrow as arrow
    from pyarrow import parquet

    kinds: dict[object, Any] = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    fields = [(name, kinds[kind]) for name, kind in get_type_hints(FinishedOperation).items() if name in _COLUMNS]
    fields = [(name, arrow.timestamp("ms", tz="UTC") if name.endswith("_at_ms") else kind) for name, kind in fields]
    schema = arrow.schema(fields)
    with _replaced(path) as file, parquet.ParquetWriter(file, schema) as writer:
        waiting: list[dict[str, Any]] = []

        def add(rows: Sequence[FinishedOperation], least: int = _ROWS_OF_A_GROUP) -> None:
            waiting.extend(map(msgspec.structs.asdict, rows))
            if len(waiting) >= least:
                writer.write_table(arrow.Table.from_pylist(waiting, schema=schema))
                waiting.clear()

        yield add
        add((), least=1)


def _csv_rows(file: IO[str]) -> AddRows:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)

    def add(rows: Sequence[FinishedOperation]) -> None:
        for row in rows:
            writer.writerow([_cell(getattr(row, name)) for name in _COLUMNS])

    return add


def _cell(value: str | float | bool) -> str | float:
    if isinstance(value, bool):
        return str(value).lower()
    return harmless_cell(value) if isinstance(value, str) else value


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that replaces a file at the end of the block. If the block fails, the file stays as it was."""
    new = path.with_name(f"{path.name}.new")
    try:
        with open(open_new(new), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        keep_names(path.absolute().parent)
    finally:
        new.unlink(missing_ok=True)
