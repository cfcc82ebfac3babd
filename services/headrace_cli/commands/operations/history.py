"""The command `headrace op history`: show an operation's changes of state, its runs of jobs, and preemptions."""

from __future__ import annotations

from collections import deque

from headrace.client import Client, Refused, Unanswered
from headrace.client.happenings import plain_happening
from headrace.ids import AllocationId, OperationId, TreeName
from headrace.runtime.clock import SystemClock
from headrace.whole_numbers import at_least
from headrace.wire.happenings import AllocationStarted, Happening
from headrace.wire.heartbeat import JobSlot
from headrace.wire.operations import FINAL_STATES
from headrace_cli.commands.operations.event_lines import history_table
from headrace_cli.commands.operations.operation_id import whole_id
from headrace_cli.option_values import Whole
from headrace_cli.session import Common, talk
from headrace_cli.show.screen import Screen


def history(operation: str, /, *, limit: Whole = 1_000, common: Common | None = None) -> int:
    """Show the states of an operation, every run of a job that ended, and every preemption with its proof.

    The history comes from the log, so restarts do not lose it. The jobs that run now come last. A preemption is shown with the operation
    that it served, the shares before and after, and the group and the threshold that allowed it. A job is shown with the stage that started
    it, and with the usage before its start and the fair share of its operation. With `--json` each line is one JSON object.

    Examples of use:

        headrace op history 69201a4f-0c1d2e3f4a5b

        headrace op history 69201a4f-0c1d2e3f4a5b --json | jq 'select(.preemption)'

    Parameters
    ----------
    operation
        The operation's id, or the beginning of the id.
    limit
        Largest number of entries to show, the newest ones.
    """

    at_least("--limit", limit, 1)

    async def work(client: Client, screen: Screen) -> None:
        found: deque[Happening] = deque(maxlen=limit)
        begins_late, count = False, 0
        name = await whole_id(client, operation)
        async for page in client.happenings.history(name):
            begins_late |= page.begins_late
            count += len(page.happenings)
            found.extend(page.happenings)
        running = await _running(client, name)
        count += len(running)
        found.extend(running)
        if screen.json:
            for each in found:
                screen.print_line(plain_happening(each))
        else:
            screen.print(history_table(found))
        if begins_late:
            screen.say("the log no longer has earlier entries")
        if count > limit:
            screen.say(f"{count - limit} earlier entries are not shown; --limit shows more")

    return talk(common, work)


async def _running(client: Client, operation: str) -> list[AllocationStarted]:
    """Return the running jobs of an operation, as its allocators report them; an empty list if it is over or no allocator answers."""
    if (await client.get(operation)).state in FINAL_STATES:
        return []
    try:
        places = await client.places(operation)
    except (Refused, Unanswered):
        return []
    now_ms = SystemClock().wall_ms()
    return [
        AllocationStarted(
            now_ms - one.ran_ms,
            TreeName(""),
            OperationId(places.operation),
            one.node,
            AllocationId(one.allocation),
            [JobSlot(one.index, one.attempt)],
            one.stage,
            *(() if one.start is None else (one.start.share_before, one.start.fair_share, one.start.places_taken)),
        )
        for one in places.running
    ]
