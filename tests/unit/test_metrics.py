"""Figures in the words of Prometheus, and the port that tells them."""

from __future__ import annotations

import json
import select
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import enumerate as enumerate_threads
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from headrace.bus import Bus
from headrace.errors import BadInput
from headrace.obs.metrics import families
from headrace.runtime.engine import Figure, FigureKind, Histogram, by_label, counter, gauge
from headrace.runtime.metrics import MOST_CONNECTIONS, Metrics, no_details
from headrace.runtime.role import Role
from tests.support.nats_server import free_port


def told(*figures: Figure, **labels: str) -> list[str]:
    """The lines of samples that Prometheus reads."""
    registry = cast("Collector", SimpleNamespace(collect=lambda: families(figures, labels)))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("figure", "line"),
    [
        (counter("downtime", "ms", 1500, "x"), "headrace_downtime_seconds_total 1.5"),
        (counter("given_up_time", "us", 2_500_000, "x"), "headrace_given_up_time_seconds_total 2.5"),
        (counter("unused_cpu", "hundredths of a core", 150, "x"), "headrace_unused_cpu_cores_total 1.5"),
        (gauge("log_size", "bytes", 10, "x"), "headrace_log_size_bytes 10.0"),
        (gauge("nodes", "nodes", 3, "x"), "headrace_nodes 3.0"),
    ],
)
def test_a_name_ends_with_the_base_unit_and_the_value_is_in_it(figure: Figure, line: str) -> None:
    assert told(figure) == [line]


def test_a_histogram_counts_all_that_is_at_most_so_large() -> None:
    lengths = Histogram((1.0, 10.0), (3, 2, 1), 75.0)
    assert told(Figure("pauses", "ms", FigureKind.HISTOGRAM, lengths, "x")) == [
        'headrace_pauses_seconds_bucket{le="0.001"} 3.0',
        'headrace_pauses_seconds_bucket{le="0.01"} 5.0',
        'headrace_pauses_seconds_bucket{le="+Inf"} 6.0',
        "headrace_pauses_seconds_count 6.0",
        "headrace_pauses_seconds_sum 0.075",
    ]


def test_figures_of_a_family_are_one_metric_with_a_label_beside_those_of_all() -> None:
    preempted = by_label(counter("preempted", "allocations", 0, "x"), "preempted_by", "reason", {"a": 1, "b": 2})
    assert [figure.name for figure in preempted] == ["preempted_by_a", "preempted_by_b"]
    assert told(*preempted, service="allocator") == [
        'headrace_preempted_total{reason="a",service="allocator"} 1.0',
        'headrace_preempted_total{reason="b",service="allocator"} 2.0',
    ]


def test_a_label_may_hold_any_word() -> None:
    figure = Figure("pool_usage", "", FigureKind.GAUGE, 1.0, "x", "pool_usage", {"pool": 'a"b\\c\nd'})
    (family,) = text_string_to_metric_families("\n".join(told(figure)) + "\n")
    assert family.samples[0].labels == {"pool": 'a"b\\c\nd'}


@asynccontextmanager
async def served(metrics: Metrics, port: int) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(metrics.serve, "127.0.0.1", port)
        yield
        tasks.cancel_scope.cancel()


async def get(port: int, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await anyio.to_thread.run_sync(ask)


async def test_metrics_and_health_are_told_before_and_while_it_leads() -> None:
    bus = SimpleNamespace(connected=True)
    metrics = Metrics(cast("Bus", bus), {"service": "allocator"})
    port = free_port()
    async with served(metrics, port):
        _, text = await get(port, "/metrics")
        assert 'headrace_leads{service="allocator"} 0.0' in text
        assert json.loads((await get(port, "/health"))[1]) == {"connected": True, "leads": False, "term": 0}

        role = cast("Role", SimpleNamespace(term=7))
        detail = gauge("detail", "", 5, "x")
        metrics.report(role, lambda: [counter("heartbeats", "heartbeats", 3, "x")], lambda: lambda: [detail])
        _, text = await get(port, "/metrics")
        for line in ("headrace_heartbeats_total{", "headrace_detail{", "headrace_leads{"):
            assert line + 'service="allocator"}' in text
        assert 'headrace_term{service="allocator"} 7.0' in text

        bus.connected = False
        status, body = await get(port, "/health")
        assert (status, json.loads(body)["connected"]) == (503, False)


async def test_a_port_that_is_taken_is_named() -> None:
    port = free_port()
    first, second = (Metrics(cast("Bus", SimpleNamespace(connected=True)), {}) for _ in range(2))
    async with served(first, port):
        with pytest.raises(BadInput, match=f"metrics_port.*{port}"):
            await second.serve("127.0.0.1", port)


async def test_an_engine_that_raises_costs_one_answer_and_not_the_port() -> None:
    metrics = Metrics(cast("Bus", SimpleNamespace(connected=True)), {})
    port = free_port()

    def broken() -> Any:
        raise ValueError("no figures")

    async with served(metrics, port):
        metrics.report(None, broken, no_details)
        assert (await get(port, "/metrics"))[0] == 500
        metrics.report(None, list, no_details)
        assert (await get(port, "/metrics"))[0] == 200


async def test_the_port_serves_a_bounded_number_of_connections_and_closes_the_others() -> None:
    port, closed, threads = free_port(), 0, 0
    async with served(Metrics(cast("Bus", SimpleNamespace(connected=True)), {}), port):
        silent = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(2 * MOST_CONNECTIONS)]
        while closed < MOST_CONNECTIONS:
            # Only a connection that the port has closed can be read.
            closed = len((await anyio.to_thread.run_sync(select.select, silent, [], [], 10))[0])
            threads = max(threads, sum("process_request_thread" in each.name for each in enumerate_threads()))
        for each in silent:
            each.close()
        answered = 0
        while not answered:
            with suppress(OSError):
                answered, _ = await get(port, "/metrics")

    assert threads == MOST_CONNECTIONS
    assert answered == 200


async def test_it_ends_though_it_has_hardly_begun() -> None:
    """To wait for the end of a server that had not begun to serve took for ever, and the loop with it."""
    for _ in range(4):
        async with served(Metrics(cast("Bus", SimpleNamespace(connected=True)), {}), free_port()):
            pass
