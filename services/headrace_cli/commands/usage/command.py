"""The command `headrace usage`: what finished runs were allotted, used and lost, by person, pool, operation and day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from headrace.client import Client
from headrace.client.consumption import Consumed
from headrace.consumption_sums import By, checked_keys
from headrace.errors import BadInput, shortened
from headrace.installation.extras import require
from headrace.pools.tree_options import Prices
from headrace.runtime.clock import SystemClock
from headrace.suggestions import hint
from headrace_cli.commands.usage.tables import Shown, csv_text, left_out_words, notes, usage_json, usage_table
from headrace_cli.session import InTree, PoolOption, Switch, talk
from headrace_cli.show.screen import Screen, draws_more_than_ascii
from headrace_cli.show.times import parse_timestamp_ms

_DAY_MS = 86_400_000


@Parameter(name="*")
@dataclass(frozen=True)
class Chosen:
    """Options that choose which runs are counted."""

    since: Annotated[str, Parameter(allow_leading_hyphen=True)] = "30d"
    """First day: a date (2026-10-01), or how long ago (30d)."""
    until: Annotated[str, Parameter(allow_leading_hyphen=True)] = "now"
    """First day that does not count any more, written in the same way; now: today counts."""
    pool: PoolOption = None
    """Only this pool and the pools that were below it when the runs ran."""
    user: Annotated[str | None, Parameter(name=["--user", "-u"])] = None
    """Only this person."""

    def names(self) -> dict[str, str]:
        """Return the name of the pool, without its path, and of the person. An empty name stands for all pools or all persons."""
        return {"pool": (self.pool or "").rpartition("/")[2], "user": self.user or ""}


def usage(
    *,
    by: str = "user",
    chosen: Chosen | None = None,
    resource: Literal["cpu", "memory", "gpu"] = "cpu",
    cost: Switch = False,
    csv: Switch = False,
    report: Path | None = None,
    common: InTree | None = None,
) -> int:
    """Show what finished runs were allotted, used and lost, by person, pool, operation or day.

    A run counts when it has ended, with the resources of its job times its duration. If the operation was moved to another pool, each
    part of the run counts in the pool of that time. Work is lost to preemption if a run had to end before it was done and had not saved
    its state, and to failures if a run failed, timed out or was lost with its host. Days are those of UTC. The table shows core-, GiB-
    and GPU-hours; `--json` and `--csv` seconds.

    Examples of use:

        headrace usage

        headrace usage --by user,pool --since 2026-10-01 --until 2026-11-01 --csv

        headrace usage --by tree --resource gpu

        headrace usage --by day --pool research --json | jq '.lines[-1]'

        headrace usage --since 2026-10-01 --until 2026-11-01 --report october.html

    Parameters
    ----------
    by
        One line for each user, pool, tree (each pool with all pools below it), operation or day, or for several, separated by commas.
    resource
        The resource that the bars show and by which lines are sorted.
    cost
        Show what the allotted resources cost at the prices that the tree has now (tree option `prices`).
    csv
        Print the lines as CSV.
    report
        A file for a page of HTML with all sums and charts of the period, for the people who pay.
    """
    require("analysis", "`headrace usage`")
    keys, chosen = read_keys(by), chosen or Chosen()
    (first, last), names = read_days(chosen.since, chosen.until, SystemClock().wall_ms()), chosen.names()
    if csv and common is not None and common.json:
        raise BadInput.because("--csv", "--csv and --json cannot be combined")

    async def work(client: Client, screen: Screen) -> None:
        prices = await _prices(client, wanted=cost)
        if report is not None:
            from headrace_cli.commands.usage.report import write_report

            await write_report(client, report, first, last, names, prices)
            screen.say(f"wrote {report}", whole=True)
            return
        found = await client.consumption.summed(keys, since=first, until=last, **names)
        _tell(Shown(found, keys, resource, prices), screen, csv=csv)

    return talk(common, work)


def read_keys(by: str) -> tuple[By, ...]:
    """Return the keys of `--by`. Raises `BadInput`."""
    names = [name.strip() for name in by.split(",")]
    for name in names:
        if name not in list(By):
            raise BadInput("--by", shortened(name), hint(name, list(By)))
    return checked_keys([By(name) for name in names], "--by")


def read_days(since: str, until: str, now_ms: int) -> tuple[date, date]:
    """Return the first day of a period and the first day after it, in UTC. Raises `BadInput`."""
    since_ms = parse_timestamp_ms(since, place="--since", now_ms=now_ms, zone=UTC)
    until_ms = parse_timestamp_ms(until, place="--until", now_ms=now_ms, zone=UTC)
    first, last = _day_of(since_ms), _day_of(min(until_ms, now_ms + _DAY_MS) + _DAY_MS - 1)
    if first >= last:
        raise BadInput("--since", since, f"a day before --until, which is {until}")
    return first, last


def _day_of(at_ms: int) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).date()


async def _prices(client: Client, *, wanted: bool) -> Prices | None:
    if not wanted:
        return None
    (view,) = (await client.trees.list(client.place.tree)).trees
    return view.options.prices


def _tell(shown: Shown, screen: Screen, *, csv: bool) -> None:
    found: Consumed = shown.found
    if csv:
        screen.print_raw(csv_text(shown), end="")
    elif screen.json:
        screen.show_json(usage_json(shown))
        return
    elif found.lines:
        screen.print(usage_table(shown, ascii_only=not draws_more_than_ascii(screen.out)))
        if words := left_out_words(shown):
            screen.say(words)
    for line in notes(shown):
        screen.say(line)
