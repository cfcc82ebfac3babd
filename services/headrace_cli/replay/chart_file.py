"""Draw two replays into a PNG or SVG file. Each pool has a row, with both configurations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.ids import ROOT_POOL
from headrace.wire.replay import ComparedPool, Replay, ReplayedPool
from headrace_cli.commands.pools.volume.chart_file import SETTINGS, time_axis, write_figure
from headrace_cli.replay.tables import UNITS
from headrace_cli.show.times import timestamp

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Upper bound of the pools in a chart. The pools with the most usage are drawn.
_MOST_POOLS: Final = 8
_USAGE, _DEMAND, _FAIR_SHARE, _RECORDED = "#0072B2", "#E69F00", "#009E73", "#333333"
#: Largest height of demand in a chart, as a multiple of the largest other figure. Higher demand is cut.
_TOWERING: Final = 1.5


def draw_replay(answer: Replay, path: Path) -> None:
    """Draw the replays and write the file, whole or not at all. Raises OSError."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    pools = _drawn(answer)
    with rc_context(SETTINGS):
        figure = Figure(figsize=(12.0, 1.2 + 2.0 * len(pools)), layout="constrained")
        title = f"tree {answer.tree}, {timestamp(answer.since_ms / 1000)} to {timestamp(answer.until_ms / 1000)}"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
        rows = figure.subplots(len(pools), 2, sharex=True, sharey="row", squeeze=False)
        for pool, row in zip(pools, rows, strict=True):
            sides = ((pool.before, pool.recorded_series), (pool.after, None))
            for axes, (side, recorded) in zip(row, sides, strict=True):
                _panel(axes, answer, side, recorded)
            name = "<Root>" if pool.pool == ROOT_POOL else pool.path
            row[0].set_title(f"{name}: recorded configuration", loc="left", fontsize=10)
            row[1].set_title(f"{name}: other configuration", loc="left", fontsize=10)
            row[0].set_ylabel(f"{UNITS[answer.resource][0]}s")
            row[0].set_ylim(0, _top(answer, pool) * 1.06)
        for axes in rows[-1]:
            time_axis(axes, answer.since_ms / 1000, answer.until_ms / 1000)
        rows[0, 1].legend(*rows[0, 0].get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(1.0, 1.0))
        write_figure(figure, path)


def _drawn(answer: Replay) -> list[ComparedPool]:
    """Return the pools with the most usage in either replay, in the order of the tree."""
    sides = {each.pool: [side for side in (each.before, each.after) if side is not None] for each in answer.pools}
    most = sorted(answer.pools, key=lambda each: -max((side.usage for side in sides[each.pool]), default=0.0))
    kept = {each.pool for each in most[:_MOST_POOLS]}
    return [each for each in answer.pools if each.pool in kept]


def _panel(axes: Axes, answer: Replay, side: ReplayedPool | None, recorded: list[float] | None) -> None:
    size = UNITS[answer.resource][1]
    count = len(answer.pools[0].recorded_series)
    edges = [(answer.since_ms + place * answer.stretch_ms) / 1000 for place in range(count)]
    edges.append(answer.until_ms / 1000)
    axes.set_xlim(edges[0], edges[-1])
    axes.grid(axis="y", color="#EEEEEE", zorder=0)
    if side is None:
        axes.text(0.5, 0.5, "no such pool", transform=axes.transAxes, ha="center", color="#555555")
        return
    usage, fair, demand = (
        [each / size for each in series] for series in (side.usage_series, side.fair_share_series, side.demand_series)
    )
    axes.stairs(usage, edges, color=_USAGE, fill=True, alpha=0.15, zorder=2)
    axes.stairs(demand, edges, color=_DEMAND, linestyle="--", linewidth=1.3, label="demand", zorder=3)
    axes.stairs(fair, edges, color=_FAIR_SHARE, linewidth=1.3, label="fair share", zorder=4)
    axes.stairs(usage, edges, color=_USAGE, linewidth=1.8, label="usage", zorder=5)
    if recorded is not None:
        values = [each / size for each in recorded]
        axes.stairs(values, edges, color=_RECORDED, linestyle=":", linewidth=1.3, label="recorded usage", zorder=6)


def _top(answer: Replay, pool: ComparedPool) -> float:
    size = UNITS[answer.resource][1]
    sides = [side for side in (pool.before, pool.after) if side is not None]
    demand = max((max(side.demand_series) for side in sides), default=0.0)
    others = [max(side.usage_series + side.fair_share_series) for side in sides] + [max(pool.recorded_series)]
    top = max(others)
    return (min(demand, _TOWERING * top) if top and demand > top else max(top, demand)) / size or 1.0
