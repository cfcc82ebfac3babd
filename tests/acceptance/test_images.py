"""Jobs in images, with a fake of Podman: starts, exit statuses, and nodes that are passed over."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

FAKE = Path(__file__).parents[1] / "support" / "fake_podman"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    programs = tmp_path_factory.mktemp("programs")
    for name in ("podman", "crun"):
        shutil.copy(FAKE, programs / name)
    running = Up(nodes=("with:cpu=2,memory=2G,containers=podman", "without:cpu=2,memory=2G,containers=off"))
    del running.environment["HEADRACE_AGENT_CONTAINERS"]
    running.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    with running:
        yield running


def test_only_a_node_with_a_runtime_runs_the_jobs_and_their_ends_are_told(up: Up) -> None:
    script = 'trap "exit 75" TERM; test "$HEADRACE_NODE" = with && exit 3'
    operation = up.start_operation("--image", "localhost/a:1", "--tries", "1", "--jobs", "4", "--", "sh", "-c", script)
    missing = up.start_operation("--image", "localhost/missing:1", "--tries", "1", "--", "true")
    for each in (operation, missing):
        up.run("op", "wait", each, expect=None)

    view = json.loads(up.run("op", "get", operation, "--json").stdout)["operation"]
    assert view["spec"]["image"] == "localhost/a:1"
    assert view["failed_jobs"] == 4
    assert {end["exit_code"] for end in view["last_failures"]} == {3}
    told = up.run("op", "get", missing, "--jobs").stdout
    assert "the container could not be started (exit code 125)" in told
    assert "Error: no such image" in told
    assert "localhost/missing:1" not in told.partition("stderr has the cause")[0]


def test_an_image_that_no_node_can_run_waits_and_says_why(up: Up) -> None:
    operation = up.start_operation("--image", "/srv/none.sif", "--", "true")

    explained = " ".join(up.run("op", "explain", operation).stdout.split())
    assert "no container runtime: no node that takes jobs and matches the other filters has apptainer" in explained
    assert "no container runtime on 2 nodes" in explained
    up.run("op", "abort", operation)


def test_a_command_beside_a_job_is_refused_while_the_job_has_no_container(up: Up) -> None:
    operation = up.start_operation("--image", "localhost/a:1", "--", "sh", "-c", "echo ready; exec sleep 600")
    up.wait_line(operation, "ready")

    # The fake starts the command without a container.
    refused = up.run("op", "exec", operation, "0", "--", "true", expect=4).stderr
    assert f"container of job {operation}.0 is not found on this node; expected a container that runs" in refused
    up.run("op", "abort", operation)


def test_a_name_that_is_no_image_is_refused(up: Up) -> None:
    for name in ("--privileged", "a b", "/a:b", "docker://-v"):
        assert "--image" in up.run("run", f"--image={name}", "--", "true", expect=2).stderr
