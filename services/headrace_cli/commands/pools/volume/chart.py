"""The chart of a pool's history before it is drawn: panels of lines over the same time. Pure.

A line is broken where nothing is known. A line across such a gap would suggest that nothing special happened there.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.wire.history import HistoryPoint, IntegralPoint, PoolHistory
from headrace.wire.lost_work import HOUR_MS, LostWork

NAN: Final = math.nan
#: Largest height of demand in a chart, as a multiple of the largest other figure. Higher demand is cut.
_TOWERING: Final = 1.5


class LineKind(enum.Enum):
    """The subject of a line, which decides how the line is drawn."""

    USAGE = "usage"
    DEMAND = "demand"
    FAIR_SHARE = "fair share"
    STRONG = "strong guarantee"
    FLOW = "flow"
    BURST = "burst guarantee"
    SAVED = "saved"
    CAPACITY = "capacity"
    DELIVERED = "delivered"
    WAITING = "smallest job that waits"
    LOST = "lost work"


class Unit(msgspec.Struct, frozen=True):
    """A unit that a chart shows, such as GiB: its name, and its size in units of messages (hundredths of a core, bytes, pieces)."""

    name: str
    size: float


class Line(msgspec.Struct, frozen=True):
    """The values of one figure over time; NaN where a value is not known.

    If the values are means, `least` and `most` have the smallest and the largest value behind each mean.
    """

    role: LineKind
    label: str
    values: list[float]
    least: list[float] = []
    most: list[float] = []

    def runs(self) -> list[range]:
        """Return the ranges of positions at which values follow each other without a break."""
        runs: list[range] = []
        start: int | None = None
        for place, value in enumerate([*self.values, NAN]):
            if math.isnan(value):
                if start is not None:
                    runs.append(range(start, place))
                start = None
            elif start is None:
                start = place
        return runs

    @property
    def top(self) -> float:
        """Return the largest figure of the line, or 0 if there is none."""
        return max((value for value in [*self.values, *self.most] if not math.isnan(value)), default=0.0)


class Panel(msgspec.Struct, frozen=True):
    """Lines of one unit, over `Chart.times_s`. The first line is drawn on top."""

    title: str
    unit: str
    lines: list[Line]
    #: End of the vertical axis.
    top: float


class Chart(msgspec.Struct, frozen=True):
    """The lines, axes and words of a chart."""

    title: str
    start_s: float
    end_s: float
    #: Unix time of each value of the lines, in seconds. One time in the middle of each gap has no values.
    times_s: list[float]
    #: Begin and end of each gap in which nothing is known, in seconds of Unix time.
    gaps: list[tuple[float, float]]
    panels: list[Panel]


def scale_of(resource: str) -> float:
    """Return how many units of messages one core, byte or piece has. Messages count cpu in hundredths of a core."""
    return 100.0 if resource == "cpu" else 1.0


def amount_unit(resource: str, largest: float) -> Unit:
    """Return the unit for figures up to `largest`, which is counted as in messages (cpu in hundredths of a core)."""
    if resource == "cpu":
        return Unit("cores", 100.0)
    if resource == "memory":
        for name, size in (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20)):
            if largest >= size:
                return Unit(name, size)
        return Unit("bytes", 1.0)
    return Unit({"gpu": "GPUs", "user_slots": "slots"}.get(resource, resource), 1.0)


def savings_unit(resource: str, largest: float) -> Unit:
    """Return the unit for savings up to `largest`: hours of the resource, such as core-hours, or seconds if they are below ten hours."""
    unit = amount_unit(resource, largest / 3600)
    one = unit.name[:-1] if unit.name in ("cores", "GPUs", "slots", "bytes") else unit.name
    if largest / unit.size >= 36_000:
        return Unit(f"{one}-hours", unit.size * 3600)
    return Unit(f"{one}-seconds", unit.size)


def pool_chart(history: PoolHistory, lost: Sequence[LostWork] | None = None) -> Chart:
    """Return a chart with a panel of amounts, and a panel of savings if the pool has an integral guarantee.

    If `lost` is given, panels about fairness are added, except panels without data.
    """
    points = history.points
    times: list[float] = []
    places: list[HistoryPoint | None] = []
    gaps: list[tuple[float, float]] = []
    for point in points:
        at = point.at_ms / 1000
        if point.after_gap and times:
            gaps.append((times[-1], at))
            times.append((times[-1] + at) / 2)
            places.append(None)
        times.append(at)
        places.append(point)
    if times and 0 < history.known_until_ms < history.until_ms:
        gaps.append((times[-1], history.until_ms / 1000))
    panels = [_amounts(history.resource, places)]
    if any(point.integral is not None for point in points):
        panels.append(_savings(history.resource, places))
    if lost is not None:
        panels += _fairness(history.resource, places, lost)
    title = f"{history.resource} of {history.pool}"
    return Chart(title, history.since_ms / 1000, history.until_ms / 1000, times, gaps, panels)


def _amounts(resource: str, places: list[HistoryPoint | None]) -> Panel:
    there = [place for place in places if place is not None]
    largest = max((max(point.usage.most, point.demand.most, _burst(point)) for point in there), default=0.0)
    unit = amount_unit(resource, largest)

    def over(figure: Callable[[HistoryPoint], float]) -> list[float]:
        return [NAN if place is None else figure(place) / unit.size for place in places]

    strong = any(point.strong_guarantee for point in there)
    above = "strong + " if strong else ""
    lines = [
        Line(
            LineKind.USAGE,
            "usage",
            over(lambda point: point.usage.mean),
            over(lambda point: point.usage.least),
            over(lambda point: point.usage.most),
        ),
        Line(LineKind.DEMAND, "demand", over(lambda point: point.demand.mean)),
        Line(LineKind.FAIR_SHARE, "fair share", over(lambda point: point.fair_share.mean)),
    ]
    if strong:
        lines.append(Line(LineKind.STRONG, "strong guarantee", over(lambda point: float(point.strong_guarantee))))
    if any(point.integral is not None for point in there):
        lines.append(Line(LineKind.FLOW, f"{above}flow", over(_flow)))
    if any(point.integral is not None and point.integral.burst for point in there):
        lines.append(Line(LineKind.BURST, f"{above}burst guarantee", over(_burst)))
    top = _top(lines)
    lines = [
        msgspec.structs.replace(line, label=f"{line.label} (up to {line.top:,.4g})") if line.top > top else line
        for line in lines
    ]
    return Panel("usage, demand and guarantees", unit.name, lines, top)


def _top(lines: list[Line]) -> float:
    """Return the end of the axis: the largest figure, but at most `_TOWERING` times the largest figure other than demand.

    Without this bound, a very large demand would make all other lines look like zero. Returns 1 if all figures are 0, so that there is
    an axis.
    """
    demand = max((line.top for line in lines if line.role is LineKind.DEMAND), default=0.0)
    others = max((line.top for line in lines if line.role is not LineKind.DEMAND), default=0.0)
    return (min(demand, _TOWERING * others) if demand > others > 0 else max(demand, others)) or 1.0


def _flow(point: HistoryPoint) -> float:
    return NAN if point.integral is None else point.strong_guarantee + point.integral.flow


def _burst(point: HistoryPoint) -> float:
    return NAN if point.integral is None else point.strong_guarantee + point.integral.burst


def _savings(resource: str, places: list[HistoryPoint | None]) -> Panel:
    integral = [None if place is None else place.integral for place in places]
    largest = max((max(_most_saved(each), each.capacity) for each in integral if each is not None), default=0.0)
    unit = savings_unit(resource, largest)

    def over(figure: Callable[[IntegralPoint], float]) -> list[float]:
        return [NAN if each is None else figure(each) / unit.size for each in integral]

    saved = Line(
        LineKind.SAVED,
        "saved",
        over(lambda each: each.volume.last if each.volume is not None else NAN),
        over(lambda each: each.volume.least if each.volume is not None else NAN),
        over(_most_saved),
    )
    lines = [saved, Line(LineKind.CAPACITY, "capacity", over(lambda each: each.capacity))]
    return Panel("savings", unit.name, lines, _top(lines))


def _most_saved(each: IntegralPoint) -> float:
    return each.volume.most if each.volume is not None else NAN


def _fairness(resource: str, places: list[HistoryPoint | None], lost: Sequence[LostWork]) -> list[Panel]:
    """Return panels about fairness: the delivered part of the fair share, the smallest job that waited, and work lost to preemption.

    Panels without data are left out.
    """
    told = [None if place is None else place.delivery for place in places]
    owed = [NAN if place is None or not place.fair_share.mean else place.fair_share.mean for place in places]
    unit = amount_unit(resource, max((each.smallest_waiting or 0 for each in told if each is not None), default=0))
    by_hour = Counter[int]()
    for each in lost:
        by_hour[each.hour_ms] += getattr(each.work, resource)
    first = {hour: min(each.first_ms for each in lost if each.hour_ms == hour) for hour in by_hour}
    work = savings_unit(resource, max(by_hour.values(), default=0))
    times = [None if place is None else (place.at_ms - place.at_ms % HOUR_MS, place.at_ms) for place in places]
    # Lost work is known as one sum for each hour. The line is 0 until the first loss of the hour, and from then on at the sum.
    hours = [NAN if at is None else by_hour[at[0]] / work.size if at[1] >= first.get(at[0], 0) else 0.0 for at in times]
    delivered = [NAN if each is None else 100 * each.delivered / of for each, of in zip(told, owed, strict=True)]
    waiting = [
        NAN if each is None or each.smallest_waiting is None else each.smallest_waiting / unit.size for each in told
    ]
    found = [
        ("delivered of the fair share", "%", Line(LineKind.DELIVERED, "delivered", delivered)),
        ("smallest job that waits", unit.name, Line(LineKind.WAITING, "smallest job that waits", waiting)),
        ("lost to preemption in the hour", work.name, Line(LineKind.LOST, "lost work", hours)),
    ]
    return [Panel(title, name, [line], _top([line])) for title, name, line in found if line.top]
