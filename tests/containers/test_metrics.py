"""Profile `metrics`: Prometheus scrapes every service, takes the alerts, and each of those fires on what it is for."""

from __future__ import annotations

import json
import os
import time
import urllib.parse
import urllib.request
from typing import Any

import pytest

from tests.containers.stack import ROOT, SERVICES, Stack, run


@pytest.fixture(scope="module")
def prometheus(stack: Stack) -> Stack:
    since_s = int(run(["date", "+%s"]))
    stack.compose("--profile", "metrics", "up", "-d", "--no-deps", "prometheus")
    stack.wait_healthy(("prometheus",), since_s)
    return stack


def ask(stack: Stack, path: str, **words: str) -> Any:
    """What Prometheus answers."""
    address = f"http://127.0.0.1:{stack.prometheus_port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.load(answer)["data"]


def test_every_service_is_scraped(prometheus: Stack) -> None:
    found: set[str] = set()
    # It scrapes by its own clock, and tells nobody when.
    deadline_s = time.monotonic() + 60
    while len(found) < len(SERVICES) and time.monotonic() < deadline_s:
        time.sleep(0.5)
        answer = ask(prometheus, "query", query="headrace_leads == 1")
        found = {each["metric"]["service"] for each in answer["result"]}
    assert found == set(SERVICES)


def test_all_alerts_are_taken(prometheus: Stack) -> None:
    (group,) = ask(prometheus, "rules")["groups"]
    assert len(group["rules"]) > 8
    assert [rule["lastError"] for rule in group["rules"] if rule.get("lastError")] == []


def test_each_alert_fires_on_what_it_is_for_and_on_nothing_else() -> None:
    mounts = [f"-v={ROOT}/compose/prometheus:/etc/headrace:ro", f"-v={ROOT}/tests/containers:/tests:ro"]
    image = os.environ.get("PROMETHEUS_IMAGE", "prom/prometheus:v3.5.0")
    run(
        [
            "docker",
            "run",
            "--rm",
            "--network=none",
            *mounts,
            "--entrypoint=promtool",
            image,
            "test",
            "rules",
            "/tests/alerts.yml",
        ]
    )
