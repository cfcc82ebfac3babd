"""Runs a case, event after event."""

from __future__ import annotations

from typing import Any, Final

from headrace.wire.heartbeat import JobResult
from tests.conformance.allocation import heartbeats, updates
from tests.conformance.allocation.heartbeats import Fleet
from tests.conformance.allocation.scenario import Scenario, amounts
from tests.conformance.allocation.updates import ShareSnapshot, update, with_tolerances
from tests.conformance.engines import Engine
from tests.conformance.reporting import Comparison, Outcome, Problem, only_keys

__all__ = ["EVENTS", "SUITE", "run"]

SUITE: Final = "allocation"
_EVENT: Final = {"type", "at", "expect", "skip_cross_check"}
#: By type of event the fields that it may have.
EVENTS: Final[dict[str, set[str]]] = {
    "fair_share_update": {"fair_share", "promised_fair_share"},
    "heartbeat": {"node", "skip"},
    "run": {"duration", "period", "fair_share"},
    "allocation_usage": {"allocation", "usage"},
    "reset_progress": {"allocation"},
    "set": {"options", "elements", "nodes", "pending", "node_has_waiting"},
    "add": {"pools", "operations", "allocations"},
    "finish_operation": {"operation"},
    "end_jobs": {"operation", "node", "result"},
    "revive": set(),
    "precommit": {"operation"},
    "preschedule": {"considered"},
    "check": set(),
}


def run(case: dict[str, Any], _: Engine) -> Outcome:
    """The outcome of a case."""
    for event in case["events"]:
        if event.get("type") not in EVENTS:
            raise Problem(f"unknown event {event.get('type')}")
        only_keys(event, EVENTS[event["type"]] | _EVENT, event["type"])
        only_keys(event.get("expect", {}), updates.KEYS | heartbeats.KEYS, f"expect of {event['type']}")
    return Outcome.of(SUITE, case["name"], _Course(case).run())


class _Course:
    """One case under way."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.scenario = Scenario(case)
        self.fleet = Fleet(self.scenario)
        self.fleet.add(case)
        self.cut: ShareSnapshot | None = None

    def run(self) -> list[Comparison]:
        """All comparisons, event after event."""
        tolerance = float(self.case.get("tolerance", 1e-6))
        found: list[Comparison] = []
        for event in self.case["events"]:
            self.scenario.now_s = float(event.get("at", self.scenario.now_s))
            self.fleet.begin()
            self._happen(event)
            expect = event.get("expect", {})
            if self.cut is not None:
                found.extend(updates.compared(expect, self.scenario, self.cut, tolerance))
            elif unread := updates.KEYS & expect.keys():
                raise Problem(f"expected before any update: {', '.join(sorted(unread))}")
            found.extend(self.fleet.compared(expect))
        return found

    def _happen(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "fair_share_update":
                self._update(event)
            case "heartbeat":
                self.fleet.heartbeat(event["node"], skip=event.get("skip", False))
            case "run":
                self._run(event)
            case "set":
                self.scenario.set(event)
                self.fleet.set_waiting(event.get("node_has_waiting", {}))
                self.fleet.add({})
                if self.cut is not None and "elements" in event:
                    self.fleet.take(with_tolerances(self.cut, self.scenario))
            case "add":
                self.scenario.add(event)
                self.fleet.add(event)
            case "finish_operation":
                self.fleet.finish(event["operation"])
                del self.scenario.operations[event["operation"]]
            case "end_jobs":
                self.fleet.end_jobs(event["operation"], event["node"], JobResult(event["result"]))
            case "precommit":
                self.fleet.precommit(event["operation"])
            case "preschedule":
                self.fleet.preschedule(event["considered"])
            case "allocation_usage":
                self.fleet.set_usage(event["allocation"], amounts(event["usage"]))
            case "reset_progress":
                self.fleet.reset_progress(event["allocation"])
            case "revive":
                self.cut = None
                self.fleet.revive()

    def _update(self, event: dict[str, Any]) -> None:
        self.cut = update(self.scenario, event, self.cut)
        self.fleet.take(self.cut)

    def _run(self, event: dict[str, Any]) -> None:
        """Again and again: time passes, shares are computed, every node is heard."""
        began_s, period_s = self.scenario.now_s, float(event.get("period", 0.1))
        for step in range(1, round(event["duration"] / period_s) + 1):
            self.scenario.now_s = began_s + step * period_s
            self._update(event)
            for node in self.scenario.nodes:
                self.fleet.heartbeat(node)
