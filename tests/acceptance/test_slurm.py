"""Commands of Slurm against a running Headrace: `sbatch`, `srun`, `squeue`, `sacct`, `scancel`, `sinfo` and `scontrol`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.client import NotRunning, connect
from headrace_cli.slurm import submit
from headrace_cli.slurm.options import SBATCH
from headrace_cli.slurm.pools_file import PoolsFile, choose
from headrace_cli.slurm.request import Submitter, submission
from tests.support.headrace_up import Up
from tests.support.slurm_commands import Slurm

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as up:
        yield Slurm(up, tmp_path_factory.mktemp("slurm"))


def test_an_array_runs_is_listed_and_accounted_for(slurm: Slurm) -> None:
    text = "#SBATCH --array=1-9:4%2 --output=out/%x-%a.txt\n"
    text += 'echo "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID $1"\n'
    text += (
        'while [ "$SLURM_ARRAY_TASK_ID" = 9 ] && [ ! -e go ]; do sleep 0.05; done\n[ "$SLURM_ARRAY_TASK_ID" != 5 ]\n'
    )
    number = slurm.say("sbatch", "--parsable", "--job-name=sweep", slurm.script("sweep.sh", text), "word")

    while slurm.say("squeue", "-h", "-r", "-j", number, "-o", "%i %T") != f"{number}_9 RUNNING":
        pass
    assert slurm.say("squeue", "-h", "-n", "sweep", "-o", "%A %K %j") == f"{int(number) * 10**6 + 9} 9 sweep"
    (slurm.folder / "go").touch()
    slurm.up.run_until_over(f"slurm-{number}")

    written = (slurm.folder / "out" / "sweep-5.txt").read_text()
    assert written == f"{number} 5 {int(number) * 10**6 + 5} word\n"
    said = slurm.say("sacct", "-X", "-n", "-P", "-j", number, "-o", "JobID,State,ExitCode,NodeList")
    assert said.splitlines() == [
        f"{number}_1|COMPLETED|0:0|alpha",
        f"{number}_5|FAILED|1:0|alpha",
        f"{number}_9|COMPLETED|0:0|alpha",
    ]
    assert slurm.say("squeue", "-h", "-n", "sweep") == ""
    shown = slurm.say("scontrol", "-o", "show", "job", f"{number}_5")
    assert "JobState=FAILED" in shown
    assert f"ArrayJobId={number} ArrayTaskId=5 JobName=sweep" in shown


def test_a_job_may_wait_for_another_and_is_cancelled_before_it_runs(slurm: Slurm) -> None:
    first = slurm.say("sbatch", "--parsable", "--wrap", "sleep 600")
    second = slurm.say("sbatch", "--parsable", f"--dependency=afterok:{first}", "--wrap", "true")

    assert slurm.say("squeue", "-h", "--me", "-o", "%A %t %r", "-j", second) == f"{second} PD Dependency"
    slurm.run("scancel", first)
    slurm.up.run_until_over(f"slurm-{second}")

    states = slurm.say("sacct", "-nXP", "-j", f"{first},{second}", "-o", "JobID,State").splitlines()
    assert states == [f"{first}|CANCELLED", f"{second}|CANCELLED"]
    assert slurm.run("scancel", "17", expect=1).stderr.count("Invalid job id specified") == 1


def test_srun_runs_a_command_here_and_tasks_in_a_job(slurm: Slurm) -> None:
    done = slurm.run(
        "srun", "--ntasks=2", "--label", "sh", "-c", "echo $SLURM_PROCID of $SLURM_NTASKS; exit 3", expect=3
    )
    assert sorted(done.stdout.splitlines()) == ["0: 0 of 2", "1: 1 of 2"]

    text = "srun -o step-%t.txt sh -c 'echo $SLURM_LOCALID' && echo all | srun -n1 cat\n"
    text += "srun -n1 --export=ALL,MODE=slow sh -c 'echo $MODE ${USER-unset}'\n"
    text += "srun -n1 --export=NONE /bin/sh -c 'echo $SLURM_PROCID ${USER-unset}'\nsrun -n9 true\n"
    slurm.run("sbatch", "--wait", "-n2", "--output=steps.out", slurm.script("steps.sh", text), expect=1)

    assert [(slurm.folder / f"step-{task}.txt").read_text() for task in range(2)] == ["0\n", "1\n"]
    written = (slurm.folder / "steps.out").read_text()
    assert written.startswith("all\nslow ada\n0 unset\n")
    assert "9 tasks of 1 cores need more cores than the job has, 2" in written


def test_whatever_has_no_counterpart_is_named_and_nothing_starts(slurm: Slurm) -> None:
    before = slurm.say("sacct", "-nX", "-o", "JobID")
    slurm.script("alone.sh", "#SBATCH --exclusive\ntrue\n")

    assert "line 2 of alone.sh: --exclusive has no counterpart" in slurm.run("sbatch", "alone.sh", expect=1).stderr
    assert (
        slurm.run("sbatch", "missing.sh", expect=1).stderr == "sbatch: error: missing.sh: No such file or directory\n"
    )
    assert "headrace shell" in slurm.run("srun", "--pty", "bash", expect=1).stderr
    assert "did you mean show?" in slurm.run("scontrol", "shw", expect=1).stderr
    assert slurm.say("sacct", "-nX", "-o", "JobID") == before


@pytest.mark.long
def test_the_cluster_is_shown_in_partitions_that_a_file_names(slurm: Slurm) -> None:
    assert slurm.say("sinfo", "-h", "-o", "%P %a %D %N") == "default* up 1 alpha"
    file = slurm.commands / "pools.toml"
    file.write_text('[partition.quick]\npool = "fast"\ndefault = true\n[partition.gpu]\nnode_filter = "gpu"\n')
    try:
        assert slurm.say("sinfo", "-h", "-o", "%P %D").splitlines() == ["quick* 1", "gpu 0"]
        assert "did you mean quick?" in slurm.run("sbatch", "-p", "quik", "--wrap", "true", expect=1).stderr
        slurm.run("sbatch", "--wait", "--wrap", '[ "$SLURM_JOB_PARTITION" = quick ] && [ "$HEADRACE_POOL" = fast ]')
    finally:
        file.unlink()
    assert slurm.say("scontrol", "show", "partition", "-o").startswith("PartitionName=default ")


async def test_two_submissions_at_the_same_moment_get_two_numbers(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "number_at", lambda _: 286_000_000)
    given = SBATCH.read(["true"])
    async with connect(state=slurm.up.state) as client:
        numbers = []
        for nth in range(4):
            who = Submitter("ada", "here", str(slurm.folder), os.environ | {}, f"token-{nth}")
            job = submission(given, choose(given, PoolsFile()), who, "true", ["true"], has_script=False)
            number, operation = await submit._start(client, job, None)
            assert operation.answer is not None
            assert not operation.answer.repeated
            numbers.append(number)

    assert numbers[0] == 286_000_000
    assert len(set(numbers)) == 4


def test_without_headrace_the_commands_say_so(slurm: Slurm, tmp_path: Path) -> None:
    gone = subprocess.run(
        [str(slurm.commands / "squeue")],
        env=slurm.environment | {"HEADRACE_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert gone.returncode == 1
    assert gone.stderr.startswith("squeue: error: Unable to contact slurm controller: ")
    with pytest.raises(NotRunning), headrace.Client(state=tmp_path):
        pass
