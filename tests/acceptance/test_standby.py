"""`headrace up --standby`: two of each service, of which one takes over when the other is stopped or killed."""

from __future__ import annotations

import os
import signal
from typing import Any

import msgspec

from tests.support.headrace_up import Up

ROLES = ["admission", "allocator.default", "fair_share.default", "integral.default"]


def processes(up: Up) -> list[dict[str, Any]]:
    """All processes of services, once each role has one that leads and one that stands by."""
    for _ in range(60):
        answer = msgspec.json.decode(up.run("service", "list", "--json", expect=None).stdout)
        found: list[dict[str, Any]] = answer["processes"]
        if not answer["missing"] and [one["role"] for one in found] == sorted(ROLES * 2):
            return found
    raise AssertionError(found)


def test_a_leader_that_is_stopped_or_killed_is_succeeded_and_no_start_fails() -> None:
    with Up("--standby") as up:
        before = processes(up)
        operations = []
        for number in (signal.SIGTERM, signal.SIGKILL):
            for leader in [one for one in processes(up) if one["leads"]]:
                os.kill(leader["pid"], number)
                operations += [up.start_operation("--", "true") for _ in range(2)]

        after = processes(up)
        for operation in operations:
            assert "completed" in up.run("op", "wait", operation).stderr
        assert all(one["term"] > 1 for one in after if one["leads"])
        assert {one["pid"] for one in before}.isdisjoint(one["pid"] for one in after)
        assert up.stop() == 0
        assert up.processes() == []


def test_a_service_that_is_missing_is_told() -> None:
    with Up() as up:
        listed = up.run("service", "list").stdout
        assert [line.split()[0] for line in listed.splitlines()[1:]] == ROLES
        assert listed.count("leads") == 4
        allocator = next(one for one in up.processes() if one.role == "allocator")
        os.kill(allocator.pid, signal.SIGSTOP)
        try:
            missing = up.run("service", "list", expect=1).stdout
        finally:
            os.kill(allocator.pid, signal.SIGCONT)
        assert missing.splitlines()[-1].split() == ["allocator.default", "–", "missing", *"––––"]
