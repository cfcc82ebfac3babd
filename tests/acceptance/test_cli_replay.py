"""`headrace replay`, typed at a running Headrace on which operations ran."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.ids import TreeName
from headrace.pools import Tree
from headrace.wire.replay import ReplayTask
from headrace_cli.replay.command import _replayed
from headrace_cli.show.screen import Screen
from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "replay-a-day.md"
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as running:
        for name in ("research", "adhoc"):
            running.run("pool", "create", name)
        for name in ("research", "adhoc"):
            running.run("run", "--pool", name, "--jobs", "8", "--id", f"of-{name}-0001", "--", "sleep", "0.7")
        for name in ("research", "adhoc"):
            running.run("op", "wait", f"of-{name}-0001")
        yield running


@pytest.fixture
def pools(up: Up, tmp_path: Path) -> Path:
    """The configuration as it is, in a file."""
    file = tmp_path / "pools.yaml"
    file.write_text(up.run("pool", "export", "--options").stdout)
    return file


@pytest.mark.long
def test_nothing_changes_under_the_same_configuration(up: Up, pools: Path) -> None:
    said = json.loads(up.run("replay", "--with", str(pools), "--since", "1h", "--json").stdout)
    by_name = {each["pool"]: each for each in said["pools"]}

    assert all(each["before"] == each["after"] for each in said["pools"])
    assert said["operations"] == 2
    assert said["job_runs"] == 16
    # Asked right behind the last end: what starts a moment later in the replay is cut where its time ends.
    assert said["agreement"]["replayed_usage"] == pytest.approx(said["agreement"]["recorded_usage"], rel=0.3)
    assert by_name["research"]["before"]["usage"] == pytest.approx(8 * 0.7 / 3600, rel=0.3)
    assert up.run("pool", "export", "--options").stdout == pools.read_text()


def test_another_weight_is_seen_in_the_table_and_in_a_picture(up: Up, tmp_path: Path) -> None:
    file, picture = tmp_path / "pools.yaml", tmp_path / "replay.png"
    file.write_text("pools: {research: {weight: 3}, adhoc: {}}\n")
    got = up.run("replay", "--with", str(file), "--since", "1h", "--plot", str(picture))

    assert "agreement: " in got.stdout
    assert "2 operations, 16 runs of jobs" in got.stdout
    assert "→" in next(line for line in got.stdout.splitlines() if "research" in line)
    assert "replayed 100 %" in got.stderr
    assert picture.read_bytes().startswith(PNG)


def test_ctrl_c_ends_the_replay_even_where_its_process_is_stuck(up: Up, pools: Path) -> None:
    asking = up.begin("replay", "--with", str(pools), "--since", "1h")
    itself = psutil.Process(asking.pid)
    while not (replaying := [each for each in itself.children() if "headrace_simulator" in each.cmdline()]):
        time.sleep(0.005)
    replaying[0].suspend()
    asking.send_signal(signal.SIGINT)

    assert asking.wait() == 130
    assert not replaying[0].is_running()
    assert "Traceback" not in asking.communicate()[1]


def test_ctrl_c_while_its_process_begins_ends_that_too(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    tree = TreeName("default")
    task = ReplayTask(tree, 0, 1, 1, "cpu", [], [], [], Tree(tree=tree), [])

    with pytest.raises(KeyboardInterrupt):
        _replayed(task, Screen(json=False))

    assert begun[0].returncode == -signal.SIGKILL


def test_what_cannot_be_replayed_is_refused_with_its_reason(up: Up, pools: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("pools: {research: {mode: fifo, pools: {vision: {}}}, adhoc: {}}\n")
    as_import = up.run("pool", "import", str(broken), "--dry-run", expect=4).stderr
    refused = up.run("replay", "--with", str(broken), expect=4).stderr
    rules = [line for line in as_import.splitlines() if line.startswith("  ")]

    assert rules
    assert all(rule in refused for rule in rules)
    assert "no-such.yaml" in up.run("replay", "--with", "no-such.yaml", expect=2).stderr
    too_early = up.run("replay", "--with", str(pools), "--since", "2d", "--until", "1d", expect=2).stderr
    assert "a period in which operations ran" in too_early
    assert "--step" in up.run("replay", "--with", str(pools), "--step", "soon", expect=2).stderr
    assert ".png or .svg" in up.run("replay", "--with", str(pools), "--plot", "replay.txt", expect=2).stderr
    assert "--with" in up.run("replay", expect=2).stderr


@pytest.mark.long
def test_a_day_is_replayed_as_the_page_says() -> None:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as up:
        said = typed(up, PAGE)
        picture = (up.state / "replay.png").read_bytes() if (up.state / "replay.png").exists() else b""

    assert "→" in said["replay --with heavier.yaml --since 1h"]
    assert "→" not in said["replay --with pools.yaml --since 1h"]
    assert "agreement: " in said["replay --with pools.yaml --since 1h"]
    assert picture.startswith(PNG)
