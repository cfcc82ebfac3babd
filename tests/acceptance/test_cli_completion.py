"""Tab in a real bash, against a running Headrace: the line is carried out, so that what came of it is what the command would get."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

import headrace
from tests.support.bash_terminal import BashTerminal
from tests.support.forked_commands import program
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

OPERATION = "tab-completed-1"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G",)) as running:
        for pool in ("research", "hub", "team:x"):
            running.run("pool", "create", pool)
        anyio.run(make_a_hub, running.state)
        running.run("run", "--pool", "hub", "--title", "a title", "--id", OPERATION, "--", "sleep", "1000")
        yield running


async def make_a_hub(state: Path) -> None:
    async with headrace.connect(state=state) as client:
        await client.pools.set("hub", {"create_ephemeral_subpools": True})


@pytest.fixture(scope="module")
def bash(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BashTerminal]:
    with a_bash(up, tmp_path_factory.mktemp("bash")) as terminal:
        yield terminal


def a_bash(up: Up, folder: Path) -> BashTerminal:
    """Has the command and its completion; the command itself, carried out, prints what it was given."""
    programs = folder / "bin"
    programs.mkdir()
    program(programs / "headrace")
    (folder / "file of mine").touch()
    setup = """
source <(headrace completion bash)
headrace() { printf '[%s]' "$@"; echo; }
"""
    environment = up.environment | {"PATH": f"{programs}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    return BashTerminal(setup, folder, environment)


def carried_out(bash: BashTerminal, typed: str) -> str:
    """What the command was given."""
    return bash.line(typed).strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("headrace poo\tge\trese\tusage_s\t", "[pool][get][research][usage_share]"),
        ("headrace op list --po\tresea\t", "[op][list][--pool][research]"),
        ("headrace op list --in-state=pend\t", "[op][list][--in-state=pending]"),
        ("headrace pool get research fair_share/to\t", "[pool][get][research][fair_share/total]"),
        ("headrace pool set resea\tweig\t2", "[pool][set][research][weight=2]"),
        ("headrace pool set research mode=fi\t", "[pool][set][research][mode=fifo]"),
        (f"headrace op set {OPERATION} pool=rese\t", f"[op][set][{OPERATION}][pool=research]"),
        ("headrace tree get def\t", "[tree][get][default]"),
        ("headrace plan file\t", "[plan][file of mine]"),
        ("headrace run -- cat file\t", "[run][--][cat][file of mine]"),
    ],
)
def test_commands_options_words_and_names_are_completed(bash: BashTerminal, typed: str, given: str) -> None:
    assert carried_out(bash, typed) == given


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("headrace pool get hub\\$\t", "[pool][get][hub${user}]"),
        ("headrace pool get 'hub$\t", "[pool][get][hub${user}]"),
        ('headrace pool get "hub\\$\t', "[pool][get][hub${user}]"),
        ("headrace op list --pool=hub\\$\t", "[op][list][--pool=hub${user}]"),
        ("headrace pool get \\<\t", "[pool][get][<Root>]"),
        ("headrace pool get '<R\t", "[pool][get][<Root>]"),
        ("headrace pool get te\t", "[pool][get][team:x]"),
        ("headrace pool get team:\t", "[pool][get][team:x]"),
    ],
)
def test_names_with_special_characters_reach_the_command_as_they_are(
    bash: BashTerminal, typed: str, given: str
) -> None:
    assert carried_out(bash, typed) == given.replace("{user}", headrace.client.login_user())


def test_operations_are_shown_with_pool_and_title(up: Up, bash: BashTerminal) -> None:
    other = up.start_operation("--pool", "research", "--id", "tab-completed-2", "--title", "another", "--", "true")
    up.run("op", "wait", other)

    listed = bash.line("headrace op get tab-\t\t\t")

    assert f" in hub${headrace.client.login_user()}: a title)" in listed
    assert "completed in research: another)" in listed
    assert carried_out(bash, "headrace op abort tab-\t") == f"[op][abort][{OPERATION}]"


def test_a_state_folder_that_is_written_is_the_one_that_is_asked(up: Up, tmp_path: Path) -> None:
    words = ("complete", "zsh", "--", "pool", "remove", "--state", str(tmp_path), "")

    assert up.run(*words).stdout == ""
    assert "w\tresearch\t" in up.run(*words[:-2], str(up.state), "").stdout


def test_without_an_answer_nothing_is_said_and_nothing_started(up: Up, tmp_path: Path) -> None:
    server = next(process for process in up.processes() if "nats" in process.role)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        silent = up.run("complete", "fish", "--", "pool", "get", "")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert (silent.stdout, silent.stderr) == ("", "")

    nobody = up.run("complete", "zsh", "--", "op", "get", "--state", str(tmp_path / "new"), "")
    assert (nobody.stdout, nobody.stderr) == ("", "")
    assert not (tmp_path / "new").exists()
    for nonsense in (("bash",), ("zsh", "--", "pool", "get", "--nonsense=", "x"), ("fish", "--", "--", "--help")):
        said = up.run("complete", *nonsense)
        assert said.stderr == ""
