"""Alerts and the dashboard ask for nothing that no service tells: `docs/reference/metrics.md` is held against running services."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
#: Each metric with its type.
TOLD = dict(re.findall(r"^\| `(\w+)` \| (\w+) ", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "compose/prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "compose/grafana/dashboards/headrace.json").read_text())


def asked() -> list[str]:
    """All that alerts and panels compute."""
    shown = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    listed = [variable["query"] for variable in DASHBOARD["templating"]["list"]]
    return [*(rule["expr"] for rule in RULES), *shown, *listed]


def metric_of(name: str) -> str:
    """The metric of a series: a histogram has three."""
    base = re.sub("_(bucket|count|sum)$", "", name)
    return base if TOLD.get(base) == "histogram" else name


def test_each_metric_that_is_asked_for_is_told() -> None:
    names = {
        metric_of(name) for expression in asked() for name in re.findall(r"\b(?:headrace|process)_\w+", expression)
    }

    assert len(names) > 30
    assert names - set(TOLD) == set()


def test_each_counter_is_asked_for_its_growth() -> None:
    counters = {name for name, kind in TOLD.items() if kind == "counter"}
    grown = r"\b(?:rate|increase)\((\w+)"
    for expression in asked():
        named = set(re.findall(r"\b\w+_total\b", expression)) & counters
        assert named <= set(re.findall(grown, expression)), expression


def test_what_fairness_costs_and_what_stands_still_is_on_the_dashboard() -> None:
    shown = "\n".join(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    for name in ("pool_starving", "preempted_total", "preempted_again_total", "pool_lost_work_cpu", "stuck_operations"):
        assert f"headrace_{name}" in shown


def test_no_two_panels_of_the_dashboard_cover_each_other() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


def test_each_alert_says_what_is_wrong() -> None:
    assert [rule["alert"] for rule in RULES if not rule["annotations"]["summary"]] == []
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_whatever_stops_work_or_recording_has_an_alert() -> None:
    alerts = {rule["alert"] for rule in RULES}

    assert {"NodeOffline", "NothingRecorded", "AppendsInDoubt", "CheckpointsFailed", "FloodEnded"} <= alerts
