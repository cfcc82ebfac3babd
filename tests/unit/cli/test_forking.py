"""Services that are forked instead of started: what tells them from one another, and what comes back of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from headrace_cli.up.forking import Nursery
from headrace_cli.up.processes import Command, collect


def command(folder: Path, module: str, *words: str) -> Command:
    return Command([sys.executable, "-m", module, *words], folder / f"{module}.log", is_forked=True)


@pytest.fixture
def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "NURSED": "yes"}


def test_a_forked_service_is_a_child_and_looks_as_if_it_had_been_started(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """It waits for settings from a pipe as long as the test looks at it."""
    os.mkfifo(tmp_path / "settings")
    commands = {"a": command(tmp_path, "headrace_admission", "--config", str(tmp_path / "settings"))}
    nursery = Nursery(commands, environment)

    pid = nursery.claim("a")

    assert pid is not None
    process = psutil.Process(pid)
    assert [word for word in process.cmdline() if word] == commands["a"].argv
    assert process.environ()["NURSED"] == "yes"
    assert (process.ppid(), os.getsid(pid)) == (os.getpid(), pid)
    assert process.num_threads() == 1
    process.kill()
    assert collect(pid) == -9


def test_each_has_its_own_log_and_exit_status(tmp_path: Path, environment: dict[str, str]) -> None:
    commands = {
        "a": command(tmp_path, "headrace_admission", "--config", "missing-a"),
        "b": command(tmp_path, "headrace_agent", "--config", "missing-b"),
        "server": Command(["server", "-c"], tmp_path / "server.log"),
    }
    nursery = Nursery(commands, environment)

    assert nursery.claim("server") is None
    for name, program in (("a", "headrace-admission"), ("b", "headrace-agent")):
        pid = nursery.claim(name)
        assert pid is not None
        assert collect(pid) == 2
        said = commands[name].log.read_text()
        assert f"{program}: " in said
        assert f"missing-{name}" in said
        assert commands[name].log.stat().st_mode & 0o077 == 0
        assert nursery.claim(name) is None, "it is started by itself from now on"


def test_nothing_is_forked_where_one_service_cannot_be_imported(tmp_path: Path, environment: dict[str, str]) -> None:
    commands = {
        "a": command(tmp_path, "headrace_admission", "--config", "missing"),
        "b": command(tmp_path, "headrace_which_is_not_there"),
    }
    before = psutil.Process().children()
    nursery = Nursery(commands, environment)

    assert [nursery.claim(name) for name in commands] == [None, None]
    assert psutil.Process().children() == before
