"""A plan in words: the tree with its shares, and the errors that the algorithm reports. Pure."""

from __future__ import annotations

from typing import Final, assert_never

from rich.table import Table
from rich.text import Text

from headrace.resources import Resources, percent
from headrace.wire.plan import Bound, BoundKind, Plan, PlanElement
from headrace.wire.snapshots import ElementKind, ShareComplaint
from headrace_cli.show.amounts import amounts, compact, component, short_name
from headrace_cli.show.tables import branches, printable, table

#: Smallest width of a screen, in characters, at which a column shows what bounds each element.
_ROOM_FOR_WORDS: Final = 108
_STYLES: Final = {
    BoundKind.MET: "green",
    BoundKind.LIMIT: "yellow",
    BoundKind.NODES: "yellow",
    BoundKind.BELOW: "yellow",
    BoundKind.ABSENT: "red",
    BoundKind.GANG: "red",
    BoundKind.FIFO: "yellow",
}


def plan_title(plan: Plan, resource: str | None) -> Text:
    """Return the head of a plan: the file, its total, and the resource of the figures."""
    words = f"{plan.file}: {amounts(plan.total)}"
    if resource is not None:
        return Text(f"{words}; figures in {resource}", style="bold")
    return Text(f"{words}; figures of each element's dominant resource", style="bold")


def plan_table(plan: Plan, resource: str | None, width: int) -> Table:
    """Return a table with one line for each element: amounts, the fair share with its parts, and what bounds the fair share."""
    made = table(blanks=1)
    wide = width >= _ROOM_FOR_WORDS
    made.add_column("\nelement", overflow="fold")
    if resource is None:
        made.add_column("\nof", no_wrap=True)
    heads = ("\ndemand", "guar-\nantee", "fair\nshare", "\nshare", "strong\npart", "integ.\npart", "weight\npart")
    for head in heads:
        made.add_column(head, justify="right", no_wrap=True)
    made.add_column("bound by" if not wide else "\nbound by", no_wrap=wide, min_width=6)
    troubled = {name for complaint in plan.complaints for name in complaint.pools}
    leads = branches((_key(element), f"/{element.share.parent}") for element in plan.elements)
    for lead, element in zip(leads, plan.elements, strict=True):
        marked = bool(element.scaled) or (element.kind is ElementKind.POOL and element.name in troubled)
        made.add_row(*_row(element, lead, resource, plan.total, marked=marked, wide=wide))
    return made


def _key(element: PlanElement) -> str:
    return element.name if element.kind is ElementKind.OPERATION else f"/{element.name}"


def _row(
    element: PlanElement, lead: str, resource: str | None, total: Resources, *, marked: bool, wide: bool
) -> list[Text]:
    share = element.share
    name = resource or share.dominant_resource
    title = Text(lead, style="dim")
    title.append(printable(element.name), style="bold" if element.kind is not ElementKind.OPERATION else "")
    if marked:
        title.append(" !", style="bold yellow")
    fair = share.fair_share
    return [
        title,
        *([Text(short_name(name))] if resource is None else []),
        Text(compact(name, getattr(element.demand, name))),
        Text(_guarantee(element, name, total)),
        Text(compact(name, getattr(element.fair_resources, name)), style="bold"),
        Text(percent(component(fair.total, name)), style="bold"),
        Text(percent(component(fair.strong_guarantee, name))),
        Text(percent(component(fair.integral_guarantee, name))),
        Text(percent(component(fair.weight_proportional, name))),
        Text(_words(element.bound) if wide else _word(element.bound), style=_STYLES.get(element.bound.kind, "")),
    ]


def _guarantee(element: PlanElement, name: str, total: Resources) -> str:
    amount = getattr(element.guarantee, name)
    return compact(name, amount) if amount and getattr(total, name) else "–"


def _word(bound: Bound) -> str:
    match bound.kind:
        case BoundKind.FULL | BoundKind.ABSENT:
            return f"{'no ' if bound.kind is BoundKind.ABSENT else ''}{short_name(bound.resource)}"
        case _:
            return bound.kind.value


def _words(bound: Bound) -> str:
    match bound.kind:
        case BoundKind.IDLE:
            return "wants nothing"
        case BoundKind.MET:
            return "met"
        case BoundKind.ABSENT:
            return f"the cluster has no {bound.resource}"
        case BoundKind.LIMIT:
            return f"limit of {bound.pool}: {bound.resource}" if bound.pool else f"its limit: {bound.resource}"
        case BoundKind.NODES:
            return f"{bound.resource} of the nodes that match is used up"
        case BoundKind.BELOW:
            return "limits of its children"
        case BoundKind.FIFO:
            return f"operations ahead of it in {bound.pool}"
        case BoundKind.GANG:
            return "all or nothing" + (f", by {bound.resource}" if bound.resource else "")
        case BoundKind.FULL:
            return f"{bound.resource} is used up"
        case BoundKind.SHAPE:
            return "what is left does not fit"
        case _:
            assert_never(bound.kind)


def plan_notes(plan: Plan) -> list[Text]:
    """Return errors of the algorithm with their pools, guarantees that are not in force as configured, and warnings."""
    notes: list[Text] = []
    for complaint in plan.complaints:
        notes += _complaint_lines(complaint)
    scaled = [element for element in plan.elements if element.scaled]
    if scaled:
        notes.append(Text("! not in force as configured:", style="yellow"))
    for element in scaled:
        for each in element.scaled:
            was, now = compact(each.resource, each.configured), compact(each.resource, each.in_force)
            part = percent(each.in_force / each.configured)
            notes.append(Text(f"  {element.path}: {each.setting}.{each.resource} {was} scaled to {now} ({part})"))
    notes += [Text(f"warning: {warning}", style="yellow") for warning in plan.warnings]
    return notes


def _complaint_lines(complaint: ShareComplaint) -> list[Text]:
    """Return an error of the algorithm in words, followed by the pools that it concerns."""
    lines = [Text(f"! {complaint.text}", style="yellow")]
    if complaint.pools:
        lines.append(Text(f"  concerns: {', '.join(complaint.pools)}"))
    return lines
