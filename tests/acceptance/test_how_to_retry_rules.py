"""docs/how-to/retry-rules.md: every command that it shows does what it says, and an end by out of memory is told apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

pytestmark = pytest.mark.long

DOCS = Path(__file__).parents[2] / "docs"
#: Takes more memory than it asked for, and is then killed as the kernel does if its host is out of memory.
_EATS = "import os; kept = b'1' * (64 << 20); os.kill(os.getpid(), 9)"

#: The second of two jobs runs out of memory once.
_EATS_ONCE = f"""
import os
if (os.environ["HEADRACE_JOB_INDEX"], os.environ["HEADRACE_ATTEMPT"]) == ("1", "1"):
    {_EATS.partition("; ")[2]}
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=2G",)) as running:
        yield running


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says(up: Up) -> None:
    def until_suspended(line: str) -> None:
        while "--id look-first" in line:
            if json.loads(up.run("op", "get", "look-first", "--json").stdout)["operation"]["suspended"]:
                return

    said = typed(up, DOCS / "how-to" / "retry-rules.md", after=until_suspended)
    operations = {name: up.run("op", "get", name).stdout for name in ("busy-server", "no-such-model", "any-other")}

    assert "1 of 1 job failed, tries is 3, retry_on is 75,TERM" in said["op get bad-input"]
    assert "1 of 1 job failed, tries is 3, no_retry_on is 2,SIGSEGV" in operations["no-such-model"]
    assert all("completed" in operations[name] for name in ("busy-server", "any-other"))
    assert "suspended by its first failure, job " in said["op explain look-first"]
    assert "suspended by its first failure, job " in said["op history look-first"]


def test_an_end_by_out_of_memory_is_told_apart_everywhere(up: Up) -> None:
    words = ("--memory", "32M", "--no-retry-on", "oom", "--wait", "--", "python3", "-c", _EATS)
    up.run("run", "--id", "eats-all", *words, expect=1)

    told = json.loads(up.run("op", "get", "eats-all", "--jobs", "--json").stdout)
    assert [job["out_of_memory"] for job in told["jobs"]] == [True]
    assert "failed, out of memory" in up.run("op", "get", "eats-all", "--jobs").stdout
    assert "1 run failed (1 out of memory)" in up.run("op", "get", "eats-all").stdout
    assert "out of memory: limit 32 MiB" in up.run("op", "history", "eats-all").stdout
    assert "no_retry_on is oom" in up.run("op", "explain", "eats-all").stdout


def test_a_job_that_ran_out_of_memory_is_retried_with_more_up_to_what_the_node_has(up: Up) -> None:
    """The node has 2 GiB, less than 32 MiB x 100."""
    at_first = ("--memory", "32M", "--wait", "--memory-on-oom")
    up.run("run", "--id", "grows-twice", "--jobs", "2", *at_first, "x100", "--", "python3", "-c", _EATS_ONCE)
    up.run("run", "--id", "too-little", *at_first, "40M", "--tries", "2", "--", "python3", "-c", _EATS, expect=1)

    told = json.loads(up.run("op", "get", "grows-twice", "--jobs", "--json").stdout)
    assert [(job["slot"]["attempt"], job["memory_step"]) for job in told["jobs"]] == [(1, 0), (2, 1)]
    assert "completed, memory raised 1 time" in up.run("op", "get", "grows-twice", "--jobs").stdout
    assert "memory after out of memory: x100" in up.run("op", "get", "grows-twice").stdout
    limits = [line for line in up.run("op", "history", "too-little").stdout.splitlines() if "out of memory" in line]
    assert ["limit 32 MiB" in limits[0], "limit 40 MiB" in limits[1]] == [True, True]
    assert "memory_on_oom is 40M" in up.run("op", "get", "too-little").stdout
    assert "--memory" in up.run("run", "--memory-on-oom", "x2", "--", "true", expect=2).stderr
