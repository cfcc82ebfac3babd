"""Draw a chart into a PNG or SVG file. Needs matplotlib, which is imported only here, and only when it is needed."""

from __future__ import annotations

import io
import os
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import BadInput
from headrace.files.durable import open_new
from headrace.installation.extras import require
from headrace_cli.commands.pools.volume.chart import Chart, Line, LineKind, Panel
from headrace_cli.show.times import time_ticks, zone_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FORMATS: Final = (".png", ".svg")
_COLOURS: Final = {
    LineKind.USAGE: "#0072B2",
    LineKind.DEMAND: "#E69F00",
    LineKind.FAIR_SHARE: "#009E73",
    LineKind.STRONG: "#333333",
    LineKind.FLOW: "#AA4499",
    LineKind.BURST: "#B00020",
    LineKind.SAVED: "#0072B2",
    LineKind.CAPACITY: "#B00020",
    LineKind.DELIVERED: "#009E73",
    LineKind.WAITING: "#E69F00",
    LineKind.LOST: "#B00020",
}
_LOOKS: Final[dict[LineKind, dict[str, Any]]] = {
    LineKind.USAGE: {"linewidth": 1.8},
    LineKind.DEMAND: {"linewidth": 1.4, "linestyle": "--"},
    LineKind.FAIR_SHARE: {"linewidth": 1.2},
    LineKind.STRONG: {"linewidth": 1.2, "linestyle": ":"},
    LineKind.FLOW: {"linewidth": 1.2, "linestyle": ":"},
    LineKind.BURST: {"linewidth": 1.2, "linestyle": ":"},
    LineKind.SAVED: {"linewidth": 1.8},
    LineKind.CAPACITY: {"linewidth": 1.2, "linestyle": ":"},
    LineKind.DELIVERED: {"linewidth": 1.8},
    LineKind.WAITING: {"linewidth": 1.8},
    LineKind.LOST: {"linewidth": 1.8},
}
_FILLED: Final = (LineKind.USAGE, LineKind.SAVED, LineKind.DELIVERED, LineKind.WAITING, LineKind.LOST)
_MOST_TICKS: Final = 9
#: Settings of matplotlib. With them the same chart gives the same bytes.
SETTINGS: Final[Any] = {
    "svg.hashsalt": "headrace",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def check_file(path: Path, otherwise: str = "") -> None:
    """Check that a chart can be written to the file, before any request or drawing. Raises `BadInput`, `MissingExtra`."""
    if path.suffix.lower() not in FORMATS:
        raise BadInput("--plot", str(path), f"a file that ends in {' or '.join(FORMATS)}{otherwise}")
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput("--plot", str(path), "a file in an existing folder")
    require("plots", "`--plot FILE`")


def draw(chart: Chart, path: Path, zone: tzinfo | None = None) -> None:
    """Draw the chart and write the file, whole or not at all. Raises OSError."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as NewFigure

    with rc_context(SETTINGS):
        count = len(chart.panels)
        figure = NewFigure(figsize=(10.0, 1.0 + 3.0 * count), layout="constrained")
        figure.suptitle(chart.title, x=0.01, ha="left", fontweight="bold", fontsize=12)
        rows = figure.subplots(count, 1, sharex=True, squeeze=False)
        for panel, axes in zip(chart.panels, rows[:, 0], strict=True):
            _panel(axes, chart, panel, zone)
        time_axis(rows[-1, 0], chart.start_s, chart.end_s, zone)
        write_figure(figure, path)


def write_figure(figure: Figure, path: Path) -> None:
    """Write a drawn figure to a file, whole or not at all. Raises `OSError`."""
    kind = path.suffix.lower().lstrip(".")
    data = io.BytesIO()
    how: dict[str, Any] = {"metadata": {"Date": None, "Creator": None}} if kind == "svg" else {"dpi": 120}
    figure.savefig(data, format=kind, **how)
    part = path.with_name(path.name + ".part")
    try:
        with open(open_new(part), "wb") as file:
            file.write(data.getvalue())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _panel(axes: Axes, chart: Chart, panel: Panel, zone: tzinfo | None) -> None:
    for start, end in chart.gaps:
        axes.axvspan(
            start, end, color="#DDDDDD", linewidth=0, label="nothing recorded" if start == chart.gaps[0][0] else None
        )
    for height, line in enumerate(reversed(panel.lines)):
        _line(axes, chart.times_s, line, height + 2)
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.set_ylabel(panel.unit)
    axes.set_ylim(0, panel.top * 1.06)
    axes.set_xlim(chart.start_s, max(chart.end_s, chart.start_s + 1))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.grid(axis="y", color="#EEEEEE", zorder=0)
    if not chart.times_s:
        axes.text(
            0.5, 0.5, "nothing was recorded in this period", transform=axes.transAxes, ha="center", color="#555555"
        )
        return
    handles, labels = axes.get_legend_handles_labels()
    order = {line.label: place for place, line in enumerate(panel.lines)}
    both = sorted(zip(handles, labels, strict=True), key=lambda each: order.get(each[1], len(order)))
    # The legend is beside the lines and never covers them.
    axes.legend(*zip(*both, strict=True), loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)


def _line(axes: Axes, times_s: list[float], line: Line, zorder: int) -> None:
    colour = _COLOURS[line.role]
    if line.role in _FILLED:
        axes.fill_between(times_s, 0, line.values, color=colour, alpha=0.12, linewidth=0, zorder=zorder)
    if line.most and line.least:
        axes.fill_between(times_s, line.least, line.most, color=colour, alpha=0.22, linewidth=0, zorder=zorder)
    axes.plot(times_s, line.values, color=colour, label=line.label, zorder=zorder, **_LOOKS[line.role])
    lonely = [run.start for run in line.runs() if len(run) == 1]
    if lonely:
        x, y = [times_s[place] for place in lonely], [line.values[place] for place in lonely]
        axes.plot(x, y, ".", color=colour, markersize=6, zorder=zorder, clip_on=False)


def time_axis(axes: Axes, start_s: float, end_s: float, zone: tzinfo | None = None) -> None:
    """Mark round times between start and end below the axes."""
    ticks = time_ticks(start_s, end_s, _MOST_TICKS, zone)
    # The day is written below the first time of that day, if there is space for it.
    labels = ["\n".join(reversed(label.rsplit(" ", 1))) if ":" in label else label for _, label in ticks]
    axes.set_xticks([at for at, _ in ticks], labels)
    axes.set_xlabel(f"time ({zone_name(start_s, zone)})")
