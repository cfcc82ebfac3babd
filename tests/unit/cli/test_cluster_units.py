"""The texts of the systemd units that `headrace cluster install` writes, and which processes of a folder it chooses."""

from __future__ import annotations

import configparser
import getpass
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.client.place import find_place
from headrace.errors import BadInput
from headrace.systemd.unit_text import SystemdUnit, command_line, quoted
from headrace_cli.cluster.command import init
from headrace_cli.cluster.consumers import Consumer
from headrace_cli.cluster.installation import ClusterInstallation, chosen_processes
from headrace_cli.persons.users import add
from tests.unit.test_docs_commands import LINE, parse

SERVICES = ["admission", "fair_share", "integral", "allocator"]


def read(unit: SystemdUnit) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.text)
    return parser


def units_of(cluster: Path, *only: str, account: str = "science") -> list[SystemdUnit]:
    return ClusterInstallation(cluster, chosen_processes(cluster, only), account, Path("/units")).units()


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    init(tmp_path / "a b" / "cluster", url="nats://10.0.0.1:4222")
    return tmp_path / "a b" / "cluster"


def test_the_server_and_each_service_has_a_unit_with_its_own_configuration(cluster: Path) -> None:
    server, *services = units_of(cluster)

    assert server.name == "headrace-nats.service"
    words = shlex.split(read(server)["Service"]["ExecStart"])
    assert words[1:3] == ["-m", "headrace_cli.cluster.watched_server"]
    assert (Path(words[3]).name, words[4:]) == ("nats-server", ["-c", str(cluster / "nats" / "nats.conf")])
    assert [unit.name for unit in services] == [f"headrace-{name.replace('_', '-')}.service" for name in SERVICES]
    for unit, name in zip(services, SERVICES, strict=True):
        words = shlex.split(read(unit)["Service"]["ExecStart"])
        assert words[1:] == ["-m", f"headrace_{name}", "--config", str(cluster / name / "settings.toml")]


def test_services_start_after_the_server_and_all_are_started_again_for_ever(cluster: Path) -> None:
    server, *services = map(read, units_of(cluster))

    assert all("headrace-nats.service" in unit["Unit"]["After"].split() for unit in services)
    # A restart of the server must not restart the services.
    assert all(unit["Unit"]["Wants"] == "network-online.target" for unit in (server, *services))
    for unit in (server, *services):
        assert (unit["Service"]["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")
        assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert server["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert not any("ExecReload" in unit["Service"] for unit in services)


def test_a_process_has_no_rights_and_sees_only_its_own_folder(cluster: Path) -> None:
    server, *services = map(read, units_of(cluster))

    for unit in (server, *services):
        own = unit["Service"]
        assert (own["User"], own["UMask"], own["CapabilityBoundingSet"]) == ("science", "0077", "")
        assert (own["NoNewPrivileges"], own["ProtectSystem"], own["PrivateTmp"]) == ("yes", "strict", "yes")
        assert own["TemporaryFileSystem"] == f'"{cluster}":ro'
    assert server["Service"]["BindPaths"] == f'"{cluster}/nats"'
    for unit, name in zip(services, SERVICES, strict=True):
        assert unit["Service"]["BindReadOnlyPaths"] == f'"{cluster}/{name}"'
        assert "BindPaths" not in unit["Service"]


def test_systemd_watches_every_process_and_takes_messages_of_the_watcher_of_the_server(cluster: Path) -> None:
    server, *services = map(read, units_of(cluster))

    for unit in (server, *services):
        assert unit["Service"]["Type"] == "notify"
        assert int(unit["Service"]["WatchdogSec"]) > 0
    assert server["Service"]["NotifyAccess"] == "all"
    assert not any("NotifyAccess" in unit["Service"] for unit in services)


def test_a_consumer_has_its_login_its_files_and_its_state_in_its_folder(cluster: Path) -> None:
    init(cluster, url="nats://10.0.0.1:4222", consumer=[Consumer.NOTIFY, Consumer.EXPORT])
    notify, export = map(read, units_of(cluster, "notify", "export"))

    for unit, name in ((notify, "notify"), (export, "export")):
        own = unit["Service"]
        assert (own["Type"], own["Restart"], own["WatchdogSec"]) == ("notify", "always", "60")
        assert (own["BindPaths"], own["EnvironmentFile"]) == (f'"{cluster}/{name}"', f"-{cluster}/{name}/environment")
        assert "headrace-nats.service" in unit["Unit"]["After"]
        words = shlex.split(own["ExecStart"])
        assert words[1:3] == ["-m", "headrace_cli"]
        parse(shlex.join(words[3:]))
        assert words[-2:] == ["--state", str(cluster / name)]
        place = find_place(state=cluster / name)
        assert (place.user, place.url) == (f"headrace-{name}", "nats://10.0.0.1:4222")
        assert (cluster / name / "credential").exists()
    assert str(cluster / "notify" / "rules.yaml") in shlex.split(notify["Service"]["ExecStart"])
    # Another run keeps the consumers, and no person may have the name of a consumer.
    init(cluster, url="nats://10.0.0.2:4222")
    assert find_place(state=cluster / "notify").url == "nats://10.0.0.2:4222"
    assert [unit.name for unit in units_of(cluster)][-2:] == ["headrace-notify.service", "headrace-export.service"]
    with pytest.raises(BadInput, match="headrace-notify is already the name that "):
        add("headrace-notify", cluster=cluster)


def test_the_web_service_has_a_folder_without_a_credential(cluster: Path) -> None:
    init(cluster, url="nats://10.0.0.1:4222", consumer=[Consumer.WEB])
    (unit,) = map(read, units_of(cluster, "web"))
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[1:5] == ["-m", "headrace_cli", "web", "--listen"]
    parse(shlex.join(words[3:]))
    assert {str(cluster / "web" / name) for name in ("server.pem", "server.key")} < set(words)
    assert find_place(state=cluster / "web").url == "nats://10.0.0.1:4222"
    assert not (cluster / "web" / "credential").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(cluster: Path, tmp_path: Path) -> None:
    init(cluster, url="nats://10.0.0.1:4222", consumer=[*Consumer])
    folder = tmp_path / "units"
    folder.mkdir()
    for unit in units_of(cluster, account=getpass.getuser()):
        (folder / unit.name).write_text(unit.text)

    command = ["systemd-analyze", "verify", "--man=no", *sorted(map(str, folder.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    # It also complains about units of the host.
    assert [line for line in done.stderr.splitlines() if "headrace-" in line] == []


def test_only_chooses_by_the_names_of_folders(cluster: Path) -> None:
    assert [unit.name for unit in units_of(cluster, "allocator", "nats")] == [
        "headrace-nats.service",
        "headrace-allocator.service",
    ]
    with pytest.raises(BadInput, match="--only: 'admision' cannot be used; did you mean admission"):
        units_of(cluster, "admision")
    shutil.rmtree(cluster / "nats")
    assert units_of(cluster)[0].name == "headrace-admission.service"
    with pytest.raises(BadInput, match=r"FOLDER.*a folder made by `headrace cluster init`"):
        units_of(cluster.parent)


def test_each_of_several_servers_has_a_host_of_its_own(tmp_path: Path) -> None:
    init(tmp_path, url="nats://a:4222,nats://b:4222,nats://c:4222", servers="a,b,c")

    assert [unit.name for unit in units_of(tmp_path, "b")] == ["headrace-nats-b.service"]
    (allocator,) = units_of(tmp_path, "allocator")
    assert "headrace-nats-a.service headrace-nats-b.service headrace-nats-c.service" in read(allocator)["Unit"]["After"]
    with pytest.raises(BadInput, match="include more than one server"):
        units_of(tmp_path)


@pytest.mark.parametrize(("word", "path"), [("/a b", '"/a b"'), ("/50%", '"/50%%"'), ("/a$b", '"/a$b"'), ("/a", "/a")])
def test_a_path_is_quoted_for_a_setting_and_for_a_command(word: str, path: str) -> None:
    assert quoted(word) == path
    assert command_line(["x", word]) == f"x {path.replace('$', '$$')}"


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"url": "nats://h:4222"}, "cluster init FOLDER --node host-17"),
        ({"url": "nats://h:4222", "operator": True}, "node token host-17"),
        ({"url": "nats://a:1,nats://b:1,nats://c:1", "servers": "a,b,c"}, "cluster install FOLDER --only b"),
        ({"url": "nats://a:1,nats://b:1,nats://c:1", "servers": "a,b,c"}, "FOLDER/provisioner/credential --replicas 3"),
    ],
)
def test_a_new_cluster_ends_with_the_next_commands_and_another_run_does_not(
    options: dict[str, object], first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init(tmp_path, **options)  # type: ignore[arg-type]
    said = capsys.readouterr().err

    lines = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert any(first.replace("FOLDER", str(tmp_path)) in line for line in lines)
    commands = [found["words"] for line in lines if (found := LINE.fullmatch(line)) and "…" not in line]
    for command in commands:
        parse(command)
    nouns = [" ".join(command.split()[:2]) for command in commands]
    assert {"cluster install", "bus provision", "service list", "user add"} <= set(nouns)
    assert "docker compose -f compose/compose.yaml up -d --build" in lines

    init(tmp_path, **options)  # type: ignore[arg-type]
    assert "next" not in capsys.readouterr().err
