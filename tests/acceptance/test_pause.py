"""`headrace pause` and `resume`: kept over a restart, obeyed, and shown wherever somebody looks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up() as running:
        yield running


@pytest.mark.long
def test_paused_starts_are_kept_over_a_restart_obeyed_and_shown_until_they_are_resumed(up: Up) -> None:
    runs = up.start_operation("--", "sh", "-c", "echo up; until [ -e go ]; do sleep 0.1; done")
    up.wait_line(runs, "up")

    assert "starts paused; running jobs continue" in up.run("pause", "starts").stdout
    up.wait_said("starts are paused")
    waits = up.start_operation("--", "true")
    (up.state / "go").touch()
    up.run("op", "wait", runs)
    up.stop()
    up.start()

    words = "starts are paused"
    up.wait_said(words)
    assert words in up.run("tree", "list").stderr
    assert words in up.run("pool", "list").stderr
    assert f"tree default: {words}" in up.run("op", "explain", waits).stdout
    assert words in up.run("op", "get", waits).stdout
    assert "0 of 1 done, 0 running, 1 pending" in up.run("op", "get", waits).stdout

    assert "starts resumed" in up.run("resume", "starts").stdout
    up.wait_said("starts resumed")
    up.run("op", "wait", waits)
    assert words not in up.run("tree", "list").stderr


def test_a_pause_of_preemption_is_told_and_a_tree_that_is_not_there_is_refused(up: Up) -> None:
    assert "preemptions that have begun are completed" in up.run("pause", "preemption").stdout
    assert "preemption is paused: no allocation is preempted" in up.run("tree", "list").stderr
    up.run("pause", "starts", "--tree", "other", expect=4)
