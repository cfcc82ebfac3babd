"""What fair_share reports of one pool or operation, for each resource and with units. Pure."""

from __future__ import annotations

from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.resources import RESOURCE_NAMES, Resources, Share, format_amount, percent
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace.wire.snapshots import ElementKind, ShareComplaint, ShareItem, StarvationStatus
from headrace_cli.show.amounts import amounts, component, short_name
from headrace_cli.show.tables import facts_table, resource_table

_ROOM_FOR_SHARES: Final = 100


def _in_words(resource: str, share: float, total: int, *, shares: bool) -> str:
    amount = format_amount(resource, round(share * total))
    return f"{amount} ({percent(share)})" if shares else amount


def share_table(share: ShareItem, total: Resources, configured: Resources | None, width: int) -> Table:
    """Return a table with one column for each resource that the cluster has.

    A wide screen shows shares of the cluster beside the amounts.
    """
    there = [name for name in RESOURCE_NAMES if getattr(total, name)]
    made = resource_table("", there)
    shares = width >= _ROOM_FOR_SHARES
    for label, figures in _rows(share):
        cells = [
            _in_words(name, component(figures, name), getattr(total, name), shares=shares)
            if label != "limit" or component(figures, name) < 1.0
            else "–"
            for name in there
        ]
        made.add_row(label, *cells)
        if label == "guarantee" and configured is not None:
            made.add_row("  as configured", *(_configured(name, configured) for name in there))
    return made


def _configured(name: str, configured: Resources) -> str:
    amount = getattr(configured, name)
    return format_amount(name, amount) if amount else "–"


def _rows(share: ShareItem) -> list[tuple[str, Share]]:
    fair = share.fair_share
    rows = [
        ("usage", share.usage_share),
        ("demand", share.demand_share),
        ("limit", share.limits_share),
        ("fair share", fair.total),
        ("  strong part", fair.strong_guarantee),
        ("  integral part", fair.integral_guarantee),
        ("  by weight", fair.weight_proportional),
        ("guarantee", share.strong_guarantee_share),
        ("estimated guarantee", share.estimated_guarantee_share),
    ]
    if any(share.promised_fair_share):
        rows.append(("promised fair share", share.promised_fair_share))
    if any(share.proposed_integral_share):
        rows.append(("proposed integral", share.proposed_integral_share))
    return rows


def share_summary(share: ShareItem, total: Resources) -> Table:
    """Return an operation's usage, fair share and demand of its dominant resource, and whether the operation starves."""
    facts, name = facts_table(), share.dominant_resource

    def words(figures: Share) -> str:
        return f"{short_name(name)} {_in_words(name, component(figures, name), getattr(total, name), shares=True)}"

    facts.add_row("uses", words(share.usage_share))
    facts.add_row("fair share", words(share.fair_share.total))
    facts.add_row("demand", words(share.demand_share))
    if share.starvation_status is not StarvationStatus.NON_STARVING:
        facts.add_row("status", _status(share))
    facts.add_row("all figures", f"headrace op get {share.name} --shares")
    return facts


def share_facts(share: ShareItem, complaints: list[ShareComplaint]) -> Table:
    """Return facts that are not amounts: weight, dominant shares, satisfaction, statuses, position in a fifo pool."""
    facts = facts_table()
    name = share.dominant_resource
    parts = share.fair_share
    facts.add_row("dominant resource", name)
    facts.add_row("fair share", f"{percent(component(parts.total, name))} of the cluster's {name}")
    facts.add_row(
        "usage, demand",
        f"{percent(component(share.usage_share, name))}, {percent(component(share.demand_share, name))}",
    )
    if share.kind is not ElementKind.ROOT:
        facts.add_row("weight", f"{share.weight:g}")
    facts.add_row(
        "satisfaction", f"{_ratio(share.satisfaction_ratio)} (its own {_ratio(share.local_satisfaction_ratio)})"
    )
    facts.add_row("status", _status(share))
    if share.kind is ElementKind.OPERATION and not share.schedulable:
        facts.add_row("schedulable", "no")
    if share.tag_filter_limits is not None:
        rest = f"; the rest of {share.short_of} is owed to other operations" if share.short_of else ""
        facts.add_row("nodes that match", amounts(share.tag_filter_limits, leave_out=("user_slots",)) + rest)
    if share.fifo_index is not None:
        facts.add_row("position in fifo pool", str(share.fifo_index) + _effective(share))
    if share.total_resource_flow_ratio or share.total_burst_ratio:
        flow, burst = percent(share.total_resource_flow_ratio), percent(share.total_burst_ratio)
        facts.add_row("with pools below", f"flow {flow}, burst {burst} of the cluster")
    for complaint in complaints:
        if share.kind is ElementKind.ROOT or (share.kind is ElementKind.POOL and share.name in complaint.pools):
            facts.add_row(Text("error", style="yellow"), Text(complaint.text, style="yellow"))
    return facts


def _effective(share: ShareItem) -> str:
    return "" if share.effective_fifo_index is None else f", in force {share.effective_fifo_index}"


def _ratio(ratio: float) -> str:
    return "–" if ratio >= INFINITE_SATISFACTION else f"{ratio:.3g}"


def _status(share: ShareItem) -> Text:
    words = share.scheduling_status.value.replace("_", " ")
    if share.starvation_status.value == "non_starving":
        return Text(words)
    return Text(f"{words}, {share.starvation_status.value.replace('_', ' ')}", style="red")
