"""`headrace agent selftest` of an agent that is root: each account of jobs is tried."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_agent.install.installation import units_of
from headrace_agent.settings import AgentSettings
from tests.integration.test_selftest import selftest
from tests.support.systemctl import SystemctlFolder


@pytest.fixture
def credential() -> Iterator[Path]:
    """A file in a folder that everybody may enter, as those of tests are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "credential")
        file.write_text("user:password")
        yield file


def test_accounts_of_jobs_are_tried_one_by_one(tmp_path: Path, credential: Path) -> None:
    settings = {"users": "anna=nobody,ben=no-such-account", "credential_file": str(credential)}
    credential.chmod(0o600)
    status, lines = selftest(tmp_path, **settings)

    assert status == 1
    assert "ok      account nobody: jobs run as this account, and cannot read the agent's credential" in lines
    assert "FAILED  account no-such-account: not started: this host has no account no-such-account" in lines
    credential.chmod(0o644)
    _, lines = selftest(tmp_path, **settings)
    assert any(line.startswith(f"FAILED  account nobody: it can read {credential}") for line in lines)


def test_a_node_that_systemd_runs_is_tried_with_the_cgroup_and_account_of_its_unit(tmp_path: Path) -> None:
    state, units_folder = tmp_path / "state", tmp_path / "units"
    systemctl = SystemctlFolder(tmp_path / "systemctl", units_folder)
    state.mkdir()
    config = state / "settings.toml"
    config.write_text(f'[agent]\nnode = "host-17"\nstate_folder = "{state}"\nusers = "agent"\n')
    runner, _ = units_of(AgentSettings(node="host-17", state_folder=str(state)), config, "nobody")
    (units_folder / runner.name).write_text(runner.text)
    (units_folder / f"{runner.name}.d").mkdir()
    (units_folder / f"{runner.name}.d" / "less.conf").write_text("[Service]\nMemoryMax=1G\n")

    words = ["agent", "selftest", "--config", str(config), "--unit-folder", str(units_folder)]
    path = f"{systemctl.bin}:/usr/bin:/bin"
    done = subprocess.run(
        [sys.executable, "-m", "headrace_cli", *words], env={"PATH": path}, capture_output=True, text=True, check=False
    )

    cgroup = "/sys/fs/cgroup/system.slice/headrace-selftest-host-17.service"
    assert (
        f"FAILED  limits: rlimit: memory of each process is limited, cpu and the number of processes are not; no cgroup2: {cgroup}"
        in done.stdout
    )
    properties = {each.removeprefix("--property=") for each in systemctl.transient() if each.startswith("--property=")}
    assert {"User=nobody", "Delegate=yes", "UMask=0077", "Slice=system.slice", "MemoryMax=1G"} <= properties
    assert not any(each.startswith(("Exec", "Restart", "KillMode")) for each in properties)
    (units_folder / runner.name).unlink()
    done = subprocess.run(
        [sys.executable, "-m", "headrace_cli", *words], env={"PATH": path}, capture_output=True, text=True, check=False
    )
    assert "no cgroup2: no delegated cgroup v2 folder is given" in done.stdout


def test_root_without_accounts_is_told_that_no_job_starts(tmp_path: Path) -> None:
    status, lines = selftest(tmp_path)

    assert status == 1
    assert any(line.startswith("FAILED  accounts: no job starts") for line in lines)
