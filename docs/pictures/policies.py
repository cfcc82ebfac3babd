"""Draws the picture of docs/why/policies.md: three tenants under each policy of preemption, as the services' engines serve them.

Needs matplotlib. The same code draws the same bytes: no dates, one salt for identifiers, letters as text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from matplotlib import pyplot as plt

from docs.pictures.fair_share import EDGE, GREY, panels
from headrace.pools import PreemptionPolicy
from tests.support.yarn_course import Comer, Course, course

__all__ = ["BEGIN_S", "FOLDER", "PAGE", "PICTURES", "TENANTS", "draw", "run"]

PAGE: Final = Path(__file__).parents[1] / "why" / "policies.md"
FOLDER: Final = PAGE.parent / "policies"
#: The tenants with their weights.
TENANTS: Final = {"one": 1, "two": 2, "three": 1}
#: Of jobs that run, and of those that were told to end.
_COLOUR: Final = {"one": ("#0072B2", "#A9CFE5"), "two": ("#009E73", "#A6DCCB"), "three": ("#D55E00", None)}
#: When tenant three comes, by the clock of the simulated world.
BEGIN_S: Final = 10
_SHOWN_S: Final = 60
_TIMEOUT_S: Final = 30
#: Seconds that a job takes to save what it has when it is told to end.
_SAVES_S: Final = 4.0


@cache
def run(policy: PreemptionPolicy, tolerance: float = 1.0) -> Course:
    """Twelve places: tenants one and two have them all when three comes."""
    comers = [Comer(name, name, 12, BEGIN_S if name == "three" else 2) for name in TENANTS]
    options = {
        "preemption_policy": policy.value,
        "fair_share_starvation_timeout": _TIMEOUT_S * 1000,
        "fair_share_starvation_tolerance": tolerance,
        "use_pool_satisfaction_for_scheduling": True,
    }
    pools = {name: {"weight": weight} for name, weight in TENANTS.items()}
    return course(pools, comers, options, seconds=BEGIN_S + _SHOWN_S + 1, saves_s=_SAVES_S)


def timelines() -> Any:
    """The jobs of each tenant under each policy, one tenant above the other."""
    figure, axes = panels(len(PreemptionPolicy), height=3.2, sharey=True)
    for each, policy in zip(axes, PreemptionPolicy, strict=True):
        _timeline(each, run(policy))
        each.set(title=policy.value, xlim=(-5, _SHOWN_S), ylim=(0, 13), yticks=range(0, 13, 3))
        each.set_xlabel("seconds since three came", color=GREY)
    axes[0].set_ylabel("jobs that run", color=GREY)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _timeline(axes: Any, made: Course) -> None:
    seconds = made.seconds
    ends = (BEGIN_S - 5, len(seconds) - 1)
    # Only where something changes: a step more would be a longer drawing of the same.
    kept = [at for at in range(ends[0], ends[1] + 1) if at in ends or seconds[at] != seconds[at - 1]]
    rows, colours, labels = [], [], []
    for name, (colour, pale) in _COLOUR.items():
        rows.append([seconds[at].running[name] - seconds[at].told[name] for at in kept])
        colours.append(colour)
        labels.append(f"{name}, weight {TENANTS[name]}")
        if pale is not None:
            rows.append([seconds[at].told[name] for at in kept])
            colours.append(pale)
            labels.append(f"{name}, told to end")
    axes.stackplot([at - BEGIN_S for at in kept], *rows, colors=colours, labels=labels, step="post", linewidth=0)
    words = "timeout, warned" if seconds[BEGIN_S + _TIMEOUT_S].warned else "timeout"
    axes.plot([_TIMEOUT_S, _TIMEOUT_S], [0, 12.2], color=EDGE, linewidth=1, linestyle=(0, (3, 2)))
    axes.text(_TIMEOUT_S, 12.3, words, ha="center", fontsize=9, color=EDGE)


PICTURES: Final[dict[str, Callable[[], Any]]] = {"timelines": timelines}


def draw(name: str, path: Path) -> None:
    """Draws one picture into a file."""
    figure = PICTURES[name]()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
