"""Readings while one service is frozen: what the others know is shown, and who does not answer is said once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

ID = "runs-and-waits"
IN_BOTH = "in-both-trees"
_FIRST_ENDS = "if [ $HEADRACE_JOB_INDEX = 0 ]; then echo first; else echo second; sleep 1000; fi"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    trees = ("--tree", "default", "--tree", "gpu")
    with Up(*trees, nodes=("alpha:cpu=2,memory=2G", "beta:cpu=2,memory=2G,tree=gpu")) as running:
        running.run("pool", "create", "lab")
        in_both = ("--pool-tree", "default", "--pool-tree", "gpu", "-c", "0.05", "--id", IN_BOTH)
        running.start_operation(*in_both, "--", "sleep", "1000")
        running.start_operation(
            "-p", "lab", "--id", ID, "-n", "9", "-c", "0.9", "--", "bash", "-c", "echo here; exec sleep 1000"
        )
        running.wait_line(ID, "here", 2)
        yield running


@contextmanager
def frozen(up: Up, role: str) -> Iterator[None]:
    pids = [process.pid for process in up.processes() if process.role == role]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


#: Commands that show something without the service, with what is not shown, and a word of what is.
PARTLY: dict[str, list[tuple[tuple[str, ...], str, str]]] = {
    "allocator": [
        (("op", "list"), "no reasons of waiting", ID),
        (("op", "get", ID), "no nodes of jobs", "fair share"),
        (("op", "explain", ID), "no reasons of waiting", "that it is owed"),
        (("op", "get", IN_BOTH), "no nodes of jobs", "in tree gpu"),
        (("op", "explain", IN_BOTH), "no reasons of waiting", "in tree gpu"),
        (("op", "history", ID), "no nodes of jobs", "running"),
        (("pool", "get", "lab"), "no preemptions", "satisfaction"),
        (("tree", "list"), "no nodes", "default"),
        (("run", "--dry-run", "-p", "lab", "--", "true"), "no nodes with free resources", "it would run"),
    ],
    "fair_share": [
        (("op", "get", ID), "no shares", "what would end the waiting"),
        (("op", "explain", ID), "no shares", "no node has free resources"),
        (("run", "--dry-run", "-p", "lab", "--", "true"), "no shares", "1 take jobs"),
        (("node", "list", "--tree", "gpu"), "no settings of trees", "beta"),
    ],
    "admission": [(("pool", "get", "lab"), "no losses by preemption", "satisfaction")],
}
#: Commands that show nothing without the service.
WHOLLY: dict[str, list[tuple[str, ...]]] = {
    "allocator": [("node", "list"), ("node", "get", "alpha"), ("op", "logs", ID)],
    "fair_share": [("pool", "list"), ("pool", "explain", "lab"), ("tree", "list"), ("plan", "--live", "lab.weight=2")],
    "admission": [("op", "list"), ("op", "get", ID), ("op", "explain", ID), ("op", "history", ID), ("whoami",)],
}
NAMES = {"allocator": "the allocator", "fair_share": "fair_share", "admission": "admission"}


@pytest.mark.long
@pytest.mark.parametrize("role", NAMES)
def test_what_the_others_know_is_shown_and_who_is_silent_is_named_once(up: Up, role: str) -> None:
    with frozen(up, role), ThreadPoolExecutor() as threads:
        done_of = {words: threads.submit(up.run, *words) for words, _, _ in PARTLY[role]}
        for words, missing, there in PARTLY[role]:
            done = done_of[words].result()
            assert there in done.stdout, (words, done.stdout)
            assert done.stderr.count(f"{NAMES[role]} does not answer") == 1, (words, done.stderr)
            assert missing in done.stderr, (words, done.stderr)
            assert "not answer" not in done.stdout, (words, done.stdout)


@pytest.mark.parametrize("role", NAMES)
def test_where_nobody_else_knows_it_the_silent_service_is_named_and_the_status_is_3(up: Up, role: str) -> None:
    with frozen(up, role), ThreadPoolExecutor() as threads:
        for done in threads.map(lambda words: up.run(*words, expect=3), WHOLLY[role]):
            assert f"{NAMES[role]} does not answer" in done.stderr, (done.args, done.stderr)
            assert done.stderr.count("does not answer") == 1, (done.args, done.stderr)


def test_for_programs_it_is_said_too_and_stdout_is_json(up: Up) -> None:
    with frozen(up, "allocator"):
        done = up.run("op", "get", ID, "--json")

    assert json.loads(done.stdout)["places"] is None
    assert "the allocator does not answer: no nodes of jobs are shown" in done.stderr


def test_the_output_of_jobs_that_ended_is_printed_before_it_is_said_that_others_are_not_known(up: Up) -> None:
    name = up.start_operation("-p", "lab", "-n", "2", "-c", "0.05", "--", "bash", "-c", _FIRST_ENDS)
    up.wait_line(name, "second", 1)
    while json.loads(up.run("op", "get", name, "--json").stdout)["operation"]["completed_jobs"] < 1:
        pass  # its end is being recorded
    with frozen(up, "allocator"):
        done = up.run("op", "logs", name, expect=3)

    assert "first" in done.stdout
    assert "the allocator does not answer" in done.stderr
