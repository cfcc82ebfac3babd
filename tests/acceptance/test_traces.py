"""Traces of a real `headrace up`: from `headrace run` to the process, by files of spans and what `headrace trace` shows of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client.place import traces_folder
from headrace.obs.span_file import read_spans
from headrace.obs.tracing import Span
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

#: In the environment and in the command of every operation here.
SECRET = "hunter2-never-in-a-trace"
CALLER = f"00-{'c' * 32}-{'d' * 16}-01"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up() as running:
        yield running


def run(up: Up, name: str, *words: str) -> None:
    """Runs an operation whose jobs end only after the first snapshot: a heartbeat may start them before."""
    gate = up.state / f"gate-{name}"
    script = f"echo $TRACEPARENT; until [ -e {gate} ]; do sleep 0.02; done; : {SECRET}"
    up.run("run", "--id", name, "--env", f"TOKEN={SECRET}", *words, "--", "sh", "-c", script)
    while not any(span.name == "first snapshot" and span.attributes["operation"] == name for span in all_spans(up)):
        time.sleep(0.02)
    gate.touch()
    up.run("op", "wait", name)


def shown(up: Up, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(up.run("trace", name, "--json").stdout)
    return found


def parents(trace: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Each kind of span: its name, its service, and the name of the span that it is part of."""
    names = {span["span_id"]: span["name"] for span in trace["spans"]}
    return {(span["name"], span["service"], names.get(span["parent_id"], "")) for span in trace["spans"]}


def test_one_trace_leads_from_the_command_to_the_process(up: Up) -> None:
    run(up, "whole-op", "--jobs", "3")
    trace = shown(up, "whole-op")

    assert parents(trace) == {
        ("start request", "client", ""),
        ("StartOperation", "admission", "start request"),
        ("append to log", "admission", "StartOperation"),
        ("first snapshot", "fair_share", "append to log"),
        ("placement", "allocator", "StartOperation"),
        ("process start", "agent", "placement"),
        ("job", "agent", "placement"),
    }
    jobs = [span["attributes"] for span in trace["spans"] if span["name"] == "job"]
    assert sorted(job["job"] for job in jobs) == [0, 1, 2]
    assert {(job["node"], job["result"], job["operation"]) for job in jobs} == {("alpha", "completed", "whole-op")}
    for span in trace["spans"]:
        assert span["start_ms"] >= 0
        assert span["took_ms"] >= 0


def test_a_job_finds_its_own_span_in_its_environment(up: Up) -> None:
    run(up, "environment", "--jobs", "20")
    trace = shown(up, "environment")

    (start,) = (span for span in trace["spans"] if span["name"] == "StartOperation")
    spans = {span["attributes"]["job"]: span["span_id"] for span in trace["spans"] if span["name"] == "job"}
    assert sorted(spans) == list(range(16)), "the first jobs of an operation have spans, and the rest none"
    for job in (0, 15, 16, 19):
        told = up.run("op", "logs", "environment", "--job", str(job)).stdout
        assert f"00-{trace['trace_id']}-{spans.get(job, start['span_id'])}-01" in told


def test_snapshots_are_traces_of_their_own_that_are_linked(up: Up) -> None:
    run(up, "linked-op")
    spans = all_spans(up)
    (first,) = (span for span in spans if span.name == "first snapshot" and span.attributes["operation"] == "linked-op")
    (published,) = (span for span in spans if span.name == "publish shares" and span.span_id == first.links[0].span_id)
    (applied,) = (
        span
        for span in spans
        if span.name == "apply snapshot" and published.span_id in {link.span_id for link in span.links}
    )

    (recorded,) = (span for span in spans if span.span_id == first.parent_id)
    assert recorded.parent_id in {link.span_id for link in published.links}
    assert len({first.trace_id, published.trace_id, applied.trace_id}) == 3
    assert (published.service, applied.service) == ("fair_share", "allocator")


def test_the_trace_of_whoever_runs_the_command_goes_on(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(up.environment, "TRACEPARENT", CALLER)
    run(up, "continued")

    trace = shown(up, "continued")
    assert trace["trace_id"] == "c" * 32
    assert [span["parent_id"] for span in trace["spans"] if span["name"] == "start request"] == ["d" * 16]


def test_a_job_that_fails_shows_it(up: Up) -> None:
    up.run("run", "--id", "failing-op", "--max-failed-job-count", "1", "--wait", "--", "false", expect=1)
    assert [span["error"] for span in shown(up, "failing-op")["spans"] if span["name"] == "job"] == ["failed"]
    assert "job, job 0, failed" in up.run("trace", "failing-op").stdout


def test_people_see_a_waterfall(up: Up) -> None:
    run(up, "waterfall")
    lines = up.run("trace", "waterfall").stdout.splitlines()

    assert lines[0].split()[:4] == ["span", "where", "start", "took"]
    steps = [line.split("  ")[0] if not line.startswith(" ") else line.strip().split("  ")[0] for line in lines[1:]]
    assert steps[:3] == ["start request", "StartOperation", "append to log"]
    assert all("█" in line and " ms" in line for line in lines[1:])


def test_of_many_jobs_it_is_said_that_the_first_ones_have_spans(up: Up) -> None:
    up.run("run", "--id", "many-jobs", "--jobs", "18", "--cpu", "0.1", "--wait", "--", "true")

    assert "only the first 16 of its jobs have spans" in up.run("trace", "many-jobs").stderr
    run(up, "few-jobs-0")
    assert up.run("trace", "few-jobs-0").stderr == ""


def test_a_misspelt_operation_is_guessed_and_one_without_a_trace_is_said(up: Up) -> None:
    run(up, "guess-me")
    said = up.run("trace", "guess-mee", expect=4).stderr
    assert "guess-mee" in said
    assert "guess-me" in said
    assert "Examples" in up.run("trace", "--help").stdout


def test_one_heartbeat_of_a_node_is_traced_on_demand_and_no_other(up: Up) -> None:
    run(up, "ordinary")
    assert not {"heartbeat", "Heartbeat"} & {span.name for span in all_spans(up)}

    told = up.run("debug", "trace", "alpha", "--heartbeats", "2", "--json").stdout
    traces: list[dict[str, Any]] = json.loads(told)["traces"]
    assert len({trace["trace_id"] for trace in traces}) == 2
    for trace in traces:
        assert parents(trace) >= {
            ("heartbeat", "agent", ""),
            ("Heartbeat", "allocator", "heartbeat"),
            ("obey orders", "agent", "heartbeat"),
        }
    assert sum(span.name == "heartbeat" for span in all_spans(up)) == 2
    lines = up.run("debug", "trace", "alpha").stdout.splitlines()
    assert lines[0].startswith("trace ")
    assert [line.split()[0] for line in lines[2:4]] == ["heartbeat", "Heartbeat"]
    assert "alpha" in up.run("debug", "trace", "alpa", expect=4).stderr
    assert "--heartbeats" in up.run("debug", "trace", "alpha", "--heartbeats", "0", expect=2).stderr


def test_no_span_has_the_command_or_the_environment(up: Up) -> None:
    run(up, "secret-op")
    up.run("run", "--id", "secret-2", "--max-failed-job-count", "1", "--wait", "--", f"/no/{SECRET}", expect=1)

    files = list(traces_folder(up.state).iterdir())
    assert files
    for file in files:
        assert SECRET not in file.read_text()
        assert file.stat().st_mode & 0o077 == 0


def test_who_cannot_write_spans_can_start_operations(up: Up) -> None:
    folder = traces_folder(up.state)
    folder.rename(folder.with_name("elsewhere"))
    folder.touch()
    try:
        up.run("run", "--wait", "--id", "unwritten", "--", "true")
    finally:
        folder.unlink()
        folder.with_name("elsewhere").rename(folder)
    assert ("StartOperation", "admission", "") in parents(shown(up, "unwritten"))


@pytest.mark.long
def test_with_a_sample_of_none_nothing_is_traced_and_without_headrace_the_file_is_still_read() -> None:
    with Up() as up:
        run(up, "kept-here")
        up.stop()
        up.start("--trace-sample", "0")
        before = len(all_spans(up))
        up.run("run", "--wait", "--id", "untraced", "--", "sh", "-c", "echo $TRACEPARENT")
        assert len(all_spans(up)) == before
        assert "00-" not in up.run("op", "logs", "untraced").stdout
        assert "untraced" in up.run("trace", "untraced", expect=4).stderr
        up.stop()
        assert parents(shown(up, "kept-here"))


def all_spans(up: Up) -> list[Span]:
    return list(read_spans(traces_folder(up.state)))
