"""The two kinds of tables: rows below heads, and facts beside their names. Also the branches and bars that their cells contain."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import StyleType
from rich.table import Column, Table
from rich.text import Text

from headrace_cli.show.amounts import short_name

#: Smallest width, in characters, to which a column is cut.
_NARROWEST_CUT: Final = 24
#: Smallest number of characters for the last column at which its text is wrapped between words.
_NARROWEST_TEXT: Final = 30
_BRANCHES: Final = re.compile(r"[│├└─ ]*")
_NOTHING: Final = ("", "–")
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


class _List(Table):
    """A table of rows below heads. `cut`, the head of a column, decides how the table is fitted to a narrow screen.

    With `cut`, each row is one line: columns are left out from the right, and the column `cut` ends with `…`. Without it, columns that
    do not fit are printed below each row, with their heads, so that no word is broken or left out. The branches of a tree in the first
    column continue beside the lines below a row.
    """

    cut = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        blanks, room = self.padding[1], options.max_width
        columns = self.columns
        if sum(_width(column) + blanks for column in columns) - blanks > room:
            columns = [column for column in columns if any(_plain(cell) not in _NOTHING for cell in column.cells)]
            if self.cut:
                columns = _cut_to_one_line(columns, self.cut, room, blanks)
        beside = _beside(columns, room, blanks)
        below = columns[len(beside) :]
        yield _row(
            [replace(column, vertical="bottom") for column in beside],
            [Text(_plain(column.header)) for column in beside],
            blanks,
            "bold",
        )
        rows = list(zip(*(column.cells for column in columns), strict=True))
        leads = list(_leads_below([_plain(row[0]) for row in rows]))
        for row, lead, own in zip(rows, leads, self.rows, strict=True):
            yield from _line(console, beside, row[: len(beside)], blanks, own.style or "")
            cells = zip(below, row[len(beside) :], strict=True)
            pairs = [_pair(column, cell) for column, cell in cells if _plain(cell) not in _NOTHING]
            for line in packed(pairs, room - len(lead) - blanks):
                grid = Table.grid(Column(width=len(lead) + blanks), Column(overflow="fold"))
                grid.add_row(Text(lead, style="dim"), line)
                yield grid


def _cut_to_one_line(columns: list[Column], head: str, room: int, blanks: int) -> list[Column]:
    """Return the columns that fit beside each other, with the cells of the column `head` cut to the rest of the width."""
    kept = columns.copy()
    cut = next((column for column in kept if column.header == head), kept[-1])

    def room_of_cut() -> int:
        return room - sum(_width(column) + blanks for column in kept if column is not cut)

    while room_of_cut() < min(_width(cut), _NARROWEST_CUT):
        last = next((column for column in reversed(kept[1:]) if column is not cut), None)
        if last is None:
            break
        kept.remove(last)
    width = max(1, room_of_cut())
    cells: list[RenderableType] = []
    for cell in cut.cells:
        text = cell.copy() if isinstance(cell, Text) else Text(_plain(cell))
        text.truncate(width, overflow="ellipsis")
        cells.append(text)
    kept[kept.index(cut)] = replace(cut, _cells=cells)
    return kept


def _beside(columns: Sequence[Column], room: int, blanks: int) -> list[Column]:
    """Return the leading columns that fit beside each other, each with its width."""
    made: list[Column] = []
    for column in columns:
        width = _width(column)
        if width > room:
            words = max((cell_len(word) for cell in column.cells for word in _plain(cell).split()), default=0)
            if made and (column is not columns[-1] or max(words, _NARROWEST_TEXT) > room):
                break
            width = room
        made.append(Column(column.header, justify=column.justify, overflow="fold", width=width, style=column.style))
        room -= width + blanks
    return made


def _row(columns: Sequence[Column], cells: Sequence[object], blanks: int, style: object) -> Table:
    grid = Table.grid(*(column.copy() for column in columns), padding=(0, blanks, 0, 0))
    grid.add_row(*(cell if isinstance(cell, Text) else _plain(cell) for cell in cells), style=str(style or ""))
    return grid


def _line(
    console: Console, columns: Sequence[Column], cells: Sequence[object], blanks: int, style: StyleType
) -> RenderResult:
    """Yield a row. If every cell fits on one line, Rich does not lay the row out: that would take ten times as long."""
    texts = [_plain(cell) for cell in cells]
    widths = [column.width or 0 for column in columns]
    # Rich must lay out a row with a character that is not printable. Rich may leave such a character out, the character may break the line,
    # or its width may depend on its position, as with a tab.
    if any(not text.isprintable() or cell_len(text) > width for text, width in zip(texts, widths, strict=True)):
        yield _row(columns, cells, blanks, style)
        return
    of_row = console.get_style(style)
    gap = ""
    for column, cell, text, width in zip(columns, cells, texts, widths, strict=True):
        before, after = gap, " " * (width - cell_len(text))
        if column.justify == "right":
            before, after = before + after, ""
        of_cell = of_row + console.get_style(column.style)
        yield Segment(before, of_cell)
        if isinstance(cell, Text):
            yield from Segment.apply_style(cell.render(console), of_cell + console.get_style(cell.style))
        else:
            yield Segment(text, of_cell)
        yield Segment(after, of_cell)
        gap = " " * blanks
    yield Segment.line()


def packed(parts: Iterable[Text], room: int) -> Iterator[Text]:
    """Yield lines, each with as many of the parts as fit."""
    line = Text()
    for part in parts:
        if line and line.cell_len + 2 + part.cell_len > room:
            yield line
            line = Text()
        line = Text.assemble(line, "  ", part) if line else part
    if line:
        yield line


def _leads_below(names: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the drawn tree that continue below each name; an empty string for names without such lines."""
    leads = [found[0] if (found := _BRANCHES.match(name)) and "─" in found[0] else "" for name in names]
    for lead, following in pairwise([*leads, ""]):
        own = lead.replace("├─", "│ ").replace("└─", "  ")
        yield own + "│  " if len(following) > len(lead) else own


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _pair(column: Column, cell: object) -> Text:
    head = " ".join(_plain(column.header).replace("-\n", "").split())
    return Text.assemble((f"{head} " if head else "", "dim"), cell if isinstance(cell, Text) else _plain(cell))


def _width(column: Column) -> int:
    texts = (_plain(column.header), *(_plain(cell) for cell in column.cells))
    return max([cell_len(line) for text in texts for line in text.expandtabs().split("\n")] + [column.min_width or 0])


def table(*columns: str, right: Collection[str] = (), blanks: int = 2, cut: str = "") -> Table:
    """Return an empty table without rules. Columns in `right` contain figures and are aligned to the right.

    With `cut`, the head of a column, each row is one line on a narrow screen too (`_List`).
    """
    made = _List(box=None, pad_edge=False, header_style="bold", padding=(0, blanks, 0, 0))
    made.cut = cut
    for column in columns:
        made.add_column(
            column, justify="right" if column in right else "left", no_wrap=column in right, overflow="fold"
        )
    return made


def resource_table(head: str, resources: Sequence[str]) -> Table:
    """Return an empty table with a column of figures for each resource."""
    made = table()
    made.add_column(head, style="bold", no_wrap=True)
    for name in resources:
        made.add_column(short_name(name), justify="right", no_wrap=True)
    return made


def facts_table() -> Table:
    """Return an empty table of facts, each with its name to the left."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column(overflow="fold")
    return facts


def printable(text: str) -> str:
    """Return the text with `?` in place of every character that a terminal could obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def branches(elements: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines to draw before each element's name, from pairs of the element's key and its parent's key.

    Parents must come before children, and siblings in their order. An element whose parent is missing is at the top.
    """
    keys = list(elements)
    children: dict[str, list[str]] = {}
    known = {key for key, _ in keys}
    for key, parent in keys:
        children.setdefault(parent, []).append(key)
    leads: dict[str, str] = {}
    waiting = [(key, "", "") for key, parent in reversed(keys) if parent not in known]
    while waiting:
        key, lead, below = waiting.pop()
        leads[key] = lead
        following = children.get(key, [])
        for child in reversed(following):
            last = child == following[-1]
            waiting.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    return [leads[key] for key, _ in keys]


def bar(share: float, width: int, *, ascii_only: bool) -> str:
    """Return a bar that is `width` characters long for a share of 1. A larger share is cut and ends in an arrow."""
    if share > 1.0 + 1e-9:
        return ("#" if ascii_only else "█") * (width - 1) + (">" if ascii_only else "▶")
    eighths = round(max(0.0, share) * width * 8)
    if share > 0.0:
        eighths = max(eighths, 1)
    if ascii_only:
        return ("#" * ((eighths + 7) // 8)).ljust(width, ".")
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)
