"""Reader of a table of jobs in Headrace's own form: comma-separated values with a header, one job a line. Pure.

The columns, in any order:

    submit   seconds since the beginning of the trace (or since 1970), or an ISO time such as 2026-11-02T10:00:00; needed
    run      length of the run: seconds, or a duration such as 2h; needed
    name, user, group, account, queue
             texts; the default of the name is the number of the line
    count    number of jobs of the operation; default 1
    cpu      cores of each job, such as 0.5; default 1
    memory   memory of each job with a unit, such as 512M or 2GiB; default 0, which means not known
    gpu      GPUs of each job; default 0
    together yes if the jobs run together or not at all; default no
    limit    time limit of the run, written like run; default none
    failed   yes if the job failed by itself after its run; default no
    wait     time that the job waited, written like run; default not known

An empty value is the default. The form is Headrace's own; no other program writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.resources import parse_amount
from headrace.suggestions import hint
from headrace.wire.operation_spec import LARGEST_JOB_COUNT
from headrace_simulator.workloads.columns import (
    LATEST_MS,
    LONGEST_S,
    LONGEST_SHOWN,
    Damaged,
    cells_of,
    checked_count,
    date_ms,
    decimal,
    header_cells,
    job_size,
    missing_columns,
    numbered_lines,
    same_text,
    shown,
    whole,
)
from headrace_simulator.workloads.workload import Workload, WorkloadJob

_PLACE: Final = "table"
_NEEDED: Final = ("submit", "run")
_TEXTS: Final = ("name", "user", "group", "account", "queue")
COLUMNS: Final = (*_NEEDED, *_TEXTS, "count", "cpu", "memory", "gpu", "together", "limit", "failed", "wait")
_YES_OR_NO: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False, "": False}
_DIGITS: Final = frozenset("0123456789.eE+")


def read_table(lines: Iterable[str]) -> Workload:
    """Return the jobs of a table. Raises `BadInput` if its header lacks a needed column or has an unknown column."""
    workload, rows = Workload("table"), numbered_lines(_PLACE, lines)
    header = _header(header_cells(_PLACE, rows, " and ".join(_NEEDED)))
    dates: bool | None = None
    for number, text in rows:
        try:
            cells = cells_of(text)
            if len(cells) != len(header):
                raise Damaged(f"{len(cells)} values in place of {len(header)}: {shown(text)}")
            row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
            is_date = row["submit"][:4].isdigit() and row["submit"][4:5] == "-"
            if dates not in (None, is_date):
                raise Damaged(
                    f"submit is {shown(row['submit'])}; expected {'a time' if dates else 'seconds'} as in the lines before"
                )
            workload.jobs.append(_job(row, number, is_date=is_date))
            dates = is_date
        except Damaged as error:
            workload.add_damaged(number, str(error))
    if dates:
        workload.notes.append("submit times without a zone are read as UTC")
    return workload


def _header(names: list[str]) -> list[str]:
    """Return the names of the columns in lower case. Raises `BadInput`."""
    header = [name.lower() for name in names]
    if not set(_NEEDED) <= set(header) and not any(name in COLUMNS for name in header):
        raise missing_columns(_PLACE, names, " and ".join(_NEEDED))
    for position, name in enumerate(header):
        if name not in COLUMNS:
            raise BadInput(f"{_PLACE}, column {position + 1}", names[position][:LONGEST_SHOWN], hint(name, COLUMNS))
        if name in header[:position]:
            raise BadInput(f"{_PLACE}, column {position + 1}", name, "each column once")
    if not set(_NEEDED) <= set(header):
        raise missing_columns(_PLACE, names, " and ".join(_NEEDED))
    return header


def _job(row: dict[str, str], number: int, *, is_date: bool) -> WorkloadJob:
    """Return the job of a line. Raises `Damaged`."""
    if not row["submit"] or not row["run"]:
        raise Damaged("submit or run is empty; expected seconds, or a length of time such as 2h")
    submit, count = row["submit"], row.get("count") or "1"
    return WorkloadJob(
        name=row.get("name") or str(number),
        submitted_ms=date_ms(submit, "submit")
        if is_date
        else round(1_000 * decimal(submit, "submit", LATEST_MS // 1_000)),
        runs_ms=_length_ms(row, "run"),
        count=checked_count(whole(count, "count", LARGEST_JOB_COUNT), "count"),
        size=job_size(_amount(row, "cpu", "1"), _amount(row, "gpu", "0"), _amount(row, "memory", "0")),
        together=_yes(row, "together"),
        user=same_text(row.get("user", "")),
        group=same_text(row.get("group", "")),
        account=same_text(row.get("account", "")),
        queue=same_text(row.get("queue", "")),
        limit_ms=_length_ms(row, "limit") if row.get("limit") else 0,
        waited_ms=_length_ms(row, "wait") if row.get("wait") else -1,
        failed=_yes(row, "failed"),
    )


def _amount(row: dict[str, str], name: str, default: str) -> int:
    text = row.get(name) or default
    try:
        return parse_amount(name, text)
    except BadInput as error:
        raise Damaged(f"{name} is {shown(text)}; expected {error.expected}") from None


def _length_ms(row: dict[str, str], name: str) -> int:
    """Return a length of time in milliseconds: seconds, or a duration with a unit. Raises `Damaged`."""
    text = row[name]
    if _DIGITS.issuperset(text):
        return round(1_000 * decimal(text, name, LONGEST_S))
    try:
        return parse_duration_ms(text, place=name)
    except BadInput as error:
        raise Damaged(f"{name} is {shown(text)}; expected seconds, or {error.expected}") from None


def _yes(row: dict[str, str], name: str) -> bool:
    text = row.get(name, "")
    if (found := _YES_OR_NO.get(text.lower())) is None:
        raise Damaged(f"{name} is {shown(text)}; expected yes or no")
    return found
