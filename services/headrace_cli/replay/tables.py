"""Two replays in words: pools with their figures before and after. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.ids import ROOT_POOL
from headrace.resources import percent
from headrace.wire.replay import ComparedPool, Replay, ReplayedPool
from headrace_cli.show.tables import branches, printable, table
from headrace_cli.show.times import timestamp

_GIB: Final = 2**30
#: Name of the unit of each resource, and its size.
UNITS: Final = {
    "cpu": ("core", 1),
    "memory": ("GiB", _GIB),
    "gpu": ("gpu", 1),
    "network": ("network", 1),
    "user_slots": ("slot", 1),
}


def replay_title(answer: Replay) -> Iterator[Text]:
    """Yield the period, and how well the replay under the recorded configuration agrees with what happened."""
    since, until = timestamp(answer.since_ms / 1000), timestamp(answer.until_ms / 1000)
    counts = f"{answer.operations} operations, {answer.job_runs} runs of jobs"
    yield Text(f"tree {answer.tree}, {since} to {until}: {counts}", style="bold")
    unit, size = UNITS[answer.resource]
    found = answer.agreement
    replayed, recorded = (amount_text(each / size) for each in (found.replayed_usage, found.recorded_usage))
    words = f"{percent(found.overlap)} of the usage is in the same pool at the same time as recorded"
    yield Text(f"agreement: {words}; {replayed} {unit} hours replayed, {recorded} recorded")


def replay_table(answer: Replay) -> Table:
    """Return a table with a line for each pool: recorded usage, then each figure before and after."""
    unit, size = UNITS[answer.resource]
    hours = f"{unit} h"
    heads = (f"recorded\n{hours}", f"usage\n{hours}", f"fair share\n{hours}", "median\nwait", "longest\nwait")
    made = table()
    made.add_column("\npool", overflow="fold")
    for head in (*heads, "never\nstarted", "jobs\npreempted", "done\nsooner", "done\nlater"):
        made.add_column(head, justify="right", no_wrap=True)
    leads = branches((each.path, _above(each)) for each in answer.pools)
    for lead, each in zip(leads, answer.pools, strict=True):
        name = "<Root>" if each.pool == ROOT_POOL else printable(each.pool)
        title = Text.assemble((lead, "dim"), (name, "bold"))
        made.add_row(title, amount_text(each.recorded_usage / size), *_figures(each, size), *_moved(each))
    return made


def replay_notes(answer: Replay) -> Iterator[Text]:
    """Yield the assumptions of the replay, one line each."""
    for note in answer.notes:
        yield Text(f"- {note}")


def amount_text(amount: float) -> str:
    """Return the amount with three significant digits; larger amounts without decimals."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def _figures(pool: ComparedPool, size: int) -> Iterator[Text]:
    figures: tuple[Callable[[ReplayedPool], str], ...] = (
        lambda each: amount_text(each.usage / size),
        lambda each: amount_text(each.fair_share / size),
        lambda each: format_duration(each.median_wait_ms) if each.operations else "–",
        lambda each: format_duration(each.longest_wait_ms) if each.operations else "–",
        lambda each: str(each.never_started + each.refused),
        lambda each: str(each.preemptions),
    )
    for figure in figures:
        before, after = ("–" if each is None else figure(each) for each in (pool.before, pool.after))
        yield Text(before) if before == after else Text(f"{before} → {after}", style="yellow")


def _moved(pool: ComparedPool) -> Iterator[Text]:
    yield Text(str(pool.sooner), style="green") if pool.sooner else Text("–")
    yield Text(str(pool.later), style="red") if pool.later else Text("–")


def _above(pool: ComparedPool) -> str:
    return pool.path.rpartition("/")[0] or ("/" if pool.path != "/" else "")
