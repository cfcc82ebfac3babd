"""Command lines of Slurm's commands: options in all their forms, and what is said about those that have no counterpart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import BadInput
from headrace_cli.slurm.__main__ import COMMANDS, run
from headrace_cli.slurm.batch_script import BatchScript, check_script, options_in_environment, options_in_script
from headrace_cli.slurm.command import COMMANDS as INSTALLED
from headrace_cli.slurm.command import command_text, install
from headrace_cli.slurm.command_line import NoCounterpart
from headrace_cli.slurm.options import SACCT, SBATCH, SCANCEL, SQUEUE

SCRIPT = b"""#!/bin/bash -l
#SBATCH --job-name="two words" --mem=2G   # a comment
#SBATCH -t 10 -n4
##SBATCH --mem=1G

#SBATCH --mail-type=END
module load gcc
#SBATCH --time=99
"""


@pytest.mark.parametrize(
    "words",
    [["--time=5"], ["--time", "5"], ["-t", "5"], ["-t5"], ["-t=5"], ["-Wt5"], ["-t", "9", "-t", "5"]],
)
def test_an_option_is_read_in_each_of_its_forms(words: list[str]) -> None:
    given = SBATCH.read([*words, "job.sh", "--time=7", "-x"])

    assert given.one("time") == "5"
    assert given.words == ["job.sh", "--time=7", "-x"]


def test_the_beginning_of_a_name_is_enough_if_no_other_option_begins_so() -> None:
    assert SBATCH.read(["--arr=1-3"]).one("array") == "1-3"
    with pytest.raises(BadInput, match="did you mean"):
        SBATCH.read(["--tim=5"])


def test_options_of_lists_stand_anywhere_and_are_joined() -> None:
    assert SACCT.read(["-j", "17", "-nPX", "-j18,19_2"]).listed("jobs") == ["17", "18", "19_2"]
    assert SCANCEL.read(["17", "--quiet", "18"]).words == ["17", "18"]
    assert SQUEUE.read(["--", "-h"]).words == ["-h"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--gress=gpu"], "did you mean --gres?"),
        (["--zzz"], "an option of Slurm's command"),
        (["-0"], "an option of Slurm's command"),
        (["--time"], "--time: the value is missing"),
        (["--parsable=1"], "expected no value"),
    ],
)
def test_an_option_that_there_is_not_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(BadInput, match=told.replace("?", r"\?")):
        SBATCH.read(words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--exclusive"], "--exclusive has no counterpart in Headrace; use --cpus-per-task with all cores of a node"),
        (["--begin=now+1hour"], "--begin=now.1hour has no counterpart in Headrace"),
        (["-L", "matlab"], "-L=matlab has no counterpart in Headrace; use a pool with a guarantee"),
    ],
)
def test_an_option_without_a_counterpart_is_refused_by_its_name(words: list[str], told: str) -> None:
    with pytest.raises(NoCounterpart, match=told):
        SBATCH.read(words)


def test_the_options_of_a_script_stand_before_its_first_command() -> None:
    given = options_in_script(BatchScript("job.sh", SCRIPT))

    assert {name: values[-1] for name, values in given.values.items()} == {
        "job-name": "two words",
        "mem": "2G",
        "time": "10",
        "ntasks": "4",
        "mail-type": "END",
    }
    assert given.remarks == [
        "--mail-type is ignored: nothing is mailed; use `headrace op wait` and a command of your own"
    ]


def test_the_command_line_goes_before_variables_and_variables_before_the_script() -> None:
    variables = options_in_environment({"SBATCH_TIMELIMIT": "20", "SBATCH_ACCOUNT": "lab", "SBATCH_OTHER": "x"})
    given = SBATCH.read(["-A", "own"]).over(variables).over(options_in_script(BatchScript("job.sh", SCRIPT)))

    assert (given.one("account"), given.one("time"), given.one("mem")) == ("own", "20", "2G")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"#!/bin/sh\n#SBATCH --mem\n", "line 2 of job.sh: --mem: the value is missing"),
        (b"#!/bin/sh\n#SBATCH --x11\n", "line 2 of job.sh: --x11 has no counterpart"),
        (b"#!/bin/sh\n#SBATCH -n 1 job.sh\n", "line 2 of job.sh: 'job.sh' cannot be used; expected options only"),
        (b"#!/bin/sh\n#SBATCH -J 'one\n", "line 2 of job.sh: .* expected quotes in pairs"),
    ],
)
def test_a_wrong_line_of_a_script_is_named(text: bytes, told: str) -> None:
    with pytest.raises((BadInput, NoCounterpart), match=told):
        options_in_script(BatchScript("job.sh", text))


@pytest.mark.parametrize("folder", ["python", "py thon"])
def test_the_file_of_a_command_runs_with_any_path_of_the_interpreter(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).symlink_to(sys.executable)
    command = tmp_path / "sinfo"
    command.write_text(command_text("sinfo", str(tmp_path / folder), "pools"))
    command.chmod(0o755)
    done = subprocess.run([command, "--gress"], capture_output=True, text=True, check=False)

    assert command.read_text().startswith("#!/bin/sh\n") == (" " in folder or len(str(tmp_path / folder)) > 120)
    # A link to an interpreter has none of the packages of its environment. What is missing shows that it was started.
    assert "headrace_cli" in done.stderr or "did you mean" in done.stderr


def test_each_command_says_its_version_and_what_becomes_of_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        assert run(command, ["--version"]) == run(command, ["--help"]) == 0
        version, first, *rest = capsys.readouterr().out.splitlines()
        assert version == "slurm 24.05.0"
        assert first.startswith(f"{command} of Headrace")
        assert len(rest) == 3
    assert tuple(COMMANDS) == INSTALLED


@pytest.mark.parametrize(("text", "told"), [(b"echo hello\n", "`#!`"), (b"#!/bin/sh\r\ntrue\r\n", "dos2unix")])
def test_a_file_that_no_host_can_run_is_refused(text: bytes, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        check_script(BatchScript("job.sh", text))


def test_installing_follows_no_link_of_another_account(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in ("sbatch", ".sbatch.new", "sbatch.new"):
        (tmp_path / name).symlink_to(precious)
    install(tmp_path)
    assert precious.read_text() == "precious"
    assert (tmp_path / "sbatch").is_file()
    assert (tmp_path / "sbatch").stat().st_mode & 0o777 == 0o755
    assert "sbatch" in capsys.readouterr().out
