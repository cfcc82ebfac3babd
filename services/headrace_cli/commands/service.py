"""The commands `headrace service …`: show the processes of Headrace itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cyclopts import App
from rich.table import Table
from rich.text import Text

from headrace.client import Client
from headrace.client.place import full_disk
from headrace.durations import format_duration
from headrace.ids import TreeName
from headrace.suggestions import hint
from headrace.wire.figures import FiguresAnswer, Histogram
from headrace.wire.services import ServiceView
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common, Watching, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import table

#: Roles for which every tree has processes of its own. Admission is missing here, because one admission serves all trees.
_OF_A_TREE: Final = ("allocator", "fair_share", "integral")

app = App(name="service", help="List the processes of Headrace itself, and their metrics.")


@app.command(name="list")
def list_(*, watching: Watching | None = None, common: Common | None = None) -> int:
    """Show every process of every service: role, leader or standby, term, age and lag.

    The lag is the duration of one turn of the event loop of the process. `behind` is the number of log entries that the process has not
    processed yet. A role without a leader is shown as missing. If the log accepts no entries, the reason is printed below the table.
    In both cases the exit status is 1.

    Examples of use:

        headrace service list

        headrace service list --json
    """

    async def work(client: Client, screen: Screen) -> int:
        views = await client.processes.list()
        for unread in client.processes.unread:
            screen.say(unread.text(), style="yellow")
        missing = roles_without_leader(views, client.trees.own)
        screen.show({"processes": list(views), "missing": missing}, service_table(views, missing))
        troubled = [view for view in views if view.trouble]
        for view in troubled:
            screen.say(f"{view.role}: {view.trouble}", style="red")
        if troubled and (words := full_disk(client.place)):
            screen.say(words, style="red")
        return Exit.FAILED if missing or troubled else Exit.DONE

    return talk(common, work, watching=watching)


@app.command
def figures(role: str | None = None, /, *, common: Common | None = None) -> int:
    """Show the metrics of services, such as preemptions by reason and by group.

    Counters start at zero when a process starts.

    Examples of use:

        headrace service figures allocator

        headrace service figures --json

    Parameters
    ----------
    role
        Only roles whose names begin with this, such as allocator.
    """

    async def work(client: Client, screen: Screen) -> int:
        everybody = await client.processes.figures()
        for unread in client.processes.unread:
            screen.say(unread.text(), style="yellow")
        told = [each for each in everybody if _named(each).startswith(role or "")]
        if told:
            screen.show({"figures": told}, figures_table(told))
            return Exit.DONE
        if not role:
            screen.say("no service answers")
            return Exit.FAILED
        screen.say(f"no role begins with {role!r}: {hint(role, sorted({_named(each) for each in everybody}))}")
        return Exit.REFUSED

    return talk(common, work)


def _named(answer: FiguresAnswer) -> str:
    """Return the role of a process, or `agent` for an agent, which has no role."""
    return answer.role or answer.service


def figures_table(told: Sequence[FiguresAnswer]) -> Table:
    """Return a table with one line for each metric of each process. A histogram is shown by its count and mean."""
    made = table("role", "instance", "metric", "value", "unit", right=("value",))
    for answer in told:
        for figure in answer.figures:
            made.add_row(_named(answer), answer.instance, figure.name, _figure(figure.value), figure.unit)
    return made


def _figure(value: float | Histogram) -> str:
    if isinstance(value, Histogram):
        count = sum(value.counts)
        return f"{count} × {value.sum / count:,.3g}" if count else "0"
    return f"{value:,.10g}"


def roles_without_leader(views: Sequence[ServiceView], own: TreeName) -> list[str]:
    """Return the roles without a leader, in the tree `own` and in every other tree from which some process reports."""
    trees = {own, *(view.role.partition(".")[2] for view in views if "." in view.role)}
    roles = {"admission", *(f"{service}.{tree}" for service in _OF_A_TREE for tree in trees)}
    return sorted(roles - {view.role for view in views if view.leads})


def service_table(views: Sequence[ServiceView], missing: Sequence[str]) -> Table:
    """Return a table with one line for each process, and one for each role without a leader."""
    made = table("role", "instance", "state", "term", "age", "lag", "behind", right=("term", "age", "lag", "behind"))
    for view in views:
        state = Text("leader", style="green") if view.leads else Text("standby")
        term = str(view.term) if view.leads else "–"
        behind = "–" if view.entries_behind is None else str(view.entries_behind)
        age, lag = format_duration(view.age_ms), f"{view.lag_ms:.1f} ms"
        made.add_row(view.role, view.instance, state, term, age, lag, behind)
    for role in missing:
        made.add_row(role, "–", Text("missing", style="red"), "–", "–", "–", "–")
    return made
