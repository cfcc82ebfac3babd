"""A page of HTML about a simulation: tables and charts in one file, without scripts and without a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from html import escape
from pathlib import Path
from typing import Final

from headrace.durations import format_duration
from headrace.errors import BadInput
from headrace.files.durable import replace_durably
from headrace.wire.simulation import SimulatedPool, SimulatedSetup, Simulation
from headrace_cli.replay.tables import UNITS, amount_text
from headrace_cli.show.html_page import html_page, html_table
from headrace_cli.show.tables import printable
from headrace_cli.show.times import time_ticks
from headrace_cli.simulate.tables import cluster_rows, facts, notes, period, person_rows, pool_rows, pool_title

#: Upper bound of the pools with a chart in each configuration. The pools with the most usage are drawn.
_MOST_POOLS: Final = 8
#: Upper bound of the rows of a table of pools.
_MOST_ROWS: Final = 200
#: Size of a chart of a pool, and its margins.
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 460, 170, 44, 24, 20
_MOST_TICKS: Final = 5
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200)
_DAY_S: Final = 86_400
#: Largest height of demand in a chart, as a multiple of the largest other figure. Higher demand is cut.
_TOWERING: Final = 1.5
#: Width of the chart of waits, the room for names and figures in it, and the height of a bar.
_WAITS_WIDTH, _NAMES, _FIGURES, _BAR = 900, 180, 110, 14
#: Longest name of a pool, and of a configuration beside bars, in characters.
_LONGEST_NAME, _LONGEST_BESIDE = 50, 24
_STYLE: Final = """
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));gap:1rem}
body{max-width:68rem}.wide{overflow-x:auto;font-size:14px}.wide th,.wide td{padding:.25rem .4rem}
.wide th:first-child,.wide td:first-child{min-width:8rem}
th{vertical-align:bottom}h3{font-size:1rem;margin-top:2rem}svg .name{fill:var(--ink);font-weight:600}
.use{fill:var(--bar);fill-opacity:.3;stroke:var(--bar)}.fair{fill:none;stroke:var(--fair);stroke-width:1.6}
.guarantee{fill:none;stroke:var(--ink);stroke-width:1;stroke-dasharray:1 3}
.demand{fill:none;stroke:var(--lost);stroke-width:1.2;stroke-dasharray:5 3}.p95{fill:var(--bar);fill-opacity:.4}
.key{font-weight:600}.key.u{color:var(--bar)}.key.f{color:var(--fair)}.key.d{color:var(--lost)}
"""


def write_report(file: Path, answer: Simulation) -> None:
    """Write the page of a simulation to a file. Only its owner can read it. Raises `BadInput`."""
    try:
        replace_durably(file, page_of(answer))
    except OSError as error:
        raise BadInput("--report", str(file), f"a file that can be written ({error.strerror})") from None


def page_of(answer: Simulation) -> str:
    """Return the page. Names of pools, users and configurations are escaped."""
    unit = UNITS[answer.resource][0]
    parts = [
        *(f"<p>{escape(line)}</p>" for line in facts(answer)),
        "<h2>Configurations</h2>",
        _table(cluster_rows(answer)),
        "<h2>Waits</h2>",
        _waits_chart(answer),
    ]
    for setup in answer.setups:
        parts += [
            f"<h2>{escape(printable(setup.name))}</h2>",
            f'<p>Pools in {unit}s over time: <span class="key u">usage</span> (filled), <span class="key f">fair share</span>, '
            '<span class="key d">demand</span> (dashed; higher demand is cut), strong guarantee (dotted). '
            "Each pool includes all pools below it.</p>",
            f'<div class="charts">{"".join(_pool_charts(answer, setup))}</div>',
            "<h3>Pools</h3>",
            _table(pool_rows(answer, setup, by_path=True)),
            "<h3>Users with the most usage</h3>",
            _table(person_rows(answer, setup)),
        ]
    found = "".join(f"<li>{escape(note)}</li>" for note in notes(answer))
    parts.append(f"<h2>Notes</h2><ul>{found}</ul>" if found else "")
    return html_page(f"Simulated workload, {period(answer)}", parts, _STYLE)


def _table(rows: Sequence[Sequence[str]]) -> str:
    heads = [" ".join(head.replace("-\n", "").split()) for head in rows[0]]
    more = f"<p>{len(rows) - 1 - _MOST_ROWS} further rows are left out.</p>" if len(rows) - 1 > _MOST_ROWS else ""
    return f'<div class="wide">{html_table(heads, rows[1 : _MOST_ROWS + 1])}</div>{more}'


# --- waits --------------------------------------------------------------------------------------------------------


def _waits_chart(answer: Simulation) -> str:
    """Return a chart with two bars for each configuration: the median wait and the 95 % wait."""
    found = [(each.name, each.waits) for each in answer.setups if each.waits.count]
    if answer.recorded is not None:
        found.append(("recorded", answer.recorded))
    most = max((waits.p95_ms for _, waits in found), default=0)
    if not most:
        return "<p>No job waited.</p>"
    shapes = []
    for number, (name, waits) in enumerate(found):
        top = 18 + number * (2 * _BAR + 14)
        shapes.append(f'<text class="name" x="0" y="{top + _BAR + 4}">{escape(_short(name, _LONGEST_BESIDE))}</text>')
        bars = (("bar", "median", waits.median_ms), ("p95", "95 %", waits.p95_ms))
        for place, (kind, words, ms) in enumerate(bars):
            width, y = (_WAITS_WIDTH - _NAMES - _FIGURES) * ms / most, top + place * _BAR
            shapes.append(
                f'<rect class="{kind}" x="{_NAMES}" y="{y}" width="{width:.1f}" height="{_BAR - 1}"/>'
                f'<text x="{_NAMES + width + 5:.1f}" y="{y + _BAR - 4}">{words} {format_duration(ms)}</text>'
            )
    height = 18 + len(found) * (2 * _BAR + 14)
    return (
        f'<svg viewBox="0 0 {_WAITS_WIDTH} {height}" role="img" aria-label="waits by configuration">'
        '<text x="0" y="10">Waits from submission to the first job: half of the jobs, and 95 % of the jobs, waited less.</text>'
        f"{''.join(shapes)}</svg>"
    )


# --- pools --------------------------------------------------------------------------------------------------------


def _pool_charts(answer: Simulation, setup: SimulatedSetup) -> Iterator[str]:
    """Yield a chart for each of the pools with the most usage, in the order of the tree."""
    most = sorted(setup.pools, key=lambda each: -each.usage)[:_MOST_POOLS]
    for pool in setup.pools:
        if pool in most and any(pool.usage_series):
            yield _pool_chart(answer, setup, pool)


def _pool_chart(answer: Simulation, setup: SimulatedSetup, pool: SimulatedPool) -> str:
    size = UNITS[answer.resource][1]
    top = max(_top(each) for setup in answer.setups for each in setup.pools if each.pool == pool.pool)
    paths = "".join(
        f'<path class="{kind}" d="{_path(series, top, closed=kind == "use")}"/>'
        for kind, series in (
            ("use", pool.usage_series),
            ("demand", pool.demand_series),
            ("fair", pool.fair_share_series),
        )
    )
    if pool.guarantee:
        paths += f'<path class="guarantee" d="{_path([pool.guarantee], top, closed=False)}"/>'
    base = _TOP + _HEIGHT
    lines = "".join(
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
        f'<text x="{_LEFT - 5}" y="{y + 4}" text-anchor="end">{amount_text(part * top / size)}</text>'
        for part in (0, 0.5, 1)
        for y in (base - round(part * _HEIGHT),)
    )
    ticks = "".join(
        f'<text x="{_LEFT + part * (_WIDTH - _LEFT):.1f}" y="{base + 15}"'
        f"{'' if part < 0.05 else ' text-anchor=' + chr(34) + ('end' if part > 0.95 else 'middle') + chr(34)}>{escape(label)}</text>"
        for part, label in _ticks(answer, setup, len(pool.usage_series))
    )
    title = escape(_short(pool_title(pool, by_path=True)))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {base + _BOTTOM}" role="img" aria-label="{title}">'
        f'<text class="name" x="0" y="12">{title}</text>{lines}{paths}{ticks}</svg>'
    )


def _top(pool: SimulatedPool) -> float:
    """Return the amount at the upper end of a chart."""
    others = max([*pool.usage_series, *pool.fair_share_series, pool.guarantee])
    demand = max(pool.demand_series, default=0.0)
    return (min(demand, _TOWERING * others) if others and demand > others else max(others, demand)) or 1.0


def _path(series: Sequence[float], top: float, *, closed: bool) -> str:
    """Return the steps of a series as a path, down to the axis at both ends if it is closed."""
    base, step = _TOP + _HEIGHT, (_WIDTH - _LEFT) / max(1, len(series))
    points, before = list[str](), ""
    for number, value in enumerate(series):
        y = f"{base - min(value / top, 1.0) * _HEIGHT:.1f}"
        if y != before:
            x = f"{_LEFT + number * step:.1f}"
            points.append(f"H{x}V{y}" if points else f"M{x},{base}V{y}" if closed else f"M{x},{y}")
            before = y
    return "".join(points) + f"H{_WIDTH}" + (f"V{base}Z" if closed else "")


def _ticks(answer: Simulation, setup: SimulatedSetup, count: int) -> Iterator[tuple[float, str]]:
    """Yield labels for the axis of time, each with its position from 0 to 1: dates in UTC, or lengths of time since the begin."""
    length_s = setup.stretch_ms * count / 1000
    if answer.has_dates:
        since_s = setup.since_ms / 1000
        for at_s, label in time_ticks(since_s, since_s + length_s, _MOST_TICKS, UTC):
            yield (at_s - since_s) / length_s, label
        return
    days = -(-length_s // (_MOST_TICKS * _DAY_S))
    step_s = next((step for step in _STEPS_S if length_s / step <= _MOST_TICKS), days * _DAY_S)
    for number in range(int(length_s // step_s) + 1):
        yield number * step_s / length_s, format_duration(int(number * step_s * 1000)) if number else "0"


def _short(name: str, most: int = _LONGEST_NAME) -> str:
    text = printable(name)
    return text if len(text) <= most else f"{text[: most - 1]}…"
