"""Runs a case, event after event."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.allocation import updates
from tests.conformance.allocation.scenario import Scenario
from tests.conformance.allocation.updates import ShareCut, update
from tests.conformance.engines import Engine
from tests.conformance.reporting import Comparison, Outcome, Unsupported, only_keys

__all__ = ["EVENTS", "SUITE", "is_supported", "run"]

SUITE: Final = "allocation"
_EVENT: Final = {"type", "at", "expect", "skip_cross_check"}
#: By type of event the fields that it may have.
EVENTS: Final[dict[str, set[str]]] = {
    "fair_share_update": {"fair_share", "promised_fair_share"},
    "set": {"options", "elements", "nodes", "pending"},
    "add": {"pools", "operations", "allocations"},
    "finish_operation": {"operation"},
    "revive": set(),
    "check": set(),
}


def is_supported(case: dict[str, Any]) -> bool:
    """True if every event of the case, and all that is expected of it, is known here."""
    return all(
        event["type"] in EVENTS
        and event.keys() <= EVENTS[event["type"]] | _EVENT
        and event.get("expect", {}).keys() <= updates.KEYS
        for event in case["events"]
    )


def run(case: dict[str, Any], _: Engine) -> Outcome:
    """The outcome of a case."""
    if not is_supported(case):
        raise Unsupported("heartbeats, and figures that they change")
    scenario = Scenario(case)
    tolerance = float(case.get("tolerance", 1e-6))
    found: list[Comparison] = []
    cut: ShareCut | None = None
    for event in case["events"]:
        only_keys(event, EVENTS[event["type"]] | _EVENT, "event")
        scenario.now_s = float(event.get("at", scenario.now_s))
        match event["type"]:
            case "fair_share_update":
                cut = update(scenario, event, cut)
            case "set":
                scenario.set(event)
            case "add":
                scenario.add(event)
            case "finish_operation":
                del scenario.operations[event["operation"]]
            case "revive":
                cut = None
        if cut is not None:
            found.extend(updates.compared(event.get("expect", {}), scenario, cut, tolerance))
    return Outcome.of(SUITE, case["name"], found)
