"""The plugin of Snakemake: what Snakemake finds, and what the resources of a job become."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from headrace.client import operation_spec
from headrace.resources import Resources
from headrace.wire.operations import OperationState
from snakemake_executor_plugin_headrace import Executor
from snakemake_executor_plugin_headrace.options import ExecutorSettings, job_options


def test_snakemake_finds_the_plugin_and_its_settings() -> None:
    plugin = ExecutorPluginRegistry().get_plugin("headrace")

    assert {info["cliarg"] for info in plugin.get_settings_info()} == {"--headrace-pool", "--headrace-node-filter"}


@pytest.mark.parametrize(
    ("threads", "resources", "expected"),
    [
        (1, {}, {"resources": Resources(user_slots=1, cpu=100), "time_limit_ms": None, "pool": "lab"}),
        (
            4,
            {"mem_mb": 500, "runtime": 90, "gpu": 1, "tmpdir": "/tmp", "headrace_pool": "vision"},
            {
                "resources": Resources(user_slots=1, cpu=400, memory=500_000_000, gpu=1),
                "time_limit_ms": 90 * 60_000,
                "pool": "vision",
            },
        ),
        (2, {"headrace_node_filter": "ssd"}, {"scheduling_tag_filter": "ssd", "tries": 1}),
    ],
)
def test_resources_of_a_job_become_options_of_its_operation(
    threads: int, resources: dict[str, Any], expected: dict[str, Any]
) -> None:
    options = job_options(threads, resources, ExecutorSettings(pool="lab", node_filter="!old"))

    spec = operation_spec(["true"], **options)

    assert {name: getattr(spec, name) for name in expected} == expected


def test_the_reason_of_an_end_sends_no_commands_to_the_terminal() -> None:
    """A person who may manage the pool chooses the reason, and Snakemake prints it."""
    reported: list[str] = []
    view = SimpleNamespace(operation="1-2", state=OperationState.ABORTED, reason="bad\x1b]0;title\x07")
    executor = Executor.__new__(Executor)
    executor._client = SimpleNamespace(get=lambda _: view)  # type: ignore[assignment]
    executor.report_job_error = lambda info, msg, aux_logs: reported.append(msg)

    assert executor._has_ended(SubmittedJobInfo(None, external_jobid="1-2", aux={"log": "log"}))
    assert reported == ["operation 1-2 is aborted: bad␛]0;title␇. "]
