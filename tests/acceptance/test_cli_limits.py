"""Limits on operations at the command line: who waits, where, why, and how it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import Client, connect
from headrace.wire.operations import OperationState
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=2G",)) as running:
        yield running


def answer(up: Up, *words: str) -> Any:
    return json.loads(up.run(*words, "--json").stdout)


def started(up: Up, pool: str, *command: str) -> str:
    return up.run("run", "--pool", pool, "--", *command).stdout.strip()


@pytest.mark.long
def test_who_waits_is_listed_explained_and_goes_on_when_the_limit_is_raised(up: Up) -> None:
    up.run("pool", "create", "narrow", "max_running_operation_count=1")
    first = started(up, "narrow", "sleep", "600")
    told = up.run("run", "--pool", "narrow", "--", "true")
    second = told.stdout.strip()

    (listed,) = answer(up, "op", "list", "--pool", "narrow", "--in-state", "waiting")["operations"]
    table = up.run("op", "list", "--pool", "narrow", "--in-state", "pending").stdout
    explained = up.run("op", "explain", second).stdout
    levels = answer(up, "op", "explain", second)["levels"]
    up.run("pool", "set", "narrow", "max_running_operation_count=2")
    up.run("op", "wait", second)
    up.run("op", "abort", first)

    assert "1 of 1 operations run in narrow; the operation is number 1 of 1 pending operations" in told.stderr
    assert (listed["operation"], listed["waiting"][0]["place"]) == (second, 1)
    assert "position 1 of 1 at narrow (1 of 1 running)" in table
    assert "no running slot is free in narrow" in explained
    assert first in explained
    assert [(level["pool"], level["full"]) for level in levels] == [("<Root>", False), ("narrow", True)]


def test_an_operation_that_waits_is_moved_to_a_pool_with_room_and_not_to_a_full_one(up: Up) -> None:
    up.run("pool", "create", "shut", "max_running_operation_count=0")
    up.run("pool", "create", "wide")
    operation = started(up, "shut", "true")

    refused = up.run("op", "set", operation, "pool=shut", expect=4)
    moved = answer(up, "op", "set", operation, "pool=wide", "weight=2.5")["operations"]
    up.run("op", "wait", operation)

    assert (
        "pool 'shut' of tree default has 0 running operations; its max_running_operation_count is 0" in refused.stderr
    )
    assert (moved[0]["spec"]["pool"], moved[0]["spec"]["weight"]) == ("wide", 2.5)


def test_a_suspended_operation_goes_on_when_it_is_resumed_and_a_completed_one_is_over(up: Up) -> None:
    operation = started(up, "halted", "sleep", "600")

    suspended = answer(up, "op", "suspend", operation, "--abort-running-jobs")["operations"]
    up.run("op", "resume", operation)
    again = up.run("op", "resume", operation, expect=4)
    up.run("op", "complete", operation)
    up.run("op", "wait", operation)

    assert suspended[0]["suspended"] is True
    assert "not suspended" in again.stderr
    assert answer(up, "op", "get", operation)["operation"]["state"] == "completed"


def test_a_misspelt_pool_is_told_with_the_one_that_was_meant(up: Up) -> None:
    up.run("pool", "create", "astronomy")

    told = up.run("run", "--pool", "astronmy", "--", "true")

    assert "pool 'astronmy' is not configured" in told.stderr
    assert "did you mean astronomy" in told.stderr
    refused = up.run("run", "--pool", "astronomie", "--existing-pool", "--", "true", expect=4)
    assert "there is no pool 'astronomie'; did you mean astronomy" in refused.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("op", "set", "operation-1", "wieght=3"), "did you mean weight?"),
        (("op", "set", "operation-1", "weight=heavy"), "a number"),
        (("op", "set", "operation-1", "pool"), "pool=NAME"),
        (("op", "list", "--state", "waiting"), "use --in-state waiting"),
    ],
)
def test_an_unusable_change_is_told_before_anybody_is_asked(up: Up, words: tuple[str, ...], hint: str) -> None:
    assert hint in up.run(*words, expect=2).stderr


async def test_a_program_explains_and_counts_through_connect(up: Up) -> None:
    up.run("pool", "create", "counted", "max_running_operation_count=0")
    async with connect(state=up.state) as client:
        assert isinstance(client, Client)
        operation = await client.run(["true"], pool="counted")
        told = await client.explain(operation.id)
        (level,) = await client.counts("counted")
        scanned = await client.scan()
        view = await client.abort(operation.id)

    assert told.levels[-1].full
    assert (level.operation_count, level.first_waiting) == (1, [operation.id])
    assert scanned.promoted == 0
    assert view.state is OperationState.ABORTED
