"""The state folder, its lock, and what stands in it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from headrace.access.permissions import Party, server_users
from headrace.access.routes import PartyKind
from headrace.client.place import find_place
from headrace.client.places.endpoint import Endpoint
from headrace.obs.trace_sinks import Traces
from headrace_cli.up.configuration import agent_settings, nats_configuration, to_toml
from headrace_cli.up.log_lines import last_words, tail
from headrace_cli.up.marks import find
from headrace_cli.up.node_option import parse_node
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


def test_the_secret_stays_the_same(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    password = state.secret(state.credential, "anna")

    assert state.secret(state.credential, "anna") == password
    assert state.credential.read_text() == f"anna:{password}\n"
    assert len(password) >= 32
    assert StateFolder(tmp_path / "other").path != tmp_path


def test_clients_find_what_was_announced_until_it_is_withdrawn(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.announce(Endpoint(url="nats://127.0.0.1:4711"))

    place = find_place(state=tmp_path)

    assert (place.url, place.credential_file) == ("nats://127.0.0.1:4711", str(tmp_path / "credential"))
    state.withdraw()
    assert not state.endpoint.exists()


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
    assert settings["common"]["nats_url"] == "nats://127.0.0.1:4711"


def test_the_server_listens_to_this_machine_only_and_syncs_always(tmp_path: Path) -> None:
    admitted = server_users({Party(kind=PartyKind.PERSON): {"user": "headrace", "password": "secret"}})
    text = nats_configuration(tmp_path, "127.0.0.1:4711", admitted)

    assert 'listen: "127.0.0.1:4711"' in text
    assert "sync_interval: always" in text
    assert 'password: "secret"' in text
    assert "headrace.v1.user.*.op.start" in text


def test_the_last_words_are_the_last_error_else_the_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"level":"error","event":"bus lost","error":"nobody\\nthere"}\n{"level":"info","event":"ended"}\n')
    assert last_words(log, 0) == "bus lost: there"

    log.write_text("Traceback\nModuleNotFoundError: no module\n")
    assert last_words(log, 0) == "ModuleNotFoundError: no module"
    assert last_words(log, log.stat().st_size) == ""
    assert tail(tmp_path / "missing", 3) == []


def test_no_process_belongs_to_a_new_folder(tmp_path: Path) -> None:
    assert find(tmp_path) == []
