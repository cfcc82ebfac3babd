"""Tables and sentences: answers of the wire as a person reads them. Pure: what is shown depends on the arguments alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.resources import RESOURCE_NAMES, Resources, format_amount
from headrace.wire.heartbeat import JobEnd
from headrace.wire.nodes import NodeView, OperationPlaces
from headrace.wire.operations import FINAL_STATES, JobRow, OperationState, OperationView
from headrace.wire.pools import PoolList, PoolView
from headrace_cli.show.waiting_reasons import waiting_words

__all__ = [
    "amounts",
    "failure_lines",
    "job_table",
    "node_table",
    "operation_facts",
    "operation_table",
    "pool_table",
    "table",
]

_STATE_STYLES = {
    OperationState.COMPLETED: "green",
    OperationState.FAILED: "red",
    OperationState.FAILING: "red",
    OperationState.ABORTED: "yellow",
    OperationState.ABORTING: "yellow",
    OperationState.RUNNING: "cyan",
}
_NODE_STYLES = {"online": "green", "offline": "red", "unheard": "yellow", "draining": "yellow"}
_SHORT = {"cpu": "cpu", "memory": "memory", "gpu": "gpu", "network": "network", "user_slots": "slots"}


def table(*columns: str, right: Collection[str] = (), whole: Mapping[str, int] | None = None) -> Table:
    """An empty table without lines; columns in `right` hold figures, those in `whole` are never narrower than their width there."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column in right,
            min_width=(whole or {}).get(column),
            overflow="fold",
        )
    return made


def _widest(texts: Iterable[str]) -> int:
    return max((len(text) for text in texts), default=1)


def amounts(resources: Resources, *, leave_out: Sequence[str] = ()) -> str:
    """Such as «cpu 1.5, memory 512 MiB»; what is zero is left out, nothing at all is a dash."""
    pairs = zip(RESOURCE_NAMES, resources.as_tuple(), strict=True)
    words = [
        f"{_SHORT[name]} {format_amount(name, amount)}" for name, amount in pairs if amount and name not in leave_out
    ]
    return ", ".join(words) or "–"


def _age(view: OperationView, now_ms: int) -> str:
    return format_duration(max(0, (view.ended_at_ms or now_ms) - view.started_at_ms))


def _state(view: OperationView) -> Text:
    words = view.state.value + (", suspended" if view.suspended and view.state not in FINAL_STATES else "")
    return Text(words, style=_STATE_STYLES.get(view.state, ""))


def operation_table(views: Sequence[OperationView], now_ms: int, width: int = 120) -> Table:
    """One line an operation; on a screen narrower than 80 columns only what tells them apart."""
    columns = ["operation", "state", "pool", "user", "done", "failed", "time", "title"]
    if any(view.waiting for view in views):
        columns.insert(3, "waits for")
    if width < 80:
        columns = ["operation", "state", "pool", "done"]
    whole = {"operation": _widest(view.operation for view in views)}
    made = table(*columns, right=("done", "failed", "time"), whole=whole)
    for view in views:
        cells: dict[str, str | Text] = {
            "operation": view.operation,
            "state": _state(view),
            "pool": view.spec.pool,
            "waits for": waiting_words(view),
            "user": view.user,
            "done": f"{view.completed_jobs}/{view.spec.job_count}",
            "failed": str(view.failed_jobs) if view.failed_jobs else "–",
            "time": _age(view, now_ms),
            "title": Text(view.spec.title),
        }
        made.add_row(*(cells[column] for column in columns))
    return made


def operation_facts(view: OperationView, places: OperationPlaces | None, now_ms: int) -> Table:
    """All about one operation, with every reason why jobs wait."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column(overflow="fold")
    spec = view.spec
    facts.add_row("operation", view.operation)
    if spec.title:
        facts.add_row("title", Text(spec.title))
    facts.add_row("state", _state(view))
    if view.reason:
        facts.add_row("because", Text(view.reason))
    facts.add_row("pool", spec.pool + (" (ephemeral)" if view.ephemeral_pool else ""))
    if view.waiting:
        facts.add_row("waits for", waiting_words(view))
    facts.add_row("user", view.user)
    facts.add_row("time", _age(view, now_ms))
    facts.add_row("command", Text(" ".join(spec.argv)))
    facts.add_row("each job", amounts(spec.resources, leave_out=("user_slots",)))
    facts.add_row("jobs", _job_words(view, places))
    if places is not None and view.state not in FINAL_STATES:
        for number, reason in enumerate(places.reasons):
            facts.add_row("waits because" if number == 0 else "", Text(reason))
    return facts


def _job_words(view: OperationView, places: OperationPlaces | None) -> str:
    words = [f"{view.completed_jobs} of {view.spec.job_count} done"]
    if places is not None and view.state not in FINAL_STATES:
        words += [f"{places.running_jobs} running", f"{places.pending_jobs} pending"]
        words += [f"{places.in_doubt_jobs} in doubt"] if places.in_doubt_jobs else []
    words += [f"{view.failed_jobs} runs failed"] if view.failed_jobs else []
    words += [f"{view.aborted_jobs} interrupted"] if view.aborted_jobs else []
    words += [f"{view.lost_jobs} lost"] if view.lost_jobs else []
    return ", ".join(words)


def failure_lines(end: JobEnd, node: str) -> list[str]:
    """The end of a failed job in words, with the tail of its stderr."""
    how = f"exit code {end.exit_code}" if end.exit_code is not None else ""
    if end.signal is not None:
        how = f"signal {end.signal}"
    reason = ", ".join(filter(None, (how, end.reason)))
    attempt = f", attempt {end.attempt}" if end.attempt > 1 else ""
    where = f" on node {node}" if node else ""
    lines = [f"job {end.index}{attempt} failed{where}: {reason or 'no reason is known'}"]
    if end.stderr_tail.strip():
        lines.append("the end of its stderr:")
        lines.extend(f"  {line}" for line in end.stderr_tail.rstrip("\n").splitlines())
    return lines


def job_table(rows: Sequence[JobRow], places: OperationPlaces | None) -> Table:
    """One line a job."""
    made = table("job", "attempt", "state", "node", "exit code", right=("job", "attempt", "exit code"))
    running = {place.index: place for place in places.running} if places is not None else {}
    for row in rows:
        place = running.get(row.slot.index)
        if place is not None:
            made.add_row(str(place.index), str(place.attempt), Text("running", style="cyan"), place.node, "")
            continue
        state = row.result.value if row.result is not None else "pending"
        code = "" if row.exit_code is None else str(row.exit_code)
        made.add_row(str(row.slot.index), str(row.slot.attempt), state, str(row.node), code)
    return made


def node_table(nodes: Sequence[NodeView]) -> Table:
    """One line a node: what is in use of what there is."""
    resources = [
        name for name in ("cpu", "memory", "gpu", "user_slots") if any(getattr(node.total, name) for node in nodes)
    ]
    made = table(
        "node",
        "state",
        *(_SHORT[name] for name in resources),
        "jobs",
        "heartbeat",
        right=("jobs",),
        whole={"node": _widest(node.node for node in nodes)},
    )
    for node in nodes:
        state = Text(node.state, style=_NODE_STYLES.get(node.state, ""))
        if node.trouble:
            state.append(f": {node.trouble}", style="red")
        use = [_use(node, name) for name in resources]
        age = "never" if node.heartbeat_age_ms is None else f"{format_duration(node.heartbeat_age_ms)} ago"
        made.add_row(node.node, state, *use, str(node.running_jobs), age)
    return made


def _use(node: NodeView, name: str) -> str:
    used, whole = getattr(node.usage, name), getattr(node.total, name)
    return f"{format_amount(name, used)} of {format_amount(name, whole)}"


def pool_table(pools: PoolList) -> Table:
    """The tree: guarantee, fair share and usage of the dominant resource, in amounts."""
    made = table(
        "pool",
        "weight",
        "guarantee",
        "fair share",
        "usage",
        "demand",
        "operations",
        "starving",
        right=("weight", "operations"),
    )
    branches = _branches(pools.pools)
    for pool in pools.pools:
        name = pool.share.dominant_resource
        total = getattr(pools.frame.total, name)
        guarantee = Resources(**{name: round(_component(pool.share.strong_guarantee_share, name) * total)})
        made.add_row(
            Text(branches[pool.name] + (" (ephemeral)" if pool.ephemeral else "")),
            f"{pool.share.weight:g}" if pool.parent else "",
            amounts(guarantee),
            _one(pool.fair_resources, name),
            _one(pool.usage, name),
            _one(pool.demand, name),
            f"{pool.running_operation_count}/{pool.operation_count}",
            "" if pool.share.starvation_status == "non_starving" else Text("starving", style="red"),
        )
    return made


def _component(share: tuple[float, ...], name: str) -> float:
    return share[RESOURCE_NAMES.index(name)]


def _one(resources: Resources, name: str) -> str:
    return amounts(Resources(**{name: getattr(resources, name)}))


def _branches(pools: Sequence[PoolView]) -> dict[str, str]:
    """Each pool's name behind the lines of the tree. Parents stand before children, siblings in their order."""
    children: dict[str, list[str]] = {}
    for pool in pools:
        children.setdefault(pool.parent, []).append(pool.name)
    known = {pool.name for pool in pools}
    lines: dict[str, str] = {}

    def walk(name: str, lead: str, below: str) -> None:
        lines[name] = lead + name
        following = children.get(name, [])
        for child, after in pairwise([*following, ""]):
            last = not after
            walk(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    for pool in pools:
        if pool.parent not in known:
            walk(pool.name, "", "")
    return lines
