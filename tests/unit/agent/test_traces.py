"""Traces on a node: whose heartbeats are traced, and jobs that a former life of the agent started."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from headrace.pools.rights import person_of
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.wire.heartbeat import JobResult
from headrace.wire.refusals import NotAllowed, WrongState
from headrace.wire.trace import SpanContext, TraceHeartbeat, job_span, placement_span
from headrace_agent.heartbeat_traces import HeartbeatTraces
from headrace_agent.job_spans import JobSpans
from headrace_agent.runner.protocol import Ended, FullReport, Run, Started
from tests.support.agent_desk import NODE, Desk, end_of, job, kept, spec, start
from tests.support.spans import Spans, tracing_on

START = SpanContext("a" * 32, "b" * 16)


@pytest.fixture
def spans() -> Iterator[Spans]:
    with tracing_on() as kept:
        yield kept


def heartbeats(administrators: str) -> HeartbeatTraces:
    def beat() -> None:
        raise AssertionError("no heartbeat may be sent for this")

    return HeartbeatTraces(lambda user: person_of(user, administrators.split(",")), beat)


ANNA = Caller(CallerKind.USER, "anna", "")


async def test_who_is_no_administrator_has_no_heartbeat_traced(spans: Spans) -> None:
    answer = await heartbeats("otto").on_asked(TraceHeartbeat(NODE), ANNA)
    assert isinstance(answer, NotAllowed)
    assert answer.who == "anna"


async def test_a_node_without_tracing_says_what_it_lacks() -> None:
    answer = await heartbeats("anna").on_asked(TraceHeartbeat(NODE), ANNA)
    assert isinstance(answer, WrongState)
    assert "trace_folder" in answer.text()


def test_a_job_that_a_former_life_of_the_agent_started_ends_in_its_span(spans: Spans) -> None:
    desk = traced_desk()
    former = JobSpans(NODE)
    (run,) = desk.told(Run)
    former.on_told(run)
    former.on_runner(Started(run.job, 500, 0, 0))
    picture = FullReport([kept(desk, run.job)], [], "none", "", 7)
    later = JobSpans(NODE)
    later.on_runner(picture)
    later.on_runner(picture)
    later.on_runner(Ended(end_of(run.job, result=JobResult.FAILED)))
    later.on_runner(Ended(end_of(run.job, result=JobResult.FAILED)))

    started, ended = spans
    context, placement = job_span(START, run.job), placement_span(START, NODE, start().allocation)
    assert (started.name, started.parent_id) == ("process start", placement.span_id)
    assert (ended.name, ended.span_id, ended.parent_id) == ("job", context.span_id, placement.span_id)
    assert (ended.error, ended.attributes["result"]) == ("failed", "failed")
    assert ended.start_ns == desk.now().wall_ms * 1_000_000


def test_a_job_finds_the_span_that_is_written_for_it(spans: Spans) -> None:
    (run,) = traced_desk().told(Run)
    assert run.environment["TRACEPARENT"] == job_span(START, job(0)).header()


def test_the_jobs_of_an_operation_without_a_trace_have_no_span(spans: Spans) -> None:
    desk = Desk()
    desk.answer(start())
    (run,) = desk.told(Run)
    watcher = JobSpans(NODE)
    watcher.on_told(run)
    watcher.on_runner(Started(run.job, 500, 0, 0))
    watcher.on_runner(Ended(end_of(run.job)))

    assert spans == []
    assert "TRACEPARENT" not in run.environment


def traced_desk() -> Desk:
    """A node that was ordered to run the first job of a traced operation."""
    desk = Desk()
    desk.answer(start(told=msgspec.structs.replace(spec(), trace=START.header())))
    return desk
