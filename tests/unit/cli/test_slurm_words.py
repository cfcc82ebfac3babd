"""Whoever types a word of Slurm is told the word for it here."""

from __future__ import annotations

import re

import pytest

from headrace_cli import slurm_words
from headrace_cli.command_line import app, run_command
from headrace_cli.exit_statuses import Exit


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["squeue", "-u", "ada"], "Slurm's `squeue` is `headrace op list` in Headrace"),
        (["run", "--array=0-9", "--", "true"], "instead of Slurm's --array, use --jobs or --indexes"),
        (["run", "--test-only", "--", "true"], "instead of Slurm's --test-only, use --dry-run"),
        (["run", "--hold", "--", "true"], "instead of Slurm's --hold, use `headrace op suspend` after the start"),
        (
            ["run", "--dependency=afterok:17", "--", "true"],
            "instead of Slurm's --dependency, use --after ID for afterok",
        ),
        (["run", "--cpu", "1", "--time", "10m", "--", "true"], "instead of Slurm's --time, use --time-limit"),
        (["salloc", "-n", "4"], "Slurm's `salloc` is `headrace shell` in Headrace"),
        (["yarn", "application", "-list"], "YARN's `application` is `headrace op list --live` in Headrace"),
        (["yarn", "node", "-list"], "YARN's `node` is `headrace node list` in Headrace"),
        (["application", "-kill", "application_17"], "YARN's `application -kill` is `headrace op abort` in Headrace"),
        (["qsub", "job.sh"], "instead of `qsub`, use `headrace run`"),
        (["run", "--replicas=3", "--", "true"], "instead of --replicas, use --jobs"),
        (["run", "--detach", "--", "true"], "leave --detach out: `headrace run` returns as soon as the operation"),
        (["op", "list", "ada"], "`headrace op list --help` shows what it accepts"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_followed_by_what_can(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert run_command(words) == Exit.USAGE
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("words", [["run", "--wronge", "--", "sbatch", "--array=1"], ["nonsense"], ["--wronge"], []])
def test_nothing_is_told_of_words_that_slurm_has_not(words: list[str]) -> None:
    assert slurm_words.said_here(words) == ""


def test_what_is_told_is_there() -> None:
    tables = (
        slurm_words._COMMANDS,
        slurm_words._COMMANDS_OF_YARN,
        slurm_words._COMMANDS_AFTER_YARN,
        slurm_words._OPTIONS_OF_YARN,
        slurm_words._COMMANDS_OF_OTHERS,
    )
    for command in (command for table in tables for command in table.values()):
        words = re.split(" --| ID", command)[0]
        named, _, _ = app.parse_commands(words.split())
        assert " ".join(named) == words
    options = {name for argument in app["run"].assemble_argument_collection() for name in argument.names}
    told = [*slurm_words._OPTIONS.values(), *slurm_words._OPTIONS_OF_OTHERS.values()]
    assert {word for here in told for word in re.findall(r"--[a-z-]+", here)} <= options


@pytest.mark.parametrize(
    ("words", "meant"),
    [("op list --tree=x", ""), ("run --jbos=3 -- true", "--jobs"), ("run --memry=1G -- true", "--memory")],
)
def test_an_option_is_suggested_only_if_its_name_is_similar(
    capsys: pytest.CaptureFixture[str], words: str, meant: str
) -> None:
    assert run_command(words.split()) == Exit.USAGE
    said = capsys.readouterr().err
    assert f"Did you mean {meant}?" in said if meant else "Did you mean" not in said


@pytest.mark.parametrize("word", sorted({*slurm_words._OPTIONS, *slurm_words._DONE_OTHERWISE}))
def test_no_other_option_is_guessed_for_an_option_of_slurm(capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert run_command(["run", word, "--", "true"]) == Exit.USAGE
    said = capsys.readouterr().err
    assert f"instead of Slurm's {word}, use" in said
    assert "Did you mean" not in said


@pytest.mark.parametrize("word", sorted({*slurm_words._OPTIONS_OF_OTHERS, *slurm_words._RETURN_AT_ONCE}))
def test_no_other_option_is_guessed_for_an_option_of_other_commands(
    capsys: pytest.CaptureFixture[str], word: str
) -> None:
    assert run_command(["run", word, "--", "true"]) == Exit.USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert f"instead of {word}, use" in said or f"leave {word} out" in said
    assert "Did you mean" not in said
