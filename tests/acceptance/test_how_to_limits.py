"""docs/how-to/limits.md: every command that it shows does what it says, typed one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "limits.md"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=2G",)) as running:
        yield running


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says(up: Up) -> None:
    said = typed(up, PAGE)

    assert len(said) > 20
    (listed,) = [text for line, text in said.items() if "--in-state waiting" in line]
    assert "second-one" in listed
    assert "position 1 of 1 at nightly (1 of 1 running)" in listed
    (explained,) = [text for line, text in said.items() if line == "op explain second-one"]
    assert "no running slot is free in nightly (1)" in explained
    assert "first-one" in explained
    (closed,) = [text for line, text in said.items() if "pool=closed" in line]
    assert "its max_running_operation_count is 0" in closed
    for words in [text for line, text in said.items() if "--pool small --cpu 3" in line]:
        assert (
            "--cpu: 3 cannot be used; expected at most 2 for each job, max_job_resource_limits of pool small" in words
        )
    (tried,) = [text for line, text in said.items() if line.endswith("max_job_resource_limits/cpu=1 --dry-run")]
    assert "of 1 operation no further jobs start" in " ".join(tried.split())
    (sized,) = [text for line, text in said.items() if line == "op explain two-cores"]
    assert "each job is larger than max_job_resource_limits of pool small: it asks for cpu 2" in " ".join(sized.split())
    (hub,) = [text for line, text in said.items() if "--pool teams" in line]
    assert "is not configured" not in hub
    (placed,) = [text for line, text in said.items() if "--id placed-one" in line]
    assert "by the placement rule `nested_user default teams`" in placed
    (explained,) = [text for line, text in said.items() if "op explain placed-one" in line]
    assert "was chosen by the placement rule `nested_user default teams`" in explained
    (unplaced,) = [text for line, text in said.items() if line.startswith("run -- true")]
    assert "are specified existing, reject" in " ".join(unplaced.split())
    quick = up.run("op", "wait", "quick-one")
    assert quick.returncode == 0
