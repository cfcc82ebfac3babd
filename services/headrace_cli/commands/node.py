"""`headrace node …`: the hosts."""

from __future__ import annotations

from cyclopts import App

from headrace.client import Client
from headrace.wire.nodes import NodeChange
from headrace_cli.session import Common, talk
from headrace_cli.show.nodes import node_table
from headrace_cli.show.screen import Screen

app = App(name="node", help="List nodes, drain them, and take them out.")


@app.command(name="list")
def list_(*, tree: str = "", common: Common | None = None) -> int:
    """List nodes with what they offer and what of it is in use.

    Examples:

        headrace node list

        headrace node list --json

        headrace node list --tree gpu

    Parameters
    ----------
    tree
        The tree whose nodes these are; `default` unless given.
    """

    async def work(client: Client, screen: Screen) -> None:
        answer = await client.nodes(tree)
        screen.show(answer, node_table(answer.nodes))
        if answer.recovering and not screen.json:
            screen.say(f"recovering: {answer.recovering} nodes have reported since the allocator started")

    return talk(common, work)


@app.command
def drain(node: str, /, *, common: Common | None = None) -> int:
    """Let nothing more start on a node. What runs there goes on to its end. For administrators.

    Examples:

        headrace node drain host-17

    Parameters
    ----------
    node
        The node.
    """
    return _change(node, NodeChange.DRAIN, "nothing more starts on it", common)


@app.command
def undrain(node: str, /, *, common: Common | None = None) -> int:
    """Let jobs start on a drained node again. For administrators.

    Parameters
    ----------
    node
        The node.
    """
    return _change(node, NodeChange.UNDRAIN, "jobs may start on it", common)


@app.command
def remove(node: str, /, *, common: Common | None = None) -> int:
    """Forget a node that is gone for good. For administrators.

    It must have been silent for a minute, or be drained with nothing on it.

    What a silent node ran counts as lost and runs elsewhere at once. So be certain that its host is off: where it is only cut off, its
    jobs go on there until its lease ends. A node whose agent lives enrols itself again.

    Examples:

        headrace node remove host-17

    Parameters
    ----------
    node
        The node.
    """
    return _change(node, NodeChange.REMOVE, "it is enrolled no more", common)


def _change(node: str, change: NodeChange, what: str, common: Common | None) -> int:
    async def work(client: Client, screen: Screen) -> None:
        done = await client.change_node(node, change)
        screen.show_line(done, f"node {done.node}: {what}")

    return talk(common, work)
