"""Names on the command line: other words for commands, beginnings of ids, paths of pools."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G",)) as running:
        running.run("pool", "create", "lab")
        running.run("pool", "create", "/lab/vision")
        running.run("run", "--id", "same-begin-1", "--pool", "/lab/vision", "--wait", "--", "echo", "one")
        running.run("run", "--id", "same-begin-2", "--pool", "lab", "--wait", "--", "true")
        running.run("run", "--id", "only-one-begins-so", "--pool", "lab", "--wait", "--", "echo", "two")
        yield running


@pytest.mark.long
def test_words_of_other_tools_are_understood(up: Up) -> None:
    assert "same-begin-1" in up.run("ps").stdout
    assert up.run("pools", "ls").stdout == up.run("pool", "list").stdout
    assert "same-begin-1" in up.run("op", "describe", "same-begin-1").stdout
    assert "did you mean list or logs?" in up.run("op", "l", expect=2).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("op", "get"),
        ("op", "logs"),
        ("op", "wait"),
        ("op", "explain"),
        ("op", "history"),
        ("op", "abort"),
        ("trace",),
    ],
    ids=" ".join,
)
def test_the_beginning_of_an_id_is_enough_while_only_one_id_begins_so(up: Up, words: tuple[str, ...]) -> None:
    whole, part = (up.run(*words, name).stdout.partition("\n") for name in ("only-one-begins-so", "only"))
    assert part[0] == whole[0]
    several = up.run(*words, "same", expect=2).stderr

    assert "same-begin-1" in several
    assert "same-begin-2" in several


def test_what_changes_an_operation_takes_the_beginning_of_its_id(up: Up) -> None:
    up.run("run", "--id", "long-lived-1", "--pool", "lab", "--", "sleep", "1000")
    for words in (("suspend", "long"), ("resume", "long"), ("set", "long", "weight=2"), ("complete", "long")):
        assert "long-lived-1" in up.run("op", *words).stdout


def test_the_path_of_a_pool_stands_for_it(up: Up) -> None:
    assert json.loads(up.run("pool", "get", "/lab/vision", "--json").stdout)["parent"] == "lab"
    assert "same-begin-1" in up.run("op", "list", "--pool", "/lab/vision").stdout
    assert up.run("pool", "get", "/", "weight").stdout == up.run("pool", "get", "<Root>", "weight").stdout
    assert "vision" in up.run("pool", "volume", "/lab/vision").stdout
    up.run("pool", "create", "sight", "--parent", "/lab/vision")
    up.run("pool", "set", "/lab/vision/sight", "weight=2")
    up.run("pool", "transfer", "/", "/lab/vision", "max_operation_count=1", "--dry-run")
    up.run("pool", "move", "/lab/vision/sight", "--parent", "/")
    up.run("pool", "remove", "/sight")


def test_a_wrong_path_is_told_the_right_one(up: Up) -> None:
    for words in (("pool", "get"), ("pool", "remove"), ("op", "list", "--pool")):
        assert "did you mean /lab/vision?" in up.run(*words, "/vision", expect=4).stderr
    assert "there is no pool '/nolab'" in up.run("pool", "create", "/nolab/x", expect=4).stderr
    assert "--parent" in up.run("pool", "create", "/lab/x", "--parent", "lab", expect=2).stderr


def test_an_operation_is_moved_to_a_pool_by_its_path(up: Up) -> None:
    up.run("run", "--id", "moved-about", "--pool", "lab", "--", "sleep", "1000")
    up.run("op", "set", "moved-about", "pool=/lab/vision")

    view = json.loads(up.run("op", "get", "moved-about", "--json").stdout)["operation"]
    assert view["spec"]["pool"] == "vision"
    up.run("op", "abort", "moved-about")
