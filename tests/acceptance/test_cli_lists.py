"""Lists on the command line: what they say, where they end, and the shape of their JSON."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from headrace_cli.exit_statuses import Exit
from tests.support.headrace_up import Up


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G",)) as running:
        running.run("pool", "create", "lab", "enable_detailed_logs=true")
        running.run(
            "run", "-p", "lab", "--id", "first-one", "-c", "0.5", "-m", "64M", "-t", "a title", "-w", "--", "true"
        )
        running.run("run", "-p", "lab", "--id", "second-one", "-n", "2", "-w", "--", "true")
        yield running


def answer(up: Up, *words: str) -> Any:
    return json.loads(up.run(*words, "-j").stdout)


#: Commands that list, and the name of the list.
LISTS = [
    (("op", "list"), "operations"),
    (("pool", "list"), "pools"),
    (("pool", "starving"), "starving"),
    (("pool", "attributes"), "attributes"),
    (("tree", "list"), "trees"),
    (("tree", "options"), "options"),
    (("node", "list"), "nodes"),
    (("service", "list"), "processes"),
    (("service", "figures"), "figures"),
    (("bus", "provision"), "provisioned"),
    (("op", "abort", "first-one", "second-one"), "operations"),
]


@pytest.mark.parametrize(("words", "name"), LISTS, ids=[" ".join(words) for words, _ in LISTS])
def test_the_json_of_a_list_is_an_object_that_names_it(up: Up, words: tuple[str, ...], name: str) -> None:
    assert isinstance(answer(up, *words)[name], list)


def test_a_list_of_operations_says_when_it_is_cut(up: Up) -> None:
    cut, whole = (up.run("op", "list", "--limit", limit) for limit in ("1", "2"))

    assert "the newest 1" in cut.stderr
    assert "second-one" in cut.stdout
    assert "first-one" not in cut.stdout
    assert whole.stderr == ""
    assert [answer(up, "op", "list", "--limit", limit)["more"] for limit in ("1", "2")] == [True, False]


def test_an_empty_list_of_operations_says_of_a_pool_that_there_is_none(up: Up) -> None:
    assert "there is no pool 'labb'; did you mean lab?" in up.run("op", "list", "--pool", "labb").stderr
    assert "there is no pool" not in up.run("op", "list", "--pool", "lab", "--user", "nobody-here").stderr


def test_a_list_of_operations_has_the_start_and_the_size_of_each_job(up: Up) -> None:
    head, *rows = up.run("op", "list").stdout.splitlines()

    assert "started" in head
    assert any("cpu 0.5, memory 64 MiB" in row for row in rows)


def test_an_operation_of_which_no_job_can_run_is_told_from_one_that_runs(up: Up) -> None:
    up.run("run", "--id", "too-large", "-p", "lab", "-c", "64", "--", "true")
    try:
        while "no job" not in (row := next(r for r in up.run("ps").stdout.splitlines() if "too-large" in r)):
            assert "running" in row  # its allocator has not heard of it yet
        assert "larger than every node" in row
        assert "larger" in answer(up, "ps")["no_job_runs_because"]["too-large"]
    finally:
        up.run("kill", "too-large")


def test_whoever_waits_for_a_pending_operation_is_told_its_place(up: Up) -> None:
    up.run("pool", "create", "shut", "max_running_operation_count=0")
    with up.begin("run", "-p", "shut", "--id", "in-the-queue", "-w", "--", "true") as waiting:
        assert waiting.stderr is not None
        assert any("position 1 of 1 at shut (0 of 0 running)" in line for line in iter(waiting.stderr.readline, ""))
        up.run("op", "abort", "in-the-queue")


def test_a_list_of_pools_after_a_restart_says_that_usage_is_not_known_yet(up: Up) -> None:
    pids = {process.role: process.pid for process in up.processes()}
    os.kill(pids["allocator"], signal.SIGSTOP)
    try:
        os.kill(pids["fair_share"], signal.SIGKILL)
        while (done := up.run("pool", "list", expect=None)).returncode == Exit.NOT_RUNNING:
            assert "fair_share" in done.stderr
        assert "usage and shares are not known yet" in done.stderr
    finally:
        os.kill(pids["allocator"], signal.SIGCONT)


def test_what_is_not_in_force_is_said_when_it_is_set_and_only_counted_below_each_list(up: Up) -> None:
    made = up.run("pool", "set", "lab", "enable_detailed_logs=true")
    listed = up.run("pool", "list").stderr
    again = up.run("pool", "set", "lab", "enable_detailed_logs=true", "--dry-run")

    assert "enable_detailed_logs of lab: not supported: logs are the same" in made.stderr
    assert "enable_detailed_logs of lab: not supported: logs are the same" in again.stderr
    assert listed == "1 warning about the settings of the tree: headrace tree get default\n"
    for words in (("tree", "get", "default"), ("tree", "list")):
        assert "enable_detailed_logs of lab: not supported: logs are the same" in up.run(*words).stderr
