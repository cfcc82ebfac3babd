"""Bounds of job sizes and limits that no job fits, typed by a person: refusals, further jobs that wait, an operation that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.test_cli_pools import wait_until
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

MOST = "max_job_resource_limits"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    running = Up(nodes=("alpha:cpu=4,memory=4G",))
    running.environment["HEADRACE_ADMISSION_LIMITING_ANCESTOR_SAFE_TIMEOUT_MS"] = "1000"
    running.environment["HEADRACE_ADMISSION_PENDING_BY_POOL_OPERATION_SCAN_PERIOD_MS"] = "200"
    with running:
        yield running


def told(up: Up, *words: str) -> str:
    return " ".join(up.run(*words).stdout.split())


def running_jobs(up: Up, operation: str) -> int:
    return int(json.loads(up.run("op", "get", operation, "--json").stdout)["places"]["running_jobs"])


def test_a_bound_refuses_a_start_and_stops_further_jobs_when_it_is_lowered(up: Up) -> None:
    up.run("pool", "create", "bounded", f"{MOST}={{cpu: 2}}")
    refused = up.run("run", "--pool", "bounded", "--cpu", "3", "--", "true", expect=4).stderr
    assert f"--cpu: 3 cannot be used; expected at most 2 for each job, {MOST} of pool bounded" in refused
    up.run("run", "--pool", "bounded", "--cpu", "2", "--jobs", "4", "--id", "wide-one", "--", "sleep", "600")
    wait_until(lambda: running_jobs(up, "wide-one") == 2)

    up.run("pool", "set", "bounded", f"{MOST}/cpu=1")

    words = f"each job is larger than {MOST} of pool bounded: it asks for cpu 2, and at most 1 is accepted"
    wait_until(lambda: words in told(up, "op", "explain", "wide-one"))
    assert running_jobs(up, "wide-one") == 2
    up.run("op", "abort", "wide-one")


def test_an_operation_that_fits_no_limit_fails_with_the_pool(up: Up) -> None:
    up.run("pool", "create", "tight", "resource_limits/cpu=1")
    up.run("run", "--pool", "tight", "--cpu", "2", "--id", "large-one", "--", "true")

    up.run("op", "wait", "large-one", expect=1)

    assert "each job asks for cpu 2, and resource_limits of pool tight in tree default are cpu 1" in told(
        up, "op", "get", "large-one"
    )
