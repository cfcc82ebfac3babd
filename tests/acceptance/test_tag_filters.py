"""A pool that may run on some of the nodes only is owed what those have, and says so. With real services and processes."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.headrace_up import Up

SLEEPS = ("--", "sleep", "600")


@pytest.mark.long
def test_a_pool_with_a_filter_is_owed_the_one_node_that_matches() -> None:
    with Up(nodes=("plain:cpu=1,memory=1G", "fast:cpu=1,memory=1G,tag=ssd")) as up:
        up.run("pool", "create", "picky", "scheduling_tag_filter=ssd", "weight=9")
        waits = up.start_operation("--pool", "picky", "--jobs", "4", *SLEEPS)
        other = up.start_operation("--pool", "other", "--jobs", "4", *SLEEPS)
        deadline = time.monotonic() + 60
        while (owed := fair_cores(up, "picky")) != 1 or fair_cores(up, "other") != 1:
            assert time.monotonic() < deadline, owed
            time.sleep(0.2)

        limits = json.loads(up.run("pool", "get", "picky", "scheduling_tag_filter_resource_limits", "--json").stdout)
        assert limits["scheduling_tag_filter_resource_limits"]["cpu"] == 1
        assert up.run("pool", "get", "other", "scheduling_tag_filter_resource_limits").stdout == "null\n"
        assert "nodes that match   cpu 1, memory 1 GiB" in up.run("op", "get", waits, "--shares").stdout
        explained = up.run("op", "explain", waits).stdout
        assert "the operation is owed everything that the nodes matching ssd have: cpu 1" in explained
        up.run("op", "abort", waits)
        up.run("op", "abort", other)


def fair_cores(up: Up, pool: str) -> float:
    return float(json.loads(up.run("pool", "get", pool, "fair_resources", "--json").stdout)["fair_resources"]["cpu"])
