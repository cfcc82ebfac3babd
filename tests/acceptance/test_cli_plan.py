"""`headrace plan` without any server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.forked_commands import run_forked

EXAMPLE = str(Path(__file__).parents[2] / "docs" / "examples" / "plan.yaml")


def plan(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_forked(["plan", *words], environment=os.environ, cwd=Path.cwd(), timeout_s=45, stdin=stdin)


def test_the_example_is_planned_as_a_table_and_as_json() -> None:
    table, answer = plan(EXAMPLE), plan(EXAMPLE, "--json")

    assert (table.returncode, table.stderr) == (0, "")
    assert "│  │  └─ train-b gpu" in table.stdout
    assert "\x1b" not in table.stdout
    elements = {element["path"]: element for element in json.loads(answer.stdout)["elements"]}
    assert elements["/research/vision/train-a"]["fair_resources"]["gpu"] == 4
    assert elements["/nightly"]["share"]["fair_share"]["integral_guarantee"]["cpu"] == pytest.approx(0.3)


def test_a_file_comes_on_standard_input_too() -> None:
    done = plan("-", "--resource", "memory", stdin='{"total": {"memory": "4G"}, "pools": {"a": {}}}')

    assert "standard input: memory 4 GiB; figures in memory" in done.stdout


def test_what_pool_export_wrote_is_planned_with_a_total() -> None:
    done = plan("-", "--total", "cpu=8", stdin="tree: default\npools:\n  a: {max_operation_count: 5, mine: {x: 1}}\n")

    assert "standard input: cpu 8; figures" in done.stdout
    assert plan("-", "--total", "none", stdin="pools: {a: }").returncode == 2


def test_a_file_that_cannot_be_used_is_told_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "tree.yaml"
    file.write_text("total: {cpu: 1}\npools:\n  a: {wieght: 1}\n  b: {parent: c, weight: -1}\n")

    done = plan(str(file), "--json")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"{file}:3: pools.a.wieght: unknown key; did you mean weight?",
        f"{file}:4: pools.b.weight: -1 cannot be used; expected a positive number that is not tiny, up to 67108864",
        f"{file}:4: pools.b.parent: there is no pool 'c'; expected one of a, b",
    ]
