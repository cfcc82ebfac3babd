"""The disk of the stack's server is really full: what was acknowledged is kept, and work goes on by itself when there is room."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.stack import Stack, agent, run, running_stack

#: It only keeps a stack that takes no work again from hanging.
_LONGEST_WAIT_S = 120.0


@pytest.fixture
def small() -> Iterator[Stack]:
    changes = Path(__file__).with_name("small_disk.yml")
    with tempfile.TemporaryDirectory(prefix="hr-") as folder, running_stack(Path(folder), changes=changes) as running:
        yield running


def tried(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of Headrace that may fail."""
    command = [sys.executable, "-m", "headrace_cli", *words]
    return subprocess.run(command, env=stack.environment, cwd="/tmp", capture_output=True, text=True)


def test_what_was_acknowledged_runs_and_what_was_refused_is_taken_once_there_is_room(
    small: Stack, tmp_path: Path
) -> None:
    in_server = ["docker", "exec", small.container("nats"), "sh", "-c"]
    with agent(small, small.token("outside"), tmp_path / "state", HEADRACE_AGENT_CPU="1"):
        known = [small.headrace("run", "--jobs", "3", "--", "sleep", "1").strip()]
        run([*in_server, "cat /dev/zero >/cluster/nats/filler || true"])
        large = "X=" + "x" * 3_000  # so that the last block is soon full
        while (refused := tried(small, "run", "--env", large, "--", "true")).returncode == 0:
            known.append(refused.stdout.strip())
        again = ("run", "--id", "sent-again", "--wait", "--", "true")
        refused_again = tried(small, *again)
        listed = tried(small, "service", "list")
        run([*in_server, "rm /cluster/nats/filler"])
        deadline_s = time.monotonic() + _LONGEST_WAIT_S
        while tried(small, *again).returncode != 0:
            assert time.monotonic() < deadline_s
        for operation in known:
            small.headrace("op", "wait", operation)
        small.headrace("pool", "create", "lab")
        views = json.loads(small.headrace("op", "list", "--limit", "500", "--json"))["operations"]

    for told in (refused.stderr, refused_again.stderr, listed.stderr):
        assert "its disk is full" in " ".join(told.split())
    assert {view["operation"] for view in views} >= {*known, "sent-again"}
