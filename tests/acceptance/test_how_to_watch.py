"""docs/how-to/watch.md: every command that it shows does what it says, and its keys are those that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace_cli.top.frame import HELP
from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "watch.md"


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says() -> None:
    with Up(nodes=("alpha:cpu=2,memory=2G",)) as up:
        said = typed(up, PAGE)
        told = json.loads((up.state / "cluster.json").read_text())

    assert "└─ research" in said["top --once"]
    assert "of-the-day" in said["top --once"]
    assert [each["operation"] for each in told["operations"]] == ["of-the-day"]
    assert {"cluster", "pools", "nodes", "starving"} <= set(told)


def test_the_signs_of_the_page_are_those_that_the_command_explains() -> None:
    for sign in re.findall(r"`([█░│◇◈])`", PAGE.read_text()):
        assert f"{sign} " in HELP
