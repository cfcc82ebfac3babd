"""How much each element of a tree is owed, as objects: the seam between the service and the algorithm (`hdrf`); pure.

The algorithm works on arrays of all elements. Here they become one object an element, in the order root, pools, operations, each kind
in the order of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace.resources import RESOURCE_NAMES, Resources, Share
from headrace.wire.snapshots import DetailedShare
from headrace_fair_share.hdrf.model import ErrorKind, TreeInput
from headrace_fair_share.hdrf.outcome import Outcome
from headrace_fair_share.hdrf.update import HdrfEngine

__all__ = ["Distribution", "Handed", "distribute"]


class Handed(msgspec.Struct, frozen=True, gc=False):
    """What one element has, wants and is owed."""

    usage: Resources
    demand: Resources
    usage_share: Share
    demand_share: Share
    limits_share: Share
    #: After inference and fitting.
    strong_guarantee_share: Share
    estimated_guarantee_share: Share
    #: Integral share that was granted, used or not.
    proposed_integral_share: Share
    promised_fair_share: Share
    fair_share: DetailedShare
    #: In force.
    weight: float
    dominant_resource: str
    #: Place in a fifo pool, and the one that the pool put it to; None elsewhere.
    fifo_index: int | None
    effective_fifo_index: int | None
    #: Integral guarantees as numbers, own and with all below.
    flow_ratio: float
    burst_ratio: float
    total_flow_ratio: float
    total_burst_ratio: float


class Distribution(msgspec.Struct, frozen=True):
    """The outcome for every element, and what could not be kept, in words."""

    elements: list[Handed]
    errors: list[str]
    #: More was promised than there is.
    overcommitted: bool


def distribute(tree: TreeInput, engine: HdrfEngine) -> Distribution:
    """Shares out the cluster over a tree. An engine that has seen the tree before is quick about what has not changed since."""
    outcome = engine.update(tree)
    errors = outcome.standing.errors
    return Distribution(
        elements=_elements(outcome),
        errors=[error.text for error in errors],
        overcommitted=any(error.kind in (ErrorKind.OVERCOMMIT_FLOW, ErrorKind.OVERCOMMIT_BURST) for error in errors),
    )


def _elements(outcome: Outcome) -> list[Handed]:
    order = np.concatenate(([0], outcome.layout.of_pool, outcome.layout.of_operation))
    standing, details, ratios = outcome.standing, outcome.details, outcome.standing.ratios

    def rows(figures: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
        """One tuple an element."""
        return map(tuple, figures[:, order].T.tolist())

    def places(ranks: NDArray[Any]) -> Iterator[int | None]:
        return (rank if rank >= 0 else None for rank in ranks[order].tolist())

    fair = map(
        DetailedShare,
        rows(details.strong),
        rows(details.integral),
        rows(details.weight_proportional),
        rows(outcome.fair_share),
    )
    columns = zip(
        (Resources(*amounts) for amounts in rows(outcome.usage)),
        (Resources(*amounts) for amounts in rows(outcome.demand)),
        rows(outcome.usage_share),
        rows(outcome.demand_share),
        rows(outcome.limits),
        rows(standing.strong),
        rows(standing.estimated),
        rows(outcome.proposed),
        rows(outcome.promised),
        fair,
        standing.weight[order].tolist(),
        (RESOURCE_NAMES[r] for r in outcome.dominant_resources()[order].tolist()),
        places(standing.fifo_rank),
        places(outcome.effective_rank),
        ratios.flow[order].tolist(),
        standing.burst[order].tolist(),
        ratios.total_flow[order].tolist(),
        ratios.total_burst[order].tolist(),
        strict=True,
    )
    return [Handed(*figures) for figures in columns]
