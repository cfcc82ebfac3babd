"""A simulation in words and tables. The rows are also those of the report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.ids import ROOT_POOL
from headrace.resources import percent
from headrace.wire.simulation import SimulatedPool, SimulatedSetup, Simulation, Waits
from headrace_cli.replay.tables import UNITS, amount_text
from headrace_cli.show.tables import branches, printable, table
from headrace_cli.show.times import timestamp

#: Share error from which a note explains it.
_NOTED_ERROR: Final = 0.05
_MOST_PERSONS: Final = 10
#: Upper bound of the damaged lines that are named.
_MOST_DAMAGED: Final = 3
_NONE: Final = "–"
_WAITS: Final = ("median\nwait", "95 %\nwait", "slow-\ndown")


def facts(answer: Simulation) -> Iterator[str]:
    """Yield the facts about the workload, one a line: its size, its period, and what was left out."""
    unit, size = UNITS[answer.resource]
    users = len(answer.setups[0].persons) if answer.setups else 0
    cluster = f"{_counted(answer.nodes, 'node')} with {_counted(answer.capacity / size, unit)}"
    yield f"{answer.format}: {_counted(answer.jobs, 'job')} of {_counted(users, 'user')} on {cluster}, {period(answer)}"
    if answer.left_out:
        reasons = ", ".join(f"{count} {printable(why)}" for why, count in answer.left_out.items())
        yield f"left out: {_counted(sum(answer.left_out.values()), 'job')} ({reasons})"
    if answer.damaged_count:
        first = "; ".join(f"line {line}: {printable(why)}" for line, why in answer.damaged[:_MOST_DAMAGED])
        more = "; …" if answer.damaged_count > _MOST_DAMAGED else ""
        yield f"damaged: {_counted(answer.damaged_count, 'line')} ({first}{more})"


def period(answer: Simulation) -> str:
    """Return the period in words: two dates in UTC, or a length if the times of the workload are not dates."""
    length_ms = max((each.cluster.makespan_ms for each in answer.setups), default=0)
    if not answer.has_dates:
        return f"{format_duration(length_ms)} long"
    since, until = (timestamp(ms / 1000, UTC)[:16] for ms in (answer.since_ms, answer.since_ms + length_ms))
    return f"{since} to {until} UTC"


def simulation_title(answer: Simulation) -> Iterator[Text]:
    """Yield the facts about the workload as lines for a terminal."""
    for number, line in enumerate(facts(answer)):
        yield Text(line, style="" if number else "bold")


def cluster_rows(answer: Simulation) -> list[tuple[str, ...]]:
    """Return the head and a row for each configuration, and a row for the recorded waits."""
    unit, size = UNITS[answer.resource]
    heads = ("\nutilisation", "\nsaturated", "share\nerror", "idle while\nsaturated", "\nmakespan", f"lost\n{unit} h")
    rows: list[tuple[str, ...]] = [("\nconfiguration", *heads, *_WAITS, "never\nstarted")]
    for each in answer.setups:
        cluster = each.cluster
        lost = next((pool.lost_usage for pool in each.pools if pool.pool == ROOT_POOL), 0.0)
        rows.append(
            (
                printable(each.name),
                percent(cluster.utilisation),
                format_duration(cluster.saturated_ms),
                percent(cluster.share_error),
                percent(cluster.idle_fraction),
                format_duration(cluster.makespan_ms),
                amount_text(lost / size),
                *_waits(each.waits),
                str(cluster.never_started + cluster.refused),
            )
        )
    if answer.recorded is not None:
        rows.append(("recorded", *[_NONE] * len(heads), *_waits(answer.recorded), _NONE))
    return rows


def pool_rows(answer: Simulation, setup: SimulatedSetup, *, by_path: bool = False) -> list[tuple[str, ...]]:
    """Return the head and a row for each pool of a configuration. Each pool includes all pools below it.

    Pools have their paths as names with `by_path`.
    """
    unit, size = UNITS[answer.resource]
    hours = [f"{name}\n{unit} h" for name in ("usage", "fair share", "owed", "lost")]
    rows: list[tuple[str, ...]] = [("\npool", "\noperations", *hours, "\nstarving", *_WAITS)]
    for each in setup.pools:
        amounts = (each.usage, each.fair_share, each.owed, each.lost_usage)
        starving = format_duration(each.starving_ms) if each.starving_ms else _NONE
        figures = (amount_text(amount / size) for amount in amounts)
        rows.append((pool_title(each, by_path=by_path), str(each.operations), *figures, starving, *_waits(each.waits)))
    return rows


def person_rows(answer: Simulation, setup: SimulatedSetup) -> list[tuple[str, ...]]:
    """Return the head and a row for each of the users with the most usage."""
    unit, size = UNITS[answer.resource]
    rows: list[tuple[str, ...]] = [("\nuser", "\noperations", f"usage\n{unit} h", *_WAITS)]
    return rows + [
        (printable(each.user), str(each.operations), amount_text(each.usage / size), *_waits(each.waits))
        for each in setup.persons[:_MOST_PERSONS]
    ]


def pool_title(pool: SimulatedPool, *, by_path: bool = False) -> str:
    """Return the name of a pool, or its path, for people."""
    return "<Root>" if pool.pool == ROOT_POOL else printable(pool.path if by_path else pool.pool)


def simulation_tables(answer: Simulation) -> Iterator[Table | Text]:
    """Yield the table of configurations, and for each configuration its tables of pools and users, with blank lines between them."""
    yield Text()
    yield _table(cluster_rows(answer))
    for setup in answer.setups:
        leads = branches((each.path, _above(each)) for each in setup.pools)
        yield from (Text(), Text(printable(setup.name), style="bold"), _table(pool_rows(answer, setup), leads))
        yield from (Text(), _table(person_rows(answer, setup)))


def notes(answer: Simulation) -> Iterator[str]:
    """Yield what was assumed, and why shares differ from fair shares."""
    yield from answer.notes
    for each in answer.setups:
        lead = f"{printable(each.name)}: " if len(answer.setups) > 1 else ""
        yield from (f"{lead}{printable(note)}" for note in each.notes)
        cluster = each.cluster
        if cluster.share_error > _NOTED_ERROR:
            yield (
                f"{lead}while the cluster was saturated, {percent(cluster.share_error)} of it was owed to pools that did not have it. "
                f"{percent(cluster.idle_fraction)} of the cluster was idle in that time: free resources on nodes were too small for "
                "the jobs that waited, or limits held jobs back"
            )


def simulation_notes(answer: Simulation) -> Iterator[Text]:
    """Yield the notes as lines for a terminal."""
    for note in notes(answer):
        yield Text(f"- {note}")


def _waits(waits: Waits) -> tuple[str, ...]:
    if not waits.count:
        return (_NONE, _NONE, _NONE)
    slowdown = amount_text(waits.bounded_slowdown)
    return (format_duration(waits.median_ms), format_duration(waits.p95_ms), slowdown)


def _counted(count: float, noun: str) -> str:
    return f"{amount_text(count)} {noun}{'' if count == 1 else 's'}"


def _above(pool: SimulatedPool) -> str:
    return pool.path.rpartition("/")[0] or ("/" if pool.path != "/" else "")


def _table(rows: Sequence[Sequence[str]], leads: Sequence[str] = ()) -> Table:
    made = table()
    for number, head in enumerate(rows[0]):
        made.add_column(head, justify="right" if number else "left", no_wrap=bool(number), overflow="fold")
    for number, (name, *cells) in enumerate(rows[1:]):
        made.add_row(Text.assemble((leads[number] if leads else "", "dim"), (name, "bold")), *cells)
    return made
