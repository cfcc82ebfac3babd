"""`headrace run --gang` on three nodes: all jobs start together or none does, and all start anew when one fails."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from tests.support.headrace_up import Up

#: Says that it runs, and goes on once all five of a round do.
JOB = """
touch $HEADRACE_JOB_INDEX.$HEADRACE_ATTEMPT
until [ $(ls | grep -c "[.]$HEADRACE_ATTEMPT$") = 5 ]; do sleep 0.05; done
echo together on $HEADRACE_NODE
if [ $HEADRACE_JOB_INDEX.$HEADRACE_ATTEMPT = 3.1 ]; then exit 7; fi
[ $HEADRACE_ATTEMPT = 2 ] || exec sleep 1000
"""


@pytest.fixture
def up() -> Up:
    # Otherwise the memory of the machine decides about a victim: YARN divides an odd number of MiB so that both queues get more than half.
    return Up(nodes=tuple(f"{name}:cpu=2,memory=4G" for name in ("alpha", "beta", "gamma")))


def first_reason(up: Up, operation: str, start: str) -> str:
    """The reason once it begins so."""
    words = ""
    for _ in range(200):
        explained = msgspec.json.decode(up.run("op", "explain", operation, "--json").stdout)
        causes = [cause["words"] for tree in explained["trees"].values() for cause in tree["waiting"]["causes"]]
        words = next((cause for cause in causes if cause.startswith(start)), "")
        if words:
            return words
        time.sleep(0.1)
    raise AssertionError(causes)


def test_a_gang_waits_for_room_for_all_starts_on_three_nodes_at_once_and_starts_anew_when_a_job_fails(
    up: Up, tmp_path: Path
) -> None:
    with up:
        folder = tmp_path / "round"
        folder.mkdir()
        until_go = f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.1; done"
        filler = up.start_operation("--jobs", "2", "--", "sh", "-c", until_go)
        up.wait_line(filler, "up", times=2)
        gang = up.start_operation("--gang", "--jobs", "5", "--cwd", str(folder), "--", "sh", "-c", JOB)

        held = first_reason(up, gang, "a gang of 5 jobs: resources for 4")
        assert "s more; they start when all have resources" in held
        assert list(folder.iterdir()) == []
        (tmp_path / "go").touch()
        up.run("op", "wait", gang)

        started = sorted(path.name for path in folder.iterdir())
        assert started == [f"{index}.{attempt}" for index in range(5) for attempt in (1, 2)]
        view = msgspec.json.decode(up.run("op", "get", gang, "--json").stdout)["operation"]
        assert (view["completed_jobs"], view["failed_jobs"], view["aborted_jobs"]) == (5, 1, 4)


@pytest.mark.parametrize("policy", ["yarn", pytest.param("yarn_legacy", marks=pytest.mark.long)])
def test_under_a_yarn_policy_too_all_jobs_of_a_gang_start_together_in_places_taken_for_it(
    up: Up, tmp_path: Path, policy: str
) -> None:
    """Another pool has every node. Room is taken from it on three nodes, one after the other."""
    with up:
        options = "yarn={enabled: true, wait_before_kill: 1s, legacy_interval: 1s}"
        up.run("tree", "set", "default", f"preemption_policy={policy}", "fair_share_starvation_timeout=500ms",
            "fair_share_starvation_tolerance=1", options)  # fmt: skip
        for pool in ("first", "second"):
            up.run("pool", "create", pool)
        stays = up.start_operation("--pool", "first", "--jobs", "6", "--", "sh", "-c", "echo up; exec sleep 1000")
        up.wait_line(stays, "up", times=6)
        job = f"""touch {tmp_path}/$HEADRACE_JOB_INDEX
until [ $(ls {tmp_path} | wc -l) = 3 ]; do sleep 0.05; done"""

        gang = up.start_operation("--pool", "second", "--gang", "--jobs", "3", "--", "sh", "-c", job)
        up.run("op", "wait", gang)

        view = msgspec.json.decode(up.run("op", "get", gang, "--json").stdout)["operation"]
        assert (view["completed_jobs"], view["failed_jobs"], view["aborted_jobs"]) == (3, 0, 0)
