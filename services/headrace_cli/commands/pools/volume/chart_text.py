"""Draw a chart in characters: coloured lines of braille dots, or, without colours, lines of one letter each. Pure.

Each line is drawn by itself, and the drawings are then laid over each other. The legend is printed below them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import tzinfo
from itertools import pairwise
from typing import Final

import plotille  # type: ignore[import-untyped]
from rich.text import Text

from headrace_cli.commands.pools.volume.chart import Chart, Line, LineKind, Panel
from headrace_cli.show.times import time_ticks

#: Smallest width of a chart, in characters.
NARROWEST: Final = 40
_STYLES: Final = {
    LineKind.USAGE: "bright_cyan",
    LineKind.DEMAND: "yellow",
    LineKind.FAIR_SHARE: "green",
    LineKind.STRONG: "white",
    LineKind.FLOW: "magenta",
    LineKind.BURST: "red",
    LineKind.SAVED: "bright_cyan",
    LineKind.CAPACITY: "red",
    LineKind.DELIVERED: "green",
    LineKind.WAITING: "yellow",
    LineKind.LOST: "red",
}
_LETTERS: Final = {
    LineKind.USAGE: "#",
    LineKind.DEMAND: "+",
    LineKind.FAIR_SHARE: "o",
    LineKind.STRONG: "=",
    LineKind.FLOW: "-",
    LineKind.BURST: "~",
    LineKind.SAVED: "#",
    LineKind.CAPACITY: "-",
    LineKind.DELIVERED: "#",
    LineKind.WAITING: "#",
    LineKind.LOST: "#",
}
_NO_DOTS: Final = 0x2800
#: End of the axis, as a multiple of the largest figure.
_HEADROOM: Final = 1.04


def amount_ticks(top: float, most: int) -> list[float]:
    """Return round figures from 0 to at most `top`: at least two and at most `most`, which must be 3 or more."""
    power = 10.0 ** math.floor(math.log10(top))
    for part in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0):
        step = power * part
        # If `top` is below a round figure only by a rounding error, the tolerance makes that figure the last tick.
        count = int(top / step + 1e-9)
        if count < most:
            break
    return [step * number for number in range(count + 1)]


def chart_texts(
    chart: Chart, width: int, height: int, *, colours: bool, ascii_only: bool, zone: tzinfo | None = None
) -> list[Text]:
    """Return a text for each panel: its title, `height` rows of lines, the time axis and the legend, within `width` columns.

    All panels begin in the same column, so that equal times are below each other. `colours` must be false for an ASCII terminal,
    because coloured lines are drawn with braille dots.
    """
    ticks = [amount_ticks(panel.top, max(3, height // 2)) for panel in chart.panels]
    margin = max(len(_figure(value)) for values in ticks for value in values)
    columns = width - margin - 3
    made = []
    for panel, values in zip(chart.panels, ticks, strict=True):
        text = Text()
        text.append(f"{panel.unit}: {panel.title}\n", style="bold")
        top = panel.top * _HEADROOM
        labels = {_row(value, top, height): _figure(value) for value in values}
        for row, cells in enumerate(_cells(chart, panel, columns, height, top, colours=colours)):
            label = labels.get(row, "")
            text.append(f"{label:>{margin}} " + _edge(at_label=bool(label), ascii_only=ascii_only))
            for letter, style in cells:
                text.append(letter, style=style)
            text.append("\n")
        for line in _time_axis(chart, columns, ascii_only=ascii_only, zone=zone):
            text.append(" " * (margin + 1) + line + "\n")
        legend = _legend(panel.lines, chart.gaps, colours=colours)
        text.append_text(_wrapped(legend, margin + 2, width))
        made.append(text)
    return made


def _edge(*, at_label: bool, ascii_only: bool) -> str:
    if ascii_only:
        return "+" if at_label else "|"
    return "┤" if at_label else "│"


def _time_axis(chart: Chart, columns: int, *, ascii_only: bool, zone: tzinfo | None) -> tuple[str, str]:
    """Return the axis below the chart with its marks, and the line of their labels."""
    marks = time_ticks(chart.start_s, chart.end_s, max(2, columns // 16), zone)
    span = max(chart.end_s - chart.start_s, 1e-9)
    places = [(min(columns - 1, int((at - chart.start_s) / span * columns)), label) for at, label in marks]
    ruler = ["-" if ascii_only else "─"] * columns
    for place, _ in places:
        ruler[place] = "+" if ascii_only else "┬"
    return ("+" if ascii_only else "└") + "".join(ruler), " " + _labels(places, columns)


def _row(value: float, top: float, height: int) -> int:
    return height - 1 - min(height - 1, int(value / top * height))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"


def _cells(
    chart: Chart, panel: Panel, columns: int, height: int, top: float, *, colours: bool
) -> list[list[tuple[str, str]]]:
    """Return the characters and styles by row.

    In a cell where lines cross, their dots are combined, in the colour of the line on top.
    """
    cells = [[(" ", "")] * columns for _ in range(height)]
    for line in reversed(panel.lines):
        for row, letters in enumerate(_dots(chart, line, columns, height, top)):
            for column, letter in enumerate(letters):
                dots = ord(letter) - _NO_DOTS
                if dots <= 0:
                    continue
                if not colours:
                    cells[row][column] = (_LETTERS[line.role], "")
                    continue
                below = ord(cells[row][column][0]) - _NO_DOTS
                cells[row][column] = (chr(_NO_DOTS | dots | max(below, 0)), _STYLES[line.role])
    return cells


def _dots(chart: Chart, line: Line, columns: int, height: int, top: float) -> list[str]:
    end = max(chart.end_s, chart.start_s + 1.0)
    canvas = plotille.Canvas(columns, height, xmin=chart.start_s, ymin=0.0, xmax=end, ymax=top)
    # A point at the very end of the period, or at the top, would be outside of the canvas. Clip it into the last column or row.
    latest = canvas.xmax_inside
    for run in line.runs():
        places = [(min(chart.times_s[place], latest), min(line.values[place], canvas.ymax_inside)) for place in run]
        canvas.point(*places[0])
        for (x0, y0), (x1, y1) in pairwise(places):
            canvas.line(x0, y0, x1, y1)
    rows: list[str] = canvas.plot().splitlines()
    return [row.ljust(columns) for row in rows]


def _labels(places: Sequence[tuple[int, str]], columns: int) -> str:
    """Return labels centred below their marks. A label that would touch the previous one is left out."""
    line = ""
    for place, label in places:
        start = max(0, min(place - len(label) // 2, columns - len(label)))
        if start >= len(line) + (1 if line else 0):
            line = line.ljust(start) + label
    return line


def _legend(lines: Sequence[Line], gaps: Sequence[tuple[float, float]], *, colours: bool) -> list[Text]:
    entries = []
    for line in lines:
        sample = "━━" if colours else _LETTERS[line.role]
        entries.append(Text.assemble((sample, _STYLES[line.role] if colours else ""), f" {line.label}"))
    if gaps:
        entries.append(Text("(gaps: nothing recorded)"))
    return entries


def _wrapped(entries: Sequence[Text], indent: int, width: int) -> Text:
    """Return entries side by side, in as many lines as they need."""
    lines = [Text(" " * indent)]
    for entry in entries:
        if len(lines[-1]) > indent and len(lines[-1]) + 3 + len(entry) > width:
            lines.append(Text(" " * indent))
        elif len(lines[-1]) > indent:
            lines[-1].append("   ")
        lines[-1].append_text(entry)
    return Text("\n").join(lines)
