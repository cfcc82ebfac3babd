"""Files of `run --spec` that cannot be used: line, key, value and what is accepted."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from headrace.errors import BadInput, HeadraceError
from headrace_cli.command_line import app, run_command
from headrace_cli.commands.operations.op import print_file
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen
from tests.unit.cli.test_render import a_view


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("jobs: x", "jobs: 'x' cannot be used; expected a whole number"),
        ("jobs: 0", "jobs: 0 cannot be used; expected a whole number, 1 or more"),
        ("jbs: 3", "jbs: unknown key; did you mean jobs?"),
        ("memory_limit: 1G", "memory_limit: unknown key; did you mean memory?"),
        ("spec: other.yaml", "spec: unknown key; expected one of command, pool, jobs,"),
        ("memory: 5", "memory: 5 cannot be used; expected a number with a unit"),
        ("weight: [1, 2]", "weight: a list cannot be used; expected one value"),
        ("title:", "title: null cannot be used; expected one value"),
        ("pool: a b", "pool: a b cannot be used; expected 1 to 100 characters"),
        ("pool_tree: [a b]", "pool_tree: a b cannot be used"),
        ("pool_tree: ['gpu:weight=x']", "pool_tree: x cannot be used; expected a number"),
        ("env: {A: }", "env.A: null cannot be used; expected a text"),
        ("env: {A b: c}", "env: A b=c cannot be used; expected NAME=VALUE"),
        ("node_filter: '((('", "node_filter: ((( cannot be used; expected a formula"),
        ("time_limit: 5", "time_limit: 5 cannot be used; expected a length of time with a unit"),
        ("upload: /no/such/file", "upload: /no/such/file cannot be used"),
        ("fields: {tyype: map}", "fields.tyype: unknown key; did you mean type?"),
        ("fields: {type: 3}", "fields.type: 3 cannot be used; expected str"),
        ("fields: {trace: x}", "fields.trace: unknown key"),
        ("fields: 3", "fields: 3 cannot be used; expected a map"),
        ("fields: {resources: {netwrk: 4}}", "fields.resources.netwrk: 4 cannot be used; did you mean network?"),
        ("fields: {resources: {network: x}}", "fields.resources.network: x cannot be used; expected a whole number"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_line_key_value_and_what_is_accepted(
    line: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "work.yaml"
    file.write_text(f"# the operation\n{line}\n")
    with pytest.raises(HeadraceError) as refused:
        run_command(["run", "--spec", str(file), "--", "true"])
    assert str(refused.value).startswith(f"{file}:2: {told}")


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ("3", "tasks: 3 cannot be used; expected a map of 1 to 32 tasks by name"),
        ("{}", "tasks: an empty map cannot be used"),
        ("{a: 3}", "tasks.a: 3 cannot be used; expected a map of command, jobs,"),
        ("{a: {command: [x], jbs: 3}}", "tasks.a.jbs: unknown key; did you mean jobs?"),
        ("{a: {command: [x], job_count: 3}}", "tasks.a.job_count: unknown key; did you mean jobs?"),
        ("{a: {command: x}}", "tasks.a.command: x cannot be used; expected a list: program, arguments"),
        ("{a: {}}", "tasks.a.command: missing; expected a list: program, arguments"),
        ("{a: {command: [x], jobs: 0}}", "tasks.a.jobs: 0 cannot be used; expected a whole number from 1 to 1000000"),
        ("{a: {command: [x], cpu: y}}", "tasks.a.cpu: y cannot be used; expected a number of cores"),
        ("{a: {command: [x], memory: }}", "tasks.a.memory: '' cannot be used"),
        ("{a: {command: [x], env: 3}}", "tasks.a.env: 3 cannot be used; expected a map of texts by name"),
        ("{a: {command: [x], env: [B c]}}", "tasks.a.env: B c cannot be used"),
        (
            "{a: {command: [x]}, b c: {command: [x]}}",
            "tasks.b c.name: b c cannot be used; expected at most 64 letters, digits",
        ),
        ("{a: {command: [x], cpu: 0}}", "tasks.a.resources: a job needs an amount of at least one"),
        (
            "{a: {command: [x]}}\ncommand: [y]",
            "tasks: cannot be combined with `command`: each task has its own command",
        ),
        ("{a: {command: [x]}}\njobs: 2", "tasks: cannot be combined with `jobs`: each task has its own jobs"),
    ],
)
def test_tasks_that_cannot_be_used_are_refused_with_line_key_value_and_what_is_accepted(
    tasks: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "work.yaml"
    file.write_text(f"# the operation\ntasks: {tasks}\n")
    with pytest.raises(HeadraceError) as refused:
        run_command(["run", "--spec", str(file)])
    assert str(refused.value).startswith(f"{file}:2: {told}")


@pytest.mark.parametrize("line", ["on_lost_node: foo", "gang: 5"])
def test_a_value_that_is_none_of_few_is_refused_with_line_and_key(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(f"# the operation\n{line}\n")
    assert run_command(["run", "--spec", "w.yaml", "--", "true"]) == Exit.USAGE
    assert f"w.yaml:2: {line.partition(':')[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        (
            "tasks: {a: {command: [x]}}\nafter_each: b",
            (),
            "w.yaml:2: after_each: b cannot be used; expected no `after_each`",
        ),
        (
            "tasks: {a: {command: [x]}}",
            ("--after-each", "b"),
            "--after-each: 'b' cannot be used; expected no `--after-each`",
        ),
        ("tasks: {a: {command: [x]}}\nfields: {terminal: true}", (), "w.yaml:2: fields.terminal: True cannot be used"),
        (
            "tasks:\n  a: {command: [x], gang: 5}",
            (),
            "w.yaml:2: tasks.a.gang: 5 cannot be used; expected true or false",
        ),
        (
            "tasks: {a: {command: [x]}, b: {command: [x], gang: true}}\nkeep_going: true",
            (),
            "w.yaml:2: keep_going: a gang cannot run without one of its jobs",
        ),
        (
            "gang: true\ntasks: {a: {command: [x]}, b: {command: [x], gang: true}}",
            (),
            "w.yaml:2: tasks.b: `gang` of the operation starts all jobs of all tasks together",
        ),
        ("command: [x]\nmemory_on_oom: x2", (), "Request memory for each job"),
    ],
)
def test_what_does_not_go_together_is_named_as_it_was_given(
    text: str, options: Sequence[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(text)
    with pytest.raises(HeadraceError) as refused:
        run_command(["run", "--spec", "w.yaml", *options])
    assert told in str(refused.value)


def test_all_unknown_keys_of_standard_input_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"jbs": 3,\n"command": ["true"],\n"poool": "a"}')))
    with pytest.raises(HeadraceError) as refused:
        run_command(["run", "--spec", "-"])
    told = [
        "standard input:1: jbs: unknown key; did you mean jobs?",
        "standard input:3: poool: unknown key; did you mean",
    ]
    assert all(text in line for text, line in zip(told, str(refused.value).splitlines(), strict=True))


def test_a_file_of_unknown_keys_costs_no_more_than_a_thousand_of_them(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("command: [a]\n" + "".join(f"unknown{number}: 1\n" for number in range(100_000)))
    with pytest.raises(HeadraceError) as refused:
        run_command(["run", "--spec", str(tmp_path / "w.yaml")])
    lines = str(refused.value).splitlines()
    assert len(lines) == 1_001
    assert lines[-1].endswith("w.yaml:1001: the rest is not checked, because there are 1000 problems so far")


@pytest.mark.parametrize(
    "command", ["[echo, no, 0.10, +5, 1e3, 007, 4G]", '["echo","no","0.10","+5","1e3","007","4G"]']
)
def test_the_words_of_a_command_are_texts_as_they_are_written(command: str, tmp_path: Path) -> None:
    (tmp_path / "work.yaml").write_text(f"command: {command}\n")
    words = ["run", "--spec", str(tmp_path / "work.yaml")]
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert bound.args == ("echo", "no", "0.10", "+5", "1e3", "007", "4G")


def test_options_override_the_file_and_variables_are_added_to_it(tmp_path: Path) -> None:
    (tmp_path / "work.yaml").write_text("command: [a]\nmemory: 1G\ncpu: 3\nafter: [x, y]\nenv: {A: 1, B: 2}\n")
    words = ["run", "--spec", str(tmp_path / "work.yaml"), "--cpu", "2", "--after", "z", "--env", "A=3", "--", "b", "c"]
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    jobs, names = bound.arguments["job_options"], bound.arguments["operation_options"]
    assert bound.args == ("b", "c")
    assert (jobs.cpu, jobs.memory, jobs.env, names.after) == ("2", "1G", ["A=1", "B=2", "A=3"], ["z"])


def test_nobody_gets_the_file_of_an_operation_whose_command_is_withheld() -> None:
    view = msgspec.structs.replace(a_view(), is_withheld=True)
    with pytest.raises(BadInput, match="belongs to another user"):
        print_file(Screen(), view)


def test_a_file_without_a_command_needs_a_command(tmp_path: Path) -> None:
    (tmp_path / "work.yaml").write_text("jobs: 3\n")
    with pytest.raises(HeadraceError, match="a program and its arguments"):
        run_command(["run", "--spec", str(tmp_path / "work.yaml")])
