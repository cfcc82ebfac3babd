"""A person who was let in is no administrator unless `cluster init` names them, whatever was typed or left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import BadInput
from headrace.ids import group_name
from headrace.pools import person_of
from headrace.runtime.settings import CommonSettings, load
from headrace_admission.settings import AdmissionSettings
from headrace_allocator.settings import AllocatorSettings
from headrace_cli.cluster.command import init
from headrace_cli.persons.users import add
from headrace_fair_share.settings import FairShareSettings
from headrace_integral.settings import IntegralSettings

SERVICES: dict[str, type[CommonSettings]] = {
    "admission": AdmissionSettings,
    "fair_share": FairShareSettings,
    "integral": IntegralSettings,
    "allocator": AllocatorSettings,
}
URL = "nats://10.0.0.1:4222"


def administrators(cluster: Path, *people: str) -> list[str]:
    """Those of some people who may do everything, as every service reads it."""
    found = [
        [
            name
            for name in people
            if load(kind, service, cluster / service / "settings.toml", {}).person(name).administrator
        ]
        for service, kind in SERVICES.items()
    ]
    assert found == found[:1] * len(found)
    return found[0]


def client_user(cluster: Path) -> str:
    """The name by which commands with the folder `client` speak."""
    return str(json.loads((cluster / "client" / "endpoint.json").read_text())["user"])


def as_earlier_releases_made_it(cluster: Path) -> None:
    init(cluster, url=URL)
    options = cluster / "client" / "cluster.json"
    known = json.loads(options.read_text()) | {"administrators": "*"}
    options.write_text(json.dumps(known))
    init(cluster, url=URL)


@pytest.mark.parametrize("operator", [False, True])
def test_nobody_but_the_holder_of_the_clients_folder_administers_a_new_cluster(
    tmp_path: Path, operator: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    init(tmp_path, url=URL, operator=operator)
    assert f"administrators: the holder of {tmp_path / 'client'}" in capsys.readouterr().err
    add("ada", cluster=tmp_path)

    assert administrators(tmp_path, "ada", "root", "*", client_user(tmp_path)) == ["administrator"]


def test_the_named_are_administrators_and_stay_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for named in ("eve, ben", ""):
        init(tmp_path, url=URL, administrators=named)
        assert ", eve, ben\n" in capsys.readouterr().err
        assert administrators(tmp_path, "ada", "eve", "ben", client_user(tmp_path)) == ["eve", "ben", "administrator"]


def test_members_of_a_named_group_are_administrators_and_a_person_of_its_name_is_not(tmp_path: Path) -> None:
    init(tmp_path, url=URL, administrators="group:ops")
    named = load(AdmissionSettings, "admission", tmp_path / "admission" / "settings.toml", {}).administrator_names

    assert named == {"administrator", "group:ops"}
    assert person_of("ada", named, (group_name("ops"),)).administrator
    assert administrators(tmp_path, "ada", "ops", "group:ops") == []
    with pytest.raises(BadInput, match="group name"):
        init(tmp_path, url=URL, administrators="group:-")


def test_no_person_bears_the_administrators_name(tmp_path: Path) -> None:
    init(tmp_path / "new", url=URL)
    with pytest.raises(BadInput, match="administrator"):
        add("administrator", cluster=tmp_path / "new")

    as_earlier_releases_made_it(tmp_path / "old")
    add("administrator", cluster=tmp_path / "old")
    with pytest.raises(BadInput, match="administrator"):
        init(tmp_path / "old", url=URL, administrators="eve")
    assert administrators(tmp_path / "old", "ada") == ["ada"], "what was refused changes nothing"


def test_a_cluster_in_which_everybody_administers_says_so_until_it_is_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    as_earlier_releases_made_it(tmp_path)
    assert "everybody is an administrator here" in capsys.readouterr().err
    assert (administrators(tmp_path, "ada"), client_user(tmp_path)) == (["ada"], "")
    add("ada", cluster=tmp_path)
    assert "everybody is an administrator here" in capsys.readouterr().err

    init(tmp_path, url=URL, administrators="eve")
    assert administrators(tmp_path, "ada", "eve", client_user(tmp_path)) == ["eve", "administrator"]
    init(tmp_path, url=URL, administrators="*")
    assert administrators(tmp_path, "ada") == ["ada"], "where it was asked for"
