"""The worked cases of docs/why/preemption.md, run by the allocator's engine with the shares of the fair share service.

A page holds its cases as JSON between marks, in the form of the vectors of allocation. Tables and pictures are made from what the
engines do, so there is one source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace.wire.snapshots import ShareItem
from headrace_allocator.facts.preemption_groups import Group
from tests.conformance.allocation.heartbeats import Fleet
from tests.conformance.allocation.scenario import Scenario
from tests.conformance.allocation.updates import ShareSnapshot, update

__all__ = ["PAGE", "Beat", "Held", "Moment", "cases", "moments", "with_pool_option"]

PAGE: Final = Path(__file__).parents[1] / "why" / "preemption.md"
_CASE: Final = re.compile(r"^```json case=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Held(msgspec.Struct, frozen=True):
    """An allocation at one moment."""

    name: str
    operation: str
    node: str
    cpu: float
    group: Group


class Beat(msgspec.Struct, frozen=True):
    """The outcome of one heartbeat, with the operations that got an allocation and the allocations that were given up."""

    node: str
    started: list[str]
    given_up: list[str]
    reasons: list[str]


class Moment(msgspec.Struct, frozen=True):
    """How a case stands after one of its events."""

    at_s: float
    #: By name, pools with a slash before it.
    items: dict[str, ShareItem]
    #: The oldest progress of each operation first.
    held: list[Held]
    #: The heartbeat of the case; None if it has none.
    beat: Beat | None


@cache
def cases(page: Path = PAGE) -> dict[str, dict[str, Any]]:
    """The cases of a page by name."""
    return {name: json.loads(text) for name, text in _CASE.findall(page.read_text())}


def with_pool_option(case: dict[str, Any], pool: str, option: str, value: object) -> dict[str, Any]:
    """The case with one attribute of a pool."""
    pools = [each | {option: value} if each["name"] == pool else each for each in case["pools"]]
    return case | {"pools": pools}


def moments(case: dict[str, Any]) -> Iterator[Moment]:
    """Runs a case. An event without an update of its own at its time uses the shares of the last update."""
    scenario = Scenario({key: value for key, value in case.items() if key != "events"} | {"name": "", "events": []})
    fleet = Fleet(scenario)
    fleet.add(case)
    cut: ShareSnapshot | None = None
    for event in case["events"]:
        scenario.now_s = float(event.get("at", scenario.now_s))
        fleet.begin()
        beat = None
        match event["type"]:
            case "fair_share_update":
                cut = update(scenario, {"fair_share": "auto"}, cut)
                fleet.take(cut)
            case "add":
                scenario.add(event)
                fleet.add(event)
            case "heartbeat":
                fleet.heartbeat(event["node"])
                beat = _beat(event["node"], fleet)
            case unknown:
                raise ValueError(f"no event of a page is a {unknown}")
        yield Moment(scenario.now_s, {} if cut is None else dict(cut.items), list(_held(fleet)), beat)


def _beat(node: str, fleet: Fleet) -> Beat:
    happened = fleet.happened
    given_up = [fleet.name_of(order.allocation) for order in happened.taken]
    reasons = [order.preemption.reason.value for order in happened.taken if order.preemption is not None]
    return Beat(node, list(happened.order), given_up, reasons)


def _held(fleet: Fleet) -> Iterator[Held]:
    for place in fleet.places.values():
        name = fleet.name_of(place.name)
        yield Held(name, place.operation, place.node, place.resources.cpu / 100, fleet.group_of(name))
