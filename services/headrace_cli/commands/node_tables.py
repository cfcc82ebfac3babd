"""The tables of `headrace node …`: all nodes, and the facts about one node. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.resources import ZERO, format_amount
from headrace.wire.nodes import Drain, NodeJob, NodeView
from headrace_cli.show.amounts import amounts, short_name
from headrace_cli.show.tables import facts_table, table
from headrace_cli.show.times import timestamp

#: The resources that a node limits for its jobs, as a short and as a long text, by the kind of limits that its agent reports.
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
    "suspect": "red",
}


def node_table(nodes: Sequence[NodeView]) -> Table:
    """Return a table with one line for each node: how much of each resource is in use."""
    resources = [
        name for name in ("cpu", "memory", "gpu", "user_slots") if any(getattr(node.total, name) for node in nodes)
    ]
    # The column `limits` is left out if all nodes limit their jobs to the requested amounts.
    limits = ["limits"] if any(node.limits not in ("", "cgroup2") for node in nodes) else []
    made = table(
        "node",
        "state",
        *(short_name(name) for name in resources),
        *limits,
        "jobs",
        "heartbeat",
        right=("jobs",),
        cut="state",
    )
    for node in nodes:
        use = [use_words(node, name) for name in resources]
        limited = [limits_words(node.limits) for _ in limits]
        made.add_row(node.node, node_state(node), *use, *limited, str(node.running_jobs), _heartbeat(node))
    return made


def drain_words(drain: Drain, *, with_name: bool = False) -> str:
    """Return the begin, end and reason of a drain, and when it aborts jobs; with `with_name`, also who ordered the drain and when."""
    words = [f"from {timestamp(drain.from_ms / 1000)}"] if drain.from_ms else []
    words += [f"until {timestamp(drain.until_ms / 1000)}"] if drain.until_ms else []
    if drain.aborts_at_ms is not None:
        words.append(f"jobs end at {timestamp(drain.aborts_at_ms / 1000)}")
    words += [drain.reason] if drain.reason else []
    if with_name:
        words.append(f"ordered by {drain.by} at {timestamp(drain.at_ms / 1000)}")
    return ", ".join(words)


def node_state(node: NodeView) -> Text:
    """Return the state of a node, followed by its drain, the reason why it gets no jobs, the reason why it is held back, and its trouble.
    Parts that the node does not have are left out.
    """
    state = Text(node.state, style=_STYLES.get(node.state, ""))
    if node.drain is not None:
        to_come = "" if node.state == "drained" else "drained "
        state.append(f": {to_come}{drain_words(node.drain)}".rstrip(": "), style="yellow")
    if node.left_out:
        state.append(f": {node.left_out}", style="yellow")
    if node.held_back:
        state.append(f": {node.held_back}", style="yellow")
    if node.trouble:
        state.append(f": {node.trouble}", style="red")
    return state


def node_facts(node: NodeView) -> Table:
    """Return a table of all facts about one node. Tags and amounts that its agent claims beyond its token are shown as `cut`."""
    facts = facts_table()
    facts.add_row("node", node.node)
    facts.add_row("state", Text(node.state, style=_STYLES.get(node.state, "")))
    if node.drain is not None:
        facts.add_row("drain", Text(drain_words(node.drain, with_name=True), style="yellow"))
    if node.left_out:
        facts.add_row("gets no jobs", Text(node.left_out, style="yellow"))
    if node.held_back:
        facts.add_row("gets single jobs", Text(node.held_back, style="yellow"))
    if node.reserved:
        facts.add_row("reserved", Text(node.reserved, style="yellow"))
    if node.trouble:
        facts.add_row("trouble", Text(node.trouble, style="red"))
    facts.add_row("heartbeat", _heartbeat(node))
    facts.add_row("tags", ", ".join(node.tags) or "–")
    facts.add_row("has", amounts(node.total))
    facts.add_row("in use", amounts(node.usage))
    facts.add_row("jobs", str(node.running_jobs))
    for gpu in node.gpus:
        holder = "free" if gpu.index is None else f"job {gpu.index} of {gpu.operation}"
        facts.add_row(f"gpu {gpu.name}", Text(holder))
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


def node_jobs(jobs: Sequence[NodeJob]) -> Table:
    """Return a table with one line for each job that runs on a node."""
    titles = ["title"] if any(job.title for job in jobs) else []
    limits = ["left"] if any(job.left_ms is not None for job in jobs) else []
    made = table(
        "operation", *titles, "pool", "job", "attempt", "ran", *limits, right=("job", "attempt", "ran", "left")
    )
    for job in jobs:
        title = [Text(job.title) for _ in titles]
        left = ["–" if job.left_ms is None else format_duration(job.left_ms) for _ in limits]
        cells = (str(job.index), str(job.attempt), format_duration(job.ran_ms))
        made.add_row(job.operation, *title, job.pool or "–", *cells, *left)
    return made


def limits_words(limits: str) -> str:
    """Return which resources a node limits for its jobs."""
    return _LIMITS.get(limits, (limits or "–", ""))[0]


def _heartbeat(node: NodeView) -> str:
    return "never" if node.heartbeat_age_ms is None else f"{format_duration(node.heartbeat_age_ms)} ago"


def use_words(node: NodeView, name: str) -> str:
    """Return how much of a resource of a node is in use."""
    used, whole = getattr(node.usage, name), getattr(node.total, name)
    return f"{format_amount(name, used)} of {format_amount(name, whole)}"
