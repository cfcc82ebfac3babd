"""Traces that go to a collector: the tree of spans as a real receiver of OTLP over HTTP gets it, and a collector that is away."""

from __future__ import annotations

import psutil
import pytest

from headrace import __version__
from headrace.client.place import traces_folder
from tests.support.headrace_up import Up
from tests.support.nats_server import free_port
from tests.support.otlp_receiver import Received, otlp_receiver, service_graph

pytestmark = pytest.mark.long

SECRET = "hunter2-never-in-a-trace"
#: Each span of an operation of three jobs: its service, the span that it is a part of, how many there are, and its kind.
TREE = {
    ("start request", "headrace-client", "", 1, "client"),
    ("StartOperation", "headrace-admission", "start request", 1, "server"),
    ("append to log", "headrace-admission", "StartOperation", 1, "producer"),
    ("first snapshot", "headrace-fair-share", "append to log", 1, "consumer"),
    ("placement", "headrace-allocator", "StartOperation", None, "producer"),
    ("process start", "headrace-agent", "placement", 3, "consumer"),
    ("job", "headrace-agent", "placement", 3, "internal"),
}


def jobs(spans: list[Received]) -> list[Received]:
    return [span for span in spans if span.name == "job"]


def test_a_collector_gets_one_trace_from_the_command_to_the_process_and_no_secret() -> None:
    with otlp_receiver() as receiver, Up("--trace-endpoint", receiver.url, "--log-level", "debug") as up:
        gate = up.state / "gate"
        words = ("run", "--id", "traced-op", "--jobs", "3", "--env", f"TOKEN={SECRET}")
        up.run(*words, "--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.02; done; : {SECRET}")
        # A heartbeat may start the jobs before.
        receiver.wait_for(lambda spans: any(span.name == "first snapshot" for span in spans))
        gate.touch()
        receiver.wait_for(lambda spans: len(jobs(spans)) == 3)
        shown = [" ".join(psutil.Process(process.pid).cmdline()) for process in up.processes() if process.role != "job"]
        said = up.run("trace", "traced-op", expect=1).stderr
        up.stop()
        spans = list(receiver.spans)
        logs = "".join(file.read_text() for file in up.state.glob("logs/*.log"))
        passwords = [file.read_text().strip().partition(":")[2] for file in (up.state / "credentials").iterdir()]

    assert "traced-op" in logs
    assert len(passwords) > 5
    for secret in (SECRET, *passwords):
        assert secret not in logs
        assert not any(secret in words for words in shown)
    assert receiver.url in said
    assert "headrace.operation=traced-op" in said
    assert not traces_folder(up.state).exists()
    assert not any(SECRET.encode() in body for body in receiver.bodies)
    (trace_id,) = {span.trace_id for span in jobs(spans)}
    own = [span for span in spans if span.trace_id == trace_id]
    names = {span.span_id: span.name for span in own}
    assert len(names) == len(own), "every span came once"
    found = {(span.name, span.service, names.get(span.parent_id, ""), span.kind) for span in own}
    assert found == {(name, service, parent, kind) for name, service, parent, _, kind in TREE}
    assert service_graph(own) == {
        ("headrace-client", "headrace-admission"),
        ("headrace-admission", "headrace-fair-share"),
        ("headrace-allocator", "headrace-agent"),
    }
    assert {span.scope for span in spans} == {("headrace", __version__)}
    for span in own:
        of_message = {name for name in span.attributes if name.startswith("messaging.")}
        assert bool(of_message) == (span.kind != "internal")
    (request,) = (span for span in own if span.kind == "client")
    assert request.attributes["messaging.destination.name"] == "headrace.v1.user.*.op.start"
    for name, _, _, count, _ in TREE:
        assert count in (None, sum(span.name == name for span in own)), name
    assert {span.attributes["headrace.operation"] for span in own if span.name != "append to log"} == {"traced-op"}
    assert sorted(span.attributes["headrace.job"] for span in jobs(spans)) == [0, 1, 2]
    assert not any(span.failed for span in own)
    (first,) = (span for span in own if span.name == "first snapshot")
    published = {(span.trace_id, span.span_id): span for span in spans if span.name == "publish shares"}
    (recorded,) = (span for span in own if span.span_id == first.parent_id)
    assert recorded.parent_id in {span_id for _, span_id in published[first.links[0]].links}


def test_the_variables_of_opentelemetry_name_the_collector_and_the_deployment() -> None:
    with otlp_receiver() as receiver:
        up = Up()
        up.environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=staging",
        }
        with up:
            up.run("run", "--wait", "--", "true")
            senders = {"headrace-client", "headrace-admission", "headrace-fair-share", "headrace-agent"}
            spans = receiver.wait_for(lambda spans: {span.service for span in spans} >= senders)

    assert {span.resource["deployment.environment.name"] for span in spans} == {"staging"}


@pytest.mark.long
def test_a_collector_that_is_away_costs_its_spans_and_nothing_else() -> None:
    with Up("--trace-endpoint", f"http://127.0.0.1:{free_port()}") as up:
        done = up.run("run", "--wait", "--", "true")
        assert "span" not in done.stderr
        assert "opentelemetry" not in done.stderr
        up.stop()
        assert "spans not sent" in (up.state / "logs" / "admission.log").read_text()


def test_an_address_that_is_none_is_refused_by_its_name() -> None:
    up = Up()
    try:
        said = up.run("up", "--port", "0", "--trace-endpoint", "localhost:4318", expect=2).stderr
    finally:
        up.__exit__(None, None, None)
    assert "trace-endpoint" in said
    assert "localhost:4318" in said
    assert "http://" in said
