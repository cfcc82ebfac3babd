"""What running services tell Prometheus, and the page that lists it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from docs.generate.metrics_page import SERVICES, metrics_page, scrape
from tests.support.headrace_up import Up
from tests.support.nats_server import free_port

PAGE = Path("docs/reference/metrics.md")
#: Words of a unit that is not a base unit.
_NO_BASE_UNIT = re.compile("_(ms|us|milliseconds|percent|kb|mb|gb)(_|$)")


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, str]]:
    """What each service tells after an operation of three jobs."""
    ports = {service: free_port() for service in SERVICES}
    up = Up()
    up.environment |= {f"HEADRACE_{service.upper()}_METRICS_PORT": str(port) for service, port in ports.items()}
    with up:
        up.run("run", "--wait", "--jobs", "3", "--", "true")
        texts = {service: scrape(port) for service, port in ports.items()}
        (allocator,) = (each for each in up.processes() if each.role == "allocator")
        os.kill(allocator.pid, signal.SIGSTOP)
        with pytest.raises(OSError, match="timed out"):
            scrape(ports["allocator"], timeout_s=0.5)
        os.kill(allocator.pid, signal.SIGCONT)
        assert "headrace_leads" in scrape(ports["allocator"])
        yield texts


def test_the_page_lists_everything_that_is_told(told: dict[str, str]) -> None:
    assert PAGE.read_text() == metrics_page(told), "run: make docs-reference"


def test_figures_follow_what_happened(told: dict[str, str]) -> None:
    values = {
        (sample.name, *(sample.labels.get(label, "") for label in ("pool", "state"))): sample.value
        for text in told.values()
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["headrace_operations_by_state", "", "completed"] == 1
    assert values["headrace_online_nodes", "", ""] == 1
    assert values["headrace_allocations_made_total", "", ""] >= 1
    assert values["headrace_pool_fair_share_cpu_cores", "<Root>", ""] <= 2
    assert values["headrace_pool_usage_cpu_cores", "<Root>", ""] <= 2
    assert values["headrace_leads", "", ""] == 0, "an agent leads nothing"


def test_names_keep_the_conventions(told: dict[str, str]) -> None:
    for text in told.values():
        for family in text_string_to_metric_families(text):
            assert re.fullmatch("[a-z][a-z0-9_]*", family.name)
            assert not _NO_BASE_UNIT.search(family.name)
            assert family.documentation
