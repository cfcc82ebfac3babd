"""A burst pool on one machine, with savings of seconds: real services, real jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.headrace_up import Up

#: Of a node that is said to have 20 cores: so much may be drawn at once, so much flows in.
BURST, FLOW = 16.0, 4.0
#: 10 seconds of the flow can be saved, and be drawn within a second.
SAVED_S, SMOOTH_S = 10.0, 1.0
#: Short jobs that cost next to nothing, more than ever run.
WORK = ("--jobs", "10000", "--", "sleep", "1")
#: Between two questions: without it they would take the processor from what they ask.
ASK_S = 0.2


def pool(up: Up, name: str = "saver") -> dict[str, Any]:
    told = json.loads(up.run("pool", "get", name, "--json").stdout)
    assert isinstance(told, dict)
    return told


def until(up: Up, true_of: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The pool when that is true of it; the test's own time limit ends what never is."""
    while not true_of(told := pool(up)):
        time.sleep(ASK_S)
    return told


def course_of(up: Up) -> list[dict[str, Any]]:
    """The record of the pool's volume, all of it."""
    points = json.loads(up.run("pool", "volume", "saver", "--points", "4000", "--json").stdout)["points"]
    assert isinstance(points, list)
    return points


def volumes(course: list[dict[str, Any]]) -> list[float]:
    """The volumes that were recorded."""
    return [point["accumulated_resource_volume"]["last"] for point in course if point["accumulated_resource_volume"]]


@pytest.mark.long
@pytest.mark.timeout(150)
def test_a_burst_pool_saves_takes_its_burst_runs_out_and_falls_back_to_its_flow() -> None:
    up = Up(nodes=("alpha:cpu=20,memory=4G",))
    up.environment["HEADRACE_FAIR_SHARE_HISTORY_PERIOD_MS"] = "200"
    with up:
        periods = (f"smooth_period={SMOOTH_S:g}s", f"pool_capacity_saturation_period={SAVED_S:g}s")
        # Volumes move only while usage is known, which it is once the node has spoken.
        up.run("run", "--", "true")
        up.run("tree", "set", "default", *(f"integral_guarantees/{period}" for period in periods))
        # Next to others its weight is nothing: what it gets, it has from its savings.
        up.run(
            "pool", "create", "saver", "--integral", "burst", "--flow", "cpu=4", "--burst", "cpu=16", "--weight", "1e-6"
        )
        up.run("pool", "create", "others", "--weight", "1000")
        up.start_operation("--pool", "others", *WORK)
        full = until(
            up, lambda told: told["accumulated_resource_ratio_volume"] >= 0.999 * told["integral_pool_capacity_ratio"]
        )
        # The record of volumes looks now and then: what is to be read there later must have been seen there full.
        while max(volumes(course_of(up)), default=0.0) < 0.999 * FLOW * SAVED_S:
            time.sleep(ASK_S)
        up.start_operation("--pool", "saver", *WORK)
        until(up, lambda told: told["usage"]["cpu"] > 2 * FLOW)
        until(up, lambda told: told["accumulated_resource_ratio_volume"] < 0.5 * told["integral_pool_capacity_ratio"])
        # Where an update comes late on a busy machine, the share swings for a while before it settles.
        last = until(
            up,
            lambda told: (
                told["fair_resources"]["cpu"] == pytest.approx(FLOW, rel=0.02)
                # The flow for one smooth period is what stands there while the flow is used up.
                and told["accumulated_resource_volume"]["cpu"] == pytest.approx(FLOW * SMOOTH_S, rel=0.05)
                and told["usage"]["cpu"] <= FLOW * 1.25
            ),
        )
        course = course_of(up)
        # Who lost the thread, if anybody did.
        logs = [(up.state / "logs" / f"{service}.log").read_text() for service in ("fair_share", "integral", "up")]

    assert full["integral_pool_capacity"]["cpu"] == FLOW * SAVED_S
    assert full["estimated_burst_usage_duration_seconds"] == pytest.approx(FLOW * SAVED_S / (BURST - FLOW), rel=0.01)
    assert max(point["fair_share"]["most"] for point in course) == pytest.approx(BURST, rel=0.01)
    saved = volumes(course)
    assert min(saved) >= 0
    assert max(saved) == pytest.approx(FLOW * SAVED_S, rel=0.001)
    assert max(saved) <= FLOW * SAVED_S
    assert last["downtime"]["gaps"] == 0, "\n".join([str(last["downtime"]), *logs])
