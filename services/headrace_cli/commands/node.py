"""`headrace node …`: the hosts."""

from __future__ import annotations

from cyclopts import App

from headrace.client import Client
from headrace_cli.session import Common, talk
from headrace_cli.show.nodes import node_table
from headrace_cli.show.screen import Screen

__all__ = ["app"]

app = App(name="node", help="List nodes.")


@app.command(name="list")
def list_(*, common: Common | None = None) -> int:
    """List nodes with what they offer and what of it is in use.

    Examples:

        headrace node list

        headrace node list --json
    """

    async def work(client: Client, screen: Screen) -> None:
        answer = await client.nodes()
        screen.show(answer, node_table(answer.nodes))
        if answer.recovering and not screen.json:
            screen.say(f"recovering: {answer.recovering} nodes have reported since the allocator started")

    return talk(common, work)
