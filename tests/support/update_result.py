"""The result of an update as objects of single elements, for tests to read and compare."""

from __future__ import annotations

import msgspec

from headrace.pools import IntegralType
from headrace.resources import ZERO_SHARE, Share
from headrace_fair_share.hdrf.arrays import Floats
from headrace_fair_share.hdrf.model import UNLIMITED, GuaranteeError, IntegralState, TreeInput
from headrace_fair_share.hdrf.tree_update import TreeShares, TreeUpdater


class ElementShares(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an update for one element: a pool, an operation or the root."""

    fair_share: Share = ZERO_SHARE
    strong_part: Share = ZERO_SHARE
    integral_part: Share = ZERO_SHARE
    weight_proportional_part: Share = ZERO_SHARE
    #: Share within the guarantees, if it was asked for.
    promised_guarantee_fair_share: Share = ZERO_SHARE
    demand_share: Share = ZERO_SHARE
    usage_share: Share = ZERO_SHARE
    limits_share: Share = UNLIMITED
    #: After inference and fitting.
    strong_guarantee_share: Share = ZERO_SHARE
    #: Proposed integral share.
    integral_guarantee_share: Share = ZERO_SHARE
    estimated_guarantee_share: Share = ZERO_SHARE
    #: Weight in force.
    weight: float = 1.0
    dominant_resource: int = 1
    fifo_index: int | None = None
    effective_fifo_index: int | None = None
    #: Ratios of integral guarantees: own flow and burst, and with all that is below.
    flow_ratio: float = 0.0
    burst_ratio: float = 0.0
    total_flow_ratio: float = 0.0
    total_burst_ratio: float = 0.0


class UpdateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an update, as objects by name."""

    root: ElementShares
    pools: dict[str, ElementShares]
    operations: dict[str, ElementShares]
    integral: dict[str, IntegralState]
    errors: list[GuaranteeError]


def update(tree: TreeInput) -> UpdateResult:
    """Updates a tree by itself. Raises `BrokenInvariant`."""
    return result_of(TreeUpdater().update(tree))


def result_of(shares: TreeShares) -> UpdateResult:
    """Makes the objects of all elements."""
    tree, layout = shares.tree, shares.layout
    dominant = shares.dominant_resources().tolist()

    def element(at: int) -> ElementShares:
        return _element(shares, at, dominant[at])

    return UpdateResult(
        root=element(0),
        pools={pool.name: element(at) for pool, at in zip(tree.pools, layout.of_pool.tolist(), strict=True)},
        operations={
            each.name: element(at) for each, at in zip(tree.operations, layout.of_operation.tolist(), strict=True)
        },
        integral=integral_states(shares),
        errors=shares.fixed.errors,
    )


def integral_states(shares: TreeShares) -> dict[str, IntegralState]:
    """Makes the states of integral pools after an update, by name. Volumes are as they came."""
    known = shares.tree.integral
    typed = [pool.name for pool in shares.tree.pools if pool.integral is not IntegralType.NONE]
    states = {name: IntegralState(known[name].volume) if name in known else IntegralState() for name in typed}
    names = dict(zip(shares.layout.of_pool.tolist(), (pool.name for pool in shares.tree.pools), strict=True))
    members = shares.fixed.integral.all.tolist()
    for pool, volume, last_share_ratio in zip(members, shares.volume.T, shares.last_share_ratio.tolist(), strict=True):
        states[names[pool]] = IntegralState(_as_share(volume), last_share_ratio)
    return states


def _element(shares: TreeShares, at: int, dominant: int) -> ElementShares:
    fixed, details, ratios = shares.fixed, shares.details, shares.fixed.ratios
    rank, effective = int(fixed.fifo_index[at]), int(shares.effective_fifo_index[at])
    return ElementShares(
        fair_share=_as_share(shares.fair_share[:, at]),
        strong_part=_as_share(details.strong[:, at]),
        integral_part=_as_share(details.integral[:, at]),
        weight_proportional_part=_as_share(details.weight_proportional[:, at]),
        promised_guarantee_fair_share=_as_share(shares.promised[:, at]),
        demand_share=_as_share(shares.demand_share[:, at]),
        usage_share=_as_share(shares.usage_share[:, at]),
        limits_share=_as_share(shares.limits[:, at]),
        strong_guarantee_share=_as_share(fixed.strong[:, at]),
        integral_guarantee_share=_as_share(shares.proposed[:, at]),
        estimated_guarantee_share=_as_share(fixed.estimated[:, at]),
        weight=float(fixed.weight[at]),
        dominant_resource=dominant,
        fifo_index=None if rank < 0 else rank,
        effective_fifo_index=None if effective < 0 else effective,
        flow_ratio=float(ratios.flow[at]),
        burst_ratio=float(fixed.burst[at]),
        total_flow_ratio=float(ratios.total_flow[at]),
        total_burst_ratio=float(ratios.total_burst[at]),
    )


def _as_share(figures: Floats) -> Share:
    u, c, g, m, n = figures.tolist()
    return (u, c, g, m, n)
