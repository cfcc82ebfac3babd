"""Every refusal of a start names its inputs as they were given: an option of `run`, a keyword of the client, or a key of a file."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from headrace.client import RunOptions
from headrace.client.run_options import _KEYWORDS, keyword_of, named_keywords
from headrace.errors import BadInput, HeadraceError
from headrace.resources import RESOURCE_NAMES
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.refusals import BadRequest, NotFound, Refusal, Refused
from headrace_cli.command_line import app, run_command
from headrace_cli.commands.operations.run import (
    ArrayOptions,
    JobOptions,
    OperationOptions,
    PreemptionOptions,
    ShareOptions,
)
from headrace_cli.commands.operations.spec_option import opened_file
from headrace_cli.option_names import named_options, option_of
from headrace_cli.slurm.request import option_of as slurm_option_of

GROUPS = (JobOptions, ArrayOptions, ShareOptions, PreemptionOptions, OperationOptions)
OPTIONS = {f"--{field.name.replace('_', '-')}" for group in GROUPS for field in fields(group)} | {"--pool"}
#: Refusals that admission makes of a start.
LIMIT = BadRequest("time_limit", "2h", "at most 1h, max_time_limit of pool vision in tree default")
RETRIES = BadRequest.because("spec.no_retry_on", "`retry_on` and `no_retry_on` cannot be combined")


def refused_in(block: object, refusal: Refusal) -> Refusal:
    with pytest.raises(Refused) as refused, block:  # type: ignore[attr-defined]
        raise Refused(refusal)
    assert str(refused.value) == refused.value.refusal.text()
    return refused.value.refusal


def test_every_keyword_has_the_field_that_it_sets() -> None:
    assert set(_KEYWORDS.values()) == set(RunOptions.__optional_keys__) | {"argv", "operation"}
    for place in (each for each in _KEYWORDS if each.startswith("spec.")):
        field, _, resource = place.removeprefix("spec.").partition(".")
        assert field in OperationSpec.__struct_fields__
        assert resource in ("", *RESOURCE_NAMES)


@pytest.mark.parametrize("keyword", sorted(set(_KEYWORDS.values()) - {"argv", "tasks", "files"}))
def test_every_keyword_is_named_by_an_option_of_run(keyword: str) -> None:
    assert option_of(keyword) in OPTIONS
    for place in (each for each, name in _KEYWORDS.items() if name == keyword):
        assert keyword_of(place) == keyword
        assert option_of(place) == option_of(keyword)


@pytest.mark.parametrize(
    ("place", "keyword", "option"),
    [
        ("spec.argv[3]", "argv[3]", "command[3]"),
        ("spec.environment.MODE", "environment.MODE", "--env MODE"),
        ("spec.scheduling_options_per_pool_tree.gpu", "pool_tree.gpu", "--pool-tree gpu"),
        ("spec.tasks.0.resources.memory", "tasks.0.resources.memory", "tasks.0.resources.memory"),
        ("spec.resources.network", "spec.resources.network", "spec.resources.network"),
        ("pool_tree gpu: weight", "pool_tree gpu: weight", "--pool-tree gpu: weight"),
        ("operation id", "operation", "--id"),
        ("message", "message", "message"),
        ("--time-limit", "--time-limit", "--time-limit"),
    ],
)
def test_a_place_keeps_what_follows_the_name(place: str, keyword: str, option: str) -> None:
    assert keyword_of(place) == keyword
    assert option_of(place) == option


def test_a_refused_start_names_the_keyword_or_the_option() -> None:
    assert (
        refused_in(named_keywords(), RETRIES).text() == "no_retry_on: `retry_on` and `no_retry_on` cannot be combined"
    )
    expected = "--no-retry-on: `--retry-on` and `--no-retry-on` cannot be combined"
    assert refused_in(named_options(), RETRIES).text() == expected
    assert (
        refused_in(named_options(), LIMIT)
        .text()
        .startswith("--time-limit: 2h cannot be used; expected at most 1h, max_time")
    )
    assert refused_in(named_options(), NotFound("pool", "time_limit")) == NotFound("pool", "time_limit")
    assert slurm_option_of("time_limit") == slurm_option_of("spec.time_limit_ms") == "--time"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--retry-on", "3", "--no-retry-on", "4"),
            "--no-retry-on: `--retry-on` and `--no-retry-on` cannot be combined. Leave out one of them",
        ),
        (
            ("--keep-going", "--max-failed-job-count", "3"),
            "--keep-going: with only `--max-failed-job-count` no job is given up. Set `--tries` as well, or leave out `--keep-going`",
        ),
        (("--cpu", "0"), "--cpu: a job needs cores, memory or GPUs. Set `--cpu`, `--memory` or `--gpu` above 0"),
        (
            ("--memory-on-oom", "x2"),
            "--memory: `--memory-on-oom` raises the memory of a job, but these jobs request no memory.",
        ),
        (("--pool", "no such"), "--pool: 'no such' cannot be used"),
        (("--pool-tree", "no such"), "--pool-tree: 'no such' cannot be used"),
        (("--pool-tree", "gpu:pool=no such"), "--pool-tree gpu: pool: 'no such' cannot be used"),
    ],
)
def test_the_text_of_a_refusal_names_options(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        run_command(["run", *words, "--", "true"])

    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "refusal", "message"),
    [
        ("time_limit: 2h", LIMIT, "{file}:2: time_limit: 2h cannot be used; expected at most 1h"),
        ("fields: {time_limit_ms: 7200000}", LIMIT, "{file}:2: fields.time_limit_ms: 2h cannot be used"),
        ("title: night", LIMIT, "--time-limit: 2h cannot be used"),
        ("no_retry_on: 4", RETRIES, "{file}:2: no_retry_on: `--retry-on` and `no_retry_on` cannot be combined"),
        ("retry_on: 3", RETRIES, "--no-retry-on: `retry_on` and `--no-retry-on` cannot be combined"),
        ("env: {A: x}", BadRequest("spec.environment.A", "x", "y"), "{file}:2: env: 'x' cannot"),
    ],
)
def test_a_refused_value_of_a_file_is_named_with_line_and_key(
    text: str, refusal: BadRequest, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(f"# the operation\n{text}\n")
    app.parse_args(["run", "--spec", str(path), "--", "true"], exit_on_error=False, print_error=False)
    file = opened_file(path)
    assert file is not None

    told = refused_in(file.named_keys(), refusal).text()
    assert told.startswith(message.format(file=path).replace("'x'", "x"))


def test_a_wrong_value_of_a_file_names_the_keys_and_the_options_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "work.yaml"
    path.write_text("# the operation\nmax_failed_job_count: 3\nkeep_going: true\n")
    with pytest.raises(HeadraceError) as refused:
        run_command(["run", "--spec", str(path), "--", "true"])

    words = "with only `max_failed_job_count` no job is given up. Set `--tries` as well, or leave out `keep_going`"
    assert str(refused.value) == f"{path}:3: keep_going: {words}"


def test_other_errors_are_not_renamed() -> None:
    with pytest.raises(BadInput, match=r"^server: `node` is wrong"), named_options():
        raise BadInput.because("server", "`node` is wrong")
