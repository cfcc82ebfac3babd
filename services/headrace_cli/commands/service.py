"""The commands `headrace service …`: show the processes of Headrace itself."""

from __future__ import annotations

from cyclopts import App

from headrace.client import Client
from headrace.client.place import full_disk
from headrace.near import hint
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common, Watching, talk
from headrace_cli.show.nodes import figures_table, roles_without_leader, service_table
from headrace_cli.show.screen import Screen

app = App(name="service", help="List the processes of Headrace itself, and their metrics.")


@app.command(name="list")
def list_(*, watching: Watching | None = None, common: Common | None = None) -> int:
    """Show every process of every service: role, leader or standby, term, age and lag.

    The lag is the duration of one turn of its event loop. `behind` counts the entries of the log that it has not processed yet.
    A role without a leader is shown as missing. If the log accepts no entries, the reason is printed below the table.
    In both cases the exit status is 1.

    Examples:

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

    Examples:

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
        told = [each for each in everybody if each.role.startswith(role or "")]
        if told:
            screen.show({"figures": told}, figures_table(told))
            return Exit.DONE
        if not role:
            screen.say("no service answers")
            return Exit.FAILED
        screen.say(f"no role begins with {role!r}: {hint(role, [each.role for each in everybody if each.role])}")
        return Exit.REFUSED

    return talk(common, work)
