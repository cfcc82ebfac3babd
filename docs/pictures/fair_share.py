"""Draws the pictures of docs/why/fair-share.md, from the page's own plans and the functions of the algorithm.

Needs matplotlib. The same code draws the same bytes: no dates, one salt for identifiers, letters as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt

from docs.pictures.steps import PAGE, ROOT, Steps, by_resource, over_time, plans, with_options
from tests.support.curves import Function

__all__ = ["FOLDER", "PICTURES", "draw"]

FOLDER: Final = PAGE.parent / "fair-share"
CPU, MEMORY = by_resource("cpu"), by_resource("memory")
#: One colour per team wherever it appears; grey is the cluster and whatever belongs to nobody.
TEAM: Final = {"film": "#0072B2", "search": "#D55E00", "lab": "#009E73", "night": "#AA4499"}
INSIDE: Final = {"premiere": "#0072B2", "archive": "#4A9BCB"}
GREY, LIGHT, EDGE = "#555555", "#D9D9D9", "#B00020"
STYLE: Final = {CPU: "-", MEMORY: "--"}
NAME: Final = {CPU: "cpu", MEMORY: "memory"}

mpl.rcParams.update(
    {
        "svg.hashsalt": "headrace",
        "svg.fonttype": "none",
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10.5,
        "axes.titlelocation": "left",
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": 2,
        "figure.facecolor": "white",
        "figure.constrained_layout.use": True,
    }
)

Axes = Any
Figure = Any


def panels(count: int, *, height: float = 3.3, width: float = 9.0, **how: Any) -> tuple[Figure, Sequence[Axes]]:
    """A figure as wide as a page with panels beside each other."""
    figure, axes = plt.subplots(1, count, figsize=(width, height), squeeze=False, **how)
    return figure, axes[0]


def curve(axes: Axes, plot: Function, *, dots: bool = True, right: float | None = None, **how: Any) -> None:
    """A function: jumps dotted, with a filled dot at the value and an empty one at the limit from the right."""
    xs: list[float] = []
    ys: list[float] = []
    label = how.pop("label", None)
    points = [point for point in plot.points if right is None or point[0] <= right]
    if right is not None and points[-1][0] < right:
        points.append((right, plot.value(right)))

    def draw() -> None:
        nonlocal label
        axes.plot(xs, ys, label=label, **how)
        label = None

    for at, (x, y) in enumerate(points):
        if at and points[at - 1][0] == x:
            draw()
            below = points[at - 1][1]
            color = how["color"]
            axes.plot([x, x], [below, y], ":", color=color, linewidth=1.2)
            if dots:
                axes.plot([x], [below], "o", color=color, markersize=5, zorder=3)
                axes.plot([x], [y], "o", color=color, markerfacecolor="white", markersize=5, zorder=3)
            xs, ys = [], []
        xs.append(x)
        ys.append(y)
    draw()


def level(axes: Axes, y: float, text: str, x: float, *, color: str = GREY, above: bool = True, **how: Any) -> None:
    """A horizontal line with its name on it."""
    axes.axhline(y, color=color, linewidth=1, linestyle=how.pop("linestyle", (0, (1, 1.5))))
    axes.annotate(
        text, (x, y), xytext=(0, 3 if above else -3), textcoords="offset points", fontsize=9, color=color,
        va="bottom" if above else "top", **how,
    )  # fmt: skip


def stacked(axes: Axes, places: Sequence[float], parts: Iterable[tuple[str, str, Sequence[float]]], **how: Any) -> None:
    """Bars on top of each other: label, colour, heights by place."""
    base = [0.0] * len(places)
    parts = list(parts)
    tallest = max(sum(heights[at] for _, _, heights in parts) for at in range(len(places)))
    for label, color, heights in parts:
        axes.bar(places, heights, bottom=base, color=color, label=label, edgecolor="white", **how)
        for x, low, height in zip(places, base, heights, strict=True):
            if height >= 0.065 * tallest:
                axes.text(x, low + height / 2, f"{height:.3g}", ha="center", va="center", color="white", fontsize=9)
            else:
                axes.text(
                    x + how["width"] / 2 + 0.02, low + height / 2, f"{height:.3g}", va="center", color=color, fontsize=9
                )
        base = [low + height for low, height in zip(base, heights, strict=True)]


def demand() -> Figure:
    """What the three teams want."""
    figures = Steps(plans()["complementary"]).figures
    figure, (axes,) = panels(1, width=6.0)
    parts = [
        (team, TEAM[team], [figures[team].demand_share[r] for r in (CPU, MEMORY)]) for team in ("film", "search", "lab")
    ]
    stacked(axes, [0, 1], parts, width=0.55)
    level(axes, 1.0, "the cluster", 1.78, ha="right", color=EDGE, linestyle="-")
    axes.set(xticks=[0, 1], xticklabels=["cpu", "memory"], ylabel="demand (share of the cluster)", xlim=(-0.5, 1.8))
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper")
    return figure


def guarantees() -> Figure:
    """Configured, scaled and fitted."""
    figures = Steps(plans()["overcommit"]).figures
    configured = {"premiere": 0.3, "archive": 0.3, "search": 0.4, "lab": 0.25}
    assert configured == {
        pool.name: (pool.strong_guarantee[CPU] or 0) / 10_000
        for pool in plans()["overcommit"].pools
        if pool.name != "film"
    }
    factor = 1 / sum(configured.values())
    fitted = {name: figures[name].strong_guarantee_share[CPU] for name in configured}
    figure, (axes,) = panels(1, width=7.5)
    columns = [configured, {name: share * factor for name, share in configured.items()}, fitted]
    labels = {"premiere": "film / premiere", "archive": "film / archive"}
    parts = [
        (labels.get(name, name), {**TEAM, **INSIDE}[name], [column[name] for column in columns]) for name in configured
    ]
    stacked(axes, [0, 1, 2], parts, width=0.6)
    level(axes, 1.0, "the cluster", 2.62, ha="right", color=EDGE, linestyle="-")
    axes.set(
        xticks=[0, 1, 2],
        xticklabels=["as configured", "times 0.8", "fitted, premiere first"],
        ylabel="guarantee (share of cpu)",
        xlim=(-0.5, 2.65),
    )
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="outside right upper")
    return figure


def burst() -> Figure:
    """Savings and grants over time."""
    results = over_time(plans()["saved"], [1.0] * 600)
    seconds = list(range(0, len(results), 5))
    results = results[::5]
    total = plans()["saved"].total.cpu
    figure, (savings, shares) = panels(2)
    savings.plot(seconds, [each.integral["lab"].volume[CPU] / total for each in results], color=TEAM["lab"])
    level(savings, 18.0, "enough for a burst of 0.3", 600, ha="right")
    savings.set(title="savings of lab", xlabel="time (s)", ylabel="ratio volume (share × s)", ylim=(0, 64))
    fair = [each.pools["lab"].fair_share[CPU] for each in results]
    grant = [each.pools["lab"].integral_guarantee_share[CPU] for each in results]
    shares.fill_between(seconds, grant, fair, color=TEAM["lab"], alpha=0.25, linewidth=0, label="by weight")
    shares.plot(seconds, grant, color=TEAM["lab"], label="granted from savings")
    level(shares, 0.1, "flow", 12, ha="left", above=False)
    shares.set(title="fair share of lab", xlabel="time (s)", ylabel="share of cpu", ylim=(0, 0.45))
    shares.legend(loc="upper right")
    for axes in (savings, shares):
        axes.axvline(210, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)))
        axes.set_xlim(0, 600)
    return figure


def relaxed() -> Figure:
    """Two relaxed pools and what is available."""
    steps = Steps(plans()["lent"])
    flow = {name: steps.figures[name].flow_ratio for name in ("lab", "night")}
    ratio = {"lab": 24 / 60, "night": 6 / 60}
    most = {name: min(ratio[name], 3 * flow[name]) for name in ratio}
    weight = {name: ratio[name] / min(ratio.values()) for name in ratio}
    fits = [k / 1000 for k in range(161)]
    taken = {name: [min(1.0, fit * weight[name], most[name]) for fit in fits] for name in ratio}
    figure, (axes,) = panels(1, width=7.5)
    axes.stackplot(fits, *taken.values(), labels=list(taken), colors=[TEAM[name] for name in taken], alpha=0.85)
    film = steps.figures["film"]
    available = 1.0 - min(film.strong_guarantee_share[CPU], film.demand_share[CPU])
    level(axes, available, f"available: 1 − {1 - available:.2f} = {available:.2f}", 0.002, ha="left", color=EDGE)
    chosen = steps.figures["night"].integral_guarantee_share[CPU]
    axes.plot([chosen, chosen], [0, available], color="black", linewidth=1)
    axes.annotate(
        f"f = {chosen:.2f}", (chosen, available), xytext=(-8, 14), textcoords="offset points", ha="right",
        arrowprops={"arrowstyle": "-", "linewidth": 0.8},
    )  # fmt: skip
    axes.text(0.12, 0.15, "lab: at most 0.3", color="white", ha="center", fontsize=9)
    axes.text(0.135, 0.35 - 0.03, "night", color="white", ha="center", fontsize=9)
    axes.set(xlabel="fit factor f of the relaxed pools", ylabel="share of cpu", xlim=(0, 0.16), ylim=(0, 0.46))
    return figure


def operation() -> Figure:
    """Shares by fit factor of an operation and of a gang."""
    steps = Steps(plans()["started"])
    figure, both = panels(2, sharey=True)
    for axes, name, color, title in (
        (both[0], "render", TEAM["film"], "render: runs already"),
        (both[1], "index", TEAM["search"], "index: a gang"),
    ):
        for r in (CPU, MEMORY):
            curve(axes, steps.built[name].by_fit[r], color=color, linestyle=STYLE[r], label=NAME[r])
        axes.axvline(1.0, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)))
        axes.set(title=title, xlabel="fit factor f", xlim=(0, 2.03), ylim=(-0.02, 0.66))
        axes.legend(loc="upper left")
    both[0].set_ylabel("share of the cluster")
    both[0].text(0.5, 0.22, "what it\nuses", ha="center", color=GREY, fontsize=9)
    both[0].text(1.55, 0.02, "the rest of\nwhat it wants", ha="center", color=GREY, fontsize=9)
    return figure


def suggestion() -> Figure:
    """From the curve over f to the one over s, for a pool."""
    steps = Steps(plans()["guaranteed"])
    built, figures = steps.built["search"], steps.figures["search"]
    color = TEAM["search"]
    figure, (left, middle, right) = panels(3, height=3.7)
    for r in (CPU, MEMORY):
        curve(left, built.by_fit[r], color=color, linestyle=STYLE[r], label=NAME[r])
        curve(middle, built.allowed[r], color=color, linestyle=STYLE[r], label=f"{NAME[r]} allows", dots=False)
        curve(right, built.shares[r], color=color, linestyle=STYLE[r], label=NAME[r])
    level(left, figures.limits_share[CPU], "cpu limit", 1.0, ha="right", color=EDGE)
    left.plot([0.3], [figures.strong_guarantee_share[CPU]], "s", color=color, markersize=6)
    left.annotate(
        "cpu guaranteed\n0.3", (0.3, 0.3), xytext=(0.03, 0.5), fontsize=9, arrowprops={"arrowstyle": "-", "lw": 0.8}
    )
    left.plot([0.6], [figures.strong_guarantee_share[MEMORY]], "s", color=color, markersize=6)
    left.annotate(
        "memory\nguaranteed 0.4", (0.6, 0.4), xytext=(0.5, 0.08), fontsize=9, arrowprops={"arrowstyle": "-", "lw": 0.8}
    )
    left.set(title="1. the wish", xlabel="fit factor f", ylabel="share of the cluster", ylim=(0, 0.95), xlim=(0, 1))
    curve(middle, built.fit, color="black", linewidth=5, alpha=0.18, label="both allow", dots=False)
    middle.set(
        title="2. the least is taken", xlabel="suggestion s", ylabel="fit factor f", ylim=(0, 1.02), xlim=(0, 0.4)
    )
    right.set(
        title="3. what follows", xlabel="suggestion s", ylabel="share of the cluster", ylim=(0, 0.45), xlim=(0, 0.4)
    )
    right.axvline(0.03, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)))
    right.text(0.04, 0.37, "from 0.03 on\nthe limit holds", fontsize=9, color=GREY)
    left.legend(loc="upper left", bbox_to_anchor=(0.0, 1.0))
    middle.legend(loc="lower right")
    right.legend(loc="lower right")
    return figure


def pool() -> Figure:
    """Three teams by the root's fit factor, stacked."""
    steps = Steps(plans()["complementary"])
    teams = ("lab", "search", "film")
    fits = sorted({0.0, 0.7, *(x for x, _ in steps.built[ROOT].by_fit[CPU].points if x < 0.7)})
    figure, both = panels(2, sharey=True)
    for axes, r in zip(both, (CPU, MEMORY), strict=True):
        heights = [[steps.built[team].shares[r].value(steps.offers(ROOT, fit)[team]) for fit in fits] for team in teams]
        axes.stackplot(fits, *heights, labels=teams, colors=[TEAM[team] for team in teams], alpha=0.85)
        level(axes, 1.0, "the cluster", 0.01, ha="left", color=EDGE, linestyle="-")
        lift = 30 if r == CPU else 12
        fit = steps.handed[ROOT][1]
        total = steps.built[ROOT].by_fit[r].value(fit)
        axes.plot([fit, fit], [0, total], color="black", linewidth=1)
        axes.annotate(
            f"f = {fit:.1f}: {total:.3g}", (fit, total), xytext=(-10, lift), textcoords="offset points", ha="right",
            arrowprops={"arrowstyle": "-", "linewidth": 0.8},
        )  # fmt: skip
        axes.set(title=NAME[r], xlabel="fit factor f of the root", xlim=(0, 0.7), ylim=(0, 1.45))
    both[0].set_ylabel("share of the cluster")
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper")
    return figure


def fifo() -> Figure:
    """A fifo pool with a gang in the middle."""
    steps = Steps(plans()["guaranteed"])
    built, color = steps.built["film"], TEAM["film"]
    figure, (left, right) = panels(2, sharey=True)
    for r in (CPU, MEMORY):
        curve(left, built.by_fit[r], color=color, linestyle=STYLE[r], label=NAME[r])
        curve(right, built.shares[r], color=color, linestyle=STYLE[r], label=NAME[r], right=0.6)
    level(left, 0.4, "guarantee of cpu", 3.0, ha="right", above=False)
    right.axhline(0.4, color=GREY, linewidth=1, linestyle=(0, (1, 1.5)))
    for place, name in enumerate(steps.children("film")):
        left.axvspan(place, place + 1, color=GREY, alpha=0.10 if place % 2 else 0.04, linewidth=0)
        left.text(place + 0.5, 0.86, name, ha="center", fontsize=9, color=GREY)
    left.set(
        xlabel="fit factor f of film", ylabel="share of the cluster", ylim=(0, 0.93), xlim=(0, 3), xticks=[0, 1, 2, 3]
    )
    right.set(xlabel="suggestion s to film", xlim=(0, 0.6))
    right.legend(loc="lower right")
    return figure


def handing() -> Figure:
    """The first example's tree from the top."""
    steps = Steps(plans()["complementary"])
    teams = steps.children(ROOT)
    figure, (axes,) = panels(1, height=4.4)
    axes.set(xlim=(-0.5, 2.5), ylim=(-0.35, 2.35))
    axes.axis("off")

    def box(name: str, x: float, y: float, color: str) -> None:
        fit, share = steps.handed[name][1], steps.figures[name].fair_share
        text = f"{name}\nf = {fit:.3g}\ncpu {share[CPU]:.3g}   memory {share[MEMORY]:.3g}"
        axes.text(
            x, y, text, ha="center", va="center", color="white", linespacing=1.35, bbox={"fc": color, "ec": color, "pad": 7}
        )  # fmt: skip

    def arrow(start: tuple[float, float], end: tuple[float, float], text: str) -> None:
        start, end = (start[0], start[1] - 0.27), (end[0], end[1] + 0.27)
        axes.annotate(
            "", end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": GREY, "shrinkA": 0, "shrinkB": 0}
        )
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        axes.text(x, y, text, ha="center", va="center", fontsize=9, bbox={"fc": "white", "ec": "none", "pad": 2})

    box(ROOT, 1, 2, GREY)
    for x, team in enumerate(teams):
        given = f"s = {steps.handed[team][0]:.3g}"
        weight = steps.figures[team].weight
        arrow((1, 2), (x, 1), f"{given} (weight {weight:g})")
        box(team, x, 1, TEAM[team])
        (operation,) = steps.children(team)
        arrow((x, 1), (x, 0), f"s = {steps.handed[operation][0]:.3g}")
        box(operation, x, 0, TEAM[team])
    axes.text(1.03, 2.34, "s = 1", ha="left", va="top", fontsize=9)
    return figure


def improved() -> Figure:
    """Two gangs at one place."""
    tree = plans()["gangs"]
    figure, (left, right) = panels(2, sharey=True)
    plain, numbered = Steps(tree), Steps(with_options(tree, improved=True))
    curve(left, plain.built[ROOT].by_fit[CPU], color=GREY)
    curve(right, numbered.built[ROOT].by_fit[CPU], color=GREY)
    for axes in (left, right):
        level(axes, 1.0, "the cluster", 0.02, ha="left", color=EDGE, linestyle="-")
    left.set(
        title="standard", xlabel="fit factor f of the root", ylabel="share of cpu", xlim=(0, 1), ylim=(-0.03, 1.25)
    )
    left.plot([0.55], [0.0], "o", color="black", markersize=9, zorder=4)
    left.annotate("stops here:\nnobody gets anything", (0.55, 0.0), xytext=(0.08, 0.3), arrowprops={"arrowstyle": "-"})
    moves = numbered.moves(ROOT)
    right.set(
        title="improved: turns are numbered",
        xlabel="turn: whose, and at which f of the left picture",
        xticks=range(len(moves)),
        xticklabels=[f"{k}\n{team}\n{x:g}" for k, (x, team) in enumerate(moves)],
    )
    at = next(k for k, (x, team) in enumerate(moves) if x > 0 and team == "search")
    right.plot([at], [numbered.result.root.fair_share[CPU]], "o", color="black", markersize=9, zorder=4)
    right.annotate(
        "stops here:\nfilm has all it wants", (at, 0.55), xytext=(at + 0.4, 0.2), arrowprops={"arrowstyle": "-"}
    )
    return figure


def example_1_operations() -> Figure:
    """Shares by suggestion of the first example's operations."""
    steps = Steps(plans()["complementary"])
    figure, all_of_them = panels(3, height=3.0, sharey=True)
    for axes, (team, name) in zip(
        all_of_them, (("film", "render"), ("search", "index"), ("lab", "survey")), strict=True
    ):
        for r in (CPU, MEMORY):
            curve(axes, steps.built[name].shares[r], color=TEAM[team], linestyle=STYLE[r], label=NAME[r])
        axes.set(title=name, xlabel="suggestion s", xlim=(0, 1), ylim=(0, 1.03))
        axes.legend(loc="upper left", title="the same of both:" if name == "survey" else None)
    all_of_them[0].set_ylabel("share of the cluster")
    return figure


def example_1_result() -> Figure:
    """Fair shares of the first example."""
    figures = Steps(plans()["complementary"]).figures
    figure, (axes,) = panels(1, width=6.0)
    parts = [
        (team, TEAM[team], [figures[team].fair_share[r] for r in (CPU, MEMORY)]) for team in ("film", "search", "lab")
    ]
    stacked(axes, [0, 1], parts, width=0.55)
    level(axes, 1.0, "the cluster", 1.78, ha="right", color=EDGE, linestyle="-")
    axes.set(xticks=[0, 1], xticklabels=["cpu", "memory"], ylabel="fair share of the cluster", xlim=(-0.5, 1.8))
    axes.set_ylim(0, 1.12)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper")
    return figure


def example_2_root() -> Figure:
    """The root's curve with the gang's step across the end of the cluster."""
    steps = Steps(plans()["guaranteed"])
    teams = ("film", "search", "lab")
    figure, (axes,) = panels(1, width=7.5, height=3.6)
    fits = sorted({0.4} | {x for x, _ in steps.built[ROOT].by_fit[CPU].points if x <= 0.4})
    base = [0.0] * (2 * len(fits))
    for team in teams:
        plot, offers = steps.built[team].shares[CPU], [steps.offers(ROOT, fit)[team] for fit in fits]
        heights = [value for offer in offers for value in (plot.value(offer), plot.right_limit(offer))]
        top = [low + height for low, height in zip(base, heights, strict=True)]
        axes.fill_between(
            [fit for fit in fits for _ in (0, 1)], base, top, color=TEAM[team], alpha=0.85, lw=0, label=team
        )
        base = top
    curve(axes, steps.built[ROOT].by_fit[CPU], color="black", right=0.4)
    level(axes, 1.0, "the cluster", 0.395, ha="right", color="black", linestyle="-", above=False)
    axes.annotate("stops here: 0.98", (0.2, 0.98), xytext=(0.06, 1.2), arrowprops={"arrowstyle": "-"})
    axes.set(xlabel="fit factor f of the root", ylabel="share of cpu", xlim=(0, 0.4), ylim=(0, 1.7))
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper")
    return figure


def example_2_result() -> Figure:
    """Detailed shares, without and with reordering."""
    tree = plans()["guaranteed"]
    figure, both = panels(2, sharey=True)
    for axes, reordering in zip(both, (False, True), strict=True):
        figures = Steps(with_options(tree, fifo_reordering=reordering)).figures
        for place, team in enumerate(("film", "search", "lab")):
            each, base = figures[team], 0.0
            parts = (each.strong_part[CPU], each.integral_part[CPU], each.weight_proportional_part[CPU])
            for part, hatch, alpha in zip(parts, (None, "//", None), (1.0, 0.75, 0.4), strict=True):
                axes.bar(place, part, 0.6, bottom=base, color=TEAM[team], alpha=alpha, hatch=hatch, edgecolor="white")
                base += part
            axes.text(place, base + 0.01, f"{base:.2f}", ha="center", fontsize=9)
            strong = each.strong_guarantee_share[CPU]
            if strong:
                axes.plot([place - 0.36, place + 0.36], [strong, strong], color="black", linewidth=1.5)
        axes.set(xticks=[0, 1, 2], xticklabels=["film", "search", "lab"], ylim=(0, 0.58))
        axes.set_title("with reordering" if reordering else "as configured")
    both[0].set_ylabel("fair share of cpu")
    patches = [
        mpl.patches.Patch(facecolor=GREY, label="owed by strong guarantee"),
        mpl.patches.Patch(facecolor=GREY, alpha=0.75, hatch="//", edgecolor="white", label="owed by grant"),
        mpl.patches.Patch(facecolor=GREY, alpha=0.4, label="owed by weight"),
        mpl.lines.Line2D([], [], color="black", linewidth=1.5, label="strong guarantee"),
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=4)
    return figure


def interrupted() -> Figure:
    """A relaxed pool whose savings a long interval empties: ours and upstream's."""
    spans = [1.0] * 30 + [200.0] + [1.0] * 300
    seconds = [sum(spans[:at]) for at in range(len(spans) + 1)]
    figure, (axes,) = panels(1, width=7.5)
    for upstream in (False, True):
        results = over_time(with_options(plans()["interrupted"], charge_skipped_relaxed_pools=upstream), spans)
        grants = [each.pools["lab"].integral_guarantee_share[CPU] for each in results]
        how: dict[str, Any] = {"color": EDGE, "linestyle": "--"} if upstream else {"color": TEAM["lab"]}
        axes.plot(seconds, grants, drawstyle="steps-post", label="as upstream" if upstream else "ours", **how)
    level(axes, 0.1, "flow", 534, ha="right")
    axes.axvspan(30, 230, color=GREY, alpha=0.1, linewidth=0)
    axes.text(130, 0.225, "no update for 200 s;\nthe last grant is charged", ha="center", color=GREY, fontsize=9)
    axes.set(xlabel="time (s)", ylabel="grant to lab (share of cpu)", xlim=(0, 535), ylim=(-0.008, 0.27))
    axes.legend(loc="upper right")
    return figure


PICTURES: Final[dict[str, Callable[[], Figure]]] = {
    "demand": demand,
    "guarantees": guarantees,
    "burst": burst,
    "relaxed": relaxed,
    "operation": operation,
    "suggestion": suggestion,
    "pool": pool,
    "fifo": fifo,
    "handing": handing,
    "improved": improved,
    "example-1-operations": example_1_operations,
    "example-1-result": example_1_result,
    "example-2-root": example_2_root,
    "example-2-result": example_2_result,
    "interrupted": interrupted,
}


def draw(name: str, path: Path) -> None:
    """Draws a picture into an SVG file."""
    figure = PICTURES[name]()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
