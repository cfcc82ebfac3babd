"""Nodes as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.resources import format_amount
from headrace.wire.nodes import NodeView
from headrace_cli.show.amounts import short_name
from headrace_cli.show.tables import table, widest

__all__ = ["node_table"]

_STYLES = {"online": "green", "offline": "red", "unheard": "yellow", "draining": "yellow", "drained": "yellow"}


def node_table(nodes: Sequence[NodeView]) -> Table:
    """One line a node: what is in use of what there is."""
    resources = [
        name for name in ("cpu", "memory", "gpu", "user_slots") if any(getattr(node.total, name) for node in nodes)
    ]
    made = table(
        "node",
        "state",
        *(short_name(name) for name in resources),
        "jobs",
        "heartbeat",
        right=("jobs",),
        whole={"node": widest(node.node for node in nodes)},
    )
    for node in nodes:
        state = Text(node.state, style=_STYLES.get(node.state, ""))
        if node.trouble:
            state.append(f": {node.trouble}", style="red")
        use = [_use(node, name) for name in resources]
        age = "never" if node.heartbeat_age_ms is None else f"{format_duration(node.heartbeat_age_ms)} ago"
        made.add_row(node.node, state, *use, str(node.running_jobs), age)
    return made


def _use(node: NodeView, name: str) -> str:
    used, whole = getattr(node.usage, name), getattr(node.total, name)
    return f"{format_amount(name, used)} of {format_amount(name, whole)}"
