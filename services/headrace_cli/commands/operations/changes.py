"""The commands `headrace op …` that change a running operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final

from cyclopts import Parameter

from headrace.client import Client
from headrace.client.pool_trees import parse_weight
from headrace.ids import ROOT_POOL, OperationId, TreeName
from headrace.runtime.clock import SystemClock
from headrace.suggestions import near, some
from headrace.wire.operations import OperationView
from headrace_cli.commands.operations.key_values import parse_settings
from headrace_cli.commands.operations.operation_id import Ids, whole_id
from headrace_cli.commands.operations.tables import ephemeral_words, operation_table
from headrace_cli.session import Common, Switch, talk
from headrace_cli.show.screen import Screen

#: Largest number of configured pools that a message lists.
_MOST_POOLS: Final = 8


def set_(
    operation: str,
    settings: Annotated[Sequence[str], Parameter(negative=())],
    /,
    *,
    tree: str | None = None,
    common: Common | None = None,
) -> int:
    """Change an operation's weight, pool or time limit while it runs. Either all settings change or none.

    In its new pool the operation must be able to run at once. Otherwise it stays where it is. The time limit of the whole operation counts
    from its first running slot; the time limit of its jobs cannot be changed.

    Examples of use:

        headrace op set 69201a4f-0c1d2e3f4a5b weight=2.5

        headrace op set 69201a4f-0c1d2e3f4a5b pool=research weight=1

        headrace op set 69201a4f-0c1d2e3f4a5b operation_time_limit=12h

    Parameters
    ----------
    operation
        The operation's id, or the beginning of the id.
    settings
        weight=NUMBER, pool=NAME or its path, operation_time_limit=TIME or none.
    tree
        Change the settings only in this tree, for an operation in several trees.
    """
    given = parse_settings(settings)

    async def work(client: Client, screen: Screen) -> None:
        weight = parse_weight(given["weight"], "weight") if "weight" in given else None
        name = await whole_id(client, operation)
        pools = client.pools.of(TreeName(tree)) if tree else client.pools
        pool = await pools.at(given["pool"]) if "pool" in given else None
        limit = given.get("operation_time_limit")
        view = await client.update(name, weight=weight, pool=pool, operation_time_limit=limit, tree=tree or "")
        _show(screen, [view])
        if view.ephemeral_pool and view.spec.pool == pool:
            configured = [
                level.pool for level in await client.counts() if not level.ephemeral and level.pool != ROOT_POOL
            ]
            found = near(view.spec.pool, configured)
            there = f"; configured pools: {some(configured, _MOST_POOLS)}" if configured and not found else ""
            screen.say(ephemeral_words(view.spec.pool, found) + there, style="yellow")

    return talk(common, work, bears_restarts=True)


def abort(
    operations: Ids,
    /,
    *,
    reason: str | None = None,
    common: Common | None = None,
) -> int:
    """Abort operations: no new jobs start, and running jobs are interrupted.

    Examples of use:

        headrace op abort 69201a4f-0c1d2e3f4a5b --reason "wrong input"

    Parameters
    ----------
    operations
        Ids of the operations, or the beginnings of the ids.
    reason
        Reason that the log records.
    """

    return _change(common, operations, lambda client, name: client.abort(name, reason or ""))


def suspend(operations: Ids, /, *, abort_running_jobs: Switch = False, common: Common | None = None) -> int:
    """Suspend operations: none of their jobs start until they are resumed. They keep their running slots, and running jobs continue.

    Parameters
    ----------
    operations
        Ids of the operations, or the beginnings of the ids.
    abort_running_jobs
        End their running jobs too; they are retried when the operations are resumed.
    """
    return _change(common, operations, lambda client, name: client.suspend(name, abort_running_jobs=abort_running_jobs))


def resume(operations: Ids, /, *, common: Common | None = None) -> int:
    """Resume suspended operations.

    Parameters
    ----------
    operations
        Ids of the operations, or the beginnings of the ids.
    """
    return _change(common, operations, Client.resume)


def complete(operations: Ids, /, *, common: Common | None = None) -> int:
    """End running operations as completed: their running jobs are interrupted.

    Parameters
    ----------
    operations
        Ids of the operations, or the beginnings of the ids.
    """
    return _change(common, operations, Client.complete)


def scan(*, common: Common | None = None) -> int:
    """Check now, instead of within a minute, all operations that wait for a running slot. For administrators."""

    async def work(client: Client, screen: Screen) -> None:
        done = await client.scan()
        screen.show_line(done, f"{done.promoted} promoted, {done.still_waiting} still waiting")

    return talk(common, work, bears_restarts=True)


def _change(
    common: Common | None,
    operations: Sequence[str],
    ask: Callable[[Client, OperationId], Awaitable[OperationView]],
) -> int:
    async def work(client: Client, screen: Screen) -> None:
        names = [await whole_id(client, operation) for operation in operations]
        _show(screen, [await ask(client, name) for name in names])

    return talk(common, work, bears_restarts=True)


def _show(screen: Screen, views: Sequence[OperationView]) -> None:
    screen.show({"operations": views}, operation_table(views, SystemClock().wall_ms()))
