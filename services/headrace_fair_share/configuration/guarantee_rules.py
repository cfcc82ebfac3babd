"""The rules of guarantees: the guarantees of children do not add up to more than their parent's guarantee, and integral guarantees do not
nest. Pure.

A child may have a guarantee of a resource only if its parent has a guarantee of that resource too, which may be an explicit zero. The sum
over the top pools may exceed the size of the cluster; then a warning says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import NOTHING, IntegralType, PartialResources, PoolConfig, PoolTree
from headrace.resources import RESOURCE_NAMES, ZERO, Resources, format_amount
from headrace.wire.refusals import BadRequest
from headrace_fair_share.integral_guarantees import specified_ratio

_FLOW = "integral_guarantees.resource_flow"
_BURST = "integral_guarantees.burst_guarantee_resources"
_STRONG = "strong_guarantee_resources"


def broken_guarantees(tree: PoolTree, name: PoolName) -> Iterator[BadRequest]:
    """Yield a refusal for each rule of guarantees that a pool breaks, on its own or together with its children."""
    yield from _without_main_resource(tree, name)
    yield from _sums(tree, name)
    yield from broken_integral_guarantees(tree, name)


def broken_integral_guarantees(tree: PoolTree, name: PoolName) -> Iterator[BadRequest]:
    """Yield a refusal for each rule of integral guarantees that a pool breaks.

    A relaxed pool must have no burst guarantee. A pool with an integral guarantee must not be below another such pool.
    """
    own = tree.pools[name].settings.integral_guarantees
    if own.guarantee_type is IntegralType.RELAXED and own.burst_guarantee_resources != NOTHING:
        yield BadRequest.because(
            _BURST,
            f"{tree.path(name)} has a burst guarantee ({_figures(own.burst_guarantee_resources)}), but its guarantee_type is relaxed. "
            "Remove the burst guarantee, or set guarantee_type to burst",
            rule="burst_on_relaxed",
        )
    if own.resource_flow == NOTHING and own.burst_guarantee_resources == NOTHING:
        return
    for above in list(tree.upwards(name))[1:-1]:
        kind = tree.pools[above].settings.integral_guarantees.guarantee_type
        if kind is not IntegralType.NONE:
            said = [("flow", own.resource_flow), ("burst", own.burst_guarantee_resources)]
            words = " and ".join(f"{what} {_figures(amounts)}" for what, amounts in said if amounts != NOTHING)
            yield BadRequest.because(
                "integral_guarantees",
                f"{tree.path(name)} has an integral guarantee ({words}) below {tree.path(above)}, whose guarantee_type is {kind}. "
                "Only one of them may have an integral guarantee",
                rule="integral_under_integral",
            )


def overcommitted(tree: PoolTree, total: Resources) -> list[str]:
    """Return a warning for each resource of which the strong guarantees of the top pools add up to more than `total`. It names both
    amounts.
    """
    if total == ZERO:
        return []
    promised = Resources.sum(
        tree.pools[name].settings.strong_guarantee_resources.whole for name in tree.children[ROOT_POOL]
    )
    return [
        f"strong guarantees of the top pools promise {format_amount(resource, figure)} of {resource}; "
        f"the cluster has {format_amount(resource, there)}"
        for resource, figure, there in zip(RESOURCE_NAMES, promised.as_tuple(), total.as_tuple(), strict=True)
        if figure > there > 0
    ]


def guarantee_warnings(tree: PoolTree, name: PoolName) -> list[str]:
    """Return warnings about a burst pool that will get less than its settings suggest."""
    pool = tree.pools.get(name)
    if pool is None or pool.settings.integral_guarantees.guarantee_type is not IntegralType.BURST:
        return []
    integral = pool.settings.integral_guarantees
    flow, burst = integral.resource_flow.whole, integral.burst_guarantee_resources.whole
    if burst == ZERO:
        return [
            f"burst pool {name} has no burst_guarantee_resources: it gets nothing from its savings, "
            "only its strong guarantee and what other pools leave"
        ]
    return [
        f"burst pool {name} has a burst guarantee of {format_amount(resource, most)} {resource}, less than its flow of "
        f"{format_amount(resource, inflow)}. The pool never draws more than the burst guarantee from its savings"
        for resource, inflow, most in zip(RESOURCE_NAMES, flow.as_tuple(), burst.as_tuple(), strict=True)
        if inflow > most
    ]


def saves_nothing(tree: PoolTree, name: PoolName, total: Resources) -> list[str]:
    """Return warnings about an integral pool whose flow is so small that it never gets any volume.

    Volume accrues separately for every resource of the cluster, and the resource with the smallest ratio decides how much of the volume the
    pool can use. If the flow of one resource rounds to zero, the pool gets nothing.
    """
    pool = tree.pools.get(name)
    if pool is None or pool.settings.integral_guarantees.guarantee_type is IntegralType.NONE:
        return []
    ratio = specified_ratio(pool.settings.integral_guarantees.resource_flow.whole, total)
    return [
        f"pool {name} saves nothing. Its flow is {ratio:.3g} of the cluster, which rounds to zero for the cluster's "
        f"{format_amount(resource, there)} {resource}, and the scarcest resource decides what savings are worth. "
        f"Set a flow of at least {0.5 / there:.3g} of the cluster"
        for resource, there in zip(RESOURCE_NAMES, total.as_tuple(), strict=True)
        if 0.0 < ratio * there < 0.5
    ]


def _without_main_resource(tree: PoolTree, name: PoolName) -> Iterator[BadRequest]:
    named = tree.pools[name].settings.strong_guarantee_resources.named()
    main = tree.options.main_resource
    if named and main not in named:
        figures = ", ".join(f"{resource} {format_amount(resource, amount)}" for resource, amount in named.items())
        yield BadRequest.because(
            _STRONG,
            f"{tree.path(name)} has a guarantee of {figures}, but none of {main}, the tree's main resource. "
            f"Set an amount of {main} as well; it may be 0",
            rule="main_resource_missing",
        )


def _sums(tree: PoolTree, name: PoolName) -> Iterator[BadRequest]:
    children = tree.children[name]
    if not children:
        return
    own = _guarantees(tree.pools[name].settings)
    of_children = [(child, _guarantees(tree.pools[child].settings)) for child in children]
    for key, limit in own.items():
        limits = limit.named()
        sums: dict[str, int] = {}
        for child, theirs in of_children:
            for resource, amount in theirs[key].named().items():
                sums[resource] = sums.get(resource, 0) + amount
                if resource not in limits:
                    yield BadRequest.because(
                        f"{key}.{resource}",
                        f"{tree.path(child)} has a guarantee of {format_amount(resource, amount)} {resource}, but its parent "
                        f"{tree.path(name)} has no guarantee of {resource}. "
                        "Set a guarantee of the parent first; it may be 0",
                        rule="guarantee_missing_at_parent",
                    )
        for resource, together in sums.items():
            if resource in limits and together > limits[resource]:
                yield BadRequest.because(
                    f"{key}.{resource}",
                    f"the children of {tree.path(name)} have {format_amount(resource, together)} together, "
                    f"more than the {format_amount(resource, limits[resource])} of {name} itself",
                    rule="guarantee_sum",
                )


def _figures(amounts: PartialResources) -> str:
    return ", ".join(f"{resource} {format_amount(resource, amount)}" for resource, amount in amounts.named().items())


def _guarantees(settings: PoolConfig) -> dict[str, PartialResources]:
    integral = settings.integral_guarantees
    return {
        _STRONG: settings.strong_guarantee_resources,
        _FLOW: integral.resource_flow,
        _BURST: integral.burst_guarantee_resources,
    }
