"""Jobs that save and go on: the example and the page, with real preemptions; and the progress that jobs tell."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

pytestmark = pytest.mark.long

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "how-to" / "retry-and-checkpoint.md"
_LIMIT_S = 45.0


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    one = Up()
    # The jobs' Python has Headrace, as the page asks for.
    one.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with one as running:
        shutil.copy(DOCS / "examples" / "resume.py", running.state)
        yield running


def shown(up: Up, operation: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(up.run("op", "get", operation, "--jobs", "--json").stdout)
    return answer


def progress(up: Up, operation: str) -> list[int]:
    places = shown(up, operation)["places"]
    return [place["progress"] for place in (places or {}).get("running", []) if place["progress"] is not None]


def wait_for_progress(up: Up, operation: str, jobs: int = 1) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while sum(told > 0 for told in progress(up, operation)) < jobs:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_the_example_saves_and_goes_on_outside_of_headrace(tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "examples" / "resume.py"), "1000"]
    without = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    saved = "0"
    for _ in range(2):
        with subprocess.Popen(command, cwd=tmp_path, env=without, stdout=subprocess.PIPE, text=True) as example:
            assert example.stdout is not None
            assert example.stdout.readline() == f"from {saved}\n"
            example.terminate()
            rest = example.stdout.read()
        saved = (tmp_path / "saved-0").read_text()
        assert (example.returncode, rest) == (75, f"saved {saved}\n")


@pytest.mark.long
def test_a_job_that_is_preempted_saves_in_time_and_its_next_run_goes_on_there(up: Up) -> None:
    for pool in ("research", "production"):
        up.run("pool", "create", pool)
    up.run("tree", "set", "default", "fair_share_starvation_timeout=500ms", "preemptive_scheduling_backoff=0")
    options = ("--pool", "research", "--jobs", "2", "--interruptible", "--interruption-timeout", "30s")
    operation = up.start_operation(*options, "--", "python", "resume.py", "80")
    wait_for_progress(up, operation, jobs=2)
    assert re.search(
        r"progress +[\d.]+% of all jobs; job 0 [\d.]+%, job 1 [\d.]+%", up.run("op", "get", operation).stdout
    )
    listed = up.run("op", "get", operation, "--jobs").stdout
    assert "running, " in listed
    # Isolation of jobs on the machine of a test.
    assert "memory, loosely" in listed
    assert "memory, loosely" in up.run("node", "list").stdout

    up.run("run", "--pool", "production", "--wait", "--", "true")
    up.run("op", "wait", operation)

    over = shown(up, operation)
    view = over["operation"]
    assert (view["completed_jobs"], view["failed_jobs"], view["aborted_jobs"]) == (2, 0, 1)
    (index,) = [row["slot"]["index"] for row in over["jobs"] if row["slot"]["attempt"] == 2]
    first = up.run("op", "logs", operation, "--job", str(index), "--attempt", "1").stdout.splitlines()
    second = up.run("op", "logs", operation, "--job", str(index)).stdout.splitlines()
    saved = re.fullmatch(r"saved (\d+) with ([\d.]+) s left", first[1])
    assert saved is not None
    assert (first[0], second) == ("from 0", [f"from {saved[1]}"])
    assert 0 < int(saved[1]) < 80
    assert 0 < float(saved[2]) <= 30


def test_a_shell_script_tells_how_far_it_is_and_nothing_of_it_stays(up: Up) -> None:
    script = 'echo 1/4 > "$HEADRACE_PROGRESS"; until [ -e go ]; do sleep 0.05; done; [ -z "$HEADRACE_DEADLINE" ]'
    operation = up.start_operation("--", "sh", "-c", script)
    wait_for_progress(up, operation)

    assert re.search(r"progress +25%", up.run("op", "get", operation).stdout)
    # The files of the jobs before may still be on their way out.
    (file,) = up.state.glob(f"**/{operation}.*.progress")
    (up.state / "go").touch()
    up.run("op", "wait", operation)
    deadline_s = time.monotonic() + _LIMIT_S
    while file.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_progress_goes_on_after_the_agent_was_killed(up: Up) -> None:
    script = 'echo 0.5 > "$HEADRACE_PROGRESS"; until [ -e over ]; do sleep 0.05; done'
    operation = up.start_operation("--", "sh", "-c", script)
    wait_for_progress(up, operation)

    victim = next(process for process in up.processes() if process.role == "agent")
    os.kill(victim.pid, 9)
    up.wait_said("agent.* ended .*SIGKILL.* restarting it")
    while (up.state / "logs" / "agent-alpha.log").read_text().count('"adopted"') < 1:
        time.sleep(0.02)

    wait_for_progress(up, operation)
    assert progress(up, operation) == [500]
    (up.state / "over").touch()
    up.run("op", "wait", operation)


def test_every_command_of_the_page_does_what_it_says(up: Up) -> None:
    (made,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    subprocess.run(["sh", "-ec", made], cwd=up.state, check=True)

    def wait(line: str) -> None:
        if "--id counts" in line:
            wait_for_progress(up, "counts-up-1")

    said = typed(up, PAGE, wait)

    assert re.search(r"progress +[\d.]+%", said["op get counts-up-1"])
    assert re.fullmatch(r"from 0\nsaved \d+ with [\d.]+ s left\n", said["op logs counts-up-1 --attempt 1"])
    assert re.fullmatch(r"from [1-9]\d*\n", said["op logs counts-up-1"])
    assert said["op logs flaky-job-1"] == "attempt 3\n"
    assert "attempt 1\n" in said["op logs flaky-job-1 --attempt 1"]
