"""Draws the pictures of docs/why/preemption.md, from the page's own cases as the engines run them.

Needs matplotlib. The same code draws the same bytes: no dates, one salt for identifiers, letters as text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from matplotlib import pyplot as plt

from docs.pictures.cases import PAGE, Held, cases, moments
from docs.pictures.fair_share import EDGE, GREY, panels
from headrace_allocator.facts.preemption_groups import Group

__all__ = ["FOLDER", "PICTURES", "draw"]

FOLDER: Final = PAGE.parent / "preemption"
_COLOUR: Final = {
    Group.NON_PREEMPTIBLE: "#0072B2",
    Group.AGGRESSIVELY_PREEMPTIBLE: "#E69F00",
    Group.PREEMPTIBLE: "#D55E00",
}
#: Allocations of the operation that preempts.
_OTHER: Final = "#999999"


def groups() -> Any:
    """The row of allocations before and after each heartbeat that took some."""
    seen = list(moments(cases()["returns"]))
    shown = [seen[4], *(moment for moment in seen if moment.beat is not None and moment.beat.given_up)]
    figure, (axes,) = panels(1, height=2.6)
    for row, moment in enumerate(shown):
        _row(axes, len(shown) - 1 - row, moment.held)
    for share, name in ((2, "half of the fair share"), (4, "fair share")):
        axes.plot([share, share], [-0.5, len(shown) - 0.55], color=EDGE, linewidth=1, linestyle=(0, (3, 2)))
        axes.annotate(
            name,
            (share, len(shown) - 0.45),
            ha="center",
            fontsize=9,
            color=EDGE,
            xytext=(0, 0),
            textcoords="offset points",
        )
    words = ["starving", *(f"after {moment.at_s:.1f} s" for moment in shown[1:])]
    axes.set(
        yticks=range(len(shown) - 1, -1, -1), yticklabels=words, xlabel="cores of the host", xlim=(0, 8),
        ylim=(-0.5, len(shown) - 0.25),
    )  # fmt: skip
    axes.spines["left"].set_visible(False)
    axes.tick_params(left=False)
    for group, colour in _COLOUR.items():
        axes.bar([0], [0], color=colour, label=f"train, {group.name.lower().replace('_', ' ')}")
    axes.bar([0], [0], color=_OTHER, label="serve")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _row(axes: Any, row: int, allocations: list[Held]) -> None:
    at = 0.0
    for held in sorted(allocations, key=lambda each: each.operation != "train"):
        colour = _COLOUR[held.group] if held.operation == "train" else _OTHER
        axes.barh(row, held.cpu, left=at, height=0.62, color=colour, edgecolor="white", linewidth=2)
        name = held.name if held.operation == "train" else held.operation
        axes.text(at + held.cpu / 2, row, name, ha="center", va="center", color="white", fontsize=9)
        at += held.cpu


def hosts() -> Any:
    """Draw the allocations on both hosts before and after the aggressive stage."""
    seen = list(moments(cases()["fragmented"]))
    figure, axes = panels(2, height=2.4, sharey=True)
    for each, moment, words in zip(axes, (seen[4], seen[-1]), ("before", "after"), strict=True):
        for row, node in enumerate(("two", "one")):
            _row(each, row, [held for held in moment.held if held.node == node])
        each.set(title=words, yticks=[0, 1], yticklabels=["two", "one"], xlim=(0, 4), xticks=range(5), xlabel="cores")
        each.title.set_color(GREY)
        each.spines["left"].set_visible(False)
        each.tick_params(left=False)
    return figure


PICTURES: Final[dict[str, Callable[[], Any]]] = {"groups": groups, "hosts": hosts}


def draw(name: str, path: Path) -> None:
    """Draws one picture into a file."""
    figure = PICTURES[name]()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
