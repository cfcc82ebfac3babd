"""Profile `tracing`: the spans of one operation, from the command outside to its process, come to Jaeger through the collector."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path

from tests.containers.stack import Stack

#: Each kind of span, its service, and the kind that it is a part of.
TREE = {
    ("start request", "headrace-client", ""),
    ("StartOperation", "headrace-admission", "start request"),
    ("append to log", "headrace-admission", "StartOperation"),
    ("first snapshot", "headrace-fair-share", "append to log"),
    ("placement", "headrace-allocator", "StartOperation"),
    ("process start", "headrace-agent", "placement"),
    ("job", "headrace-agent", "placement"),
}


def spans_in_jaeger(stack: Stack, trace: str) -> set[tuple[str, str, str]]:
    """Kind, service and kind of the parent of each span that Jaeger has of a trace."""
    address = f"http://127.0.0.1:{stack.jaeger_port}/api/traces/{trace}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        found = json.load(answer)["data"]
    if not found:
        return set()
    spans = found[0]["spans"]
    names = {span["spanID"]: span["operationName"] for span in spans}
    return {
        (
            span["operationName"],
            found[0]["processes"][span["processID"]]["serviceName"],
            next((names.get(each["spanID"], "") for each in span["references"] if each["refType"] == "CHILD_OF"), ""),
        )
        for span in spans
    }


def test_one_trace_leads_from_the_command_outside_to_the_process(stack: Stack, host: Path) -> None:
    stack.headrace("run", "--id", "followed", "--node-filter", "outside", "--wait", "--", "true", cwd=host)
    told = json.loads(stack.headrace("op", "get", "followed", "--json"))
    trace = told["operation"]["spec"]["trace"].split("-")[1]
    found: set[tuple[str, str, str]] = set()
    # Spans travel in batches, and nobody tells when they are all there.
    deadline_s = time.monotonic() + 60
    while not found >= TREE and time.monotonic() < deadline_s:
        time.sleep(0.5)
        found = spans_in_jaeger(stack, trace)

    assert found >= TREE
