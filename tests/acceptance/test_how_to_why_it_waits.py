"""docs/how-to/why-it-waits.md: every command that it shows does what it says, typed one after the other."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "why-it-waits.md"


def wait_for(up: Up, line: str) -> None:
    """Until what a person would see who reads on meanwhile."""
    if "--id night-one" in line:
        until(lambda: decoded(up, "op", "get", "night-one")["places"]["running_jobs"] == 1)
    if "--id batch-first" in line:
        until(lambda: decoded(up, "op", "get", "batch-first")["places"]["running_jobs"] == 4)
    if "--id lab-first" in line:
        until(lambda: decoded(up, "pool", "explain", "lab")["steps"][-1]["fair_resources"]["cpu"] == 1)


def decoded(up: Up, *words: str) -> Any:
    return msgspec.json.decode(up.run(*words, "--json").stdout)


def until(is_so: Callable[[], bool]) -> None:
    assert any(is_so() for _ in range(100))


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says() -> None:
    with Up(nodes=("alpha:cpu=4,memory=2G",)) as up:
        said = typed(up, PAGE, after=lambda line: wait_for(up, line))
        assert "did you mean" in up.run("service", "figures", "alocator.default", expect=4).stderr
        assert "did you mean batch?" in up.run("pool", "explain", "bach", expect=4).stderr
        assert "a pool other than" in up.run("pool", "explain", "lab", "--against", "lab", expect=2).stderr
        assert "--follow" in up.run("events", expect=2).stderr

    explained = said["op explain night-two"]
    assert "resource_limits of pool nightly allow no further job: 1 of 1 cpu in use" in explained
    assert (
        "→ wait until a job below pool nightly ends, or raise the limit with `headrace pool set nightly`" in explained
    )
    assert "nightly: 1 of 1 cpu in use, which blocks it" in explained
    poor = said["pool explain lab"]
    assert "lab is owed cpu 1 (25%) of 8 that it wants: by weight, 1 of 4 among 2 elements that want more" in poor
    assert "it lacks cpu 1 that it is owed and does not have" in poor
    (holder,) = [line for line in poor.splitlines() if line.startswith("operations (1)")]
    assert holder.split()[2:9] == ["batch-first", "batch", getpass.getuser(), "cpu", "4", "cpu", "1"]
    both = said["pool explain lab --against batch"]
    assert "lab is owed cpu 1, batch 3" in both
    assert "the weight of lab is 1, the weight of batch is 3" in both
    assert "completed (jobs done)" in said["op history night-two"]
    assert '"happened":"allocation_started"' in said["op history night-one --json"]
    assert "preempted_by_preemption" in said["service figures allocator"]
