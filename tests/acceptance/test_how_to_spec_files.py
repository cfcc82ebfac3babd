"""docs/how-to/spec-files.md: every command that it shows does what it says, typed one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spec-files.md"


def test_every_command_of_the_page_does_what_it_says() -> None:
    with Up(nodes=("alpha:cpu=4,memory=2G",)) as up:
        said = typed(up, PAGE)
        specs = [json.loads(up.run("op", "get", name, "--json").stdout)["operation"]["spec"] for name in _NAMES]
        refused = up.run("run", "--spec", str(up.state / "mistaken.yaml"), expect=2).stderr
        as_json = json.loads(up.run("op", "get", "again", "--spec", "--json").stdout)

    assert "2: careful, job 2 of 3" in said["op logs from-a-file"]
    assert said["op logs in-a-hurry"] == said["op logs again"] == "fast, job 0 of 1\n"
    assert specs[1] | {"trace": ""} == specs[2] | {"trace": ""}
    assert (specs[0]["job_count"], specs[0]["time_limit_ms"]) == (3, 600_000)
    assert as_json["env"] == {"MODE": "fast"}
    assert "mistaken.yaml:2: jbs: unknown key; did you mean jobs?" in refused


_NAMES = ("from-a-file", "in-a-hurry", "again")
