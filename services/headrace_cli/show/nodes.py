"""Nodes, and the processes of services, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.ids import TreeName
from headrace.resources import ZERO, format_amount
from headrace.wire.figures import FiguresAnswer, Histogram
from headrace.wire.nodes import NodeView
from headrace.wire.services import ServiceView
from headrace_cli.show.amounts import amounts, short_name
from headrace_cli.show.tables import facts_table, table

#: Services that each tree has for itself. One admission serves all trees.
_OF_A_TREE: Final = ("allocator", "fair_share", "integral")
#: What a node limits, in short and in long words, by the kind of limits that its agent reports.
_LIMITS: Final = {
    "cgroup2": ("memory, cpu", "memory and cpu of all processes of a job together"),
    "rlimit": (
        "memory, loosely",
        "the memory of each single process, with a margin. Cpu is not limited. With cgroups, both are limited for the whole job",
    ),
    "none": ("nothing", "nothing: a job may use more than it requested"),
}
_STYLES = {
    "online": "green",
    "offline": "red",
    "unheard": "yellow",
    "draining": "yellow",
    "drained": "yellow",
    "outside": "yellow",
    "unisolated": "yellow",
    "removed": "yellow",
}


def figures_table(told: Sequence[FiguresAnswer]) -> Table:
    """Return a table with one line for each metric of each process. A histogram is shown by its count and mean."""
    made = table("role", "instance", "metric", "value", "unit", right=("value",))
    for answer in told:
        for figure in answer.figures:
            made.add_row(answer.role or answer.service, answer.instance, figure.name, _value(figure.value), figure.unit)
    return made


def _value(value: float | Histogram) -> str:
    if isinstance(value, Histogram):
        count = sum(value.counts)
        return f"{count} × {value.sum / count:,.3g}" if count else "0"
    return f"{value:,.10g}"


def node_table(nodes: Sequence[NodeView]) -> Table:
    """Return a table with one line for each node: how much of each resource is in use."""
    resources = [
        name for name in ("cpu", "memory", "gpu", "user_slots") if any(getattr(node.total, name) for node in nodes)
    ]
    # The column would say nothing if all nodes keep jobs to the amounts that they asked for.
    limits = ["limits"] if any(node.limits not in ("", "cgroup2") for node in nodes) else []
    made = table(
        "node",
        "state",
        *(short_name(name) for name in resources),
        *limits,
        "jobs",
        "heartbeat",
        right=("jobs",),
    )
    for node in nodes:
        use = [use_words(node, name) for name in resources]
        limited = [limits_words(node.limits) for _ in limits]
        made.add_row(node.node, node_state(node), *use, *limited, str(node.running_jobs), _heartbeat(node))
    return made


def node_state(node: NodeView) -> Text:
    """Return the state of a node, with the reason why it gets no jobs and with its trouble, if any."""
    state = Text(node.state, style=_STYLES.get(node.state, ""))
    if node.left_out:
        state.append(f": {node.left_out}", style="yellow")
    if node.trouble:
        state.append(f": {node.trouble}", style="red")
    return state


def node_facts(node: NodeView) -> Table:
    """Return a table of all facts about one node. What its agent claims beyond its token is shown as `cut`."""
    facts = facts_table()
    facts.add_row("node", node.node)
    facts.add_row("state", Text(node.state, style=_STYLES.get(node.state, "")))
    if node.left_out:
        facts.add_row("gets no jobs", Text(node.left_out, style="yellow"))
    if node.reserved:
        facts.add_row("reserved", Text(node.reserved, style="yellow"))
    if node.trouble:
        facts.add_row("trouble", Text(node.trouble, style="red"))
    facts.add_row("heartbeat", _heartbeat(node))
    facts.add_row("tags", ", ".join(node.tags) or "–")
    facts.add_row("has", amounts(node.total))
    facts.add_row("in use", amounts(node.usage))
    facts.add_row("jobs", str(node.running_jobs))
    facts.add_row(
        "isolation", f"{node.isolation}: {node.isolation_detail}" if node.isolation_detail else node.isolation or "–"
    )
    words = _LIMITS.get(node.limits, ("", ""))[1]
    facts.add_row("limits", f"{node.limits}: {words}" if words else node.limits or "–")
    cut = [
        *([amounts(node.cut)] if node.cut != ZERO else []),
        *([f"tags {', '.join(node.cut_tags)}"] if node.cut_tags else []),
    ]
    if cut:
        facts.add_row("cut", Text(f"{'; '.join(cut)}: claimed by its agent, but not in its token", style="yellow"))
    return facts


def limits_words(limits: str) -> str:
    """Return which resources a node limits for its jobs."""
    return _LIMITS.get(limits, (limits or "–", ""))[0]


def _heartbeat(node: NodeView) -> str:
    return "never" if node.heartbeat_age_ms is None else f"{format_duration(node.heartbeat_age_ms)} ago"


def use_words(node: NodeView, name: str) -> str:
    """Return how much of a resource of a node is in use."""
    used, whole = getattr(node.usage, name), getattr(node.total, name)
    return f"{format_amount(name, used)} of {format_amount(name, whole)}"


def roles_without_leader(views: Sequence[ServiceView], own: TreeName) -> list[str]:
    """Return the roles without a leader, in the tree `own` and in every other tree from which some process reports."""
    trees = {own, *(view.role.partition(".")[2] for view in views if "." in view.role)}
    roles = {"admission", *(f"{service}.{tree}" for service in _OF_A_TREE for tree in trees)}
    return sorted(roles - {view.role for view in views if view.leads})


def service_table(views: Sequence[ServiceView], missing: Sequence[str]) -> Table:
    """Return a table with one line for each process, and one for each role without a leader."""
    made = table("role", "instance", "state", "term", "age", "lag", "behind", right=("term", "age", "lag", "behind"))
    for view in views:
        state = Text("leader", style="green") if view.leads else Text("standby")
        term = str(view.term) if view.leads else "–"
        behind = "–" if view.entries_behind is None else str(view.entries_behind)
        age, lag = format_duration(view.age_ms), f"{view.lag_ms:.1f} ms"
        made.add_row(view.role, view.instance, state, term, age, lag, behind)
    for role in missing:
        made.add_row(role, "–", Text("missing", style="red"), "–", "–", "–", "–")
    return made
