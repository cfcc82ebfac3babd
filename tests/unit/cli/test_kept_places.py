"""The places of a person: which one commands go to, and what `headrace up` says beside one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client import NotRunning, find_place
from headrace.client.places.endpoint import Endpoint
from headrace.client.places.kept import SavedServers
from headrace.errors import BadInput
from headrace_cli.show.screen import Screen
from headrace_cli.up.command import _welcome
from headrace_cli.up.options import UpOptions
from headrace_cli.up.supervisor import Ready


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}


def keep(environment: dict[str, str], name: str) -> None:
    credential = Path(environment["XDG_CONFIG_HOME"]).with_name("credential")
    credential.write_text("person-ada:secret")
    SavedServers(environment).keep(name, Endpoint(f"nats://{name}:1", user="ada"), str(credential), "")


def test_the_last_login_is_used_or_the_one_that_is_chosen_and_what_is_said_goes_before_both(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(NotRunning):
        find_place(environment=environment)
    keep(environment, "one")
    keep(environment, "two")

    assert (find_place(environment=environment).url, find_place(environment=environment).user) == (
        "nats://two:1",
        "ada",
    )
    assert find_place(environment=environment | {"HEADRACE_PLACE": "one"}).url == "nats://one:1"
    assert find_place(environment=environment | {"HEADRACE_NATS_URL": "nats://far:1"}).url == "nats://far:1"
    assert find_place(url="nats://far:1", environment=environment).url == "nats://far:1"
    with pytest.raises(NotRunning, match="elsewhere"):
        find_place(environment=environment | {"HEADRACE_STATE": str(tmp_path / "elsewhere")})
    with pytest.raises(NotRunning, match="elsewhere"):
        find_place(state=tmp_path / "elsewhere", environment=environment)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", ".hidden", "A", "a" * 64])
def test_a_name_leads_nowhere_else(environment: dict[str, str], name: str) -> None:
    with pytest.raises(BadInput, match="name of a server"):
        SavedServers(environment).folder(name)


def test_an_unknown_name_is_answered_by_those_that_there_are(environment: dict[str, str]) -> None:
    keep(environment, "work")
    with pytest.raises(BadInput, match="did you mean work"):
        SavedServers(environment).forget("wrk")
    with pytest.raises(BadInput, match="HEADRACE_PLACE"):
        find_place(environment=environment | {"HEADRACE_PLACE": "wrk"})


def test_whoever_is_logged_in_elsewhere_is_told_how_to_reach_this_machine(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HEADRACE_STATE", raising=False)
    state = Path(environment["XDG_STATE_HOME"], "headrace")
    options, ready = UpOptions(state, 0, []), Ready([], 1.0, [])

    _welcome(Screen(), options, ready)
    before = capsys.readouterr().out
    keep(environment, "work")
    _welcome(Screen(), options, ready)

    assert "export" not in before
    assert f"export HEADRACE_STATE={state}" in capsys.readouterr().out


def test_another_terminal_is_told_of_a_state_folder_that_a_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_STATE", str(tmp_path))

    _welcome(Screen(), UpOptions(tmp_path, 0, []), Ready([], 1.0, []))

    assert f"export HEADRACE_STATE={tmp_path}" in capsys.readouterr().out
