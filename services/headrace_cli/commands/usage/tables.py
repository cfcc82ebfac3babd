"""Consumption as a table with bars, as CSV and as JSON. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import astuple
from rich.table import Table
from rich.text import Text

from headrace.client.consumption import Consumed
from headrace.consumption_sums import By, Line, total_of
from headrace.pools.tree_options import Prices
from headrace.resources import percent
from headrace.wire.consumption import RunSums
from headrace_cli.show.screen import harmless_cell
from headrace_cli.show.tables import bar, branches, printable, table

_BAR: Final = 24
#: Upper bound of the lines of a table. It takes a millisecond to draw a line.
_MOST_LINES: Final = 1_000
_HOUR_S: Final = 3600
_GIB: Final = 2**30
_NOT_KNOWN: Final = "–"
#: Name of a row into which persons or operations were merged, because there were too many.
_OTHERS: Final = "(others)"
_FIGURES: Final = ("runs", "core-h", "used", "GiB-h", "GPU-h", "preempted", "failed", "cost")


class Shown(NamedTuple):
    """The consumption to show, with the options of its table."""

    found: Consumed
    keys: tuple[By, ...]
    #: Resource of the bars: `cpu`, `memory` or `gpu`.
    resource: str
    #: Prices of the resources; None: no costs are shown.
    prices: Prices | None = None

    def amount(self, sums: RunSums) -> float:
        """Return the allotted core-, GiB- or GPU-hours of the resource that the bars show."""
        return allotted_hours(sums, self.resource)

    def lines(self) -> list[Line]:
        """Return the lines in the order in which they are shown."""
        if self.resource == "cpu" or By.TREE in self.keys:
            return self.found.lines
        return sorted(self.found.lines, key=lambda line: (line.day, -self.amount(line.sums)))

    def cost(self, sums: RunSums) -> float:
        """Return what the allotted resources cost."""
        return cost_of(sums, self.prices) if self.prices is not None else 0.0


def allotted_hours(sums: RunSums, resource: str) -> float:
    """Return the allotted core-, GiB- or GPU-hours."""
    amounts = {"cpu": sums.allotted_core_s, "memory": sums.allotted_byte_s / _GIB, "gpu": sums.allotted_gpu_s}
    return amounts[resource] / _HOUR_S


def cost_of(sums: RunSums, prices: Prices) -> float:
    """Return what the allotted resources cost."""
    return prices.cost(sums.allotted_core_s, sums.allotted_byte_s, sums.allotted_gpu_s)


def figure(amount: float) -> str:
    """Return a number with as many digits as a reader needs."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def money(amount: float) -> str:
    """Return an amount of money with two decimals."""
    return f"{amount:,.2f}"


def lost_words(lost_s: float, allotted_s: float) -> str:
    """Return the part of the allotted time that was lost, as a percentage."""
    return percent(lost_s / allotted_s) if allotted_s and lost_s else "0%"


def usage_table(shown: Shown, *, ascii_only: bool) -> Table:
    """Return the first lines with bars, and the total of all lines below them."""
    heads = [key.value for key in shown.keys]
    heads = [{"tree": "pool and below"}.get(head, head) for head in heads]
    figures = _FIGURES if shown.prices is not None else _FIGURES[:-1]
    currency = shown.prices.currency if shown.prices is not None else ""
    named = [f"cost, {currency}" if name == "cost" and currency else name for name in figures]
    made = table(*heads, *named, shown.resource, right=named)
    lines = shown.lines()
    most = max((shown.amount(line.sums) for line in lines), default=0.0)
    drawn_lines = lines[:_MOST_LINES]
    for line, lead in zip(drawn_lines, _leads(shown, drawn_lines), strict=True):
        drawn = bar(shown.amount(line.sums) / most if most else 0.0, _BAR, ascii_only=ascii_only)
        made.add_row(*_cells(shown, line, lead), *_figures(shown, line.sums), Text(drawn, style="cyan"))
    total = total_of(lines, shown.keys)
    if len(lines) > 1 and By.TREE not in shown.keys:
        made.add_row("total", *[""] * (len(heads) - 1), *_figures(shown, total), "", style="bold")
    return made


def _leads(shown: Shown, lines: list[Line]) -> list[str]:
    """Return the branches to draw before each pool, if pools are the only lines."""
    if shown.keys != (By.TREE,):
        return [""] * len(lines)
    return branches((line.pool, line.pool.rpartition("/")[0] or ("" if line.pool == "/" else "/")) for line in lines)


def _cells(shown: Shown, line: Line, lead: str) -> Iterator[str]:
    for key in shown.keys:
        match key:
            case By.DAY:
                yield line.day
            case By.USER:
                yield printable(line.user) or _OTHERS
            case By.OPERATION:
                yield printable(line.operation) or _OTHERS
            case By.POOL | By.TREE:
                name = line.pool.rpartition("/")[2] if shown.keys == (By.TREE,) and line.pool != "/" else line.pool
                yield lead + (printable(name) if key is By.TREE or line.pool != "/" else _OTHERS)


def _figures(shown: Shown, sums: RunSums) -> Iterator[str]:
    yield str(sums.runs)
    yield figure(sums.allotted_core_s / _HOUR_S)
    is_measured = sums.measured_runs and sums.allotted_core_s
    yield percent(sums.used_core_s / sums.allotted_core_s) if is_measured else _NOT_KNOWN
    yield figure(sums.allotted_byte_s / _GIB / _HOUR_S)
    yield figure(sums.allotted_gpu_s / _HOUR_S)
    preempted, failed, allotted = _lost(shown.resource, sums)
    yield lost_words(preempted, allotted)
    yield lost_words(failed, allotted)
    if shown.prices is not None:
        yield money(shown.cost(sums))


def _lost(resource: str, sums: RunSums) -> tuple[float, float, float]:
    """Return the core-, byte- or GPU-seconds that were lost to preemption, that were lost to failures, and that were allotted."""
    return {
        "cpu": (sums.preempted_core_s, sums.failed_core_s, sums.allotted_core_s),
        "memory": (sums.preempted_byte_s, sums.failed_byte_s, sums.allotted_byte_s),
        "gpu": (sums.preempted_gpu_s, sums.failed_gpu_s, sums.allotted_gpu_s),
    }[resource]


def csv_text(shown: Shown) -> str:
    """Return the lines as CSV, below a line of column names. A name that a spreadsheet takes for a formula gets an apostrophe in front."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = ["pool" if key is By.TREE else key.value for key in shown.keys]
    writer.writerow([*keys, *RunSums.__struct_fields__, *(["cost"] if shown.prices is not None else [])])
    for line in shown.lines():
        names = (harmless_cell(getattr(line, key)) for key in keys)
        costs = (shown.cost(line.sums),) if shown.prices is not None else ()
        writer.writerow((*names, *astuple(line.sums), *costs))
    return out.getvalue()


def usage_json(shown: Shown) -> dict[str, object]:
    """Return the answer as JSON: the period, one object for each line, and the total."""
    found = shown.found
    total = total_of(found.lines, shown.keys)
    return {
        "since": found.since.isoformat(),
        "until": found.until.isoformat(),
        "lines": [_object(shown, line) for line in shown.lines()],
        "total": _sums(shown, total),
        "counted_since": found.begun.isoformat() if found.begun else None,
        "kept_since": found.kept_since.isoformat() if found.kept_since else None,
        "lost_runs": found.lost_runs,
    }


def _object(shown: Shown, line: Line) -> dict[str, object]:
    names = {name: getattr(line, name) for name in ("pool" if key is By.TREE else key.value for key in shown.keys)}
    return {**names, **_sums(shown, line.sums)}


def _sums(shown: Shown, sums: RunSums) -> dict[str, object]:
    fields = dict(zip(RunSums.__struct_fields__, astuple(sums), strict=True))
    cost = {} if shown.prices is None else {"cost": shown.cost(sums), "currency": shown.prices.currency}
    return {**fields, **cost}


def left_out_words(shown: Shown) -> str:
    """Return a sentence about lines that the table leaves out; empty if it has all lines."""
    count = len(shown.found.lines)
    if count <= _MOST_LINES:
        return ""
    return f"the table has the first {_MOST_LINES:,} of {count:,} lines; --csv and --json print all lines"


def notes(shown: Shown) -> Iterator[str]:
    """Yield notes about missing runs, days and prices, each a sentence."""
    found = shown.found
    if not found.lines:
        yield f"no run ended from {found.since} to before {found.until}; a run counts when it has ended"
    if found.begun is not None and found.begun > found.since:
        yield f"runs are counted since {found.begun}"
    if found.kept_since is not None:
        yield f"such records are kept since {found.kept_since}; earlier days of the period may be missing"
    if found.lost_runs:
        yield f"{found.lost_runs} runs could not be counted; the log of admission says why"
    if found.unreadable:
        yield f"{found.unreadable} records could not be read, and are missing"
    if shown.prices == Prices():
        yield "the tree has no prices: headrace tree set NAME prices/cpu=0.02 sets the price of a core for an hour"
