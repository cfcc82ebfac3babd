"""`headrace run` and `Client.run` have the same options, with the same defaults and checks."""

from __future__ import annotations

import inspect
import signal
from dataclasses import fields
from typing import Any

import pytest

from headrace.client import Client, RunOptions, operation_spec, task
from headrace.errors import BadInput
from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.wire.operation_spec import OnLostNode, OperationSpec, Upstream, UpstreamEnd
from headrace.wire.preemption import InterruptSignal
from headrace_cli.commands.operations.run import (
    ArrayOptions,
    JobOptions,
    OperationOptions,
    PreemptionOptions,
    ShareOptions,
    spec_of_options,
)
from headrace_cli.option_names import KEYWORDS

GROUPS = (JobOptions, ArrayOptions, ShareOptions, PreemptionOptions, OperationOptions)
#: Options of both, as text of the command line and as a keyword, with the option that an error names.
BAD: list[tuple[Any, str, Any]] = [
    (JobOptions, "jobs", 0),
    (JobOptions, "cpu", "x"),
    (JobOptions, "memory", "5"),
    (JobOptions, "gpu", -1),
    (JobOptions, "tries", 0),
    (JobOptions, "max_failed_job_count", 0),
    (JobOptions, "retry_on", "SIGNOPE"),
    (JobOptions, "retry_backoff", "5"),
    (JobOptions, "longest_retry_backoff", "x"),
    (JobOptions, "time_limit", "0s"),
    (JobOptions, "operation_time_limit", "2"),
    (JobOptions, "log_cap", "100"),
    (JobOptions, "image", "Not An Image"),
    (JobOptions, "node_filter", "a &"),
    (ArrayOptions, "indexes", "9-1"),
    (ArrayOptions, "max_running", 0),
    (ShareOptions, "max_cpu", "x"),
    (ShareOptions, "max_memory", "1"),
    (ShareOptions, "max_gpu", -1),
    (PreemptionOptions, "interrupt_signal", "KILL"),
    (PreemptionOptions, "interruption_timeout", "2h"),
    (OperationOptions, "after", ["one:sometime"]),
    (ShareOptions, "pool_tree", ["one", "one"]),
]


def spec_from_python(**options: Any) -> OperationSpec:
    return operation_spec(["true"], **options)


def test_every_option_of_run_is_a_keyword_of_the_client() -> None:
    in_python = set(RunOptions.__optional_keys__) | {"upload", "operation"}
    on_command_line = {KEYWORDS.get(field.name, field.name) for group in GROUPS for field in fields(group)}
    explicit = set(inspect.signature(Client.run).parameters)

    assert (on_command_line | {"pool"}) - in_python == {"spec", "id"}
    # A file of `--spec` has tasks too, and files that were sent already are nothing for a command line.
    assert in_python - on_command_line == {"pool", "operation", "tasks", "files"}
    assert {"upload", "operation"} <= explicit


def test_without_options_run_and_the_client_start_the_same_operation() -> None:
    groups = (JobOptions(), ArrayOptions(), ShareOptions(), PreemptionOptions(), OperationOptions())

    assert spec_of_options(["true"], None, *groups) == spec_from_python()


@pytest.mark.parametrize(("group", "name", "value"), BAD)
def test_a_bad_value_is_refused_by_both_in_the_same_words(group: Any, name: str, value: Any) -> None:
    given: dict[str, Any] = {
        {
            JobOptions: "job_options",
            ArrayOptions: "array_options",
            ShareOptions: "share_options",
            PreemptionOptions: "preemption_options",
            OperationOptions: "operation_options",
        }[group]: group(**{name: value})
    }
    with pytest.raises(BadInput) as on_command_line:
        spec_of_options(["true"], None, **given)
    with pytest.raises(BadInput) as in_python:
        spec_from_python(**{name: value})

    assert on_command_line.value.place == f"--{name.replace('_', '-')}"
    assert in_python.value.place == name
    assert on_command_line.value.expected == in_python.value.expected


def test_programs_may_give_numbers_lists_and_signals_where_a_command_line_has_words() -> None:
    spec = spec_from_python(
        cpu=0.5,
        memory=2**20,
        indexes=[*range(1, 4), 7],
        lines=["a", "b", "c", "d"],
        interrupt_signal=signal.SIGUSR1,
        on_lost_node="wait",
        after=["first:any"],
        gang=True,
        max_gpu=2,
    )

    assert spec.resources == Resources(user_slots=1, cpu=50, memory=2**20)
    assert (spec.job_count, spec.indexes, spec.lines[3], spec.is_gang) == (4, "1-3,7", "d", True)
    assert (spec.interrupt_signal, spec.on_lost_node) == (InterruptSignal.SIGUSR1, OnLostNode.WAIT)
    assert (spec.after, spec.resource_limits.gpu) == ([Upstream(OperationId("first"), UpstreamEnd.ANY)], 2)
    assert (spec.keep_going, spec_from_python(jobs=4).keep_going) == (False, True)


def test_a_gang_of_some_tasks_fails_as_a_gang_does() -> None:
    alone, together = task("alone", ["x"], jobs=3), task("together", ["x"], jobs=2, gang=True)
    spec = operation_spec([], tasks=[alone, together])

    assert (spec.is_gang, spec.has_gang, spec.gang_tasks, spec.gang_job_count) == (False, True, (1,), 2)
    assert [spec.is_of_gang(index) for index in range(5)] == [False] * 3 + [True] * 2
    assert (spec.keep_going, operation_spec([], tasks=[alone]).keep_going) == (False, True)
    with pytest.raises(BadInput, match="keep_going: a gang cannot run without one of its jobs"):
        operation_spec([], tasks=[alone, together], keep_going=True)


@pytest.mark.parametrize(
    ("options", "place", "expected"),
    [
        ({"jobs": 3, "indexes": "1-2"}, "jobs", "2, as many as there are indexes, lines or jobs of tasks"),
        ({"jobs": "3"}, "jobs", "a whole number, 1 or more"),
        ({"lines": "abc"}, "lines", "a list of texts, at least one"),
        ({"lines": []}, "lines", "a list of texts, at least one"),
        ({"after": "first"}, "after", "a list of texts"),
        ({"pool_tree": "gpu"}, "pool_tree", "a list of texts"),
        ({"cpu": 0}, "cpu", "a job needs cores, memory or GPUs"),
        ({"preemption_mode": "rude"}, "preemption_mode", "one of normal, graceful"),
        ({"tasks": [task("one", ["true"])]}, "argv", "a command and tasks cannot be combined"),
        ({"keep_going": True, "gang": True}, "keep_going", "a gang cannot run without one of its jobs"),
    ],
)
def test_options_that_mean_nothing_are_refused_with_their_keyword(
    options: dict[str, Any], place: str, expected: str
) -> None:
    with pytest.raises(BadInput, match=expected) as refused:
        spec_from_python(**options)

    assert refused.value.place == place


def test_an_unknown_keyword_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"unknown option 'memmory': did you mean memory or"):
        spec_from_python(memmory="1G")


@pytest.mark.parametrize(("argv", "expected"), [("true", "a list"), ([], "a program"), (["ls -l"], "sh -c 'ls -l'")])
def test_a_command_that_no_node_can_run_is_refused(argv: Any, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        operation_spec(argv)
