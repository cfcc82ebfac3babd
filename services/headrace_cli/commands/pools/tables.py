"""The live tree of pools: as a list, and with bars of usage, fair share and demand. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.resources import Resources, Share, percent
from headrace.wire.pools import PoolList
from headrace.wire.snapshots import ElementKind, ShareItem, StarvationStatus
from headrace_cli.show.amounts import amounts, component, short_name
from headrace_cli.show.tables import bar, branches, printable, table

_EPHEMERAL: Final = " (ephemeral)"
_SHORTEST_BAR: Final = 4
_LONGEST_BAR: Final = 24
#: Width in characters of a figure such as `333.3%`, with the blanks around it and around its bar.
_FIGURE: Final = 10
#: Width in characters of the name of a resource.
_RESOURCE: Final = 9


def pool_table(pools: PoolList) -> Table:
    """Return a table of the tree: guarantee, fair share, usage and demand of the dominant resource, in amounts."""
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
        cut="pool",
    )
    leads = branches((pool.name, pool.parent) for pool in pools.pools)
    for lead, pool in zip(leads, pools.pools, strict=True):
        name = pool.share.dominant_resource
        total = getattr(pools.frame.total, name)
        guarantee = Resources(**{name: round(component(pool.share.strong_guarantee_share, name) * total)})
        made.add_row(
            Text(lead + pool.name + (" (ephemeral)" if pool.ephemeral else "")),
            f"{pool.share.weight:g}" if pool.parent else "",
            amounts(guarantee),
            _one(pool.fair_resources, name),
            _one(pool.usage, name),
            _one(pool.demand, name),
            f"{pool.running_count}/{pool.operation_count}",
            "" if pool.share.starvation_status == "non_starving" else Text("starving", style="red"),
        )
    return made


def tree_table(pools: PoolList, width: int, *, bars: bool, ascii_only: bool = False) -> Table:
    """Return a table with one line for each element: usage, fair share and demand as shares of the cluster.

    With `bars`, the shares are also drawn as bars if the width allows.
    """
    items = _items(pools)
    leads = branches((item.key, f"/{item.parent}") for item in items)
    names = [len(lead + item.name) + len(_EPHEMERAL) * item.ephemeral for lead, item in zip(leads, items, strict=True)]
    length = min(_LONGEST_BAR, (width - max(names) - 2 - _RESOURCE) // 3 - _FIGURE)
    if not bars or length < _SHORTEST_BAR:
        length = 0
    made = table("pool")
    made.add_column("of", no_wrap=True)
    for head in ("usage", "fair share", "demand"):
        if length:
            made.add_column(head if length >= len(head) else head.split()[0], no_wrap=True, min_width=length)
        made.add_column("" if length else head, justify="right", no_wrap=True)
    for lead, item in zip(leads, items, strict=True):
        made.add_row(*_row(lead, item, length, ascii_only=ascii_only))
    return made


def _items(pools: PoolList) -> Sequence[ShareItem]:
    """Return the pools in their order, each followed by its operations."""
    inside: dict[str, list[ShareItem]] = {}
    for operation in pools.operations:
        inside.setdefault(operation.parent, []).append(operation)
    return [item for pool in pools.pools for item in (pool.share, *inside.get(pool.name, []))]


def _row(lead: str, item: ShareItem, length: int, *, ascii_only: bool) -> list[Text]:
    name = item.dominant_resource
    title = Text(lead, style="dim")
    title.append(printable(item.name), style="" if item.kind is ElementKind.OPERATION else "bold")
    if item.ephemeral:
        title.append(_EPHEMERAL, style="dim")
    cells = [title, Text(short_name(name))]
    starves = item.starvation_status is not StarvationStatus.NON_STARVING
    figures: tuple[tuple[Share, str], ...] = (
        (item.usage_share, "red" if starves else "green"),
        (item.fair_share.total, "cyan"),
        (item.demand_share, "dim"),
    )
    for share, style in figures:
        part = component(share, name)
        if length:
            cells.append(Text(bar(part, length, ascii_only=ascii_only), style=style))
        cells.append(Text(percent(part)))
    return cells


def _one(resources: Resources, name: str) -> str:
    return amounts(Resources(**{name: getattr(resources, name)}))
