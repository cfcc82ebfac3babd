"""The question before something that a person may not want: asked on a terminal, and answered no where there is none."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.ids import ROOT_POOL, PoolName
from headrace.wire.pool_changes import PoolChange, Remove
from headrace.wire.pools import PoolList
from headrace_cli.commands.pools.importing import Removals
from headrace_cli.session import confirmed
from tests.support.tree_services import live
from tests.unit.fair_share.test_engine import Desk, listed


@contextmanager
def a_keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end of a terminal at which a person types and reads."""
    master, slave = pty.openpty()
    with open(slave, closefd=False) as typed, open(slave, "w") as shown, monkeypatch.context() as patched:
        # In the test itself: pytest puts its own streams back after a fixture.
        patched.setattr(sys, "stdin", typed)
        patched.setattr(sys, "stderr", shown)
        yield master
    os.close(master)


@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("YES", True), ("n", False), ("", False), ("no", False)])
def test_only_a_yes_goes_on(monkeypatch: pytest.MonkeyPatch, answer: str, goes_on: bool) -> None:
    with a_keyboard(monkeypatch) as keyboard:
        os.write(keyboard, f"{answer}\n".encode())
        assert confirmed("2 pools go.") is goes_on
        shown = ""
        while "[y/N]" not in shown:
            # The typed text comes back first.
            shown += os.read(keyboard, 1_000).decode()
    assert "2 pools go. Continue? [y/N]" in shown


def test_where_nobody_can_be_asked_nothing_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert not confirmed("2 pools go.")
    assert "2 pools go. Nothing was changed: add --yes to confirm." in capsys.readouterr().err


def a_tree(*pools: str, busy: str = "") -> PoolList:
    desk = Desk(*((name, ROOT_POOL) for name in pools))
    desk.operations(*([live("operation-1", busy, 1), live("operation-2", busy, 1)] if busy else []))
    desk.update()
    return listed(desk)


@pytest.mark.parametrize(
    ("pools", "busy", "removed", "asks"),
    [
        ("abcd", "", "", False),
        ("abcd", "", "ab", False),
        ("abcd", "", "abc", True),
        ("a", "", "a", True),
        ("", "", "", False),
        ("abcd", "a", "a", True),
        ("abcd", "a", "b", False),
    ],
)
def test_what_takes_away_pools_in_use_or_more_than_half_of_them_is_asked_about(
    pools: str, busy: str, removed: str, asks: bool
) -> None:
    changes: list[PoolChange] = [Remove(PoolName(name)) for name in removed]
    removals = Removals.of(changes, a_tree(*pools, busy=busy))

    assert removals.are_asked_about is asks
    assert removals.allowing_use(changes) == [Remove(PoolName(name), in_use=name == busy) for name in removed]


def test_the_question_names_the_pools_and_counts_what_runs_there() -> None:
    names = [PoolName(f"p{number}") for number in range(12)]
    removals = Removals.of([Remove(name) for name in names], a_tree(*names, busy="p3"))

    assert removals.words() == (
        "12 of 12 pools are removed: p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 and 2 more; "
        "2 operations continue in ephemeral pools of these names"
    )
