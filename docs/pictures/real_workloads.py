"""Draws the pictures of docs/why/real-workloads.md: three recorded workloads under three policies.

Each is drawn from a record of simulations, which `docs/generate/real_workloads.py` makes. Needs matplotlib. The same code draws the same
bytes: no dates, one salt for identifiers, letters as text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
from matplotlib import pyplot as plt

from docs.pictures.fair_share import EDGE, GREY, panels
from headrace.ids import ROOT_POOL
from headrace.wire.simulation import SimulatedPool, SimulatedSetup, Simulation
from headrace_cli.replay.tables import UNITS

__all__ = ["FOLDER", "MOST_POOLS", "PAGE", "PICTURES", "RECORDS", "draw", "record", "recorded"]

PAGE: Final = Path(__file__).parents[1] / "why" / "real-workloads.md"
FOLDER: Final = PAGE.parent / "real-workloads"
PICTURES: Final = ("nasa", "lublin", "openb")
#: A file for each workload.
RECORDS: Final = Path(__file__).parent / "real-workloads"
#: Pools that are kept and drawn by themselves: those with the most usage. The others are drawn together.
MOST_POOLS: Final = 5
_COLOURS: Final = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
_DAY_MS: Final = 86_400_000


def record(name: str) -> Simulation:
    """The record of a workload."""
    return msgspec.json.decode((RECORDS / f"{name}.json").read_bytes(), type=Simulation)


def recorded(answer: Simulation) -> Simulation:
    """The part of a simulation that is drawn and shown: the pools with the most usage, and amounts with three digits."""

    def setup(one: SimulatedSetup) -> SimulatedSetup:
        parents = {pool.path.rpartition("/")[0] for pool in one.pools}
        leaves = [pool for pool in one.pools if pool.pool != ROOT_POOL and pool.path not in parents]
        kept = {pool.pool for pool in sorted(leaves, key=lambda pool: -pool.usage)[:MOST_POOLS]} | {ROOT_POOL}
        return msgspec.structs.replace(one, pools=[_short(pool) for pool in one.pools if pool.pool in kept])

    return msgspec.structs.replace(answer, setups=[setup(one) for one in answer.setups])


def _short(pool: SimulatedPool) -> SimulatedPool:
    series = ("usage_series", "fair_share_series", "demand_series")
    short = {name: [float(f"{value:.3g}") for value in getattr(pool, name)] for name in series}
    return msgspec.structs.replace(pool, **short)


def _courses(answer: Simulation) -> Any:
    """The usage of the pools under each policy, one pool above the other, and the demand of all."""
    figure, axes = panels(len(answer.setups), height=3.2, sharey=True, sharex=True)
    first = answer.setups[0]
    largest = sorted((pool for pool in first.pools if pool.pool != ROOT_POOL), key=lambda pool: -pool.usage)
    colour = {pool.pool: _COLOURS[number] for number, pool in enumerate(largest[: len(_COLOURS)])}
    longest_ms = max(one.cluster.makespan_ms for one in answer.setups)
    for each, one in zip(axes, answer.setups, strict=True):
        root = next(pool for pool in one.pools if pool.pool == ROOT_POOL)
        days = [number * one.stretch_ms / _DAY_MS for number in range(len(root.usage_series))]
        named = {pool.pool: pool.usage_series for pool in one.pools if pool.pool in colour}
        rows = [named.get(name, [0.0] * len(days)) for name in colour]
        others = [max(0.0, whole - sum(parts)) for whole, *parts in zip(root.usage_series, *rows, strict=True)]
        labels = [*colour, "others"]
        each.stackplot(
            days, *rows, others, colors=[*colour.values(), "#D9D9D9"], labels=labels, step="post", linewidth=0
        )
        top = 1.35 * answer.capacity
        demand = [min(value, top) for value in root.demand_series]
        each.plot(days, demand, color=EDGE, linewidth=0.7, drawstyle="steps-post", label="demand")
        each.set(title=one.name, ylim=(0, top), xlim=(0, longest_ms / _DAY_MS))
        each.set_xlabel("days", color=GREY)
    axes[0].set_ylabel(f"{UNITS[answer.resource][0]}s", color=GREY)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    return figure


def draw(name: str, path: Path) -> None:
    """Draws one of `PICTURES`."""
    figure = _courses(record(name))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
