"""`headrace agent selftest` on this host: it finds what works, and what does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace_agent.host import facts

pytestmark = pytest.mark.long


def selftest(folder: Path, **settings: str) -> tuple[int, list[str]]:
    """The exit status, and the line on each trial."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    own = {f"HEADRACE_AGENT_{name.upper()}": value for name, value in settings.items()}
    done = subprocess.run(
        [sys.executable, "-m", "headrace_cli", "agent", "selftest"],
        env={**plain, "HEADRACE_AGENT_STATE_FOLDER": str(folder / "state"), "TMPDIR": str(folder), **own},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_a_host_that_keeps_jobs_to_their_limits_passes_and_nothing_is_left_behind(tmp_path: Path) -> None:
    status, lines = selftest(tmp_path, users="agent" if facts.is_root() else "")

    assert (status, [line.split(":")[0] for line in lines]) == (
        0,
        [f"ok      {trial}" for trial in ("isolation", "limits", "memory", "processes", "accounts", "folders")],
    )
    why = "jobs run as root, so they can read the agent's key"
    if not facts.is_root():
        why = "jobs run as the agent's own account, so they can read its key"
    assert lines[0] == f"ok      isolation: none: {why}"
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_work_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no folder")
    status, lines = selftest(tmp_path, isolation="none", cgroup="/nowhere", logs_folder=str(tmp_path / "logs"))

    assert status == 1
    assert "FAILED  limits: none: switched off by the settings" in lines
    assert "FAILED  memory: its job completed: it got more memory than its limit" in lines
    assert f"FAILED  folders: {tmp_path}/logs cannot be written: Not a directory" in lines
    _, delegated = selftest(tmp_path, cgroup="/nowhere")
    assert delegated[1].startswith("FAILED  limits: rlimit: ")
    assert "no cgroup2: /nowhere" in delegated[1]
