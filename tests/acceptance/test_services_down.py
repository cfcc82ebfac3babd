"""What commands say in a cluster in which a service is down, or that has a tree that no process serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace_cli.exit_statuses import Exit
from tests.acceptance.test_people import Team, a_team

pytestmark = pytest.mark.long

ID = "waits-for-a-node"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """A cluster of admission and fair_share, without an allocator."""
    with a_team(tmp_path_factory.mktemp("cluster"), operator=False) as team:
        as_administrator(team, "run", "--id", ID, "--cwd", "/", "--", "true")
        yield team


def as_administrator(team: Team, *words: str, status: Exit = Exit.DONE, **environment: str) -> tuple[str, str]:
    done = team.run(*words, status=status, HEADRACE_STATE=str(team.cluster / "client"), COLUMNS="1000", **environment)
    return done.stdout, done.stderr


def test_the_service_that_is_down_is_named_and_the_rest_is_shown(team: Team) -> None:
    commands = (("op", "get", ID), ("op", "explain", ID), ("tree", "list"))
    with ThreadPoolExecutor() as threads:
        done = list(threads.map(lambda words: as_administrator(team, *words), commands))
    for words, (shown, said) in zip(commands, done, strict=True):
        assert shown, words
        assert said.count("the allocator is down: no ") == 1, (words, said)
    missing = json.loads(as_administrator(team, "service", "list", "--json", status=Exit.FAILED)[0])["missing"]
    assert missing == ["allocator.default", "integral.default"]


def test_what_only_that_service_knows_is_refused_with_its_name(team: Team) -> None:
    for words in (("node", "list"), ("node", "get", "host-17")):
        _, said = as_administrator(team, *words, status=Exit.NOT_RUNNING)
        assert said.startswith("the allocator is down: node.list"), (words, said)


def test_a_tree_that_no_process_serves_is_named_when_it_is_made_and_when_it_is_meant(team: Team) -> None:
    unserved = "no process serves tree batch: start fair_share, integral and allocator with the setting `tree`"
    _, said = as_administrator(team, "tree", "create", "batch")
    assert unserved in said

    commands = (("pool", "create", "nightly"), ("pool", "list"), ("node", "list"))
    with ThreadPoolExecutor() as threads:
        done = list(
            threads.map(
                lambda words: as_administrator(team, *words, status=Exit.NOT_RUNNING, HEADRACE_TREE="batch"), commands
            )
        )
    for words, (_, said) in zip(commands, done, strict=True):
        assert said.startswith(unserved), (words, said)
        assert "may have taken effect" not in said
