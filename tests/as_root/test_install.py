"""`headrace agent install` and `uninstall` by root, with a `systemctl` of the test's own."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.systemd.unit_files import CannotInstall
from headrace_agent.host.state_folder import FolderHolder, claim
from headrace_agent.install.installation import InstallLocation, check, own_folder, uninstall
from tests.support.systemctl import SystemctlFolder

AGENT, RUNNER = "headrace-agent-host-17.service", "headrace-runner-host-17.service"
NOBODY = pwd.getpwnam("nobody")


@contextmanager
def acting_as(account: pwd.struct_passwd) -> Iterator[None]:
    """This process has the rights of the account meanwhile."""
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


class Host:
    """A host that has joined."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.units, self.state = folder, folder / "units", folder / "state"
        self.systemctl = SystemctlFolder(folder / "systemctl", self.units)
        self.state.mkdir(mode=0o700)
        self.config = self.state / "settings.toml"
        self.settle('users = "same"')
        self.path = f"{self.systemctl.bin}:/usr/bin:/bin"

    def settle(self, *lines: str) -> None:
        own = ('node = "host-17"', f'state_folder = "{self.state}"')
        self.config.write_text("\n".join(["[agent]", *own, *lines, ""]))

    def run(self, *words: str, status: int = 0) -> str:
        command = [sys.executable, "-m", "headrace_cli", "agent", *words]
        done = subprocess.run(command, env={"PATH": self.path}, cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def install(self, *words: str, status: int = 0) -> str:
        place = () if "--unit-folder" in words else ("--unit-folder", str(self.units))
        return self.run("install", "--config", str(self.config), *place, *words, status=status)

    def written(self) -> dict[str, tuple[int, int, str]]:
        return {
            file.name: (file.stat().st_mode & 0o777, file.stat().st_mtime_ns, file.read_text())
            for file in self.units.iterdir()
        }


@pytest.fixture
def host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Host(Path(folder))


def test_units_are_written_enabled_and_started_in_this_order_and_a_second_time_nothing_is_changed(host: Host) -> None:
    shown = host.install("--dry-run")
    assert (host.written(), host.systemctl.told()) == ({}, [])

    said = host.install()
    written = host.written()

    assert f"{AGENT} is enabled and started" in said
    assert host.systemctl.told() == ["daemon-reload", f"enable {AGENT}", f"start {AGENT}"]
    assert {name: mode for name, (mode, _, _) in written.items()} == {AGENT: 0o644, RUNNER: 0o644}
    assert all(f"# {host.units}/{name}\n{text}" in shown for name, (_, _, text) in written.items())
    assert host.install() == f"{AGENT} is installed and runs: nothing to change\n"
    assert (host.written(), host.systemctl.told()) == (written, [])


def test_a_unit_that_differs_is_shown_before_it_is_replaced_and_the_agent_is_restarted(host: Host) -> None:
    host.install()
    host.systemctl.told()
    written = host.written()
    (host.units / AGENT).write_text(written[AGENT][2].replace("RestartSec=5", "RestartSec=500"))

    said = host.install()

    assert said.index("-RestartSec=500\n+RestartSec=5\n") < said.index(f"{AGENT} is replaced")
    assert (host.units / AGENT).read_text() == written[AGENT][2]
    assert host.systemctl.told() == ["daemon-reload", f"restart {AGENT}"]


def test_an_agent_that_joined_anew_is_restarted_for_its_new_credential(host: Host) -> None:
    host.install()
    host.systemctl.told()
    command = [sys.executable, "-m", "headrace_agent.install", "install", "--restart", "--config", str(host.config)]
    subprocess.run([*command, "--unit-folder", str(host.units)], env={"PATH": host.path}, check=True)

    assert host.systemctl.told() == [f"restart {AGENT}"]


def test_settings_that_leave_the_folder_to_the_home_of_a_person_are_refused(host: Host) -> None:
    host.config.write_text('[agent]\nnode = "host-17"\nusers = "same"\n')

    assert f"{host.config}: [agent] state_folder: the setting is missing" in host.install(status=2)


def test_a_runner_with_jobs_is_not_restarted_and_that_is_said(host: Host) -> None:
    host.install()
    host.systemctl.told()
    host.settle('users = "same"', "log_cap_bytes = 5")

    said = host.install()

    assert "+ExecStart=" in said
    assert f"`systemctl restart {RUNNER}` ends its jobs" in said
    assert host.systemctl.told() == ["daemon-reload"]


def test_the_state_folder_is_closed_and_belongs_to_the_account(host: Host) -> None:
    host.state.chmod(0o755)

    assert own_folder(host.state, "nobody") == 3
    assert {path.stat().st_uid for path in (host.state, *host.state.iterdir())} == {NOBODY.pw_uid}
    assert host.state.stat().st_mode & 0o777 == 0o700
    assert own_folder(host.state, "nobody") == 0

    assert f"{host.state} now belongs to root, and no other account can read it" in host.install()
    assert {path.stat().st_uid for path in (host.state, *host.state.iterdir())} == {0}


def test_links_that_an_account_put_in_its_folder_are_not_followed(host: Host) -> None:
    precious = host.folder / "precious"
    precious.touch()
    (host.state / "logs").symlink_to(precious)
    assert own_folder(host.state, "nobody") == 3
    (host.state / "runner.log").hardlink_to(precious)

    with pytest.raises(CannotInstall, match=r"runner\.log is a link to a file elsewhere"):
        own_folder(host.state, "nobody")

    assert precious.stat().st_uid == 0


def test_a_folder_in_which_another_account_ran_jobs_is_refused(host: Host) -> None:
    (host.state / "jobs").mkdir()
    os.chown(host.state / "jobs", NOBODY.pw_uid, NOBODY.pw_gid)

    assert "ran as another account: join with a new token" in host.install(status=4)
    assert host.written() == {}


@pytest.mark.parametrize(
    ("setting", "words", "status", "said"),
    [
        ("", (), 2, "[agent] users: no account for jobs is named. Use `same`, PERSON=ACCOUNT,… or `agent`"),
        ('users = "ada"', (), 2, "users: 'ada' cannot be used"),
        ('users = "same"', ("--account", "nobody"), 2, "cannot be combined with `--account`: all jobs run as nobody"),
        ("", ("--account", "no-such"), 4, "this host has no account no-such"),
        ("", ("--account", "root"), 4, "account root is the superuser's"),
        ('users = "same"', ("--unit-folder", "/nowhere"), 4, "no unit can be written to /nowhere: No such file"),
        ('users = "same"', ("--unit-folder", "/proc"), 4, "no unit can be written to /proc"),
        ('user = "same"', (), 2, "[agent] user: 'same' cannot be used"),
    ],
)
def test_what_keeps_units_from_running_is_said_before_anything_is_done(
    setting: str, words: tuple[str, ...], status: int, said: str, host: Host
) -> None:
    host.settle(setting)

    assert said in host.install(*words, status=status)
    assert (host.written(), host.systemctl.told()) == ({}, [])


def test_only_root_installs_and_uninstalls(host: Host) -> None:
    host.install()
    place = InstallLocation(host.units)

    with acting_as(NOBODY):
        with pytest.raises(CannotInstall, match="only root can install systemd units"):
            check(place, "same", "--users", host.state)
        with pytest.raises(CannotInstall, match="only root can remove systemd units"):
            list(uninstall("host-17", place))
    assert set(host.written()) == {AGENT, RUNNER}


def test_a_host_without_systemd_is_told_what_else_there_is(host: Host) -> None:
    host.path = str(host.units)
    assert "systemctl cannot be run (No such file or directory)" in host.install(status=4)

    host.path = f"{host.systemctl.bin}:/usr/bin:/bin"
    host.systemctl.refuse("show")
    assert "`systemctl show --property=Version`: Failed to show: no such luck" in host.install(status=4)
    assert host.written() == {}


def test_what_systemd_refuses_is_told_and_the_next_time_goes_on_from_there(host: Host) -> None:
    host.systemctl.refuse("enable")
    assert f"`systemctl enable {AGENT}`: Failed to enable: no such luck" in host.install(status=4)
    host.systemctl.refuse("")
    host.systemctl.told()

    assert f"{AGENT} is enabled and started" in host.install()
    assert host.systemctl.told() == [f"enable {AGENT}", f"start {AGENT}"]


@pytest.mark.parametrize("holder", ["agent", "runner"])
def test_an_agent_or_a_runner_that_somebody_runs_there_is_left_alone(holder: FolderHolder, host: Host) -> None:
    lock = claim(str(host.state), holder)
    try:
        assert f"another {holder} (pid {os.getpid()}) uses {host.state}" in host.install(status=4)
    finally:
        os.close(lock)
    assert (host.written(), host.systemctl.told()) == ({}, [])


def test_an_account_that_reaches_its_folder_not_is_refused(host: Host) -> None:
    host.settle()
    host.folder.chmod(0o700)

    said = host.install("--account", "nobody", status=4)

    assert f"account nobody cannot reach both {sys.executable} and {host.folder}" in said
    assert "Permission denied" in said
    assert host.written() == {}


def test_uninstalling_stops_the_agent_first_and_a_second_time_says_that_there_is_nothing(host: Host) -> None:
    host.install()
    host.systemctl.told()
    words = ("uninstall", "host-17", "--unit-folder", str(host.units))

    said = host.run(*words)

    assert host.systemctl.told() == [f"stop {AGENT}", f"stop {RUNNER}", f"disable {AGENT}", "daemon-reload"]
    assert host.written() == {}
    assert f"{host.units}/{AGENT} is removed" in said
    assert "headrace node remove host-17" in said
    assert host.config.exists()
    assert "no unit of node host-17" in host.run(*words)
    assert host.systemctl.told() == []


@pytest.mark.parametrize("gone", [AGENT, RUNNER])
def test_an_interrupted_removal_is_finished_by_the_next_one(host: Host, gone: str) -> None:
    host.install()
    (host.units / gone).unlink()
    host.systemctl.told()

    said = host.run("uninstall", "host-17", "--unit-folder", str(host.units))

    assert host.written() == {}
    assert gone not in said
    assert host.systemctl.told()[-1] == "daemon-reload"


def test_a_unit_that_an_interrupted_run_left_unread_is_read_and_started_anew(host: Host) -> None:
    host.install()
    text = (host.units / AGENT).read_text()
    (host.units / AGENT).write_text(text.replace("RestartSec=5\n", "RestartSec=500\n"))
    host.systemctl.run("daemon-reload")
    (host.units / AGENT).write_text(text)
    host.systemctl.told()

    host.install()

    assert host.systemctl.told() == ["daemon-reload", f"restart {AGENT}"]
