"""Facts about fairness: the delivered part of a pool's fair share, the time below its guarantee, and lost work. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.table import Table

from headrace.durations import format_duration
from headrace.resources import format_amount
from headrace.wire.history import HistoryPoint, PoolHistory
from headrace.wire.integral import Volume
from headrace.wire.lost_work import LostWork, LostWorkTold
from headrace_cli.commands.pools.volume.chart import savings_unit, scale_of
from headrace_cli.show.tables import facts_table
from headrace_cli.show.times import timestamp


def fairness_facts(history: PoolHistory, told: LostWorkTold | None) -> Table:
    """Return facts about fairness in the period of a history. `told` is None if the lost work is not known."""
    facts = facts_table()
    points = [point for point in history.points if point.delivery is not None]
    if points:
        facts.add_row("delivered", _delivered(points))
        if any(point.strong_guarantee for point in points):
            facts.add_row("below guarantee", _below_guarantee(points))
        facts.add_row("smallest wait", _smallest_waiting(history.resource, points))
    if told is not None:
        facts.add_row("lost work", lost_words(told.lost, history.resource))
    return facts


def lost_words(lost: Sequence[LostWork], resource: str) -> str:
    """Return the work that preemption cost, with its reasons, such as `at most 2 core-seconds in 1 run since …: 1 by preemption`."""
    runs = Counter[str]()
    for each in lost:
        runs[each.reason.value] += each.runs
    if not runs:
        return "none to preemption"
    amount = sum(work_of(each.work, resource) for each in lost)
    unit = savings_unit(resource, amount)
    reasons = ", ".join(f"{count} by {reason}" for reason, count in runs.most_common())
    since = timestamp(min(each.hour_ms for each in lost) / 1000)
    which = "1 run" if runs.total() == 1 else f"{runs.total()} runs"
    return f"at most {amount / unit.size:,.4g} {unit.name} in {which} since {since}: {reasons}"


def work_of(work: Volume, resource: str) -> float:
    """Return the work of one resource: the amount as in messages (cpu in hundredths of a core), times seconds."""
    return float(getattr(work, resource))


def lost_work_json(told: LostWorkTold, resource: str) -> list[dict[str, Any]]:
    """Return lost work for programs, in cores or bytes times seconds."""
    return [
        {
            "hour_ms": each.hour_ms,
            "reason": each.reason.value,
            "runs": each.runs,
            "work": work_of(each.work, resource) / scale_of(resource),
        }
        for each in told.lost
    ]


def _delivered(points: list[HistoryPoint]) -> str:
    owed = sum(point.fair_share.mean * point.samples for point in points)
    got = sum(point.delivery.delivered * point.samples for point in points if point.delivery is not None)
    return f"{got / owed:.1%} of its fair share" if owed else "nothing was owed"


def _below_guarantee(points: list[HistoryPoint]) -> str:
    samples = sum(point.samples for point in points)
    part = sum(point.delivery.below_guarantee * point.samples for point in points if point.delivery) / samples
    known_ms = sum(later.at_ms - before.at_ms for before, later in pairwise(points) if not later.after_gap)
    return (
        "never"
        if not part
        else f"{part:.1%} of the time, {format_duration(int(part * known_ms))}, while it wanted more"
    )


def _smallest_waiting(resource: str, points: list[HistoryPoint]) -> str:
    waiting = [
        point.delivery.smallest_waiting
        for point in points
        if point.delivery and point.delivery.smallest_waiting is not None
    ]
    return f"a job of {resource} {format_amount(resource, min(waiting))}" if waiting else "no job waited"
