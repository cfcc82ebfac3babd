"""`headrace cluster install` and `uninstall` by root, with a `systemctl` of the test's own."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.systemd.systemctl import NoSystemd
from headrace.systemd.unit_files import CannotInstall
from headrace_cli.cluster import installation
from headrace_cli.cluster.command import init, install, uninstall
from headrace_cli.cluster.consumers import Consumer
from tests.as_root.test_accounts import account
from tests.as_root.test_install import NOBODY, acting_as
from tests.support.nats_server import free_port
from tests.support.systemctl import SystemctlFolder

__all__ = ["account"]

PARTS = ("nats", "admission", "fair_share", "integral", "allocator")
UNITS = [f"headrace-{name.replace('_', '-')}.service" for name in PARTS]


class Host:
    """A host with the folder of a cluster. It is not below /tmp, which a unit does not see."""

    def __init__(self, folder: Path, account: str) -> None:
        self.folder, self.account = folder, account
        self.cluster, self.units = folder / "cluster", folder / "units"
        self.systemctl = SystemctlFolder(folder / "systemctl", self.units)
        self.port = free_port()
        init(self.cluster, url="nats://127.0.0.1:1", listen=f"127.0.0.1:{self.port}", operator=True)

    def install(self, only: str = "", **more: object) -> None:
        install(self.cluster, only=only, unit_folder=self.units, **{"account": self.account, **more})  # type: ignore[arg-type]

    def owners(self, part: str) -> set[int]:
        folder = self.cluster / part
        return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


@pytest.fixture
def host(account: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with tempfile.TemporaryDirectory(dir="/var/lib") as folder:
        Path(folder).chmod(0o755)
        made = Host(Path(folder), account.pw_name)
        monkeypatch.setenv("PATH", f"{made.systemctl.bin}:{os.environ['PATH']}")
        # The clone that is tested may be in a folder that only root can enter.
        monkeypatch.setattr(installation, "check_reach", lambda account, folder: None)
        yield made


def test_the_server_starts_first_and_a_second_run_changes_nothing(
    host: Host, account: pwd.struct_passwd, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    host.install(dry_run=True)
    shown = capsys.readouterr().out
    assert (list(host.units.iterdir()), host.systemctl.told()) == ([], [])

    host.install()

    each = [words for unit in UNITS for words in ("daemon-reload", f"enable {unit}", f"start {unit}")]
    assert host.systemctl.told() == each
    for unit in UNITS:
        assert f"# {host.units}/{unit}\n{(host.units / unit).read_text()}" in shown
        assert (host.units / unit).stat().st_mode & 0o777 == 0o644
    assert "headrace-nats.service is enabled and started" in capsys.readouterr().out

    host.install()

    assert host.systemctl.told() == []
    assert capsys.readouterr().out == "".join(f"{unit} is installed and runs: nothing to change\n" for unit in UNITS)


def test_the_account_gets_the_folders_of_the_chosen_parts_and_no_others(
    host: Host, account: pwd.struct_passwd, capsys: pytest.CaptureFixture[str]
) -> None:
    store = host.cluster / "nats" / "store" / "jetstream"
    store.mkdir(parents=True)
    (store / "message").touch()
    (host.cluster / "admission").chmod(0o755)

    host.install("nats,admission")

    assert f"{host.cluster}/nats now belongs to {account.pw_name}" in capsys.readouterr().out
    assert [host.owners(part) for part in PARTS] == [{account.pw_uid}, {account.pw_uid}, {0}, {0}, {0}]
    assert {host.owners(part) == {0} for part in ("client", "authority", "provisioner")} == {True}
    assert (host.cluster / "admission").stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in host.units.iterdir()) == sorted(UNITS[:2])

    # What is written again stays with the account.
    init(host.cluster, url="nats://127.0.0.1:2", listen=f"127.0.0.1:{host.port}")
    assert host.owners("admission") == {account.pw_uid}


def test_web_is_installed_when_its_certificate_is_there(host: Host, account: pwd.struct_passwd) -> None:
    init(host.cluster, url="nats://127.0.0.1:1", listen=f"127.0.0.1:{host.port}", consumer=[Consumer.WEB])
    with pytest.raises(CannotInstall, match=r"web/server\.pem is missing"):
        host.install("web")
    assert (list(host.units.iterdir()), host.systemctl.told()) == ([], [])

    for name in ("server.pem", "server.key"):
        (host.cluster / "web" / name).write_text("")
    host.install("web")
    assert host.owners("web") == {account.pw_uid}


def test_notify_is_installed_when_its_rules_are_there(host: Host, account: pwd.struct_passwd) -> None:
    init(host.cluster, url="nats://127.0.0.1:1", listen=f"127.0.0.1:{host.port}", consumer=[*Consumer])
    with pytest.raises(CannotInstall, match=r"notify/rules\.yaml is missing"):
        host.install()
    assert (list(host.units.iterdir()), host.systemctl.told()) == ([], [])

    (host.cluster / "notify" / "rules.yaml").write_text("{}")
    host.install("notify,export")

    units = ["headrace-notify.service", "headrace-export.service"]
    assert host.systemctl.told() == [
        words for unit in units for words in ("daemon-reload", f"enable {unit}", f"start {unit}")
    ]
    assert host.owners("notify") == host.owners("export") == {account.pw_uid}


def test_links_in_a_folder_are_not_followed(host: Host, account: pwd.struct_passwd) -> None:
    precious = host.folder / "precious"
    precious.touch()
    store = host.cluster / "nats" / "store"
    store.mkdir()
    (store / "soft").symlink_to(precious)
    (store / "folder").symlink_to(host.cluster / "client")
    host.install("nats")
    assert (precious.stat().st_uid, host.owners("client")) == (0, {0})

    (host.cluster / "admission" / "hard").hardlink_to(precious)
    with pytest.raises(CannotInstall, match="hard is a link to a file elsewhere"):
        host.install("admission")
    assert precious.stat().st_uid == 0


def test_a_unit_that_differs_is_shown_and_only_its_process_is_restarted(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.install()
    host.systemctl.told()
    unit = host.units / "headrace-allocator.service"
    text = unit.read_text()
    unit.write_text(text.replace("RestartSec=1\n", "RestartSec=500\n"))
    capsys.readouterr()

    host.install()

    said = capsys.readouterr().out
    assert said.index("-RestartSec=500\n+RestartSec=1\n") < said.index("headrace-allocator.service is restarted")
    assert unit.read_text() == text
    assert host.systemctl.told() == ["daemon-reload", "restart headrace-allocator.service"]


def test_an_interrupted_run_is_finished_by_the_next_one(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.install()
    units = [host.units / name for name in UNITS[-2:]]
    texts = [unit.read_text() for unit in units]
    for unit, text in zip(units, texts, strict=True):
        unit.write_text(text.replace("RestartSec=1\n", "RestartSec=500\n"))
    host.systemctl.run("daemon-reload")
    host.systemctl.refuse("daemon-reload")
    with pytest.raises(NoSystemd):
        host.install()
    host.systemctl.refuse("")
    host.systemctl.told()

    host.install()

    assert [unit.read_text() for unit in units] == texts
    assert host.systemctl.told() == [words for name in UNITS[-2:] for words in ("daemon-reload", f"restart {name}")]


def test_units_of_another_cluster_and_of_somebody_else_stay(host: Host) -> None:
    other = host.folder / "other"
    init(other, url="nats://127.0.0.1:1", listen=f"127.0.0.1:{free_port()}", operator=True)
    install(other, only="integral", account=host.account, unit_folder=host.units)
    (host.units / "headrace-nats.service").write_text("[Service]\nExecStart=/opt/nats\n")
    before = {unit.name: unit.read_text() for unit in host.units.iterdir()}
    host.systemctl.told()

    for only, name in (("nats,admission", "nats"), ("integral", "integral")):
        said = f"{name}.service does not run {host.cluster}/{name} and was not changed"
        with pytest.raises(CannotInstall, match=said):
            host.install(only)
        with pytest.raises(CannotInstall, match=said):
            uninstall(host.cluster, only=only, unit_folder=host.units)
    assert host.systemctl.told() == []
    assert {unit.name: unit.read_text() for unit in host.units.iterdir()} == before
    assert {uid for part in PARTS for uid in host.owners(part)} == {0}
    uninstall(other, only="integral", unit_folder=host.units)
    assert [unit.name for unit in host.units.iterdir()] == ["headrace-nats.service"]


def test_a_link_in_place_of_a_folder_is_not_followed(host: Host) -> None:
    elsewhere = host.folder / "elsewhere"
    (host.cluster / "integral").rename(elsewhere)
    elsewhere.chmod(0o755)
    (host.cluster / "integral").symlink_to(elsewhere)

    with pytest.raises(CannotInstall, match="integral is a file or a symbolic link, but must be a folder"):
        host.install("integral")

    assert (elsewhere.stat().st_mode & 0o777, elsewhere.stat().st_uid) == (0o755, 0)


def test_uninstall_stops_the_server_last_and_keeps_the_folder(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.install()
    host.systemctl.told()

    uninstall(host.cluster, only="allocator", unit_folder=host.units)
    assert host.systemctl.told() == [
        "stop headrace-allocator.service",
        "disable headrace-allocator.service",
        "daemon-reload",
    ]
    uninstall(host.cluster, unit_folder=host.units)

    rest = [words for unit in reversed(UNITS[:-1]) for words in (f"stop {unit}", f"disable {unit}")]
    assert host.systemctl.told() == [*rest, "daemon-reload"]
    assert (list(host.units.iterdir()), (host.cluster / "nats" / "nats.conf").exists()) == ([], True)
    assert f"{host.cluster} stays" in capsys.readouterr().out
    uninstall(host.cluster, unit_folder=host.units)
    assert "nothing to change" in capsys.readouterr().out
    assert host.systemctl.told() == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"account": "no-such"}, "no account no-such: make it with `useradd --system .* no-such`"),
        ({"account": "root"}, "account root is the superuser"),
        ({"unit_folder": "/nowhere"}, "no unit can be written to /nowhere: No such file"),
    ],
)
def test_what_keeps_units_from_running_is_said_before_anything_is_done(
    more: dict[str, str], said: str, host: Host
) -> None:
    units = Path(more.pop("unit_folder", str(host.units)))

    with pytest.raises(CannotInstall, match=said):
        install(host.cluster, account=more.get("account", host.account), unit_folder=units)

    assert_nothing_is_done(host)


def test_a_host_without_systemd_and_a_person_who_is_not_root_are_refused(host: Host) -> None:
    host.install("nats")
    with acting_as(NOBODY):
        with pytest.raises(CannotInstall, match="only root can install systemd units"):
            host.install()
        with pytest.raises(CannotInstall, match="only root can remove systemd units"):
            uninstall(host.cluster, unit_folder=host.units)
    host.systemctl.refuse("show")
    with pytest.raises(NoSystemd, match="Failed to show: no such luck"):
        host.install()


def test_a_folder_that_was_moved_is_refused(host: Host) -> None:
    moved = host.folder / "moved"
    host.cluster.rename(moved)

    with pytest.raises(CannotInstall, match=r"nats\.conf names files in another folder"):
        install(moved, account=host.account, unit_folder=host.units)
    with pytest.raises(CannotInstall, match=r"settings\.toml names files in another folder"):
        install(moved, only="integral", account=host.account, unit_folder=host.units)

    host.cluster = moved
    assert_nothing_is_done(host)


def test_an_address_at_which_another_server_listens_is_refused(host: Host) -> None:
    with socket.create_server(("127.0.0.1", host.port)):
        with pytest.raises(CannotInstall, match=f"cannot listen at 127.0.0.1:{host.port} .Address already in use"):
            host.install()
        assert_nothing_is_done(host)
        host.install("allocator")
        # The server that systemd runs listens there itself.
        (host.folder / "systemctl" / "headrace-nats.service.active").write_text("0")
        host.install()


def test_a_folder_below_tmp_is_refused_as_command_with_status_2(tmp_path: Path, host: Host) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        init(Path(folder), url="nats://127.0.0.1:1", listen=f"127.0.0.1:{host.port}")
        words = ["cluster", "install", folder, "--account", host.account, "--unit-folder", str(host.units)]
        done = subprocess.run(
            [sys.executable, "-m", "headrace_cli", *words], env=dict(os.environ), capture_output=True, text=True, check=False
        )  # fmt: skip
    assert (done.returncode, "not below one of /tmp" in done.stderr) == (2, True), done.stderr
    assert_nothing_is_done(host)


def assert_nothing_is_done(host: Host) -> None:
    assert (list(host.units.iterdir()), host.systemctl.told()) == ([], [])
    assert {uid for part in PARTS for uid in host.owners(part)} == {0}
