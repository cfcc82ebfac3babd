"""A runner that lives and does nothing: its agent says so, kills it, and the next runner ends its jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from headrace.runtime.engine import NS_PER_MS
from headrace.wire.heartbeat import JobResult
from headrace_agent.effects import LogRecord, Trouble
from headrace_agent.runner.effects import JobExit, Keep
from headrace_agent.runner.engine import RunnerEngine
from headrace_agent.runner.protocol import EndAll, Ended, FullReport, NodeLease, Started, ToAgent
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner import hung_runner
from headrace_agent.to_runner.link import RunnerLink
from tests.support.agent_desk import Desk, job, start
from tests.unit.runner.builders import a_job, a_run, at
from tests.unit.runner.harness import LONG_LEASE, gone

pytestmark = pytest.mark.long

PATIENCE_S = 60.0


class News:
    """All that a link says, in its order."""

    def __init__(self) -> None:
        self.heard: list[ToAgent | tuple[Trouble, str]] = []
        self._more = anyio.Event()

    def take(self, news: ToAgent | tuple[Trouble, str]) -> None:
        self.heard.append(news)
        self._more.set()
        self._more = anyio.Event()

    async def until(self, is_it: Callable[[Any], bool]) -> Any:
        with anyio.fail_after(PATIENCE_S):
            while True:
                for news in self.heard:
                    if is_it(news):
                        return news
                await self._more.wait()

    def words(self) -> list[str]:
        return [news[1] for news in self.heard if isinstance(news, tuple)]


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hung_runner, "LOOK_S", 0.1)


async def test_a_stopped_runner_is_killed_and_the_next_one_reports_its_jobs_lost(
    tmp_path: Path, quick_looks: None
) -> None:
    news = News()
    settings = AgentSettings(state_folder=str(tmp_path / "state"))
    link = RunnerLink(settings, "life-1", news.take, lambda *trouble: news.take(trouble))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        first = await news.until(lambda it: isinstance(it, FullReport))
        link.send(LONG_LEASE)
        link.send(a_run(0, "sleep", "1000"))
        link.flush()
        started = await news.until(lambda it: isinstance(it, Started))
        os.kill(first.pid, signal.SIGSTOP)
        second = await news.until(lambda it: isinstance(it, FullReport) and it.pid != first.pid)
        link.send(EndAll(0, "the test is over"))
        assert await link.end(PATIENCE_S, with_runner=True)
        tasks.cancel_scope.cancel()

    assert [(end.key, end.result) for end in second.ended] == [(a_job(0), JobResult.LOST)]
    assert gone(started.pid)
    assert gone(first.pid)
    words = news.words()
    assert "the runner has not answered for 1 s" in words
    assert "the runner did not answer for 2 s and was killed; a new one is started" in words


async def test_a_runner_that_goes_on_in_time_is_said_to_be_well_and_keeps_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_looks: None
) -> None:
    monkeypatch.setattr(hung_runner, "KILL_AT_LOOK", 10**9)
    news = News()
    settings = AgentSettings(state_folder=str(tmp_path / "state"))
    link = RunnerLink(settings, "life-1", news.take, lambda *trouble: news.take(trouble))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        picture = await news.until(lambda it: isinstance(it, FullReport))
        link.send(LONG_LEASE)
        link.send(a_run(0, "sleep", "1000"))
        link.flush()
        await news.until(lambda it: isinstance(it, Started))
        os.kill(picture.pid, signal.SIGSTOP)
        await news.until(lambda it: isinstance(it, tuple) and "has not answered" in it[1])
        os.kill(picture.pid, signal.SIGCONT)
        await news.until(lambda it: it == (Trouble.RUNNER_AWAY, ""))
        link.send(EndAll(0, "the test is over"))
        assert await link.end(PATIENCE_S, with_runner=True)
        tasks.cancel_scope.cancel()

    assert link.starts == 1
    assert any(isinstance(it, Ended) and it.end.result is JobResult.ABORTED for it in news.heard)


async def test_a_runner_that_has_nothing_to_do_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hung_runner, "LOOK_S", 0.02)
    news = News()
    settings = AgentSettings(state_folder=str(tmp_path / "state"))
    link = RunnerLink(settings, "life-1", news.take, lambda *trouble: news.take(trouble))
    answers = 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        await news.until(lambda it: isinstance(it, FullReport))
        heard = link._silence.heard
        enough = anyio.Event()

        def count() -> None:
            nonlocal answers
            heard()
            answers += 1
            if answers == 40:
                enough.set()

        monkeypatch.setattr(link._silence, "heard", count)
        with anyio.fail_after(PATIENCE_S):
            await enough.wait()
        link.send(EndAll(0, "the test is over"))
        assert await link.end(PATIENCE_S, with_runner=True)
        tasks.cancel_scope.cancel()

    assert not any("has not answered" in words for words in news.words())


def hang(desk: Desk, words: str = "the runner has not answered for 30 s") -> None:
    desk.do(desk.engine.on_trouble(Trouble.RUNNER_AWAY, words, desk.now()))


def test_the_lease_of_a_runner_that_does_not_answer_is_not_extended_and_its_jobs_are_lost_when_it_is_over() -> None:
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.started(job(0))
    [lease] = desk.told(NodeLease)
    hang(desk)
    for _ in range(3):
        desk.turn()

    assert desk.told(NodeLease) == [lease]
    lost_ns = lease.until_boottime_ns + 2 * lease.timeout_ms * NS_PER_MS
    told = desk.beat
    while not told.ends:
        assert told.boottime_ms * NS_PER_MS < lost_ns + 2_000 * NS_PER_MS
        told = desk.turn()

    assert told.boottime_ms * NS_PER_MS >= lost_ns
    assert [(end.key, end.result) for end in told.ends] == [(job(0), JobResult.LOST)]
    assert told.ends[0].reason == "the lease is over: the runner has not answered for 30 s"
    assert told.trouble == "the runner has not answered for 30 s"


def test_a_lease_that_was_over_while_jobs_ran_is_counted_and_said() -> None:
    """Agent and runner were stopped for longer than the lease: the jobs may have run elsewhere at the same time."""
    desk = Desk()
    desk.turn(start("a", [0]))
    desk.started(job(0))
    [lease] = desk.told(NodeLease)
    desk.now_ns = lease.until_boottime_ns + 7_000 * NS_PER_MS
    desk.lose()
    desk.turn()
    desk.turn()

    [line] = [note for note in desk.all(LogRecord) if note.event.startswith("the lease of the node ended")]
    figures = {figure.name: figure.value for figure in desk.engine.figures()}
    assert (line.level, line.fields["jobs"], figures["leases_passed"]) == ("warning", 1, 1)


def test_a_runner_that_sees_the_end_of_the_lease_late_says_so_in_the_ends_of_its_jobs() -> None:
    engine = RunnerEngine()
    engine.on_lease(NodeLease(at(1_000).steady_ns, timeout_ms=500), at(0))
    engine.on_run(a_run(), at(0))
    engine.on_started(a_job(), 100, at(0))
    engine.on_time(at(61_000))
    [kept, *_] = engine.on_exited(a_job(), JobExit(signal=9), at(61_001)).effects

    assert isinstance(kept, Keep)
    assert "the runner was stopped and noticed it 60 s late, so the job may have run elsewhere too" in kept.end.reason
    assert {figure.name: figure.value for figure in engine.figures()}["leases_seen_late"] == 1
