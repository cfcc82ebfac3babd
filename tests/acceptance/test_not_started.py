"""Jobs whose folder or program is not there: who started the operation learns the path and the nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=1,memory=1G", "beta:cpu=1,memory=1G", "gamma:cpu=1,memory=1G")) as running:
        yield running


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--cwd", "/no/such/folder", "--", "true"),
            "the working directory /no/such/folder: No such file or directory",
        ),
        (("--", "/no/such/program"), "/no/such/program: no such file"),
        (("--", "no-such-program"), "no-such-program: no such command in PATH="),
    ],
)
def test_a_missing_folder_or_program_is_named_with_the_node(up: Up, words: tuple[str, ...], said: str) -> None:
    done = up.run("run", "--max-failed-job-count", "4", "--wait", *words, expect=1)
    line = [line for line in done.stderr.splitlines() if " failed on node " in line][-1]
    node = line.partition(" failed on node ")[2].partition(":")[0]

    # Once, although the first failure may be told before the end.
    assert done.stderr.count(said) == 1
    assert "op logs" not in done.stderr
    assert node in ("alpha", "beta", "gamma")
    assert "no attempt that ended had started: node" in done.stderr
    operation = done.stderr.split()[1]
    shown = json.loads(up.run("op", "get", operation, "--json").stdout)["operation"]
    assert f"on node {node}: not started: {said}" in shown["reason"]
    page = up.run("op", "get", operation).stdout
    assert (f"failed on node {node}: exit code" in page or "reason above" in page, page.count(said)) == (True, 1)


def test_a_program_that_began_on_a_node_is_not_said_to_have_run_nowhere(up: Up, tmp_path: Path) -> None:
    script = tmp_path / "once.sh"
    script.write_text('#!/bin/sh\nrm "$0"\nexit 3\n')
    script.chmod(0o755)

    done = up.run("run", "--max-failed-job-count", "2", "--wait", "--", str(script), expect=1)

    assert f"not started: {script}: no such file" in done.stderr
    assert "no attempt that ended had started" not in done.stderr
