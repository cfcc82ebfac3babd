"""The transfer of guarantees and limits from one pool to another. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headrace.errors import BadInput
from headrace.ids import PoolName
from headrace.pools import Attribute, Defects, PartialResources, Pool, PoolConfig, PoolTree, Schema
from headrace.pools.attributes.kinds import Whole
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.resources import LARGEST_AMOUNT, format_amount


class Delta(msgspec.Struct, frozen=True):
    """The amounts to transfer, by attribute. If an attribute is None, or a resource is not named, nothing of it is transferred."""

    strong_guarantee_resources: PartialResources = PartialResources()
    resource_flow: PartialResources = PartialResources()
    burst_guarantee_resources: PartialResources = PartialResources()
    max_operation_count: int | None = None
    max_running_operation_count: int | None = None


DELTA: Final = Schema(
    Delta,
    [
        Attribute("strong_guarantee_resources", ResourceAmounts(), "part of the strong guarantee"),
        Attribute("resource_flow", ResourceAmounts(), "part of the flow"),
        Attribute("burst_guarantee_resources", ResourceAmounts(), "part of the burst guarantee"),
        Attribute("max_operation_count", Whole(), "part of the limit of operations"),
        Attribute("max_running_operation_count", Whole(), "part of the limit of running operations"),
    ],
)


def transferred(tree: PoolTree, source: PoolName, destination: PoolName, delta: Mapping[str, Any]) -> list[Pool]:
    """Return the pools that the transfer changes, with their new amounts.

    These are `source`, `destination`, and the pools above either of them that are below their common ancestor.

    `source` or `destination` may be the root, which can give and take without limit. Raises `Defects` with everything that cannot be
    transferred.
    """
    read: Delta = DELTA.changed(Delta(), delta, "delta").value
    if source == destination:
        raise Defects([BadInput("destination", destination, "a pool other than the source")])
    if read == Delta():
        raise Defects([BadInput.because("delta", "no amount is given. Name at least one amount to transfer")])
    up, down = list(tree.upwards(source)), list(tree.upwards(destination))
    common = next(name for name in up if name in down)
    problems: list[BadInput] = []
    giving = [_after(tree, name, read, _less(tree, name, problems)) for name in up[: up.index(common)]]
    taking = [_after(tree, name, read, _more(tree, name, problems)) for name in down[: down.index(common)]]
    if problems:
        raise Defects(problems)
    return [*giving, *taking]


#: Function that returns the new amount, given the attribute, the previous amount (None: not set) and the transferred amount.
_Step = Callable[[str, int | None, int], int]


def _less(tree: PoolTree, name: PoolName, problems: list[BadInput]) -> _Step:
    def step(place: str, before: int | None, given: int) -> int:
        if before is None or before < given:
            there = "none is set" if before is None else f"it has {_shown(place, before)}"
            path = tree.path(name)
            problems.append(BadInput(f"delta.{place}", _shown(place, given), f"at most what {path} has; {there}"))
            return 0
        return before - given

    return step


def _more(tree: PoolTree, name: PoolName, problems: list[BadInput]) -> _Step:
    def step(place: str, before: int | None, given: int) -> int:
        after = (before or 0) + given
        if after > LARGEST_AMOUNT:
            there = _shown(place, LARGEST_AMOUNT)
            problems.append(
                BadInput(
                    f"delta.{place}", _shown(place, given), f"at most {there} on {tree.path(name)} after the transfer"
                )
            )
        return after

    return step


def _after(tree: PoolTree, name: PoolName, delta: Delta, step: _Step) -> Pool:
    pool = tree.pools[name]
    settings, integral = pool.settings, pool.settings.integral_guarantees

    def amounts(place: str, before: PartialResources, given: PartialResources) -> PartialResources:
        after = before.named()
        for resource, amount in given.named().items():
            after[resource] = step(f"{place}.{resource}", after.get(resource), amount)
        return PartialResources(**after)

    def count(place: str, before: int | None, given: int | None) -> int | None:
        return before if given is None else step(place, before, given)

    after: PoolConfig = msgspec.structs.replace(
        settings,
        strong_guarantee_resources=amounts(
            "strong_guarantee_resources", settings.strong_guarantee_resources, delta.strong_guarantee_resources
        ),
        integral_guarantees=msgspec.structs.replace(
            integral,
            resource_flow=amounts("resource_flow", integral.resource_flow, delta.resource_flow),
            burst_guarantee_resources=amounts(
                "burst_guarantee_resources", integral.burst_guarantee_resources, delta.burst_guarantee_resources
            ),
        ),
        max_operation_count=count("max_operation_count", settings.max_operation_count, delta.max_operation_count),
        max_running_operation_count=count(
            "max_running_operation_count", settings.max_running_operation_count, delta.max_running_operation_count
        ),
    )
    return msgspec.structs.replace(pool, settings=after)


def _shown(place: str, amount: int) -> str:
    return format_amount(place.rpartition(".")[2], amount)
