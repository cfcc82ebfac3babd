"""`headrace bus`: the buckets and streams that services need."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

LOST = "headrace_pools"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up() as running:
        yield running


@pytest.mark.long
def test_up_makes_the_stores_and_makes_a_lost_one_again(up: Up) -> None:
    up.run("pool", "create", "research", "weight=7")
    there = json.loads(up.run("bus", "provision", "--json").stdout)["provisioned"]
    assert {(each["outcome"], each["replicas"]) for each in there} == {("found", 1)}
    assert {LOST, "HEADRACE_OPERATIONS", "HEADRACE_HISTORY_default"} <= {each["name"] for each in there}

    (server,) = [each for each in up.processes() if each.role == "nats-server"]
    (stream,) = up.state.glob(f"nats/jetstream/*/streams/KV_{LOST}")
    shutil.rmtree(stream)
    os.kill(server.pid, signal.SIGKILL)

    while not stream.exists():
        up.run("service", "list", expect=None)
    # Its values are written again from their copies.
    up.run("run", "--pool", "research", "--wait", "--", "true")
    assert "weight: 7" in up.run("pool", "export").stdout


def test_another_tree_gets_streams_of_its_own_and_what_cannot_be_is_said(up: Up) -> None:
    made = json.loads(up.run("bus", "provision", "--tree", "gpu", "--json").stdout)["provisioned"]
    assert [each["name"] for each in made if each["outcome"] == "made"] == ["HEADRACE_HISTORY_gpu"]

    alone = up.run("bus", "provision", "--replicas", "3", expect=1)
    assert "non-clustered" in alone.stderr
    assert "HEADRACE_HISTORY_gpu" in up.run("bus", "provision", "--tree", "gpu").stdout
    up.run("bus", "provision", "--replicas", "2", expect=2)
    as_person = up.run("bus", "provision", "--credential-file", str(up.state / "credential"), expect=4)
    assert "refuses the connection" in as_person.stderr
