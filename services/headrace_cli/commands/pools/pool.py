"""The commands `headrace pool …` that show pools and their fair shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cyclopts import App
from rich.table import Table
from rich.text import Text

from headrace.client import Client, Refused, Unanswered
from headrace.client.preemptions import observes, starving_in
from headrace.counted import counted
from headrace.ids import ROOT_POOL, pool_or_path
from headrace.pools import TreeOptions
from headrace.runtime.clock import SystemClock
from headrace.wire.lost_work import LostWork
from headrace.wire.plain_values import plain
from headrace.wire.pools import PoolList, PoolView
from headrace.wire.preemption import ObservedPreemptions
from headrace.wire.version import NEVER
from headrace_cli.commands.pools.fields import field_of, read, words
from headrace_cli.commands.pools.starving import starving_table
from headrace_cli.commands.pools.tables import pool_table, tree_table
from headrace_cli.session import InTree, Switch, Watching, talk
from headrace_cli.show.screen import Screen, draws_more_than_ascii

#: Seconds to wait for the allocator. After that, a pool is shown without its preemptions.
_ALLOCATOR_S = 1.0
_DAY_MS: Final = 86_400_000

#: Names of the functions for commands whose own names are taken in Python.
_FUNCTIONS: Final = {"set": "set_", "import": "import_"}

app = App(name="pool", help="List, make, change and remove pools.")
app.command("headrace_cli.commands.pools.volume.command:volume", name="volume")
app.command("headrace_cli.commands.pools.explain:explain", name="explain")
for _name in ("create", "set", "remove", "move", "rename", "transfer", "import", "export", "attributes"):
    # The functions of these commands are imported only when the command runs, because showing pools does not need them.
    app.command(f"headrace_cli.commands.pools.changes:{_FUNCTIONS.get(_name, _name)}", name=_name)


@app.command(name="list")
def list_(*, watching: Watching | None = None, common: InTree | None = None) -> int:
    """Show the tree of pools: weight, guarantee, fair share and usage of each pool's dominant resource.

    Examples of use:

        headrace pool list
    """

    async def work(client: Client, screen: Screen) -> None:
        answer = await client.pools.list()
        screen.show(answer, pool_table(answer))
        await _say_troubles(screen, client, answer)

    return talk(common, work, watching=watching)


async def _say_troubles(screen: Screen, client: Client, answer: PoolList) -> None:
    """Print errors and pauses of the tree, and say if usage is not known yet. Lasting warnings about the configuration are only counted."""
    if screen.json:
        return
    if answer.frame.usage_version == NEVER:
        screen.say(
            "usage and shares are not known yet: the allocator has reported no nodes; check `headrace service list`",
            style="yellow",
        )
    if not answer.frame.errors:
        return
    (tree,) = (await client.trees.list(answer.tree)).trees
    lasting = set(tree.warnings) - {*TreeOptions(pause_starts=True, pause_preemption=True).pauses()}
    for error in answer.frame.errors:
        if error not in lasting:
            screen.say(error, style="yellow")
    if known := len(set(answer.frame.errors) & lasting):
        words = "1 warning" if known == 1 else f"{known} warnings"
        screen.say(
            f"{words} about the settings of the tree: headrace tree get {answer.tree}", style="yellow", whole=True
        )


@app.command
def get(name: str, /, *fields: str, common: InTree | None = None) -> int:
    """Show one pool. For every resource: usage, demand, limit, guarantee and parts of the fair share. Other facts follow.

    With FIELDS it prints only these fields, one on each line. docs/reference/fields.md lists all fields. Write a part of a field after
    a slash or a dot. A field that the pool does not have is `null`.

    Examples of use:

        headrace pool get research

        headrace pool get nightly accumulated_resource_volume/cpu

        headrace pool get nightly usage.cpu fair_share/total/cpu

        headrace pool get / resource_distribution_info --json

        headrace pool get research --json | jq .share.fair_share

    Parameters
    ----------
    name
        The pool, or its path; `/` or `<Root>` for the whole tree.
    fields
        Fields to print, such as accumulated_resource_volume/cpu.
    """
    pool_or_path(name)
    for key in fields:
        field_of(key)  # refuse an unknown field before any request

    from headrace_cli.commands.pools.get_page import pool_facts  # not needed by lists

    async def work(client: Client, screen: Screen) -> None:
        named = await client.pools.at(name)
        answer = await client.pools.list(named, outlook_of=f"/{named}")
        (pool,) = answer.pools
        if fields:
            _show_fields(screen, pool, fields)
            return
        told, lost = await preemptions_of(client, pool.name), await _lost_work_of_a_day(client, pool.name)
        if screen.json:
            shown = plain(pool)
            assert isinstance(shown, dict)
            shown |= {"preemptions": plain(told.taken)} if told is not None else {}
            shown |= {"observed_preemptions": plain(told.observed)} if told is not None and observes(pool) else {}
            shown |= {"lost_work": plain(lost), "starvation_outlooks": plain(answer.outlooks)}
            screen.show(shown, pool_table(answer))
        else:
            options = await _options_of(client, pool)
            screen.print(*pool_facts(pool, answer.frame, screen.width, told, lost, answer.outlooks), "", options)

    return talk(common, work)


async def _options_of(client: Client, pool: PoolView) -> Table:
    """Return the table of the pool's options of starvation and preemption.

    The pools above and the tree are requested too, because a pool inherits these options unless it sets its own.
    """
    from headrace_cli.commands.pools.get_page import options_in_force, options_table  # not needed by lists

    way = [pool]
    while way[0].parent not in ("", ROOT_POOL):
        way = [*(await client.pools.list(way[0].parent)).pools, *way]
    (tree,) = (await client.trees.list(client.trees.own)).trees
    return options_table(options_in_force(way, tree.options))


async def preemptions_of(client: Client, name: str) -> ObservedPreemptions | None:
    """Return the preemptions below a pool. None if no allocator answers, because the rest can be shown without them."""
    try:
        return await client.pools.preemptions(name, timeout_s=_ALLOCATOR_S)
    except (Refused, Unanswered):
        return None


async def _lost_work_of_a_day(client: Client, name: str) -> list[LostWork]:
    """Return the work that a pool lost to preemption in the last 24 hours.

    Empty if no service answers, because the rest can be shown without it.
    """
    now_ms = SystemClock().wall_ms()
    try:
        return (await client.pools.lost_work(name, since_ms=now_ms - _DAY_MS, until_ms=now_ms)).lost
    except (Refused, Unanswered):
        return []


def _show_fields(screen: Screen, pool: PoolView, fields: Sequence[str]) -> None:
    values = {key: read(pool, key) for key in fields}
    if screen.json:
        screen.show(values, Text())
        return
    for key, value in values.items():
        screen.print_raw(words(value) if len(values) == 1 else f"{key}\t{words(value)}")
        field, _ = field_of(key)
        if value is None and field.only:
            screen.say(f"{pool.name} has no {field.name}; only {field.only} have it")


@app.command
def tree(*, operations: Switch = False, watching: Watching | None = None, common: InTree | None = None) -> int:
    """Draw the tree: usage, fair share and demand of each pool as shares of the cluster, by its dominant resource.

    Examples of use:

        headrace pool tree

        headrace pool tree --operations

    Parameters
    ----------
    operations
        Draw operations too, below their pools.
    """

    async def work(client: Client, screen: Screen) -> None:
        answer = await client.pools.list(operations=operations)
        if screen.json:
            screen.show(answer, pool_table(answer))
            return
        terminal = screen.out.is_terminal
        screen.print(tree_table(answer, screen.width, bars=terminal, ascii_only=not draws_more_than_ascii(screen.out)))
        if answer.operations_left_out:
            screen.say(f"{counted(answer.operations_left_out, 'more operation')} not shown: the answer is full")
        await _say_troubles(screen, client, answer)

    return talk(common, work, watching=watching)


@app.command
def starving(*, watching: Watching | None = None, common: InTree | None = None) -> int:
    """Show pools and operations that are starving: below their fair share or strong guarantee for too long.

    Each line shows since when an element starves, for which share, its satisfaction, and which operations may preempt for it. `!` marks
    aggressive starvation. For pools that only observe preemption, the line says how many allocations would have been preempted in them.
    Under a YARN policy, the line of a pool shows the resources that are due to the pool and everything below it: for its guarantee, and for
    its fair share.

    Examples of use:

        headrace pool starving

        headrace pool starving --json
    """

    async def work(client: Client, screen: Screen) -> None:
        answer = await client.pools.list(operations=True, only_starving=True)
        told = await preemptions_of(client, "") if any(map(observes, answer.pools)) else None
        found = starving_in(answer, told.observed if told is not None else [])
        if found or screen.json:
            screen.show({"starving": found}, starving_table(found, answer.frame.at_ms))
        else:
            screen.say("nothing starves")
        if answer.operations_left_out:
            screen.say(f"{counted(answer.operations_left_out, 'more operation')} not shown: the answer is full")

    return talk(common, work, watching=watching)
