"""The command `headrace events`: print what happens, as it happens."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from headrace.client import Client
from headrace.client.following import HappeningFilter
from headrace.errors import BadInput
from headrace.wire.happenings import Happening
from headrace_cli.commands.operations.event_lines import happening_line, happening_words
from headrace_cli.commands.operations.operation_id import whole_id
from headrace_cli.session import Common, PoolOption, Switch, talk
from headrace_cli.show.screen import Screen

#: Most live operations of a pool that are read before the command begins to follow.
_MOST_MEMBERS = 10_000


def events(
    *,
    follow: Annotated[Switch, Parameter(name=["--follow", "-f"])] = False,
    pool: PoolOption = None,
    op: str | None = None,
    common: Common | None = None,
) -> int:
    """Print events as they happen: starts, ends, preemptions, starvation.

    Events of operations come from all trees, events of allocations and starvation only from this tree. If this command or its reader
    is too slow, a line says how many events are missing. With `--json` each line is one JSON object. Ctrl-C ends it.
    If the bus does not answer, a line says so, and the output continues when it answers again. After a minute without the bus it ends
    with exit status 3.

    Examples:

        headrace events --follow --pool research

        headrace events --follow --json | jq 'select(.happened == "allocation_preempted")'

    Parameters
    ----------
    follow
        Print events until Ctrl-C. Required for now; `headrace op history` shows earlier events.
    pool
        Only events of this pool's operations, and the starvation of the pool itself.
    op
        Only events of this operation, by its id or the beginning of the id.
    """
    if not follow:
        raise BadInput("events", "", "--follow; `headrace op history ID` shows earlier events")

    async def work(client: Client, screen: Screen) -> None:
        operation = (await client.get(await whole_id(client, op))).operation if op else ""
        name = await client.pools.at(pool or "")
        listed = await client.list(pool=name, live=True, limit=_MOST_MEMBERS) if name else []
        wanted = HappeningFilter(pool=name, operation=operation, members=(view.operation for view in listed))

        def show(happening: Happening) -> None:
            if screen.json:
                screen.print_line(happening_line(happening))
            else:
                screen.print_raw(happening_words(happening))

        def say_connection(is_there: bool) -> None:
            screen.say(
                "the bus answers again"
                if is_there
                else "the bus does not answer: events until it answers again are missed"
            )

        await client.happenings.follow(
            wanted, show, lambda: screen.say("following; Ctrl-C ends it"), on_connection=say_connection
        )

    return talk(common, work, bears_restarts=True)
