"""A page of HTML with the consumption of a period, for the people who pay. It needs no other file and no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from headrace.client import Client
from headrace.client.consumption import Consumed
from headrace.consumption_sums import By, Line, total_of
from headrace.errors import BadInput
from headrace.files.durable import replace_durably
from headrace.pools.tree_options import Prices
from headrace.resources import percent
from headrace.wire.consumption import RunSums
from headrace_cli.commands.usage.tables import Shown, allotted_hours, cost_of, figure, lost_words, money, notes
from headrace_cli.show.html_page import html_page, html_table

#: Upper bound of the rows of a table; smaller sums are in its last row.
_MOST_ROWS: Final = 200
#: Upper bound of the days of the chart by day. A longer period has one bar for each month.
_MOST_DAYS: Final = 92
_WIDTH: Final = 900
_HEIGHT: Final = 180
#: Width of a label below a bar.
_LABEL: Final = 80
_UNITS: Final = {"cpu": "core-hours", "memory": "GiB-hours", "gpu": "GPU-hours"}


class Report(NamedTuple):
    """The sums that a page shows."""

    tree: str
    made: datetime
    by_tree: Consumed
    by_user: Consumed
    by_operation: Consumed
    by_day: Consumed
    #: The `pool` and the `user` to whose runs the sums are restricted; an empty name: no restriction.
    chosen: Mapping[str, str]
    prices: Prices | None = None


async def write_report(
    client: Client, file: Path, since: date, until: date, chosen: Mapping[str, str], prices: Prices | None
) -> None:
    """Write the page of a period to a file. Only its owner can read it. Raises `Refused`, `Unanswered`, `BadInput`."""

    async def summed(key: By) -> Consumed:
        return await client.consumption.summed((key,), since=since, until=until, **chosen)

    by_tree, by_user = await summed(By.TREE), await summed(By.USER)
    by_operation, by_day = await summed(By.OPERATION), await summed(By.DAY)
    made = datetime.now(UTC)
    report = Report(client.place.tree, made, by_tree, by_user, by_operation, by_day, chosen, prices)
    try:
        replace_durably(file, page_of(report))
    except OSError as error:
        raise BadInput("--report", str(file), f"a file that can be written ({error.strerror})") from None


def page_of(report: Report) -> str:
    """Return the page. Names of pools, persons and operations are escaped."""
    found = report.by_user
    last = found.until - timedelta(1)
    title = f"Usage of {report.tree} from {found.since} to {last}"
    total = total_of(found.lines, (By.USER,))
    lines = [
        "".join(f"<p>Only {escape(key)} {escape(name)}.</p>" for key, name in report.chosen.items() if name),
        "<p>Each finished run counts with the resources of its job times the time that it took. Days are those of UTC. "
        f"Made at {report.made:%Y-%m-%d %H:%M} UTC.</p>",
        *(f"<p>{escape(note)}</p>" for note in notes(Shown(found, (By.USER,), "cpu"))),
        "<h2>Days</h2>",
        _chart(report, total),
        "<h2>Pools</h2><p>Each pool with all pools below it.</p>",
        _table(report, report.by_tree.lines, "pool", None),
        "<h2>Persons</h2>",
        _table(report, found.lines, "user", total),
        "<h2>Largest operations</h2>",
        _table(report, report.by_operation.lines, "operation", None),
    ]
    return html_page(title, lines)


def _chart(report: Report, total: RunSums) -> str:
    """Return a bar chart of core-hours, or of GPU-hours if no cores were allotted. Each bar is a day, or a month of a long period."""
    resource = "gpu" if total.allotted_gpu_s and not total.allotted_core_s else "cpu"
    bars = _bars(report.by_day)
    most = max((allotted_hours(sums, resource) for _, sums in bars), default=0.0)
    if not most:
        return "<p>Nothing was used.</p>"
    step = _WIDTH / len(bars)
    shapes = []
    for place, (name, sums) in enumerate(bars):
        hours = allotted_hours(sums, resource)
        lost = (
            sums.preempted_core_s + sums.failed_core_s
            if resource == "cpu"
            else sums.preempted_gpu_s + sums.failed_gpu_s
        )
        words = f"{name}: {figure(hours)} {_UNITS[resource]}, lost {figure(lost / 3600)}"
        shapes.append(f"<g><title>{escape(words)}</title>")
        for kind, amount in (("bar", hours), ("lost", lost / 3600)):
            height = amount / most * _HEIGHT
            shapes.append(
                f'<rect class="{kind}" x="{place * step:.2f}" y="{20 + _HEIGHT - height:.2f}" width="{max(step - 2, 1):.2f}" '
                f'height="{height:.2f}"/>'
            )
        shapes.append("</g>")
    labels = "".join(
        f'<text x="{place * step:.2f}" y="{_HEIGHT + 36}">{escape(bars[place][0])}</text>'
        for place in range(0, len(bars), max(1, -(-len(bars) * _LABEL // _WIDTH)))
        if place * step + _LABEL <= _WIDTH or not place
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 44}" role="img" aria-label="{_UNITS[resource]} by day">'
        f'<text x="0" y="12">Highest bar: {figure(most)} {_UNITS[resource]}. Orange: lost to preemption and failures.</text>'
        f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{_HEIGHT + 20}" y2="{_HEIGHT + 20}"/>{"".join(shapes)}{labels}</svg>'
    )


def _bars(found: Consumed) -> list[tuple[str, RunSums]]:
    """Return the sums of each day, or of each month of a long period. A day without runs has a bar without height."""
    known = {line.day: line.sums for line in found.lines}
    if not known:
        return []
    last = min(found.until - timedelta(1), date.fromisoformat(max(known)))
    first = max(found.since, date.fromisoformat(min(known)))
    if (last - first).days < _MOST_DAYS:
        days = [(first + timedelta(number)).isoformat() for number in range((last - first).days + 1)]
        return [(day, known.get(day, RunSums())) for day in days]
    months: dict[str, RunSums] = {}
    for day, sums in sorted(known.items()):
        months[day[:7]] = months.get(day[:7], RunSums()) + sums
    return list(months.items())


def _table(report: Report, lines: Sequence[Line], key: str, total: RunSums | None) -> str:
    prices = report.prices
    heads = [key, "runs", "core-hours", "used", "GiB-hours", "GPU-hours", "preempted", "failed"]
    if prices is not None:
        heads.append(f"cost {prices.currency}".strip())
    rows = [(getattr(line, key) or "(others)", *_cells(line.sums, prices)) for line in lines[:_MOST_ROWS]]
    if len(lines) > _MOST_ROWS and key != "pool":
        rest = sum((line.sums for line in lines[_MOST_ROWS:]), RunSums())
        rows.append((f"{len(lines) - _MOST_ROWS} more", *_cells(rest, prices)))
    return html_table(heads, rows, ("total", *_cells(total, prices)) if total is not None else None)


def _cells(sums: RunSums, prices: Prices | None) -> Iterator[str]:
    yield str(sums.runs)
    yield figure(allotted_hours(sums, "cpu"))
    measured = sums.measured_runs and sums.allotted_core_s
    yield percent(sums.used_core_s / sums.allotted_core_s) if measured else "–"
    yield figure(allotted_hours(sums, "memory"))
    yield figure(allotted_hours(sums, "gpu"))
    yield lost_words(sums.preempted_core_s, sums.allotted_core_s)
    yield lost_words(sums.failed_core_s, sums.allotted_core_s)
    if prices is not None:
        yield money(cost_of(sums, prices))
