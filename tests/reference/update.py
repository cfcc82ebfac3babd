"""One update of the vector fair share, plain and slow: the judge of the engine that the service runs.

Every step follows the order of operations of the description to the bit, and asserts what must hold on the way (`Invariant`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.pools import IntegralType
from headrace_fair_share.hdrf.model import GuaranteeError, IntegralState, TreeInput
from tests.reference.elements import Element, Pool, Tree, grow
from tests.reference.functions import make_functions, reorder
from tests.reference.guarantees import (
    check_configuration,
    estimate,
    fit,
    infer,
    settle_overcommit,
    split_into_tiers,
    weigh,
)
from tests.reference.handout import hand_out, promise
from tests.reference.integral import grant_burst, grant_relaxed
from tests.reference.values import Values, add, as_share, ensure, fits, smaller, subtract, total_of
from tests.reference.volumes import advance, hand_out_free_volume
from tests.support.update_result import ElementShares, UpdateResult

__all__ = ["compute", "function_size", "update"]


def update(
    given: TreeInput,
    *,
    dt_us: int | None = None,
    fast_fifo: bool = False,
    disturb: Callable[[Tree], None] | None = None,
) -> UpdateResult:
    """The shares of all elements, integral states and complaints, `dt_us` after the update before if there was one."""
    tree, errors = compute(given, dt_us=dt_us, fast_fifo=fast_fifo, disturb=disturb)
    return _result(tree, errors)


def function_size(given: TreeInput, pool: str, *, fast_fifo: bool = False) -> int:
    """How many points the plot of the pool's share by fit factor has."""
    tree, _ = compute(given, fast_fifo=fast_fifo)
    found = next(element for element in (tree.root, *tree.pools) if element.name == pool)
    return len(found.made().ff.xs)


def compute(
    given: TreeInput,
    *,
    dt_us: int | None = None,
    fast_fifo: bool = False,
    disturb: Callable[[Tree], None] | None = None,
) -> tuple[Tree, list[GuaranteeError]]:
    """The tree with everything worked out.

    `fast_fifo` makes the functions of fifo pools the quick way. `disturb` may change figures once guarantees are settled.
    """
    tree = grow(given)
    errors = check_configuration(tree)
    infer(tree)
    burst = [pool for pool in tree.root.walk() if pool.given.integral is IntegralType.BURST]
    relaxed = [pool for pool in tree.root.walk() if pool.given.integral is IntegralType.RELAXED]
    if dt_us is not None and any(tree.total.as_tuple()):
        for pool in (*burst, *relaxed):
            advance(tree, pool, dt_us / 1e6)
        hand_out_free_volume(tree)
    errors += settle_overcommit(tree, burst)
    split_into_tiers(tree)
    fit(tree.root)
    weigh(tree)
    if disturb is not None:
        disturb(tree)
    tree.root.estimated = tree.root.strong
    estimate(tree.root)
    reorder(tree)
    grant_burst(tree, _promising(burst), fast_fifo=fast_fifo)
    grant_relaxed(tree, _promising(relaxed), fast_fifo=fast_fifo)
    make_functions(tree, tree.root, fast_fifo=fast_fifo)
    hand_out(tree)
    promise(tree, tree.root)
    for pool in tree.pools:
        ensure(fits(pool.limits_share, add(pool.strong, pool.proposed)), f"guarantees of {pool.name} exceed its limits")
    return tree, errors


def _promising(pools: list[Pool]) -> list[Pool]:
    """Pools with a flow or a burst. Others are granted nothing, also below an integral pool."""
    return [pool for pool in pools if pool.flow_ratio > 0 or pool.burst_ratio > 0]


class Parts(msgspec.Struct, frozen=True):
    """A fair share, taken apart (section 8.3)."""

    total: Values
    strong: Values
    integral: Values
    rest: Values


def _parts(element: Element) -> Parts:
    strong = smaller(element.fair, element.strong)
    return _with_strong(element, element.fair, strong)


def _with_strong(element: Element, total: Values, strong: Values) -> Parts:
    left = subtract(total, strong)
    integral = smaller(left, element.proposed)
    return Parts(total, strong, integral, subtract(left, integral))


def _root_parts(root: Pool) -> Parts:
    """Section 8.5: the root has what its children have."""
    total = total_of(child.fair for child in root.children)
    strong = total_of(smaller(child.fair, child.strong) for child in root.children)
    return _with_strong(root, total, smaller(total, strong))


def _shares(element: Element, parts: Parts) -> ElementShares:
    return ElementShares(
        fair_share=as_share(parts.total),
        strong_part=as_share(parts.strong),
        integral_part=as_share(parts.integral),
        weight_proportional_part=as_share(parts.rest),
        promised_guarantee_fair_share=as_share(element.promised),
        demand_share=as_share(element.demand_share),
        usage_share=as_share(element.usage_share),
        limits_share=as_share(element.limits_share),
        strong_guarantee_share=as_share(element.strong),
        integral_guarantee_share=as_share(element.proposed),
        estimated_guarantee_share=as_share(element.estimated),
        weight=element.weight,
        dominant_resource=element.dominant_resource(),
        fifo_index=element.fifo_index,
        effective_fifo_index=element.effective_fifo_index,
        flow_ratio=element.flow_ratio if isinstance(element, Pool) else 0.0,
        burst_ratio=element.burst_ratio if isinstance(element, Pool) else 0.0,
        total_flow_ratio=element.total_flow,
        total_burst_ratio=element.total_burst,
    )


def _result(tree: Tree, errors: list[GuaranteeError]) -> UpdateResult:
    return UpdateResult(
        root=_shares(tree.root, _root_parts(tree.root)),
        pools={pool.name: _shares(pool, _parts(pool)) for pool in tree.pools},
        operations={operation.name: _shares(operation, _parts(operation)) for operation in tree.operations},
        integral={
            pool.name: IntegralState(as_share(pool.volume), pool.last_share_ratio)
            for pool in tree.pools
            if pool.is_integral
        },
        errors=errors,
    )
