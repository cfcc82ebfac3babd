"""Spans: their ids, which operations are sampled, what a failure leaves, and the file that never grows beyond its bound."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.errors import BadInput
from headrace.ids import AllocationId, NodeName, OperationId
from headrace.obs import tracing
from headrace.obs.span_file import FILE, SpanFile, read_spans
from headrace.obs.trace_sinks import Traces, begin_tracing, with_otel_variables
from headrace.obs.tracing import Span
from headrace.wire.heartbeat import JobKey
from headrace.wire.trace import TRACED_JOBS, SpanContext, job_span, job_trace, placement_span, read_trace
from tests.support.spans import Spans, tracing_on

HEADER = f"00-{'a' * 32}-{'b' * 16}-01"
CONTEXT = SpanContext("a" * 32, "b" * 16)


@pytest.fixture
def spans() -> Iterator[Spans]:
    with tracing_on() as kept:
        yield kept


def test_a_header_is_read_as_it_is_written_whatever_other_flags_it_has() -> None:
    assert read_trace(HEADER) == CONTEXT
    assert CONTEXT.header() == HEADER
    assert read_trace(HEADER[:-2] + "03") == CONTEXT


@pytest.mark.parametrize(
    "header", ["", "rubbish", HEADER[:-2] + "00", HEADER.upper(), HEADER + "x", HEADER.replace("a", "0"), "00--" * 9]
)
def test_what_names_no_recorded_span_is_no_trace(header: str) -> None:
    assert read_trace(header) is None


def test_spans_of_places_and_jobs_differ_from_each_other_and_stay_in_the_trace() -> None:
    keys = [JobKey(OperationId("one"), index, attempt) for index in (0, 1, 11) for attempt in (1, 11)]
    made = [job_span(CONTEXT, key) for key in keys] + [
        placement_span(CONTEXT, NodeName(node), AllocationId("1-1")) for node in ("alpha", "beta")
    ]

    assert len({each.span_id for each in made}) == len(made)
    assert {each.trace_id for each in made} == {CONTEXT.trace_id}


def test_a_job_without_a_span_belongs_to_the_start_of_its_operation() -> None:
    assert job_trace(HEADER, JobKey(OperationId("one"), TRACED_JOBS)) == HEADER
    assert job_trace(HEADER, JobKey(OperationId("one"), 0)) == job_span(CONTEXT, JobKey(OperationId("one"), 0)).header()
    assert job_trace("", JobKey(OperationId("one"), 0)) == ""


def test_spans_inside_each_other_are_a_tree_and_a_failure_is_named_without_its_words(spans: Spans) -> None:
    with (
        pytest.raises(ValueError, match="hunter2"),
        tracing.span("outer", {"operation": "one"}),
        tracing.child("inner"),
    ):
        raise ValueError("password hunter2")

    inner, outer = spans
    assert (inner.parent_id, outer.parent_id) == (outer.span_id, "")
    assert (inner.name, outer.name, outer.attributes) == ("inner", "outer", {"operation": "one"})
    assert inner.error == outer.error == "ValueError"
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns
    assert tracing.current() is None


def test_outside_of_every_span_there_is_no_child(spans: Spans) -> None:
    with tracing.child("lonely") as context:
        assert context is None
    assert spans == []


def test_the_trace_that_the_caller_brought_is_continued(spans: Spans) -> None:
    with tracing.start_of_operation("start", "one", HEADER) as trace:
        continued = read_trace(trace)

    assert continued is not None
    assert (continued.trace_id, spans[0].parent_id) == (CONTEXT.trace_id, CONTEXT.span_id)
    assert continued.span_id == spans[0].span_id


def test_of_many_operations_the_sampled_part_is_traced_and_every_process_chooses_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "_MOST_BEGUN_A_SECOND", 10_000)
    chosen = []
    for service in ("client", "admission"):
        with tracing_on(service, 0.25) as kept:
            for number in range(2_000):
                with tracing.start_of_operation("start", f"op-{number}", ""):
                    pass
        chosen.append([span.attributes["operation"] for span in kept])

    assert chosen[0] == chosen[1]
    assert 400 < len(chosen[0]) < 600


@pytest.mark.parametrize("brought", ["", HEADER])
def test_of_a_flood_in_one_second_few_traces_are_begun_or_continued(brought: str) -> None:
    with tracing_on(wall_ns=lambda: 1_000_000_000) as spans:
        for number in range(1_000):
            with tracing.start_of_operation("start", f"op-{number}", brought) as trace:
                assert bool(trace) == (number < 20)
    assert len(spans) == 20


def test_a_trace_that_the_caller_brought_is_not_continued_where_the_operation_is_not_sampled() -> None:
    with tracing_on(sample_ratio=0.0) as spans, tracing.start_of_operation("start", "one", HEADER) as trace:
        assert trace == ""
    assert spans == []


def test_a_file_of_spans_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    file = SpanFile(tmp_path / "traces", most_bytes=20_000)
    for number in range(1_000):
        file.write(_span(number))
    file.close()

    sizes = [path.stat().st_size for path in (tmp_path / "traces").iterdir()]
    kept = [span.start_ns for span in read_spans(tmp_path / "traces")]
    assert sum(sizes) < 2 * 20_500
    assert kept == list(range(kept[0], 1_000))
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "traces").iterdir()} == {0o600}


def test_processes_that_write_to_one_file_put_it_aside_once_and_lose_nothing(tmp_path: Path) -> None:
    line = len(msgspec.json.encode(_span(0))) + 1
    one, other = (SpanFile(tmp_path, most_bytes=6 * line) for _ in range(2))
    for number in range(7):
        one.write(_span(number))
    for number in range(7, 12):
        other.write(_span(number))
    for number in range(12, 16):
        (one if number % 2 else other).write(_span(number))

    assert len((tmp_path / f"{FILE}.1").read_text().splitlines()) == 6
    assert [span.start_ns for span in read_spans(tmp_path)] == list(range(6, 16))


def test_a_line_that_is_no_span_hides_no_other(tmp_path: Path) -> None:
    file = SpanFile(tmp_path)
    file.write(_span(1))
    with (tmp_path / FILE).open("ab") as broken:
        broken.write(b'{"half": \n')
    file.write(_span(2))
    file.close()

    assert [span.start_ns for span in read_spans(tmp_path)] == [1, 2]


def test_a_disk_that_is_full_costs_spans_and_nothing_else(tmp_path: Path) -> None:
    file = SpanFile(tmp_path)
    file.write(_span(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(tmp_path / FILE), before[1]))
        file.write(_span(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    file.write(_span(3))
    file.close()

    assert [span.start_ns for span in read_spans(tmp_path)] == [1, 3]


def _span(number: int) -> Span:
    return Span("a" * 32, f"{number:016x}", "span", "test", number, number + 1)


@pytest.mark.parametrize("module", ["admission", "agent", "allocator", "cli", "fair_share", "integral"])
def test_the_library_of_the_exporter_is_loaded_only_for_a_collector(module: str, tmp_path: Path) -> None:
    program = f"""
import sys, headrace_{module}.__main__
from headrace.client import Client
from headrace.obs.trace_sinks import Traces, begin_tracing

def loaded(): return any(name.startswith("opentelemetry") for name in sys.modules)

begin_tracing("test", Traces(folder={str(tmp_path)!r}))
assert not loaded()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://host", "http://", "http://host:port", "http://host:0"])
def test_what_is_no_address_of_a_collector_is_refused(endpoint: str) -> None:
    with pytest.raises(BadInput, match="trace_endpoint") as refused:
        begin_tracing("test", Traces(endpoint=endpoint))
    assert "http://127.0.0.1:4318" in str(refused.value)
    assert not tracing.is_on()


def test_a_folder_that_cannot_be_made_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="trace_folder"):
        begin_tracing("test", Traces(folder=str(tmp_path / "file" / "traces")))


def test_a_disk_without_room_leaves_tracing_off_and_the_process_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", no_room)
    begin_tracing("test", Traces(folder=str(tmp_path / "traces")))
    assert not tracing.is_on()


COLLECTOR = "http://collector:4318"


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        (Traces(), {}, Traces()),
        (Traces(), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR}, Traces(COLLECTOR)),
        (
            Traces(),
            {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://own/v1/traces"},
            Traces("http://own/v1/traces"),
        ),
        (Traces("http://other:1"), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR}, Traces("http://other:1")),
        (Traces(folder="/f"), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR}, Traces(folder="/f")),
        (Traces(), {"OTEL_TRACES_SAMPLER": "always_off"}, Traces(sample_ratio=0.0)),
        (Traces(), {"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, Traces()),
        (
            Traces(),
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"},
            Traces(sample_ratio=0.25),
        ),
        (Traces(), {"OTEL_TRACES_SAMPLER": "traceidratio"}, Traces()),
        (Traces(sample_ratio=0.5), {"OTEL_TRACES_SAMPLER": "always_off"}, Traces(sample_ratio=0.5)),
        (Traces(COLLECTOR, "/f"), {"OTEL_SDK_DISABLED": "TRUE"}, Traces()),
        (Traces(COLLECTOR, "/f"), {"OTEL_TRACES_EXPORTER": "none"}, Traces()),
    ],
)
def test_variables_of_opentelemetry_complete_the_settings(
    given: Traces, environment: dict[str, str], expected: Traces
) -> None:
    assert with_otel_variables(given, environment) == expected


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL",
        ),
        ({"OTEL_TRACES_SAMPLER": "jaeger_remote"}, "OTEL_TRACES_SAMPLER"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"}, "OTEL_TRACES_SAMPLER_ARG"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "few"}, "OTEL_TRACES_SAMPLER_ARG"),
    ],
)
def test_a_variable_of_opentelemetry_that_cannot_be_used_is_refused_by_its_name(
    environment: dict[str, str], place: str
) -> None:
    with pytest.raises(BadInput) as refused:
        with_otel_variables(Traces(), environment)
    assert refused.value.place == place
