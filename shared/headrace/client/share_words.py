"""What bounded the fair share of a pool, and what would give it more, in words. Pure."""

from __future__ import annotations

from headrace.resources import format_amount
from headrace.wire.plan import BoundKind
from headrace.wire.pool_explanations import Division, ShareStep


def resource_of(step: ShareStep) -> str:
    """Return the resource that explains the share of a level best: the resource that bounded the share, else the resource with the largest
    share.
    """
    return step.resource or step.dominant_resource


def bound_words(step: ShareStep) -> str:
    """Return in words what bounded the share of a level."""
    resource = resource_of(step)
    match step.bound_by:
        case BoundKind.IDLE:
            return "nothing in it wants to run"
        case BoundKind.MET:
            return "its demand is met"
        case BoundKind.LIMIT if not step.limited_above:
            amount = format_amount(resource, step.limits.named().get(resource, 0))
            nodes = "nodes that match its tag filters have" if step.limited_by_nodes else "its limit is"
            return f"{nodes} {resource} {amount}"
        case BoundKind.NODES:
            return f"the nodes that match have no more {resource} for it: the rest is owed to operations that can run nowhere else"
        case BoundKind.BELOW:
            return "limits of its pools and operations allow no more"
        case BoundKind.GANG:
            return "only gangs wait in it, which get their whole demand or nothing, and less than that is left"
        case BoundKind.SHAPE if step.division in (Division.NONE, Division.ALONE):
            return "no waiting job in it fits into what is left"
        case _:
            return _divided(step, resource)


def _divided(step: ShareStep, resource: str) -> str:
    limited = f", and {step.limited_above} is at its limit of {resource}" if step.limited_above else ""
    match step.division:
        case Division.WEIGHT:
            return (
                f"by weight, {step.weight:g} of {step.weights:g} among {step.sharing} elements that want more{limited}"
            )
        case Division.GUARANTEES:
            return f"all {resource} of the pool above it goes to guarantees and savings{limited}"
        case Division.REST:
            return f"it gets all {resource} that its siblings leave{limited}"
        case Division.ALONE:
            return f"it gets all {resource} that the pool above it gets{limited}"
        case _:
            return f"all {resource} of the cluster is shared out"


def more_words(step: ShareStep) -> str:
    """Return the change that would give the pool more. The text is empty if no change would, or if the demand of the pool is met."""
    pool, resource = step.pool, resource_of(step)
    match step.bound_by:
        case BoundKind.IDLE | BoundKind.MET:
            return ""
        case BoundKind.LIMIT if not step.limited_above:
            if step.limited_by_nodes:
                return "more nodes that match, or another scheduling_tag_filter"
            return f"`headrace pool set {pool} resource_limits/{resource}=…` with more"
        case BoundKind.NODES:
            guarantee = f"`strong_guarantee_resources/{resource}=…`"
            return f"more nodes that match; or a guarantee or more weight: `headrace pool set {pool}` with {guarantee} or `weight=…`"
        case BoundKind.BELOW:
            return f"higher limits of its operations and pools: headrace pool tree --operations shows them below {pool}"
        case _ if step.limited_above and step.division in (Division.REST, Division.ALONE):
            return f"`headrace pool set {step.limited_above} resource_limits/{resource}=…` with more"
        case _ if step.division is Division.WEIGHT:
            return f"`headrace pool set {pool} weight=…` with more than {step.weight:g}, a guarantee, or siblings that want less"
        case _ if step.division is Division.GUARANTEES:
            return f"a guarantee: `headrace pool set {pool} strong_guarantee_resources/{resource}=…`; more weight changes nothing"
        case _ if step.division is Division.REST:
            return f"a guarantee: `headrace pool set {pool} strong_guarantee_resources/{resource}=…`, or siblings that want less"
        case _ if step.division is Division.ALONE:
            return "a larger fair share of the pool above it; its own weight and guarantee change nothing"
        case _:
            return ""
