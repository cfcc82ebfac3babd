"""Tools and batch scripts that know nothing of Headrace: submitit, dask-jobqueue, and ten scripts as clusters publish them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up
from tests.support.slurm_commands import Slurm

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "slurm_scripts"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with Up(nodes=("alpha:cpu=4,memory=4G,gpu=1,tag=fast",)) as up:
        yield Slurm(up, tmp_path_factory.mktemp("tools"))


def submitted(slurm: Slurm, name: str, *, expect: int = 0, **texts: str) -> str:
    """Submit a script as it is, wait for its end, and return the number of the job."""
    for file, text in texts.items():
        (slurm.folder / file.replace("_", ".")).write_text(text)
    shutil.copy(SCRIPTS / f"{name}.sh", slurm.folder)
    done = slurm.run("sbatch", "--wait", f"{name}.sh", expect=expect)
    found = re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)
    assert found, done.stdout
    return found[1]


def read(slurm: Slurm, name: str) -> str:
    return (slurm.folder / name).read_text()


def test_a_serial_job_writes_two_files(slurm: Slurm) -> None:
    number = submitted(slurm, "serial")

    assert f"Job {number} (serial_test) runs on alpha\n" in read(slurm, f"serial_test.{number}.out")
    assert "pi is about 3.14159" in read(slurm, f"serial_test.{number}.out")
    assert read(slurm, f"serial_test.{number}.err") == "a message on stderr\n"


def test_a_job_with_threads_finds_its_cores(slurm: Slurm) -> None:
    number = submitted(slurm, "openmp")

    assert read(slurm, f"omp-{number}.log") == "threads: 2, memory for each core: 50 MB\nstep has 2 threads\n"


def test_an_array_reads_a_line_for_each_task(slurm: Slurm) -> None:
    number = submitted(slurm, "array", params_txt="1 2\n3 4\n5 6\n7 8\n")

    assert [read(slurm, f"results/{number}_{task}.txt") for task in range(1, 5)] == ["2\n", "12\n", "30\n", "56\n"]
    assert read(slurm, f"logs/{number}_4.out") == "task 4 of 4: alpha=7 beta=8\n"
    assert read(slurm, f"logs/{number}_4.err") == ""


def test_a_job_with_a_gpu_runs_beside_commands_that_are_not_there(slurm: Slurm) -> None:
    number = submitted(slurm, "gpu")

    assert "asked for: 1\n" in read(slurm, f"train-{number}.out")
    assert "epoch 1 done" in read(slurm, f"train-{number}.out")


def test_tasks_and_steps_run_on_the_node(slurm: Slurm) -> None:
    submitted(slurm, "tasks")

    assert {line[:2] for line in read(slurm, "tasks.out").splitlines()} == {"0:", "1:", "2:"}
    assert [read(slurm, f"rank_{rank}.txt") for rank in range(3)] == [f"rank {rank} of 3\n" for rank in range(3)]
    assert [read(slurm, f"step_{step}.txt") for step in (1, 2)] == ["step 1\n", "step 2\n"]


def test_a_job_works_in_a_scratch_folder_and_cleans_up(slurm: Slurm) -> None:
    number = submitted(slurm, "scratch", input_dat="b\na\n")

    assert read(slurm, f"sorted.{number}.dat") == "a\nb\n"
    assert not Path(read(slurm, "scratch.out").split()[-1]).exists()


def test_a_job_saves_its_state_before_its_limit_and_requeues_itself(slurm: Slurm) -> None:
    number = submitted(slurm, "requeue")

    written = read(slurm, "checkpoints.out").splitlines()
    assert written[0] == "run 0 starts at step 0"
    assert written[1].startswith("saved at step ")
    assert written[2] == f"run 1 starts at step {written[1].split()[-1]}"
    assert written[-1] == "finished"
    assert slurm.say("sacct", "-nXP", "-j", number, "-o", "State,ExitCode") == "COMPLETED|0:0"


def test_a_job_submits_a_chain_of_jobs(slurm: Slurm) -> None:
    number = submitted(slurm, "pipeline")

    last = read(slurm, f"pipeline-{number}.out").splitlines()[0].split()[2]
    slurm.up.run_until_over(f"slurm-{last}")
    assert read(slurm, "all.txt") == "part 0 of prepared\npart 1 of prepared\n"


def test_a_job_of_several_processes_finds_its_host(slurm: Slurm) -> None:
    submitted(slurm, "mpi")

    lines = read(slurm, "mpi.out").splitlines()
    assert lines[0] == "running 2 processes on 1 host"
    assert len(lines) == 3
    assert read(slurm, "hosts.txt") == "alpha\n"


def test_a_job_asks_about_itself_and_fails_with_its_exit_status(slurm: Slurm) -> None:
    (slurm.folder / "reports").mkdir()
    slurm.environment["SECRET"] = "x"
    number = submitted(slurm, "report", expect=3)

    user = slurm.say("squeue", "-h", "--states=all", "-j", number, "-o", "%u")
    text = read(slurm, f"reports/{user}-report-{number}.txt")
    assert re.match(r"greeting: hello, user variables: none\ntime left: (1:00:00|59:\d\d)\n", text)
    assert "JobState=RUNNING\nfrom python: report reports\n" in text
    assert slurm.say("sacct", "-nXP", "-j", number, "-o", "State,ExitCode,Account") == "FAILED|3:0|physics"


def python(slurm: Slurm, text: str) -> str:
    """Run a program of a person in the working folder; what it prints."""
    (slurm.folder / "program.py").write_text(text)
    return slurm.say(sys.executable, "program.py")


SUBMITIT = """
import submitit

def add(a, b):
    return a + b

def fail(text):
    raise ValueError(text)

executor = submitit.AutoExecutor(folder="log_test")
assert executor.cluster == "slurm"
executor.update_parameters(timeout_min=4, slurm_partition="dev", mem_gb=0.2)
job = executor.submit(add, 5, 7)
print(job.result(), job.job_id.isdigit())

executor.update_parameters(slurm_array_parallelism=2)
jobs = executor.map_array(add, [1, 2, 3], [10, 20, 30])
print([each.result() for each in jobs], len({each.job_id.split("_")[0] for each in jobs}))

print(repr(executor.submit(fail, "no good").exception())[-900:])
executor.update_parameters(tasks_per_node=2)
print(executor.submit(add, 1, 1).results())
"""


def test_submitit_runs_its_tutorial(slurm: Slurm) -> None:
    said = python(slurm, SUBMITIT).splitlines()

    assert said[:2] == ["12 True", "[11, 22, 33] 1"]
    assert any("ValueError: no good" in line for line in said)
    assert said[-1] == "[2, 2]"
    while slurm.say("squeue", "-h", "-n", "submitit"):
        pass
    states = slurm.say("sacct", "-nXP", "--name=submitit", "-S", "now-1hour", "-o", "State").splitlines()
    assert (states.count("COMPLETED"), states.count("FAILED")) == (5, 1)


CHECKPOINT = """
import os, pathlib, subprocess, sys, time
import submitit

class Count(submitit.helpers.Checkpointable):
    def __init__(self):
        self.at, self.starts = 0, 0

    def __call__(self, end):
        self.starts += 1
        while self.at < end:
            time.sleep(0.1)
            # Otherwise the job could end before it is suspended.
            self.at += self.at < 10 or os.path.exists("resumed")
            print("at", self.at, flush=True)
        return self.at, self.starts

executor = submitit.AutoExecutor(folder="log_test")
executor.update_parameters(timeout_min=4, mem_gb=0.2)
job = executor.submit(Count(), 20)
while not job.paths.stdout.exists() or "at 3" not in job.paths.stdout.read_text():
    time.sleep(0.1)
headrace = [sys.executable, "-m", "headrace_cli", "op"]
subprocess.run([*headrace, "suspend", f"slurm-{job.job_id}", "--abort-running-jobs"], check=True, capture_output=True)
while "Requeued job" not in job.paths.stdout.read_text():
    time.sleep(0.1)
time.sleep(1)
pathlib.Path("resumed").touch()
subprocess.run([*headrace, "resume", f"slurm-{job.job_id}"], check=True, capture_output=True)
print(job.result())
"""


def test_a_checkpoint_of_submitit_is_continued_after_an_interruption(slurm: Slurm) -> None:
    assert python(slurm, CHECKPOINT) == "(20, 2)"


DASK = """
import os
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    cluster = SLURMCluster(queue="regular", account="lab", cores=1, memory="300 MB", processes=1)
    cluster.scale(jobs=2)
    with Client(cluster) as client:
        client.wait_for_workers(2)
        print(sum(client.gather(client.map(lambda number: number**2, range(100)))))
        print(sorted(client.run(lambda: os.environ["SLURM_JOB_NAME"]).values()))
    cluster.close()
"""


def test_dask_jobqueue_runs_its_workers(slurm: Slurm) -> None:
    assert python(slurm, DASK).splitlines() == ["328350", "['dask-worker', 'dask-worker']"]
    while slurm.say("squeue", "-h", "-n", "dask-worker"):
        pass


SNAKEFILE = """
rule all:
    input: "total.txt"

rule count:
    output: "{name}.count"
    resources: mem_mb=100, runtime=5, slurm_partition="dev"
    shell: "echo {wildcards.name} $SLURM_JOB_ID > {output}"

rule total:
    input: "one.count", "two.count"
    output: "total.txt"
    resources: mem_mb=100, runtime=5, slurm_partition="dev"
    shell: "cat {input} > {output}"
"""


def test_snakemake_runs_a_workflow_by_its_executor_for_slurm(slurm: Slurm) -> None:
    (slurm.folder / "Snakefile").write_text(SNAKEFILE)
    words = ["--executor", "slurm", "--jobs", "2", "--slurm-init-seconds-before-status-checks", "1"]
    words += ["--seconds-between-status-checks", "1", "--latency-wait", "1", "--default-resources", "slurm_account=lab"]
    slurm.up.run("pool", "create", "lab")

    slurm.run(sys.executable, "-m", "snakemake", *words)

    lines = [line.split() for line in read(slurm, "total.txt").splitlines()]
    assert [name for name, _ in lines] == ["one", "two"]
    assert {slurm.say("sacct", "-nXP", "-j", number, "-o", "State") for _, number in lines} == {"COMPLETED"}


def test_a_number_is_found_again_after_a_restart(slurm: Slurm) -> None:
    number = slurm.say("sbatch", "--parsable", "--wait", "--wrap", "true")
    slurm.up.stop()
    slurm.up.start()

    assert slurm.say("sacct", "-nXP", "-j", number, "-o", "JobID,State") == f"{number}|COMPLETED"


def test_the_page_says_what_the_commands_do(slurm: Slurm) -> None:
    page = (ROOT / "docs" / "how-to" / "slurm-commands.md").read_text()
    for text in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        subprocess.run(["sh", "-ec", text], cwd=slurm.folder, env=slurm.environment, check=True)
    lines = [line[2:] for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    said = {}
    for line in lines:
        words, _, mark = line.partition("   # ")
        said[words] = slurm.run("sh", "-c", words, expect=1 if mark == "refused" else 0)

    assert len(said) > 8
    assert "has no counterpart in Headrace" in next(done.stderr for done in said.values() if done.returncode)
    assert "COMPLETED" in next(done.stdout for words, done in said.items() if words.startswith("sacct"))
