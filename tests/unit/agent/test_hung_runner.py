"""A runner is judged by its answers."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from headrace_agent.to_runner.hung_runner import LOOK_S, Finding, RunnerProcess, RunnerSilence


def test_a_runner_that_was_asked_and_says_nothing_is_hung_and_killed_once() -> None:
    silence = RunnerSilence()
    found = [silence.judge(is_asked=True) for _ in range(80)]

    said = {number: finding for number, finding in enumerate(found, 1) if finding is not Finding.NOTHING}
    assert said == {10: Finding.HUNG, 20: Finding.KILL, 40: Finding.HUNG, 80: Finding.HUNG}
    assert silence.length_s == 80 * LOOK_S


def test_a_runner_that_was_asked_nothing_may_be_silent_for_ever() -> None:
    silence = RunnerSilence()

    assert {silence.judge(is_asked=False) for _ in range(1_000)} == {Finding.NOTHING}


def test_a_runner_that_is_always_behind_and_says_something_at_each_look_is_not_hung() -> None:
    """20,000 short jobs kept a runner busy for half a minute, and its agent said that it was gone."""
    silence = RunnerSilence()
    found = set()
    for _ in range(1_000):
        silence.heard()
        found.add(silence.judge(is_asked=True))

    assert found == {Finding.NOTHING}


@pytest.mark.parametrize(("looks", "finding"), [(9, Finding.NOTHING), (10, Finding.ANSWERS), (30, Finding.ANSWERS)])
def test_a_runner_that_speaks_again_is_there_again(looks: int, finding: Finding) -> None:
    silence = RunnerSilence()
    for _ in range(looks):
        silence.judge(is_asked=True)
    silence.heard()

    assert silence.judge(is_asked=True) is finding
    assert silence.length_s == 0


@pytest.mark.parametrize("holder", ["", "0", "1", "nonsense"])
def test_a_process_that_does_not_hold_the_lock_of_the_runner_is_never_killed(tmp_path: Path, holder: str) -> None:
    """Here it would be this process."""
    (tmp_path / "runner.lock").write_text(holder)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = RunnerProcess(ours, str(tmp_path))
        assert (process.pid, process.kill(), process.has_ended()) == (0, False, False)
        process.close()


def test_the_process_that_holds_the_lock_is_known(tmp_path: Path) -> None:
    (tmp_path / "runner.lock").write_text(f"{os.getpid()}\n")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = RunnerProcess(ours, str(tmp_path))
        assert (process.pid, process.has_ended()) == (os.getpid(), False)
        process.close()
