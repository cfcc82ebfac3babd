"""docs/how-to/files-for-jobs.md: every command that it shows does what it says, typed one after the other."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import headrace
from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "files-for-jobs.md"


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says() -> None:
    with Up() as up:
        said = typed(up, PAGE)

        assert said["op logs count-words"].split() == ["0:", "2", "1:", "2"]
        (missing,) = [text for line, text in said.items() if "no-such-folder" in line]
        assert "no-such-folder" in missing
        assert "2 /" in up.run("op", "logs", "elsewhere").stdout
        assert anyio.run(completed_from_python, up.state) == 1


async def completed_from_python(state: Path) -> int:
    """The last lines of the page."""
    async with headrace.connect(state=state) as client:
        operation = await client.run(["./count.sh"], pool="research", upload=[state / "project"])
        return (await operation.wait()).completed_jobs
