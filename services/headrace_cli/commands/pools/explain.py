"""The command `headrace pool explain`: show why a pool gets its fair share, and what holds the resources that it lacks."""

from __future__ import annotations

from rich.text import Text

from headrace.client import Client, Unanswered
from headrace.errors import BadInput
from headrace.ids import PoolName
from headrace.wire.plain_values import plain
from headrace.wire.refusals import Refused
from headrace.wire.rights import Rights
from headrace_cli.commands.pools.explain_page import differences, explanation, side_by_side
from headrace_cli.session import InTree, talk
from headrace_cli.show.rights import rights_on_pool
from headrace_cli.show.screen import Screen


def explain(name: str, /, *, against: str | None = None, common: InTree | None = None) -> int:
    """Explain a pool's fair share from the root down, and show what holds the resources that it lacks.

    Each line is a level: the fair share, usage and demand of the pool there, and what bounded its fair share. The bound is its demand, a
    limit, its weight among its siblings, guarantees of other pools, or limits of its children. Then come the pools, operations and people
    that hold the resources that the pool lacks.

    The last lines are about rights on the pool: for each right that you have, the access list that gives it to you; for each other right,
    the people who have it.

    With `--against`, another pool is shown beside it, from the pool that contains both downwards, and the difference is explained.

    Examples of use:

        headrace pool explain research

        headrace pool explain research --against production

        headrace pool explain research --json | jq '.steps[-1].bound_by, .holders.operations'

    Parameters
    ----------
    name
        The pool, or its path; `/` or `<Root>` for the whole tree.
    against
        Another pool to compare with, or its path.
    """

    async def work(client: Client, screen: Screen) -> None:
        pool, other = await client.pools.at(name), await client.pools.at(against or "")
        if pool == other:
            raise BadInput("--against", against, "a pool other than the explained pool")
        told = await client.pools.explain(pool, other)
        rights = await _rights(client, told.steps[-1].pool)
        if screen.json:
            fields = plain(told)
            assert isinstance(fields, dict)
            screen.show({**fields, "differences": differences(told), "rights": plain(rights)}, Text())
            return
        screen.print(*explanation(told))
        if rights is not None:
            screen.print("", *rights_on_pool(rights))
        if told.against:
            screen.print("", *side_by_side(told))

    return talk(common, work)


async def _rights(client: Client, pool: PoolName) -> Rights | None:
    """Return the caller's rights on the pool. None if admission does not answer, does not know the pool, or is of an older release."""
    try:
        rights = await client.persons.rights_on(pool, client.trees.own)
    except (Unanswered, Refused):
        return None
    return rights if [row.pool for row in rights.pools] == [pool] else None
