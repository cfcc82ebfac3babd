"""The commands `headrace tree …`: list, make, change and remove pool trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from rich.table import Table

from headrace.client import Client, Unanswered
from headrace.client.asking import serves, unserved
from headrace.errors import BadInput
from headrace.pools import TREE_ATTRIBUTES, TreeOptions
from headrace.pools.tree_conflicts import judge_trees
from headrace.wire.pool_changes import PoolPlan, SetOptions
from headrace.wire.trees import TreeList, TreeView
from headrace.wire.what_if import WhatIfAnswer
from headrace_cli.commands.pools.attributes import attribute_table
from headrace_cli.commands.pools.key_values import assignments, checked
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common, Json, Switch, Watching, change, talk
from headrace_cli.show.configuration_changes import show_plan
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import table

app = App(
    name="tree",
    help="""List, make, change and remove pool trees, each with pools, options and nodes of its own.

    A tree is configuration. It needs a fair_share, an integral and an allocator of its own, started with the setting `tree`, and
    agents with the same setting. Without them no job runs in it. `headrace up --tree NAME` serves the named trees, else
    `default`.
    """,
)


@app.command(name="list")
def list_(*, watching: Watching | None = None, common: Common | None = None) -> int:
    """Show all trees: the number of pools, options that are set, and settings that are not in force.

    Examples of use:

        headrace tree list
    """

    async def work(client: Client, screen: Screen) -> None:
        answer = await client.trees.list()
        screen.show(answer, _table(answer))
        if screen.json:
            return
        for tree in answer.trees:
            for warning in [tree.trouble, *tree.warnings]:
                if warning:
                    screen.say(f"tree {tree.tree}: {warning}", style="yellow")
        for alert in await _alerts(client, answer):
            screen.say(alert, style="yellow")

    return talk(common, work, watching=watching)


async def _alerts(client: Client, answer: TreeList) -> Sequence[str]:
    """Return warnings about nodes that belong to no tree or to several trees, and about a missing default tree.

    Empty if the allocator does not answer, because the trees can be shown without it.
    """
    try:
        nodes: dict[str, list[str]] = {node.node: node.tags for node in (await client.nodes()).nodes}
    except Unanswered:
        return []
    options: dict[str, TreeOptions] = {tree.tree: tree.options for tree in answer.trees}
    return judge_trees(options, client.trees.own, nodes).alerts


@app.command
def get(name: str, /, *, all_: Annotated[Switch, Parameter(name="--all")] = False, common: Common | None = None) -> int:
    """Show the options of a tree that differ from their defaults.

    Examples of use:

        headrace tree get default

        headrace tree get default --all

    Parameters
    ----------
    name
        The tree.
    all_
        Show all options, also options at their defaults.
    """

    async def work(client: Client, screen: Screen) -> None:
        (tree,) = (await client.trees.list(name)).trees
        screen.show(tree, _options(tree, everything=all_))
        for warning in [tree.trouble, *tree.warnings]:
            if warning and not screen.json:
                screen.say(warning, style="yellow")

    return talk(common, work)


@app.command
def create(name: str, /, *assigned: str, dry_run: Switch = False, common: Common | None = None) -> int:
    """Make a tree without pools.

    Options are given as key=value. `headrace tree options` lists them.

    Examples of use:

        headrace tree create gpu main_resource=gpu node_filter=gpu

    Parameters
    ----------
    name
        1 to 63 characters of a-z, 0-9 and '-'.
    assigned
        Options, such as max_operation_count=1000.
    dry_run
        Only show what would change, and every broken rule.
    """
    options = assignments(assigned, TREE_ATTRIBUTES)
    checked(options, TREE_ATTRIBUTES)

    async def work(client: Client, screen: Screen) -> int:
        plan = await client.trees.create(name, options, dry_run=dry_run)
        if not show_plan(screen, plan, f"tree {name} made"):
            return Exit.REFUSED
        if not dry_run and not serves(await client.processes.list(), name):
            screen.say(unserved(name), style="yellow", whole=True)
        return Exit.DONE

    return talk(common, work, bears_restarts=True)


@app.command(name="set")
def set_(
    name: str,
    /,
    *assigned: str,
    unset: Annotated[list[str] | None, Parameter(negative=())] = None,
    dry_run: Switch = False,
    common: Common | None = None,
) -> int:
    """Change options of a tree. All other options stay.

    Options are given as key=value. `headrace tree options` lists them. `key=` resets an option to its default.

    Examples of use:

        headrace tree set default max_running_operation_count=100

        headrace tree set default integral_guarantees/smooth_period=30s default_parent_pool=guests

        headrace tree set default --unset main_resource --dry-run

    Parameters
    ----------
    name
        The tree.
    assigned
        Options, such as max_operation_count=1000.
    unset
        An option to reset to its default. May be repeated.
    dry_run
        Only show what would change, and every broken rule.
    """
    if "=" in name:
        raise BadInput("tree set", name, f"the name of a tree first, such as `headrace tree set default {name}`")
    options = assignments(assigned, TREE_ATTRIBUTES, unset or [])
    if not options:
        raise BadInput.because(
            f"tree set {name}",
            "no option is given. Name at least one, such as max_operation_count=1000; `headrace tree options` lists them all",
        )
    checked(options, TREE_ATTRIBUTES)

    async def ask(client: Client) -> PoolPlan | WhatIfAnswer:
        if dry_run and name == client.trees.own:
            return await client.pools.what_if([SetOptions(msgspec.json.encode(options))])
        return await client.trees.set(name, options, dry_run=dry_run)

    return change(common, ask, f"tree {name} changed")


@app.command
def remove(name: str, /, *, recursive: Switch = False, dry_run: Switch = False, common: Common | None = None) -> int:
    """Remove a tree that has no pools. Stop its services first: a running fair_share makes its tree again.

    Examples of use:

        headrace tree remove gpu

        headrace tree remove gpu --recursive --dry-run

    Parameters
    ----------
    name
        The tree.
    recursive
        Remove its pools too.
    dry_run
        Only show what would change.
    """
    return change(
        common, lambda client: client.trees.remove(name, recursive=recursive, dry_run=dry_run), f"tree {name} removed"
    )


@app.command
def options(name: str = "", /, *, json: Json = False) -> int:
    """List all options of trees, with type and range, default, and whether they have an effect.

    Examples of use:

        headrace tree options

        headrace tree options starvation

    Parameters
    ----------
    name
        Only options whose name contains this.
    json
        Print JSON.
    """
    rows, found = attribute_table(TREE_ATTRIBUTES, name)
    Screen(json=json).show({"options": rows}, found)
    return Exit.DONE


def _table(answer: TreeList) -> Table:
    made = table("tree", "pools", "revision", "options", right=("pools", "revision"))
    for tree in answer.trees:
        written = TREE_ATTRIBUTES.written(tree.options)
        named = ", ".join(f"{key}={_text(value)}" for key, value in written.items())
        made.add_row(tree.tree, str(tree.pools), str(tree.revision), named or "defaults")
    return made


def _options(tree: TreeView, *, everything: bool) -> Table:
    made = table("option", "value")
    written = TREE_ATTRIBUTES.written(tree.options)
    names = TREE_ATTRIBUTES.attributes if everything else {}
    rows, _ = attribute_table(TREE_ATTRIBUTES)
    defaults = {row["name"]: row["default"] for row in rows}
    for name, value in written.items():
        made.add_row(name, _text(value))
    for name in names:
        if name not in written:
            made.add_row(name, f"{defaults[name]} (default)")
    return made


def _text(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
