"""docs/how-to/gangs.md: every command that it shows does what it says, typed one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "gangs.md"


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says() -> None:
    def wait(line: str) -> None:
        if "--id two-others" in line:
            up.wait_line("two-others", "up", times=2)

    with Up(nodes=("alpha:cpu=4,memory=2G",)) as up:
        said = typed(up, PAGE, after=wait)

    assert "a gang of 4 jobs: resources for 2 of them on 1 node are held for" in said["op explain four-workers"]
