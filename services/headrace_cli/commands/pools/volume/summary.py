"""A pool's history in figures: a table for people, plain values for programs. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.wire.history import HistoryPoint, PoolHistory, Savings, Spread
from headrace_cli.commands.pools.volume.chart import Unit, amount_unit, pool_chart, savings_unit, scale_of
from headrace_cli.show.tables import table
from headrace_cli.show.times import timestamp

_COLUMNS = ("last", "mean", "least", "most")


def summary_title(history: PoolHistory) -> Text:
    """Return a title: the pool, the time, and how much of the time is known."""
    text = Text(f"{history.resource} of {history.pool}", style="bold")
    text.append(f"  {timestamp(history.since_ms / 1000)} to {timestamp(history.until_ms / 1000)}", style="not bold")
    samples = sum(point.samples for point in history.points)
    gaps = pool_chart(history).gaps
    words = f"{samples} sample{'' if samples == 1 else 's'}"
    if gaps:
        lost_ms = sum(int((end - start) * 1000) for start, end in gaps)
        words += f", {len(gaps)} gap{'' if len(gaps) == 1 else 's'} of {format_duration(lost_ms)} together"
    text.append(f"  ({words})", style="not bold")
    return text


def summary(history: PoolHistory) -> Table:
    """Return a table of usage, demand, fair share and guarantees, and of savings if there were any."""
    points = history.points
    made = table("", *_COLUMNS, "unit", right=_COLUMNS)
    largest = max((max(point.usage.most, point.demand.most) for point in points), default=0.0)
    unit = amount_unit(history.resource, largest)
    spreads: list[tuple[str, list[Spread]]] = [
        ("usage", [point.usage for point in points]),
        ("demand", [point.demand for point in points]),
        ("fair share", [point.fair_share for point in points]),
    ]
    for label, figures in spreads:
        made.add_row(label, *_spread(figures, [point.samples for point in points], unit), unit.name)
    if not points:
        return made
    last = points[-1]
    _level(made, "strong guarantee", float(last.strong_guarantee), unit)
    if last.integral is None:
        return made
    _level(made, "flow", last.integral.flow, unit)
    _level(made, "burst guarantee", last.integral.burst, unit)
    saved = [point.integral.volume for point in points if point.integral is not None and point.integral.volume]
    unit = savings_unit(history.resource, max([last.integral.capacity, *(each.most for each in saved)]))
    if saved:
        made.add_row(
            "saved",
            _figure(saved[-1].last, unit),
            "",
            _figure(min(each.least for each in saved), unit),
            _figure(max(each.most for each in saved), unit),
            unit.name,
        )
    _level(made, "capacity", last.integral.capacity, unit)
    return made


def _level(made: Table, label: str, amount: float, unit: Unit) -> None:
    if amount:
        made.add_row(label, _figure(amount, unit), "", "", "", unit.name)


def _spread(figures: list[Spread], samples: list[int], unit: Unit) -> list[str]:
    if not figures:
        return ["–"] * len(_COLUMNS)
    mean = sum(each.mean * count for each, count in zip(figures, samples, strict=True)) / sum(samples)
    least, most = min(each.least for each in figures), max(each.most for each in figures)
    return [_figure(amount, unit) for amount in (figures[-1].mean, mean, least, most)]


def _figure(amount: float, unit: Unit) -> str:
    return f"{amount / unit.size:,.2f}".rstrip("0").rstrip(".")


def history_json(history: PoolHistory) -> dict[str, Any]:
    """Return the history for programs: cores and core-seconds, bytes and byte-seconds, times in UTC."""
    scale = scale_of(history.resource)
    return {
        "pool": history.pool,
        "tree": history.tree,
        "resource": history.resource,
        "since": _utc(history.since_ms),
        "until": _utc(history.until_ms),
        "oldest": _utc(history.oldest_ms) if history.oldest_ms is not None else None,
        "points": [_point(point, scale) for point in history.points],
    }


def _point(point: HistoryPoint, scale: float) -> dict[str, Any]:
    integral = point.integral
    return {
        "at": _utc(point.at_ms),
        "samples": point.samples,
        "after_gap": point.after_gap,
        "usage": _scaled(point.usage, scale),
        "demand": _scaled(point.demand, scale),
        "fair_share": _scaled(point.fair_share, scale),
        "strong_guarantee": point.strong_guarantee / scale,
        "total": point.total / scale,
        "resource_flow": integral.flow / scale if integral is not None else None,
        "burst_guarantee": integral.burst / scale if integral is not None else None,
        "integral_pool_capacity": integral.capacity / scale if integral is not None else None,
        "accumulated_resource_volume": _scaled(integral.volume, scale)
        if integral is not None and integral.volume is not None
        else None,
        "delivered": point.delivery.delivered / scale if point.delivery is not None else None,
        "below_guarantee": point.delivery.below_guarantee if point.delivery is not None else None,
        "smallest_waiting": _smallest_waiting(point, scale),
    }


def _smallest_waiting(point: HistoryPoint, scale: float) -> float | None:
    waiting = None if point.delivery is None else point.delivery.smallest_waiting
    return None if waiting is None else waiting / scale


def _scaled(spread: Spread | Savings, scale: float) -> dict[str, float]:
    return {name: getattr(spread, name) / scale for name in spread.__struct_fields__}


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
