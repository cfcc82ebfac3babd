"""docs/how-to/why-it-waits.md: every command that it shows does what it says, typed one after the other."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "why-it-waits.md"


def wait_until_it_runs(up: Up) -> None:
    for _ in range(100):
        if msgspec.json.decode(up.run("op", "get", "night-one", "--json").stdout)["places"]["running_jobs"]:
            return
    raise AssertionError("it does not begin")


def test_every_command_of_the_page_does_what_it_says() -> None:
    with Up(nodes=("alpha:cpu=4,memory=2G",)) as up:
        said = typed(up, PAGE, after=lambda line: wait_until_it_runs(up) if "--id night-one" in line else None)
        assert "did you mean" in up.run("service", "figures", "alocator.default", expect=1).stderr
        assert "--follow" in up.run("events", expect=2).stderr

    explained = said["op explain night-two"]
    assert "resource_limits of pool nightly leave no room for another job: 1 of 1 cpu in use" in explained
    assert "→ an end of a job below pool nightly, or `headrace pool set nightly` with a higher limit" in explained
    assert "nightly: 1 of 1 cpu in use, which holds it back" in explained
    assert "completed (jobs done)" in said["op history night-two"]
    assert '"happened":"allocation_started"' in said["op history night-one --json"]
    assert "preempted_by_preemption" in said["service figures allocator"]
