"""The state folder, its lock, and what stands in it."""

from __future__ import annotations

import os
import socket
import subprocess
import tomllib
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from headrace.access.permissions import MOST_SUBSCRIPTIONS_OF_A_SERVICE, Party, server_users
from headrace.access.routes import PartyKind
from headrace.bus.credential_files import read_credential
from headrace.client import NotRunning
from headrace.client.place import find_place, moved
from headrace.client.places.endpoint import Endpoint
from headrace.errors import BadInput
from headrace.files.proc import read_proc
from headrace.obs.trace_sinks import Traces
from headrace_cli.stores import as_provisioner
from headrace_cli.up import log_lines, process_marks, state_folder
from headrace_cli.up.configuration import agent_settings, nats_configuration, to_toml
from headrace_cli.up.log_lines import follow_logs, last_words, size_of, tail
from headrace_cli.up.log_sizes import cut_large_logs
from headrace_cli.up.node_option import parse_node
from headrace_cli.up.process_marks import UP_MARK, Found, find
from headrace_cli.up.processes import open_log
from headrace_cli.up.state_folder import InUse, StateFolder, take_lock


def test_one_at_a_time_holds_the_folder(tmp_path: Path) -> None:
    with take_lock(tmp_path), pytest.raises(InUse, match="nothing was changed"), take_lock(tmp_path):
        pass
    with take_lock(tmp_path):
        pass


def test_everything_in_it_is_for_its_owner_only(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    state.make()
    state.secret(state.credential, "headrace")
    state.announce(Endpoint(url="nats://127.0.0.1:1"))

    assert {path.stat().st_mode & 0o077 for path in [state.path, *state.path.rglob("*")]} == {0}


def test_a_lock_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    state = tmp_path / "state"
    state.mkdir()
    (state / "lock").symlink_to(precious)

    with pytest.raises(BadInput, match="its file `lock` is a symbolic link"), take_lock(state):
        pass

    assert precious.read_text() == "mine\n"


def test_a_log_that_leads_elsewhere_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "precious")

    with pytest.raises(OSError, match="symbolic links"), open_log(tmp_path / "log"):
        pass

    assert not (tmp_path / "precious").exists()


def test_a_folder_that_others_could_write_is_private_once_it_is_held(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with take_lock(tmp_path):
        assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_credential_that_is_no_text_is_refused_with_its_name(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.secret(state.credential, "anna")
    with open(state.credential, "ab") as file:
        file.write(b"\xff\xfe")

    for read in (lambda: state.secret(state.credential, "anna"), lambda: read_credential(str(state.credential))):
        with pytest.raises(BadInput, match=str(state.credential)):
            read()


def test_the_secret_stays_the_same_until_it_is_renewed(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    password = state.secret(state.credential, "anna")

    assert state.secret(state.credential, "anna") == password
    assert state.credential.read_text() == f"anna:{password}\n"
    assert len(password) >= 32
    assert state.renew_secret(state.credential, "anna") != password


def test_clients_find_what_was_announced_until_it_is_withdrawn(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.announce(Endpoint(url="nats://127.0.0.1:4711"))

    place = find_place(state=tmp_path)

    assert (place.url, place.credential_file) == ("nats://127.0.0.1:4711", str(tmp_path / "credential"))
    state.withdraw()
    assert not state.endpoint.exists()
    assert moved(place) == place
    state.announce(Endpoint(url="nats://127.0.0.1:4712"))
    assert moved(place).url == "nats://127.0.0.1:4712"
    state.withdraw(whole=True)
    state.endpoint.mkdir()
    assert moved(place) == place
    with pytest.raises(NotRunning, match="cannot be read: Is a directory; it is not known whether Headrace is running"):
        find_place(state=tmp_path)
    state.withdraw(whole=True)  # what cannot be removed stays


def test_any_text_survives_in_toml() -> None:
    text = 'a "quoted" \\ path\twith ünicode'

    assert tomllib.loads(to_toml({"common": {"x": text, "n": 3, "b": True}})) == {
        "common": {"x": text, "n": 3, "b": True}
    }


def test_an_agent_gets_what_its_node_offers(tmp_path: Path) -> None:
    settings = tomllib.loads(
        agent_settings(
            StateFolder(tmp_path), 4711, "info", parse_node("small:cpu=0.5,memory=1G"), tmp_path / "proof", Traces()
        )
    )

    assert settings["agent"] == {
        "node": "small",
        "state_folder": str(tmp_path / "agents" / "small"),
        "machine": "*",
        "users": "agent",
        "credential_file": str(tmp_path / "proof"),
        "cpu": "0.5",
        "memory": "1G",
    }
    assert settings["common"]["nats_url"] == "tls://127.0.0.1:4711"
    assert settings["common"]["ca_file"] == str(tmp_path / "ca.pem")


def test_the_server_listens_to_this_machine_only_and_syncs_always(tmp_path: Path) -> None:
    admitted = server_users({Party(kind=PartyKind.PERSON): {"user": "headrace", "password": "secret"}})
    text = nats_configuration(tmp_path, "127.0.0.1:4711", admitted)

    assert 'listen: "127.0.0.1:4711"' in text
    assert "sync_interval: always" in text
    assert 'password: "secret"' in text
    assert "headrace.v1.user.*.op.start" in text
    # Once 200 connections that read nothing held 1.2 GB of the server, and 100,000 subscriptions delayed each message.
    assert "max_pending: 64MB" in text
    assert f"max_subscriptions: {MOST_SUBSCRIPTIONS_OF_A_SERVICE}" in text


def test_the_last_words_are_the_last_error_else_the_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"level":"error","event":"bus lost","error":"nobody\\nthere"}\n{"level":"info","event":"ended"}\n')
    assert last_words(log, 0) == "bus lost: there"

    log.write_text("Traceback\nModuleNotFoundError: no module\n")
    assert last_words(log, 0) == "ModuleNotFoundError: no module"
    assert last_words(log, log.stat().st_size) == ""
    assert tail(tmp_path / "missing", 3) == []


def test_a_large_log_is_cut_while_it_is_written(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.make()
    (state.agents / "alpha").mkdir()
    logs = [state.log("admission"), state.agents / "alpha" / "runner.log"]
    with open_log(logs[0]) as first, open_log(logs[1]) as second:
        for log in (first, second):
            log.write(b"x" * 100)
            log.flush()
        cut_large_logs(tmp_path, largest_bytes=100)
        assert [log.read_bytes() for log in logs] == [b"x" * 100] * 2
        first.write(b"y")
        first.flush()
        cut_large_logs(tmp_path, largest_bytes=100)
        first.write(b"last words\n")
        first.flush()

    old = logs[0].with_name("admission.log.1")
    assert (logs[0].read_bytes(), old.read_bytes()) == (b"last words\n", b"x" * 100 + b"y")
    assert old.stat().st_mode & 0o777 == 0o600
    assert last_words(logs[0], 50) == "last words"
    assert logs[1].read_bytes() == b"x" * 100


def test_a_full_disk_keeps_no_log_large(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.make()
    state.log("admission").write_bytes(b"x" * 100)
    # Nothing can be copied there.
    (state.logs / "admission.log.1").mkdir()
    cut_large_logs(tmp_path, largest_bytes=10)

    assert state.log("admission").read_bytes() == b""


def test_no_process_belongs_to_a_new_folder(tmp_path: Path) -> None:
    assert find(tmp_path) == []


def test_a_command_line_that_ends_with_the_option_of_a_module_is_of_no_service(tmp_path: Path) -> None:
    environment = {**os.environ, UP_MARK: str(tmp_path)}
    with subprocess.Popen(["sh", "-m"], stdin=subprocess.PIPE, env=environment) as process:
        assert find(tmp_path) == [Found(process.pid, "other")]
        process.kill()


def test_a_process_is_found_in_the_middle_of_its_execve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, UP_MARK: str(tmp_path)}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        hidden = {f"/proc/{process.pid}/cmdline": 3, f"/proc/{process.pid}/environ": 4}

        def read(path: str, *limit: int) -> bytes:
            hidden[path] = hidden.get(path, 0) - 1
            return b"" if hidden[path] >= 0 else read_proc(path, *limit)

        monkeypatch.setattr(process_marks, "read_proc", read)
        found = find(tmp_path)
        process.kill()
    assert found == [Found(process.pid, "other")]


async def test_a_log_that_is_removed_while_it_is_read_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = tmp_path / "gone", tmp_path / "there"
    sizes = iter([0])
    monkeypatch.setattr(log_lines, "size_of", lambda path: next(sizes, 9) if path == gone else size_of(path))
    shown: list[str] = []
    told = anyio.Event()

    def show(line: str) -> None:
        shown.append(line)
        told.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow_logs, {"gone": gone, "there": there}, show)
            await anyio.lowlevel.checkpoint()
            there.write_text("a line\n")
            await told.wait()
            tasks.cancel_scope.cancel()

    assert shown == ["there | a line"]


def test_a_chosen_credential_comes_before_that_of_the_provisioner_in_the_folder(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.make()
    state.announce(Endpoint(url="nats://127.0.0.1:1"))
    folder = {"HEADRACE_STATE": str(tmp_path)}
    chosen = find_place(environment={**folder, "HEADRACE_CREDENTIAL_FILE": "/a/credential"})
    given = find_place(state=tmp_path, credential_file="/b/credential")
    elsewhere = find_place(environment={"HEADRACE_NATS_URL": "nats://a:1"})
    own = find_place(environment=folder)
    assert as_provisioner(own) == own, "the folder has no provisioner"

    file = state.credentials / "provisioner"
    state.renew_secret(file, "provisioner")

    assert [as_provisioner(each) for each in (chosen, given, elsewhere)] == [chosen, given, elsewhere]
    assert as_provisioner(own).credential_file == str(file)


def test_a_port_that_the_user_may_not_use_is_not_called_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(socket.socket, "bind", denied)

    with pytest.raises(BadInput, match="a port that this user may listen on"):
        state_folder.port_is_free(80)
