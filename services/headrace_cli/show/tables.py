"""The two shapes of tables: rows below heads, and facts beside their names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.table import Table

from headrace_cli.show.amounts import short_name


def table(*columns: str, right: Collection[str] = (), whole: Mapping[str, int] | None = None, blanks: int = 2) -> Table:
    """Makes an empty table without lines.

    Columns in `right` hold figures, those in `whole` are never narrower than their width there.
    """
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, blanks, 0, 0))
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column in right,
            min_width=(whole or {}).get(column),
            overflow="fold",
        )
    return made


def resource_table(head: str, resources: Sequence[str]) -> Table:
    """Makes an empty table with a column of figures for each resource."""
    made = table()
    made.add_column(head, style="bold", no_wrap=True)
    for name in resources:
        made.add_column(short_name(name), justify="right", no_wrap=True)
    return made


def facts_table() -> Table:
    """Makes an empty table of facts, each behind its name."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column(overflow="fold")
    return facts


def widest(texts: Iterable[str]) -> int:
    """The width of the longest text."""
    return max((len(text) for text in texts), default=1)
