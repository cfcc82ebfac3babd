"""The command `headrace events`: print past events, and events as they happen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Final

import anyio
from cyclopts import Parameter

from headrace.client import Client
from headrace.client.following import HappeningFilter
from headrace.client.happenings import plain_happening
from headrace.errors import BadInput
from headrace.runtime.clock import SystemClock
from headrace.wire.happenings import Happening
from headrace_cli.commands.operations.event_lines import happening_words
from headrace_cli.commands.operations.operation_id import whole_id
from headrace_cli.session import Common, PoolOption, Switch, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.times import parse_timestamp_ms

#: Largest number of operations that are listed to find the events of a pool (`--pool`). The list is needed because an event names its
#: operation, but not always the pool.
_MOST_MEMBERS: Final = 10_000
#: Number of past events that are remembered. A new event that is among them has been printed already and is left out.
_MOST_TWICE: Final = 10_000


def events(
    *,
    since: str = "",
    follow: Annotated[Switch, Parameter(name=["--follow", "-f"])] = False,
    pool: PoolOption = None,
    op: str | None = None,
    common: Common | None = None,
) -> int:
    """Print events: starts, ends, preemptions, starvation.

    With `--since` it prints past events from the log, and with `--follow` all that happen from now on.
    Past events are the changes of operations and the ends of jobs, as far back as the log goes. Events from now on are also starts of
    jobs, preemptions and starvation. Events of operations come from all trees, events of allocations and starvation only from this
    tree.
    If this command or its reader is too slow, a line says how many events are missing. With `--json` each line is one JSON object.

    Ctrl-C ends it. If the bus does not answer, a line says so, and the output continues when it answers again. After a minute without
    the bus it ends with exit status 3.

    Examples of use:

        headrace events --since 8h

        headrace events --since 18:00 --pool research

        headrace events --follow --pool research

        headrace events --follow --json | jq 'select(.happened == "allocation_preempted")'

    Parameters
    ----------
    since
        Print events since then: a duration such as 8h, or a time such as 18:00 or 2026-11-20T18:00.
    follow
        Print events until Ctrl-C, after those of `--since`.
    pool
        Only events of this pool's operations, and the starvation of the pool itself.
    op
        Only events of this operation, by its id or the beginning of the id.
    """
    if not (follow or since):
        raise BadInput.because("events", "no period is given. Use --since, such as --since 8h, or --follow, or both")
    since_ms = parse_timestamp_ms(since, place="--since", now_ms=SystemClock().wall_ms()) if since else None

    async def work(client: Client, screen: Screen) -> None:
        operation = (await client.get(await whole_id(client, op))).operation if op else ""
        name = await client.pools.at(pool or "")
        listed = await client.list(pool=name, live=since_ms is None, limit=_MOST_MEMBERS) if name else []
        events = _Events(client, screen)
        wanted = HappeningFilter(pool=name, operation=operation, members=(view.operation for view in listed))
        if since_ms is not None:
            await events.print_past(since_ms, wanted, goes_on=follow)
        else:
            await events.follow(wanted)

    return talk(common, work, bears_restarts=True)


class _Events:
    """Prints past events, new events or both. Each event is printed once."""

    def __init__(self, client: Client, screen: Screen) -> None:
        self._client, self._screen = client, screen
        #: New events that wait until all past events are printed; None: new events are printed as they arrive.
        self._held: list[Happening] | None = None

    async def print_past(self, since_ms: int, wanted: HappeningFilter, *, goes_on: bool) -> None:
        """Print the past events. With `goes_on`, print new events afterwards until cancelled. No event is printed twice."""
        last: deque[Happening] = deque(maxlen=_MOST_TWICE)
        async with anyio.create_task_group() as tasks:
            if goes_on:
                self._held = []
                following = anyio.Event()
                tasks.start_soon(self.follow, wanted, following.set)
                await following.wait()
            async for happening in self._client.happenings.since(since_ms, wanted):
                last.append(happening)
                self._print(happening)
            for happening in self._held or ():
                if happening not in last:
                    self._print(happening)
            self._held = None

    async def follow(self, wanted: HappeningFilter, on_following: Callable[[], None] = lambda: None) -> None:
        """Print new events until cancelled."""

        def begin() -> None:
            on_following()
            self._screen.say("following events; press Ctrl-C to stop")

        def say_connection(is_there: bool) -> None:
            self._screen.say(
                "the bus answers again"
                if is_there
                else "the bus does not answer: events until it answers again are missed"
            )

        await self._client.happenings.follow(wanted, self._take, begin, on_connection=say_connection)

    def _take(self, happening: Happening) -> None:
        if self._held is None:
            self._print(happening)
        else:
            self._held.append(happening)

    def _print(self, happening: Happening) -> None:
        if self._screen.json:
            self._screen.print_line(plain_happening(happening))
        else:
            self._screen.print_raw(happening_words(happening))
