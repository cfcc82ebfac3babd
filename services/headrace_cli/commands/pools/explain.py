"""The command `headrace pool explain`: show why a pool gets its fair share, and what holds the resources that it lacks."""

from __future__ import annotations

from rich.text import Text

from headrace.client import Client
from headrace.errors import BadInput
from headrace_cli.commands.pools.explain_page import differences, explanation, side_by_side
from headrace_cli.session import InTree, talk
from headrace_cli.show.plain_values import plain
from headrace_cli.show.screen import Screen


def explain(name: str, /, *, against: str | None = None, common: InTree | None = None) -> int:
    """Explain a pool's fair share from the root down, and show what holds the resources that it lacks.

    Each line is a level: the fair share, usage and demand of the pool there, and what bounded its fair share. The bound is its demand, a
    limit, its weight among its siblings, guarantees of other pools, or limits of its children. Then come the pools, operations and people
    that hold the resources that the pool lacks.

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
        if screen.json:
            fields = plain(told)
            assert isinstance(fields, dict)
            screen.show({**fields, "differences": differences(told)}, Text())
            return
        screen.print(*explanation(told))
        if told.against:
            screen.print("", *side_by_side(told))

    return talk(common, work)
