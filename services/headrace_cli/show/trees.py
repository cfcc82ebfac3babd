"""The live tree of pools with bars: what each uses, is owed and wants of its dominant resource. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.resources import Share
from headrace.wire.pools import PoolList
from headrace.wire.snapshots import ElementKind, ShareItem, StarvationStatus
from headrace_cli.show.branches import bar, branches, component, percent
from headrace_cli.show.shares import gibberish_free

__all__ = ["tree_table"]

_SHORT: Final = {"user_slots": "slots"}
_EPHEMERAL: Final = " (ephemeral)"
_SHORTEST_BAR: Final = 4
_LONGEST_BAR: Final = 24
#: Columns of a figure such as `333.3%` with the blanks around it and its bar, and of the name of a resource.
_FIGURE: Final = 10
_RESOURCE: Final = 9


def tree_table(pools: PoolList, width: int, *, bars: bool, ascii_only: bool = False) -> Table:
    """One line an element: usage, fair share and demand as shares of the cluster; with `bars`, drawn where there is room."""
    items = _items(pools)
    leads = branches((item.key, f"/{item.parent}") for item in items)
    names = [len(lead + item.name) + len(_EPHEMERAL) * item.ephemeral for lead, item in zip(leads, items, strict=True)]
    length = min(_LONGEST_BAR, (width - max(names) - 2 - _RESOURCE) // 3 - _FIGURE)
    if not bars or length < _SHORTEST_BAR:
        length = 0
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    made.add_column("pool", overflow="fold")
    made.add_column("of", no_wrap=True)
    for head in ("usage", "fair share", "demand"):
        if length:
            made.add_column(head if length >= len(head) else head.split()[0], no_wrap=True, min_width=length)
        made.add_column("" if length else head, justify="right", no_wrap=True)
    for lead, item in zip(leads, items, strict=True):
        made.add_row(*_row(lead, item, length, ascii_only=ascii_only))
    return made


def _items(pools: PoolList) -> Sequence[ShareItem]:
    """Pools in their order, each followed by its operations."""
    inside: dict[str, list[ShareItem]] = {}
    for operation in pools.operations:
        inside.setdefault(operation.parent, []).append(operation)
    return [item for pool in pools.pools for item in (pool.share, *inside.get(pool.name, []))]


def _row(lead: str, item: ShareItem, length: int, *, ascii_only: bool) -> list[Text]:
    name = item.dominant_resource
    title = Text(lead, style="dim")
    title.append(gibberish_free(item.name), style="" if item.kind is ElementKind.OPERATION else "bold")
    if item.ephemeral:
        title.append(_EPHEMERAL, style="dim")
    cells = [title, Text(_SHORT.get(name, name))]
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
