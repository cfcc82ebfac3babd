"""The runner and its agents: who is heard, what outlives whom, and how everything ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest

from headrace.wire.heartbeat import JobResult
from headrace_agent.runner.protocol import Acknowledge, EndAll, Ended, FullReport, Interrupt, RunAhead, Started, ToAgent
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner.link import RunnerLink
from tests.unit.runner.builders import OPERATION, a_job, a_run
from tests.unit.runner.harness import PATIENCE_S, ARunner, Signpost, gone, lives, runner, signpost

__all__ = ["runner", "signpost"]


def test_jobs_outlive_the_agent_and_the_next_one_finds_them(runner: ARunner) -> None:
    agent = runner.start()
    started = agent.run(0, "sleep", "1000", note=b"mine")
    agent.socket.close()
    picture = runner.agent().hello()

    assert [(kept.started, kept.run.note) for kept in picture.running] == [(started, b"mine")]
    assert (picture.pid, picture.isolation, picture.trouble) == (runner.pid, "rlimit", "")
    assert "cgroup" in picture.isolation_detail


def test_an_end_is_told_to_every_agent_until_one_acknowledges_it(runner: ARunner) -> None:
    first = runner.start()
    end = first.sh(0, "exit 4")
    second = runner.agent()
    assert second.hello().ended == [end]
    second.say(Acknowledge([a_job()]))

    assert second.hello().ended == []
    runner.kill()
    assert runner.start().hello().ended == []
    assert list((runner.state / "jobs").iterdir()) == []


def test_a_second_agent_replaces_the_first(runner: ARunner) -> None:
    first = runner.start()
    second = runner.agent()
    second.hello()

    assert first.closed()
    assert second.sh(0, "exit 0").result is JobResult.COMPLETED


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 100, b"\0\0\0\2\xc1\xc1", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"GET / HTTP/1.0\r\n\r\n"],
    ids=["too long", "no msgpack", "nothing", "two gigabytes", "http"],
)
def test_garbage_closes_its_connection_and_changes_nothing(runner: ARunner, garbage: bytes) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    stranger = runner.agent()
    stranger.socket.sendall(garbage)
    assert stranger.closed()
    assert runner.events("connection closed")[-1]["garbage"] == 1

    agent.socket.sendall(garbage)
    assert agent.closed()
    assert [kept.run.job for kept in runner.agent().hello().running] == [a_job()]


def test_nobody_is_obeyed_before_hello(runner: ARunner) -> None:
    agent = runner.start()
    stranger = runner.agent()
    stranger.say(EndAll(0, "by a stranger"))

    assert stranger.closed()
    assert agent.sh(0, "exit 0").result is JobResult.COMPLETED


def test_a_name_that_leads_out_of_the_folder_fails_its_own_job(runner: ARunner) -> None:
    agent = runner.start()
    evil = a_job(operation="../../../evil")
    agent.say(a_run(0, "true", job=evil))

    end = agent.end_of_job(evil)
    assert (end.result, end.not_started) == (JobResult.FAILED, True)
    assert "the runner cannot read its order: operation id: '../../../evil' cannot be used" in end.reason
    assert agent.sh(1, "exit 0").result is JobResult.COMPLETED


def test_an_order_that_cannot_be_read_fails_its_own_job_and_the_conversation_goes_on(runner: ARunner) -> None:
    """It closed the connection, and the agent came back with the same order, 759 times in a minute, while nothing else started."""
    agent = runner.start()
    agent.say(a_run(0, "true", not_started_for="x" * 5_000))
    agent.run(1, "sleep", "1000")
    agent.say(Interrupt(a_job(1), -1, "over"))
    agent.say(RunAhead(a_run(2, "true", cpu=-1)))

    end = agent.end_of(0)
    assert (end.result, end.not_started) == (JobResult.FAILED, True)
    assert "the runner cannot read its order: Expected `str` of length <= 4096" in end.reason
    assert "the runner cannot read its order: Expected `int` >= 0" in agent.end_of(1).reason
    assert agent.sh(3, "exit 0").result is JobResult.COMPLETED


def test_a_job_is_started_once_however_often_it_is_ordered(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start()
    order = a_run(0, "sh", "-c", f"echo started > {signpost.path}; exec sleep 1000")
    agent.say(order, order)
    first = agent.hear(Started)
    agent.say(order)
    second = agent.hear(Started)
    assert signpost.line() == "started"
    agent.say(Interrupt(a_job(), 0, "over"))
    agent.end_of(0)
    agent.say(order)

    assert first == second
    assert agent.hear(Ended).end.result is JobResult.ABORTED
    assert len(runner.events("job started")) == 1


def test_told_to_end_the_runner_interrupts_all_jobs_and_goes(runner: ARunner) -> None:
    agent = runner.start()
    pids = [agent.run(index, "sleep", "1000").pid for index in range(3)]
    agent.say(EndAll(10_000, "the host stops"))
    ends = [agent.end_of(index) for index in range(3)]

    assert {(end.result, end.reason) for end in ends} == {(JobResult.ABORTED, "the host stops")}
    assert runner.wait() == 0
    assert not any(lives(pid) for pid in pids)
    assert sorted(runner.start().hello().ended, key=lambda end: end.key) == ends


def test_a_first_sigterm_asks_jobs_to_end_and_a_second_kills_them(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start("--end-timeout-ms", "600000")
    agent.run(
        0,
        "sh",
        "-c",
        f"trap 'echo asked > {signpost.path}' TERM; echo up > {signpost.path}; while :; do sleep 0.01; done",
    )
    assert signpost.line() == "up"
    os.kill(runner.pid, signal.SIGTERM)
    assert signpost.line() == "asked"
    os.kill(runner.pid, signal.SIGTERM)

    assert agent.end_of(0).signal == signal.SIGKILL
    assert runner.wait() == 0


def test_the_terminal_cannot_end_the_runner(runner: ARunner) -> None:
    agent = runner.start()
    os.kill(runner.pid, signal.SIGINT)
    os.kill(runner.pid, signal.SIGHUP)

    assert agent.sh(0, "exit 0").result is JobResult.COMPLETED
    assert os.getsid(runner.pid) == runner.pid


def test_a_runner_that_nobody_needs_any_more_goes_by_itself(runner: ARunner) -> None:
    agent = runner.start("--abandoned-after-ms", "50")
    agent.run(0, "sleep", "1000")
    agent.socket.close()
    second = runner.agent()
    second.hello()
    second.say(Interrupt(a_job(), 0, "over"))
    end = second.end_of(0)
    second.socket.close()

    assert runner.wait() == 0
    assert runner.start().hello().ended == [end]


def test_two_runners_do_not_share_a_state_folder(runner: ARunner) -> None:
    agent = runner.start()
    command = [sys.executable, "-m", "headrace_agent.runner", "--state", str(runner.state)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=20)

    assert second.returncode == 3
    assert second.stderr == f"another runner (pid {runner.pid}) uses {runner.state}; nothing was changed\n"
    assert agent.sh(0, "exit 0").result is JobResult.COMPLETED


def test_a_state_folder_with_a_very_long_name_works(tmp_path: Path) -> None:
    long = ARunner(tmp_path / ("x" * 120) / ("y" * 120))
    long.log_file.parent.mkdir(parents=True)
    try:
        assert long.start().sh(0, "exit 0").result is JobResult.COMPLETED
    finally:
        long.stop()


def test_the_folders_are_nobody_elses(runner: ARunner) -> None:
    runner.start().sh(0, "echo secret")

    assert runner.state.stat().st_mode & 0o777 == 0o700
    assert (runner.state / "runner.sock").stat().st_mode & 0o777 == 0o600
    assert (runner.logs / OPERATION / "0.1.stdout").stat().st_mode & 0o777 == 0o600


def test_a_runner_that_is_not_connected_when_the_agent_ends_is_told_to_end_too(runner: ARunner) -> None:
    agent = runner.start()
    job = agent.run(0, "sleep", "1000")
    settings = AgentSettings(node="n1", state_folder=str(runner.state))

    def on_message(message: ToAgent) -> None:
        if isinstance(message, FullReport):
            link.send(EndAll(0, "the agent stopped"))
            link.flush()

    link = RunnerLink(settings, "incarnation-2", on_message, lambda *_: None)

    assert anyio.run(partial(link.end, PATIENCE_S, with_runner=True))
    assert gone(job.pid)
    assert runner.wait() == 0
