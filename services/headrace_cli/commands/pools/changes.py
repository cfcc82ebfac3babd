"""The commands `headrace pool …` that change pools, import them from a file, and export them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from headrace.client import Client
from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName, pool_name, pool_or_path, slashed, tree_name
from headrace.pools import POOL_ATTRIBUTES, TreeOptions
from headrace.wire.pool_changes import Create, Move, PoolChange, PoolPlan, Remove, Set, Transfer
from headrace.wire.trees import MovePoolToTree
from headrace.wire.what_if import WhatIfAnswer
from headrace_cli.commands.pools.attributes import attribute_table
from headrace_cli.commands.pools.confirming import ChangeOptions, Confirming
from headrace_cli.commands.pools.key_values import assignments, checked, parse_figures
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common, InTree, Json, Switch, change, talk
from headrace_cli.show.screen import Screen

Unset = Annotated[list[str] | None, Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True)
class PoolOptions:
    """Settings of a pool that have options of their own."""

    weight: float | None = None
    """Weight among sibling pools. If it is not given, it follows from the pool's guarantee, or is 1."""
    guarantee: str | None = None
    """Strong guarantee, such as `cpu=4,memory=16G`; `none`: no guarantee."""
    integral: Literal["none", "burst", "relaxed"] | None = None
    """Kind of integral guarantee: savings that accrue while the pool uses less than its flow."""
    flow: str | None = None
    """Resource flow: the amount that accrues per second, such as `cpu=2`."""
    burst: str | None = None
    """Burst guarantee: the most that the pool may draw from its savings at once, such as `cpu=8`."""

    def changes(self) -> dict[str, object]:
        """Return the keys that were given, with their values as the user wrote them. Raises `BadInput`."""
        changes: dict[str, object] = {}
        if self.weight is not None:
            changes["weight"] = self.weight
        if self.guarantee is not None:
            changes["strong_guarantee_resources"] = parse_figures("--guarantee", self.guarantee)
        if self.integral is not None:
            changes["integral_guarantees/guarantee_type"] = self.integral
        if self.flow is not None:
            changes["integral_guarantees/resource_flow"] = parse_figures("--flow", self.flow)
        if self.burst is not None:
            changes["integral_guarantees/burst_guarantee_resources"] = parse_figures("--burst", self.burst)
        return changes


def create(
    name: str,
    /,
    *assigned: str,
    parent: str = ROOT_POOL,
    options: PoolOptions | None = None,
    change_options: ChangeOptions | None = None,
    common: InTree | None = None,
) -> int:
    """Make a pool. Its name must be new in the whole tree.

    Attributes are given as key=value. `headrace pool attributes` lists them.

    Examples of use:

        headrace pool create research --weight 2

        headrace pool create vision --parent research --guarantee cpu=4,memory=16G

        headrace pool create /research/vision

        headrace pool create batch mode=fifo max_running_operation_count=5

    Parameters
    ----------
    name
        1 to 100 characters of a-z, 0-9, '-' and '_', or a path with the parent pool. Administrators may use A-Z and ':' too.
    assigned
        Attributes, such as max_operation_count=20.
    parent
        The parent pool; the root unless given.
    """
    changes, name = _changes(assigned, options), slashed(name)
    if "/" in name:
        if parent != ROOT_POOL:
            raise BadInput.because("--parent", f"the path {name} already names the parent pool. Leave out --parent")
        parent, _, name = name.rstrip("/").rpartition("/")
    made = Create(pool_name(name), pool_or_path(parent or ROOT_POOL), msgspec.json.encode(changes))
    return _changed(common, [made], change_options, f"pool {name} made")


def set_(
    name: str,
    /,
    *assigned: str,
    options: PoolOptions | None = None,
    unset: Unset = None,
    change_options: ChangeOptions | None = None,
    common: InTree | None = None,
) -> int:
    """Change attributes of a pool. All other attributes stay.

    If running jobs do not fit below a new limit, the command says how many will be preempted, and asks.

    Attributes are given as key=value. `headrace pool attributes` lists them. Write a part of an attribute after a slash or a dot. A value
    in braces is a map. `key=` resets an attribute to its default, and so does `none` for a single amount.

    Examples of use:

        headrace pool set research weight=3 max_operation_count=20

        headrace pool set research integral_guarantees/resource_flow='{cpu=100}'

        headrace pool set research integral_guarantees.resource_flow.cpu=100 integral_guarantees.guarantee_type=relaxed

        headrace pool set research --guarantee none --unset weight --dry-run

    Parameters
    ----------
    name
        The pool, or its path.
    assigned
        Attributes, such as weight=3.
    unset
        An attribute to reset to its default. May be repeated.
    """
    changes = _changes(assigned, options, unset or [])
    if not changes:
        raise BadInput.because(
            f"pool set {name}",
            "no attribute is given. Name at least one, such as weight=3; `headrace pool attributes` lists them all",
        )
    asked = Set(pool_or_path(name), msgspec.json.encode(changes))
    return _changed(common, [asked], change_options, f"pool {name} changed")


def remove(
    name: str,
    /,
    *,
    recursive: Switch = False,
    in_use: Switch = False,
    dry_run: Switch = False,
    common: InTree | None = None,
) -> int:
    """Remove a pool that has no child pools and no operations.

    Examples of use:

        headrace pool remove vision

        headrace pool remove research --recursive --dry-run

    Parameters
    ----------
    name
        The pool, or its path.
    recursive
        Remove all pools below it too.
    in_use
        Remove the pool even if it has operations: the operations continue in an ephemeral pool with the name of the removed pool.
    dry_run
        Only show what would change, with all shares and every broken rule.
    """
    asked = Remove(pool_or_path(name), recursive, in_use)
    return change(common, _asking([asked], dry_run=dry_run), f"pool {name} removed")


def move(
    name: str,
    /,
    *,
    parent: str = "",
    new_name: str = "",
    tree: str = "",
    in_use: Switch = False,
    change_options: ChangeOptions | None = None,
    common: Common | None = None,
) -> int:
    """Move a pool with all pools below it to another parent or tree.

    Examples of use:

        headrace pool move vision --parent research

        headrace pool move /research/vision --parent /

        headrace pool move vision --tree gpu

    Parameters
    ----------
    name
        The pool, or its path.
    parent
        The new parent pool, or its path; `/` or `<Root>` for the root.
    new_name
        New name of the pool.
    tree
        Another tree: the pool is made there first, and then removed here.
    in_use
        With `--tree`: move the pool even if it has operations. They continue in the old tree, in an ephemeral pool with the old name.
    """
    if tree:
        request = MovePoolToTree(
            pool_or_path(name),
            tree_name(tree),
            pool_or_path(parent or ROOT_POOL),
            _name(new_name),
            in_use=in_use,
            dry_run=change_options is not None and change_options.dry_run,
        )
        return change(common, lambda client: client.pools.move_to_tree(request), f"pool {name} moved to tree {tree}")
    if not parent and not new_name:
        raise BadInput.because(f"pool move {name}", "no destination is given. Use --parent, --new-name or --tree")
    asked = Move(pool_or_path(name), pool_or_path(parent) if parent else PoolName(""), _name(new_name))
    return _changed(common, [asked], change_options, f"pool {name} moved")


def rename(name: str, new_name: str, /, *, dry_run: Switch = False, common: InTree | None = None) -> int:
    """Rename a pool. Its operations stay in an ephemeral pool with the old name.

    Examples of use:

        headrace pool rename vision sight

    Parameters
    ----------
    name
        The pool, or its path.
    new_name
        New name of the pool.
    dry_run
        Only show what would change, with all shares and every broken rule.
    """
    asked = Move(pool_or_path(name), new_name=pool_name(new_name))
    return change(common, _asking([asked], dry_run=dry_run), f"pool {name} renamed to {new_name}")


def transfer(
    source: str, destination: str, /, *given: str, dry_run: Switch = False, common: InTree | None = None
) -> int:
    """Transfer part of a pool's guarantees and limits to another pool.

    The amount is subtracted from every pool from the source up to the pool that contains both, and added to every pool down to the
    destination. The pool that contains both is unchanged. Source or destination may be `/` or `<Root>`, the root.

    Examples of use:

        headrace pool transfer research vision strong_guarantee_resources/cpu=4

        headrace pool transfer research vision resource_flow='{cpu=2}' max_operation_count=10 --dry-run

    Parameters
    ----------
    source
        The pool that gives.
    destination
        The pool that gets.
    given
        How much of strong_guarantee_resources, resource_flow, burst_guarantee_resources, max_operation_count or
        max_running_operation_count.
    dry_run
        Only show what would change, with all shares and every broken rule.
    """
    delta = msgspec.json.encode(assignments(given, POOL_ATTRIBUTES))
    asked = Transfer(pool_or_path(source), pool_or_path(destination), delta)
    return change(common, _asking([asked], dry_run=dry_run), f"transferred from {source} to {destination}")


def import_(
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    yarn_site: Path | None = None,
    keep: Switch = False,
    change_options: ChangeOptions | None = None,
    common: InTree | None = None,
) -> int:
    """Replace the pools of the tree by the pools in a file, all or nothing. `headrace pool export` writes such files, YAML or JSON.

    Pools that the file does not name are removed. The command asks first in three cases: a removed pool has operations, more than half of
    the pools are removed, or running jobs do not fit below new limits. Without a terminal it cannot ask: then nothing is changed and the
    exit status is 4, unless --yes is given. Options of the tree stay unless the file has them.

    The file may be YARN's fair-scheduler.xml. Queues become pools, and every difference is a warning with its line.

    Examples of use:

        headrace pool export > pools.yaml

        headrace pool import pools.yaml --dry-run

        headrace pool import pools.yaml

        headrace pool import fair-scheduler.xml --yarn-site yarn-site.xml --dry-run

    Parameters
    ----------
    file
        The file; `-` for standard input.
    yarn_site
        The yarn-site.xml that belongs to a fair-scheduler.xml. It says whether YARN preempts.
    keep
        Keep pools that the file does not name.
    """
    # Imported only for this command, because the parsers of YAML and XML take longer to import than most commands take to run.
    from headrace_cli.commands.pools.importing import Importing, read_import

    read = read_import(str(file), str(yarn_site) if yarn_site is not None else None)
    importing, confirming = Importing(str(file), read, keep=keep), Confirming(change_options)
    return confirming.run(common, lambda client: importing.ask(client, confirming), f"{file} is in force", whole=True)


def export(*, options: Switch = False, common: InTree | None = None) -> int:
    """Print all pools that are configured, as YAML that `headrace pool import` reads. With --json it is JSON.

    Examples of use:

        headrace pool export > pools.yaml

        headrace pool export --options

    Parameters
    ----------
    options
        Print the options of the tree too.
    """

    from headrace_cli.commands.pools.files import configured, exported  # imported here for the same reason

    async def work(client: Client, screen: Screen) -> None:
        listed = await client.pools.list()
        of_tree: TreeOptions | None = None
        if options:
            of_tree = (await client.trees.list(client.trees.own)).trees[0].options
        text = exported(configured(listed), client.trees.own, of_tree, as_json=screen.json)
        screen.print_raw(text, end="")

    return talk(common, work)


def attributes(name: str = "", /, *, json: Json = False) -> int:
    """List all attributes of pools, with type and range, default, who may set them, and whether they have an effect.

    Examples of use:

        headrace pool attributes

        headrace pool attributes integral_guarantees

    Parameters
    ----------
    name
        Only attributes whose name contains this.
    json
        Print JSON.
    """
    screen = Screen(json=json)
    rows, table = attribute_table(POOL_ATTRIBUTES, name)
    screen.show({"attributes": rows}, table)
    return Exit.DONE


def _changed(common: Common | None, changes: Sequence[PoolChange], options: ChangeOptions | None, done: str) -> int:
    """Make the changes, and ask first if running jobs do not fit below new limits. Return the exit status."""
    confirming = Confirming(options)
    return confirming.run(common, lambda client: confirming.request(client, changes), done)


def _asking(changes: Sequence[PoolChange], *, dry_run: bool) -> Callable[[Client], Awaitable[PoolPlan | WhatIfAnswer]]:
    """Return a function that requests the changes or, with `dry_run`, what they would do to the tree and its shares."""
    return lambda client: client.pools.what_if(changes) if dry_run else client.pools.change(changes)


def _changes(
    assigned: tuple[str, ...], options: PoolOptions | None, unset: list[str] | None = None
) -> dict[str, object]:
    """Return the changes that a command line asks for.

    Raises `BadInput` for a setting that is given twice, and for a wrong value if the command can find that out without fair_share.
    """
    changes = assignments(assigned, POOL_ATTRIBUTES, unset or [])
    for key, value in (options or PoolOptions()).changes().items():
        if key in changes:
            raise BadInput.because("command line", f"{key} is given twice")
        changes[key] = value
    checked(changes, POOL_ATTRIBUTES)
    return changes


def _name(name: str) -> PoolName:
    return pool_name(name) if name else PoolName("")
