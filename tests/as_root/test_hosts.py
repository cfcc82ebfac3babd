"""docs/how-to/hosts.md by root: five commands make an empty host a node that systemd runs, with a `systemctl` of the test's own."""

from __future__ import annotations

import pwd
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psutil

from tests.acceptance.test_hosts import PAGE, Fleet, fleet
from tests.as_root.test_accounts import account
from tests.support.systemctl import SystemctlFolder

__all__ = ["account", "fleet"]

AGENT, RUNNER = "headrace-agent-host-17.service", "headrace-runner-host-17.service"


class Host:
    """The host of the page."""

    def __init__(self, folder: Path) -> None:
        self.state, self.units = folder / "host" / "agent-host-17", folder / "host" / "units"
        self.systemctl = SystemctlFolder(folder / "host" / "systemctl", self.units, runs=True)

    def run(self, *words: str, token: str = "", status: int = 0) -> str:
        """A command as root types it there."""
        done = subprocess.run(
            [sys.executable, "-m", "headrace_cli", *words, "--unit-folder", str(self.units)],
            env={"PATH": f"{self.systemctl.bin}:/usr/bin:/bin"},
            cwd="/",
            input=token,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def end(self) -> None:
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.state) in word for word in process.info["cmdline"] or []):
                process.kill()


def of_page(words: str) -> list[str]:
    blocks = re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (line,) = [line for block in blocks for line in block.splitlines() if words in line]
    return shlex.split(line)[1:]


def jobs_of(account: str) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["username", "name"])
        if process.info == {"username": account, "name": "sleep"}
    ]


def test_the_page_makes_a_host_a_node_that_systemd_runs_and_takes_it_out_again(
    fleet: Fleet, account: pwd.struct_passwd
) -> None:
    host = Host(fleet.folder)
    join = [*of_page("agent join --token - --install"), "--folder", str(host.state)]
    token = fleet.run_typed("node token")
    without_users = [word for word in join if word not in ("--users", "same")]
    try:
        assert f"# {host.units}/{AGENT}\n" in host.run(*join, "--dry-run", token=token)
        assert "--users: no account for jobs is named" in host.run(*without_users, token=token, status=2)
        assert "--no-start: --no-start and --install cannot be combined" in host.run(
            *join, "--no-start", token=token, status=2
        )
        assert (list(host.units.iterdir()), host.state.exists()) == ([], False)

        said = host.run(*join, token=token)

        assert "this host is node host-17 of tree default" in said
        assert f"{AGENT} is enabled and started" in said
        assert host.systemctl.told() == ["daemon-reload", f"enable {AGENT}", f"start {AGENT}"]
        fleet.until(lambda: fleet.node().get("state") == "online")
        fleet.administer("tree", "set", "default", "require_isolation=true")
        told = " ".join(fleet.run_typed("node get").split())
        assert "isolation full: jobs run as other accounts" in told

        _runs_on_while_the_agent_is_restarted(fleet, host, account.pw_name)

        host.run(*of_page("agent uninstall"))
        assert (jobs_of(account.pw_name), list(host.units.iterdir())) == ([], [])
        assert host.systemctl.told() == [f"stop {AGENT}", f"stop {RUNNER}", f"disable {AGENT}", "daemon-reload"]
        assert host.state.is_dir()
    finally:
        host.end()


def _runs_on_while_the_agent_is_restarted(fleet: Fleet, host: Host, account: str) -> None:
    fleet.run("user", "add", account, "--cluster=cluster")
    person = str(fleet.cluster / "client" / "people" / account)
    fleet.run("run", "--cwd=/", "--", "sleep", "1000", HEADRACE_STATE=person)
    fleet.until(lambda: len(jobs_of(account)) == 1)
    before, agent, runner = jobs_of(account), host.systemctl.pid(AGENT), host.systemctl.pid(RUNNER)
    config = ["--config", str(host.state / "settings.toml")]
    install = [*of_page("agent install")[:2], *config]
    host.systemctl.told()
    assert "nothing to change" in host.run(*install)
    unit = host.units / AGENT
    unit.write_text(unit.read_text() + "# a change\n")

    assert "-# a change\n" in host.run(*install)

    assert host.systemctl.told() == ["daemon-reload", f"restart {AGENT}"]
    assert host.systemctl.pid(AGENT) != agent
    assert host.systemctl.pid(RUNNER) == runner
    fleet.until(lambda: fleet.node().get("running_jobs") == 1 and fleet.node()["state"] == "online")
    assert jobs_of(account) == before
