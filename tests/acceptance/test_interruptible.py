"""docs/reference/jobs.md: its script saves its state at the signal and goes on where it was, through all services."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.headrace_up import Up

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "jobs.md"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up() as running:
        yield running


def view(up: Up) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(up.run("op", "get", "steps-one", "--json").stdout)["operation"]
    return shown


@pytest.mark.long
def test_the_script_of_the_page_goes_on_where_it_was(up: Up) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (commands,) = re.findall(r"```\n(headrace run --id steps.*?)```", PAGE.read_text(), re.DOTALL)
    start, suspend, resume, logs = (line.removeprefix("headrace ").split() for line in commands.splitlines())
    # The page's job is over after some seconds; this one when the test says so, however long its commands take.
    assert script.count("step < 40") == 1
    steps = up.state / "steps"
    steps.write_text("1000000")
    (up.state / "work.py").write_text(script.replace("40", "int(pathlib.Path('steps').read_text())"))

    up.run(*start)
    up.wait_line("steps-one", "step 2")
    up.run(*suspend)
    while view(up)["aborted_jobs"] == 0:
        time.sleep(0.1)
    saved = int((up.state / "saved-0").read_text())
    steps.write_text(str(saved + 2))
    up.run(*resume)
    up.run("op", "wait", "steps-one")

    over = view(up)
    assert (over["state"], over["completed_jobs"], over["failed_jobs"]) == ("completed", 1, 0)
    assert over["aborted_jobs"] == 1
    assert saved >= 2
    assert up.run(*logs).stdout.splitlines()[0].endswith(f"step {saved}")
