"""Whether the order of allocation delivers what pools are owed, by the clock, without any preemption.

Each figure is the mean distance of a pool's usage from its fair share, as a part of that share, for the worst pool. The fair share is what
the fair-share service publishes at that moment.

The goal for gangs and for tagged nodes is what granularity allows. A unit (a gang, or a job that needs a tagged node) starts once its cores
are free at the same time. The guarantees are whole units, so a pool lacks cores only while a unit waits. Without preemption the cores come
from the pool's own unit that has ended, at once, or from single jobs of other pools, of which the longest lasts `SINGLE_S`. The unit then
runs for at least `UNIT_S`. So a pool lacks its units for at most `SINGLE_S` of each `SINGLE_S + UNIT_S` seconds. Meanwhile a pool of single
jobs may use these cores. It is owed as many cores as all units together, so its error is not larger.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

import anyio

from tests.bench.registry import REGISTRY, Figure
from tests.support.delivered_share import SHAPES, SINGLE_S, UNIT_S, delivered_shares


class _Measured(NamedTuple):
    """One figure: the names of its shapes, and how long each shape is measured."""

    what: str
    goal: float
    shapes: tuple[str, ...]
    window_s: float


_OF_UNITS: Final = SINGLE_S / (SINGLE_S + UNIT_S)
_FIGURES: Final = {
    "delivered_share_error": _Measured(
        "mean distance of usage from the fair share, of the worst pool in several trees",
        0.1,
        ("many_against_one", "two_below_production", "three_levels", "sizes", "tagged_nodes", "gangs", "fifo"),
        20.0,
    ),
    # Some seconds pass until the first large job has its node.
    "delivered_share_error_large_jobs": _Measured(
        "the same where jobs of one pool need whole nodes beside a stream of small ones", 0.2, ("whole_nodes",), 40.0
    ),
    "delivered_share_error_many_large_operations": _Measured(
        "the same where ten operations have such large jobs, so that none is owed a whole node by itself",
        0.2,
        ("whole_nodes_of_many_operations",),
        40.0,
    ),
    "delivered_share_error_gangs": _Measured(
        "the same where one pool runs gangs beside pools of single jobs", _OF_UNITS, ("whole_gangs",), 35.0
    ),
    "delivered_share_error_wide_gangs": _Measured(
        "the same where each job of a gang needs as many cores as two single jobs",
        _OF_UNITS,
        ("gangs_of_wide_jobs",),
        35.0,
    ),
    "delivered_share_error_tagged_nodes": _Measured(
        "the same where jobs of two pools need tagged nodes", _OF_UNITS, ("guarantees_on_tagged_nodes",), 35.0
    ),
}


def _error(measured: _Measured) -> Figure:
    shapes = [SHAPES[name] for name in measured.shapes]
    pools = [pool for shape in shapes for pool in anyio.run(delivered_shares, shape, measured.window_s).values()]
    return Figure.of([max(pool.error for pool in pools)], "of it")


for _name, _one in _FIGURES.items():
    REGISTRY.add(_name, _one.what, _one.goal)(partial(_error, _one))
