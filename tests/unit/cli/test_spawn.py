"""How `up` starts a process: with an environment in which the user's own word goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace_cli.up.commands import commands, server_cores
from headrace_cli.up.options import UpOptions
from headrace_cli.up.processes import Command, collect, spawn
from headrace_cli.up.state_folder import StateFolder


@pytest.mark.parametrize(("cores", "used"), [(1, 1), (2, 1), (7, 1), (8, 2), (64, 16)])
def test_the_server_has_a_quarter_of_the_cores(cores: int, used: int) -> None:
    assert server_cores(cores) == used


@pytest.mark.parametrize(("environment", "told"), [({}, "1"), ({"GOMAXPROCS": "3"}, "3")])
def test_what_the_user_set_goes_before_a_default(environment: Mapping[str, str], told: str, tmp_path: Path) -> None:
    command = Command(["/bin/sh", "-c", "echo $GOMAXPROCS"], tmp_path / "log", {"GOMAXPROCS": "1"})
    assert collect(spawn(command, environment)) == 0
    assert command.log.read_text() == f"{told}\n"


def test_only_the_server_is_told_how_many_cores_it_may_use(tmp_path: Path) -> None:
    found = {
        plan.name: command
        for plan, command in commands(StateFolder(tmp_path), UpOptions(state=tmp_path, port=0, nodes=[]))
    }
    assert [name for name, command in found.items() if "GOMAXPROCS" in command.defaults] == ["nats-server"]
