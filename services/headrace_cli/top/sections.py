"""The rows of each section: the rows that pass the filter, in the chosen order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Any, Final, NamedTuple

from rich.text import Text

from headrace.client.preemptions import Starving
from headrace.resources import format_amount, percent
from headrace.wire.happenings import AllocationPreempted
from headrace.wire.nodes import NodeView
from headrace.wire.operations import OperationState, OperationView
from headrace.wire.pools import PoolView
from headrace.wire.snapshots import ElementKind, ShareItem, StarvationStatus
from headrace_cli.commands.node_tables import node_state, use_words
from headrace_cli.commands.operations.tables import state_words, time_words, waiting_words
from headrace_cli.commands.operations.time_limits import operation_left_words
from headrace_cli.commands.pools.starving import starvation_cells
from headrace_cli.show.amounts import component, short_name
from headrace_cli.show.tables import branches
from headrace_cli.show.times import timestamp
from headrace_cli.top.cluster_report import MOST_OPERATIONS, ClusterReport
from headrace_cli.top.view import Entry, Opened, Section, View

_SHORTEST_BAR: Final = 8
#: Width in characters of all columns of a pool except its name and its bar.
_POOL_FIGURES: Final = 47
_SHORTEST_NAME: Final = 16
_LONGEST_LEAD: Final = 12

Cells = Sequence[Text | str]


class Rows(NamedTuple):
    """One section: its columns, and a row for each entry. The cells of a row are made only when the row is shown."""

    heads: Sequence[str]
    #: Heads of the columns that contain figures.
    right: Sequence[str]
    entries: Sequence[Entry]
    items: Sequence[Any]
    cells: Callable[[Any], Cells]


class Pen(NamedTuple):
    """The screen to draw for: its width in characters, and whether it shows more than ASCII."""

    width: int
    ascii_only: bool = False
    #: Time zone for times of day; None: the machine's zone.
    zone: tzinfo | None = None
    #: Largest width of a bar in characters.
    longest_bar: int = 24


def rows_of(report: ClusterReport, view: View, section: Section, pen: Pen) -> Rows:
    """Return the rows of a section."""
    return _MAKERS[section](report, view, pen)


def share_bar(share: ShareItem, width: int, *, ascii_only: bool) -> Text:
    """Return a bar whose whole width stands for the cluster. It shows usage, demand beyond the usage, and marks at fair share and
    guarantee.
    """
    name = share.dominant_resource
    full, shade, fair_mark, guarantee_mark, both_marks = "#.|+*" if ascii_only else "█░│◇◈"
    used, wanted, fair, guarantee = (
        _columns(component(each, name), width)
        for each in (share.usage_share, share.demand_share, share.fair_share.total, share.strong_guarantee_share)
    )
    # The chosen row is shown reversed, except for its bar: a reversed full bar would look empty.
    made = Text(style="not reverse")
    for place in range(1, width + 1):
        marks = (place == fair, place == guarantee)
        if any(marks):
            made.append(both_marks if all(marks) else fair_mark if marks[0] else guarantee_mark, style="bold cyan")
        elif place <= used:
            made.append(full, style="red" if _starves(share) else "green")
        else:
            made.append(shade if place <= wanted else " ", style="dim")
    return made


def _columns(share: float, width: int) -> int:
    """Return the width in characters for a share: at least one unless the share is zero."""
    return min(width, max(1, round(share * width))) if share > 1e-9 else 0


def _pools(report: ClusterReport, view: View, pen: Pen) -> Rows:
    order = view.order(Section.POOLS)
    keys: dict[str, Callable[[PoolView], Any]] = {
        "usage": lambda pool: -_part(pool.share, pool.share.usage_share),
        "demand": lambda pool: -_part(pool.share, pool.share.demand_share),
        "shortage": lambda pool: (
            _part(pool.share, pool.share.usage_share)
            - min(_part(pool.share, pool.share.fair_share.total), _part(pool.share, pool.share.demand_share))
        ),
        "name": lambda pool: pool.name,
    }
    pools = [pool for pool in report.pools if _passes(view, pool.name)]
    pools = sorted(pools, key=keys[order]) if order in keys else pools
    leads = branches((pool.name, pool.parent) for pool in pools) if order == "tree" else [""] * len(pools)
    names = dict(zip((pool.name for pool in pools), map(_short_lead, leads), strict=True))
    title = titled(report, view, Section.POOLS, len(pools), len(pools))
    longest = max((len(names[pool.name] + pool.name) for pool in pools), default=0)
    longest = max(len(title), min(longest, max(_SHORTEST_NAME, pen.width - _POOL_FIGURES - _SHORTEST_BAR - 2)))
    bar = min(pen.longest_bar, pen.width - longest - _POOL_FIGURES)

    def cells(pool: PoolView) -> Cells:
        share = pool.share
        name = Text.assemble((names[pool.name], "dim"), (pool.name, "bold red" if _starves(share) else "bold"))
        parts = (share.usage_share, share.fair_share.total, share.demand_share, share.strong_guarantee_share)
        drawn = [share_bar(share, bar, ascii_only=pen.ascii_only)] if bar >= _SHORTEST_BAR else []
        figures = [percent(component(part, share.dominant_resource)) for part in parts]
        counts = f"{pool.running_count}/{pool.operation_count}"
        return [_cut(name, longest), *figures, *drawn, short_name(share.dominant_resource), counts]

    figures = ("usage", "fair", "demand", "guar.")
    heads = (*figures, *(["cluster"] if bar >= _SHORTEST_BAR else []), "of", "ops")
    entries = [Entry(pool.name, Opened("pool", pool.name)) for pool in pools]
    return Rows(heads, (*figures, "ops"), entries, pools, cells)


def _short_lead(lead: str) -> str:
    """Return the lines of the tree that are drawn before a pool's name. If there are many levels, the first levels are cut off."""
    return lead if len(lead) <= _LONGEST_LEAD else "…" + lead[-_LONGEST_LEAD + 1 :]


def _operations(report: ClusterReport, view: View, pen: Pen) -> Rows:
    shares = report.operation_shares

    def used(each: OperationView) -> float:
        share = shares.get(each.operation)
        return 0.0 if share is None else _part(share, share.usage_share)

    def done(each: OperationView) -> float:
        told, jobs = report.progress.get(each.operation), each.spec.job_count
        return each.completed_jobs / jobs if told is None else told.done(each.completed_jobs, jobs)

    keys: dict[str, Callable[[OperationView], Any]] = {
        "usage": lambda each: -used(each),
        "progress": lambda each: -done(each),
        "pool": lambda each: each.spec.pool,
        "user": lambda each: each.user,
    }
    found = [
        each
        for each in report.operations or []
        if _passes(view, each.operation, each.spec.pool, each.user, each.spec.title, each.state.value)
    ]
    order = view.order(Section.OPERATIONS)
    found = sorted(found, key=keys[order]) if order in keys else found

    def cells(each: OperationView) -> Cells:
        share = shares.get(each.operation)
        has = ["", ""]
        if share is not None:
            has = [percent(_part(share, part)) for part in (share.usage_share, share.fair_share.total)]
        jobs = f"{each.completed_jobs}/{each.spec.job_count}"
        if each.operation in report.progress:
            jobs += f" {percent(done(each))}"
        if each.failed_jobs:
            jobs += f" ({each.failed_jobs} failed)"
        if each.timed_out_jobs:
            jobs += f" ({each.timed_out_jobs} timed out)"
        starves = share is not None and _starves(share)
        idle = share is not None and each.state is OperationState.RUNNING and not any(share.usage_share)
        state = Text.assemble(state_words(each), ", no job" if idle else "", (" starves" if starves else "", "red"))
        words = Text(each.spec.title)
        if waits_for := waiting_words(each):
            words = Text(f"waits for {waits_for}", style="yellow")
        time = ", ".join(filter(None, (time_words(each, report.at_ms), operation_left_words(each, report.at_ms))))
        return [each.operation, state, jobs, *has, _cut(Text(each.spec.pool), pen.width // 4), each.user, time, words]

    figures = ("done", "usage", "fair")
    heads = ("state", *figures, "pool", "user", "time", "title")
    entries = [Entry(each.operation, Opened("operation", each.operation)) for each in found]
    return Rows(heads, (*figures, "time"), entries, found, cells)


def _nodes(report: ClusterReport, view: View, pen: Pen) -> Rows:
    keys: dict[str, Callable[[NodeView], Any]] = {
        "usage": lambda node: -node.usage.cpu / max(1, node.total.cpu),
        "jobs": lambda node: -node.running_jobs,
        "trouble": lambda node: (
            node.state == "online" and not (node.trouble or node.left_out or node.held_back),
            node.node,
        ),
    }
    found = [node for node in report.nodes or [] if _passes(view, node.node, node.state, *node.tags)]
    order = view.order(Section.NODES)
    found = sorted(found, key=keys[order]) if order in keys else found
    names = [name for name in ("cpu", "memory", "gpu") if any(getattr(node.total, name) for node in found)]

    def cells(node: NodeView) -> Cells:
        use = [use_words(node, name) for name in names]
        name = _cut(Text(node.node), max(_SHORTEST_NAME, pen.width // 3))
        return [name, str(node.running_jobs), *use, node_state(node)]

    entries = [Entry(node.node, Opened("node", node.node)) for node in found]
    return Rows(("jobs", *names, "state"), ("jobs",), entries, found, cells)


def _starving(report: ClusterReport, view: View, pen: Pen) -> Rows:
    found = [each for each in report.starving if _passes(view, each.name, each.parent)]
    if view.order(Section.STARVING) == "name":
        found = sorted(found, key=lambda each: each.name)
    now_ms = report.shares.frame.at_ms if report.shares is not None else report.at_ms

    def cells(each: Starving) -> Cells:
        since, reason, has = starvation_cells(each, now_ms)
        is_pool = each.kind is not ElementKind.OPERATION
        may = str(len(each.may_preempt)) if each.may_preempt else "–"
        return [Text(each.name, style="bold" if is_pool else ""), since, has, reason, each.parent, may]

    def entry(each: Starving) -> Entry:
        kind = "operation" if each.kind is ElementKind.OPERATION else "pool"
        return Entry(f"{kind} {each.name}", Opened(kind, each.name))

    heads = ("since", "has", "of its", "in pool", "may preempt")
    return Rows(heads, ("since", "has"), [entry(each) for each in found], found, cells)


def _preemptions(report: ClusterReport, view: View, pen: Pen) -> Rows:
    found = [each for each in report.preemptions if _passes(view, each.operation, each.pool, each.node)]
    if view.order(Section.PREEMPTIONS) == "pool":
        found = sorted(found, key=lambda each: each.pool)

    def cells(each: AllocationPreempted) -> Cells:
        at = timestamp(each.record.decided_at_ms / 1000, pen.zone).split()[1]
        words = f"only observed: {each.record.words}" if each.record.observed else each.record.words
        return [each.operation, at, _cut(Text(each.pool), pen.width // 4), words, each.node]

    entries = [
        Entry(f"{each.allocation} {each.record.decided_at_ms}", Opened("operation", each.operation)) for each in found
    ]
    return Rows(("at", "of pool", "why", "on"), (), entries, found, cells)


_MAKERS: Final[dict[Section, Callable[[ClusterReport, View, Pen], Rows]]] = {
    Section.POOLS: _pools,
    Section.OPERATIONS: _operations,
    Section.NODES: _nodes,
    Section.STARVING: _starving,
    Section.PREEMPTIONS: _preemptions,
}


def use_of_cluster(resource: str, used: int, total: int) -> str:
    """Return how much of a resource of the cluster is in use."""
    return f"{short_name(resource)} {format_amount(resource, used)} of {format_amount(resource, total)}"


def _starves(share: ShareItem) -> bool:
    return share.starvation_status is not StarvationStatus.NON_STARVING


def _part(share: ShareItem, figures: Any) -> float:
    return component(figures, share.dominant_resource)


def _passes(view: View, *texts: str) -> bool:
    wanted = view.filter.casefold()
    return not wanted or any(wanted in text.casefold() for text in texts)


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def entries_of(report: ClusterReport, view: View, pen: Pen) -> dict[Section, Sequence[Entry]]:
    """Return the entries of all sections, as they are shown."""
    return {section: rows_of(report, view, section, pen).entries for section in Section}


def first_shown(place: int, room: int, count: int) -> int:
    """Return the position of the first row to show, chosen so that the row at `place` is visible."""
    return max(0, min(place - room // 2, count - room))


def titled(report: ClusterReport, view: View, section: Section, count: int, shown: int) -> str:
    """Return the title of a section that has `count` rows, of which `shown` are on the screen."""
    has_more = section is Section.OPERATIONS and len(report.operations or ()) >= MOST_OPERATIONS
    counted = f"{list(Section).index(section) + 1} {section.value} {count}{'+' if has_more else ''}"
    return f"{counted}, {view.order(section)}" + (f" … {count - shown} more" if shown < count else "")
