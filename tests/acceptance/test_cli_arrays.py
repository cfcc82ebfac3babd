"""Arrays as people write them: lines, indexes, files of each job, and jobs that are run again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

#: Every 50th job fails in its first attempt.
_WORK = """
[ $((HEADRACE_JOB_INDEX % 50)) -ne 7 ] || [ "$HEADRACE_ATTEMPT" -ge 2 ] || { echo early; exit 1; }
printf '%s' "$1"
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as running:
        yield running


def test_a_thousand_lines_of_any_kind_give_a_thousand_right_files(up: Up, tmp_path: Path) -> None:
    kinds = ["a line {}", 'it\'s "{}"', "", "žluť $HOME `{}`", "  spaces  {}  ", "-n", "\\t{}", "*"]
    lines = [kinds[number % len(kinds)].replace("{}", str(number)) for number in range(1_000)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    words = ("--each-line", str(tmp_path / "lines.txt"), "--output", "out/%i.txt", "--cwd", str(tmp_path))
    up.run("run", *words, "--retry-backoff", "0", "--cpu", "0.2", "--wait", "--", "sh", "-c", _WORK, "sh", "{}")

    files = [(tmp_path / f"out/{number}.txt").read_text() for number in range(1_000)]
    assert files == lines


def test_indexes_are_what_the_jobs_see_and_only_so_many_run_at_a_time(up: Up, tmp_path: Path) -> None:
    script = "echo $HEADRACE_JOB_INDEX of $HEADRACE_JOB_COUNT; ls /proc/self/fd | wc -l >/dev/null"
    operation = up.start_operation("--indexes", "1-20:9,200", "--max-running", "2", "--", "sh", "-c", script)
    up.run("op", "wait", operation)
    assert up.run("op", "logs", operation).stdout == "".join(
        f"{job}: {index} of 4\n" for job, index in enumerate((1, 10, 19, 200))
    )
    view = json.loads(up.run("op", "get", operation, "--json").stdout)["operation"]
    assert view["spec"]["resource_limits"]["user_slots"] == 2
    assert "indexes 1-20:9,200" in " ".join(up.run("op", "get", operation).stdout.split())


def test_the_jobs_that_failed_run_again_with_their_index_and_their_line(up: Up, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("ann\nbob\ncleo\ndora\n")
    script = f"echo $HEADRACE_JOB_INDEX {{}}; [ -e {tmp_path}/fixed ] || [ $((HEADRACE_JOB_INDEX % 2)) = 0 ]"
    first = up.start_operation("--each-line", str(tmp_path / "names"), "--tries", "1", "--", "sh", "-c", script)
    up.run("op", "wait", first, expect=1)
    (tmp_path / "fixed").touch()

    second = up.run("op", "rerun", first, "--failed").stdout.strip()
    up.run("op", "wait", second)
    saved = tmp_path / "saved"
    up.run("op", "logs", second, "--save", str(saved))
    assert {path.name: path.read_text() for path in saved.iterdir()} == {"0.out": "1 bob\n", "1.out": "3 dora\n"}
    assert f"reruns jobs of operation {first}" in " ".join(up.run("op", "get", second).stdout.split())

    third = up.run("op", "rerun", second).stdout.strip()
    up.run("op", "wait", third)
    assert up.run("op", "logs", third).stdout == "0: 1 bob\n1: 3 dora\n"
    assert (
        "has no job to repeat: all its jobs are completed" in up.run("op", "rerun", third, "--failed", expect=2).stderr
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--indexes", "3-1"], "--indexes: '3-1'"),
        (["--indexes", "1-3", "--jobs", "2"], "--jobs"),
        (["--max-running", "0"], "--max-running"),
        (["--each-line", "/dev/null"], "/dev/null has no lines"),
    ],
)
def test_what_does_not_go_together_is_refused(up: Up, words: list[str], told: str) -> None:
    assert told in up.run("run", *words, "--", "true", expect=2).stderr


def test_an_index_without_a_line_is_refused(up: Up, tmp_path: Path) -> None:
    (tmp_path / "two").write_text("a\nb\n")
    words = ("--each-line", str(tmp_path / "two"), "--indexes", "0,2")
    assert "but indexes up to 2. Each index needs a line" in up.run("run", *words, "--", "true", expect=4).stderr


def test_a_line_that_makes_the_command_too_long_is_refused(up: Up, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 40_000)
    said = up.run("run", "--each-line", str(tmp_path / "long"), "--", "true", "{}" * 20_000, expect=4).stderr
    assert "a line of 40000 bytes makes the command 800000004 bytes long" in said
