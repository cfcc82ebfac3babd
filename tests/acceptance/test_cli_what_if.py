"""`headrace plan --live` and the shares of every `--dry-run`, typed at a running Headrace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as running:
        for name in ("research", "adhoc"):
            running.run("pool", "create", name)
            running.run("run", "--pool", name, "--jobs", "8", "--id", f"of-{name}-0001", "--", "sleep", "600")
        yield running


@pytest.mark.long
def test_a_weight_is_tried_on_what_runs_and_nothing_is_changed(up: Up) -> None:
    before = up.run("pool", "export").stdout
    said = json.loads(up.run("plan", "--live", "research.weight=3", "--json").stdout)
    text = up.run("plan", "--live", "research.weight=3").stdout
    told = {each["name"]: each for each in said["elements"]}

    assert told["research"]["before"]["fair_resources"]["cpu"] == 2
    assert told["research"]["after"]["fair_resources"]["cpu"] == 3
    assert told["adhoc"]["after"]["fair_resources"]["cpu"] == 1
    assert told["of-research-0001"]["differs"]
    assert said["changed"][0]["attributes"][0]["after"] == "3.0"
    assert "2 → 3" in text
    assert "50% → 75%" in text
    assert up.run("pool", "export").stdout == before


def test_every_dry_run_shows_the_shares(up: Up, tmp_path: Path) -> None:
    made = up.run("pool", "create", "guests", "--weight", "2", "--dry-run").stdout
    limited = up.run("pool", "set", "research", "resource_limits/cpu=1", "--dry-run").stdout
    file = tmp_path / "pools.yaml"
    file.write_text("pools: {research: {weight: 3}, adhoc: {}}\n")
    imported = up.run("pool", "import", str(file), "--dry-run").stdout
    options = up.run("tree", "set", "default", "max_running_operation_count=99", "--dry-run").stdout
    refused = up.run("pool", "set", "research", "weight=-1", "--dry-run", expect=2)

    assert "guests (new)" in made
    assert "2 → 1" in limited
    assert "2 → 3" in limited
    assert "2 → 3" in imported
    assert "max_running_operation_count" in options
    assert "weight" in refused.stderr


def test_jobs_that_no_node_can_run_are_owed_nothing(up: Up) -> None:
    too_large = up.run("plan", "--live", "--jobs", "adhoc:2,cpu=5")
    among_others = up.run("plan", "--live", "--jobs", "adhoc:2,cpu=5", "--nodes", "+1,cpu=8,memory=8G")

    assert "supposed-1 would be owed nothing: each job is larger than every node" in too_large.stderr
    line = next(line for line in too_large.stdout.splitlines() if "supposed-1 (new)" in line)
    assert "– → 0%" in line
    assert "would be owed nothing" not in among_others.stderr


def test_jobs_and_nodes_are_supposed(up: Up) -> None:
    jobs = up.run("plan", "--live", "--create", "guests", "--jobs", "guests:200,cpu=1,memory=1M").stdout
    nodes = up.run("plan", "--live", "--nodes", "-1", "--nodes", "+2,cpu=8,memory=8G")
    gone = up.run("plan", "--live", "--nodes", "-alpha")
    too_many = up.run("plan", "--live", "--nodes", "-2", expect=4)

    assert "supposed-1 (new)" in jobs
    assert "in 30s" in jobs
    assert "1 node fewer of" in nodes.stderr
    assert "2 → 8" in nodes.stdout
    assert "2 → 0" in gone.stdout
    assert "each cannot be removed" in too_many.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--live",), "no supposed change is given"),
        (("--live", "research"), "POOL.ATTRIBUTE=VALUE"),
        (("--live", "research.wieght=3"), "weight"),
        (("research.weight=3",), "--live"),
        (("--jobs", "research:2"), "--live"),
        (("--live", "--jobs", "research"), "POOL:COUNT"),
        (("--live", "--nodes", "two"), "+COUNT or -COUNT"),
        (("--live", "--nodes", "-alpah"), "no node alpah is online; did you mean alpha?"),
    ],
)
def test_mistakes_are_told_with_what_was_expected(up: Up, words: tuple[str, ...], said: str) -> None:
    assert said in up.run("plan", *words, expect=2).stderr


def test_an_unknown_pool_is_refused_with_the_nearest_one(up: Up) -> None:
    assert "did you mean research?" in up.run("plan", "--live", "reserch.weight=3", expect=4).stderr
    assert "did you mean research?" in up.run("plan", "--live", "--jobs", "reserch:2", expect=4).stderr


def test_an_export_is_planned_with_a_total(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(up.run("pool", "export", "--options").stdout)

    assert "research" in up.run("plan", str(file), "--total", "cpu=100,memory=400G").stdout


def running_jobs(up: Up, operation: str) -> int:
    places = json.loads(up.run("op", "get", operation, "--json").stdout)["places"]
    return int(places["running_jobs"])


def test_a_limit_that_ends_running_jobs_says_how_many_and_needs_a_yes() -> None:
    with Up(nodes=("alpha:cpu=2,memory=4G",)) as up:
        up.run("pool", "create", "adhoc")
        up.run("run", "--pool", "adhoc", "--jobs", "8", "--id", "of-adhoc-0001", "--", "sleep", "600")
        assert any(running_jobs(up, "of-adhoc-0001") == 2 for _ in range(100))
        lowered = ("pool", "set", "adhoc", "resource_limits/cpu=1")
        question = "at least 1 of 2 running jobs of pool adhoc will be preempted, because they do not fit below its resource_limits"

        assert question in up.run(*lowered, "--dry-run").stderr
        asked = up.run(*lowered, expect=4).stderr
        assert f"{question}. Nothing was changed: add --yes to confirm." in asked
        assert "resource_limits" not in up.run("pool", "export").stdout

        up.run("pool", "set", "adhoc", "resource_limits/cpu=3")
        assert "Nothing was changed" not in up.run(*lowered, "--yes").stderr
        assert any(running_jobs(up, "of-adhoc-0001") == 1 for _ in range(100))
        up.run("pool", "set", "adhoc", "resource_limits=")
