"""docs/how-to/time-limits.md: every command that it shows does what it says, typed one after the other."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says() -> None:
    def until_running(line: str) -> None:
        while "--id in-time" in line:
            places = json.loads(up.run("op", "get", "in-time", "--json").stdout)["places"]
            if places is not None and len(places["running"]) == 2:
                return

    up = Up(nodes=("alpha:cpu=4,memory=2G",))
    # The jobs' Python has Headrace, as the page on checkpoints asks for.
    up.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with up:
        shutil.copy(DOCS / "examples" / "resume.py", up.state)
        said = typed(up, DOCS / "how-to" / "time-limits.md", after=until_running)
        operations = {name: up.run("op", "get", name).stdout for name in ("too-long", "in-pieces", "all-in-all")}

    assert "1 of 1 job timed out, the time limit is 2s" in operations["too-long"]
    assert "completed" in operations["in-pieces"]
    assert "state saved for a retry; time limit of 3s reached" in said["op history in-pieces"]
    assert "the time limit of the operation, 3s, is reached" in operations["all-in-all"]
    assert re.search("running, (2h|1h59m) left", said["op get in-time --jobs"])
    assert re.search("; (1d|23h59m) left", said["op explain in-time"])
    assert "10m for each run of a job" in said["op get short-one"]
