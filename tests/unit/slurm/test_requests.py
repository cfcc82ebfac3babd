"""A submission becomes the spec of an operation."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from headrace.errors import BadInput
from headrace.ids import TreeName
from headrace.pools.amounts import NOTHING
from headrace.resources import Resources
from headrace.wire.operation_spec import OperationSpec, Upstream, UpstreamEnd
from headrace.wire.preemption import InterruptSignal
from headrace.wire.refusals import BadRequest, Refused
from headrace_cli.slurm.command_line import NoCounterpart
from headrace_cli.slurm.numbers import operation_of
from headrace_cli.slurm.options import SBATCH, SRUN
from headrace_cli.slurm.pools_file import PoolsFile, choose, parse_pools_file
from headrace_cli.slurm.request import Submitter, size_of, submission
from headrace_cli.slurm.submit import _start

ME = Submitter(
    "ada", "login1", "/home/ada", {"PATH": "/bin", "MODE": "fast", "SLURM_JOB_ID": "9", "HEADRACE_NODE": "x"}, "t0ken"
)
POOLS = parse_pools_file(
    b"""
[partition.gpu]
pool = "vision"
node_filter = "gpu & !old"
[partition.long]
default = true
tree = "slow"
[account.physics]
pool = "lab"
[qos.urgent]
weight = 4
""",
    "pools.toml",
)


def spec(*words: str, file: PoolsFile | None = None, number: int = 286_000_000) -> OperationSpec:
    given = SBATCH.read(words)
    return submission(given, choose(given, file or PoolsFile()), ME, "job.sh", given.words).spec(number)


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ([], Resources(1, 100)),
        (["-n", "4", "-c", "2", "--mem-per-cpu=100M"], Resources(1, 800, 0, 800 * 2**20)),
        (["--ntasks-per-node=3", "-N", "1"], Resources(1, 300)),
        (["--mem=2G", "--gres=gpu:2"], Resources(1, 100, 2, 2 * 2**30)),
        (["--gpus=a100:1", "--cpus-per-gpu=4"], Resources(1, 400, 1)),
        (["--gpus-per-task=1", "-n2", "--mem-per-gpu=1G"], Resources(1, 200, 2, 2 * 2**30)),
        (["--mem=0", "--mincpus=3"], Resources(1, 300)),
    ],
)
def test_the_size_of_a_job_is_that_of_all_its_tasks(words: list[str], size: Resources) -> None:
    assert spec(*words).resources == size


def test_a_job_is_run_once_in_the_folder_of_its_submission_with_the_variables_there() -> None:
    made = spec("-J", "train", "--chdir=runs", "--export=ALL,MODE=slow")

    assert (made.title, made.working_directory, made.tries, made.keep_going) == ("train", "/home/ada/runs", 1, False)
    variables = made.environment
    assert (variables["MODE"], variables["PATH"], variables["SLURM_SUBMIT_DIR"]) == ("slow", "/bin", "/home/ada")
    assert variables["SLURM_HEADRACE_SUBMISSION"] == "t0ken"
    assert not {"SLURM_JOB_ID", "HEADRACE_NODE", "SLURM_ARRAY_JOB_ID", "SLURM_MEM_PER_NODE"} & variables.keys()
    assert "PATH" not in spec("--export=NONE").environment
    assert spec("--export=MODE").environment["MODE"] == "fast"


def test_an_array_is_one_operation_with_its_indexes() -> None:
    made = spec("--array=1-99:7%4")

    assert (made.job_count, made.indexes, made.resource_limits.user_slots, made.keep_going) == (15, "1-99:7", 4, True)
    variables = made.environment
    assert variables["SLURM_ARRAY_JOB_ID"] == "286000000"
    assert [variables[f"SLURM_ARRAY_TASK_{name}"] for name in ("COUNT", "MIN", "MAX", "STEP")] == ["15", "1", "99", "7"]
    assert spec("-a", "5").resource_limits == NOTHING


def test_dependencies_name_operations() -> None:
    made = spec("-d", "afterok:286000001:286000002,afterany:286000003,aftercorr:286000004")

    assert made.after == [
        Upstream(operation_of(286_000_001)),
        Upstream(operation_of(286_000_002)),
        Upstream(operation_of(286_000_003), UpstreamEnd.ANY),
    ]
    assert made.after_each == "slurm-286000004"


def test_a_signal_comes_before_the_time_limit() -> None:
    made = spec("-t", "10", "--signal=B:USR1@120")

    assert made.time_limit_ms == 480_000
    assert (made.interrupt_signal, made.interruption_timeout_ms, made.interruptible) == (
        InterruptSignal.SIGUSR1,
        120_000,
        True,
    )
    assert spec("-t", "1", "--signal=USR2@90").time_limit_ms == 30_000
    assert spec("-t", "1:30:00").time_limit_ms == 5_400_000
    assert spec("-t", "UNLIMITED").time_limit_ms is None


def test_nodes_are_chosen_by_tags_and_names() -> None:
    assert spec("-C", "ssd,fast|new").scheduling_tag_filter == "ssd&fast|new"
    made = spec("-w", "n[01-02]", "-x", "n03", "--gpus=a100:1", "-C", "ssd")
    assert made.scheduling_tag_filter == "(a100) & (ssd) & (n01|n02) & (!n03)"


@pytest.mark.parametrize(
    ("words", "pool", "formula"),
    [
        (["-p", "gpu"], "vision", "gpu & !old"),
        (["-p", "gpu", "-A", "physics", "-q", "urgent"], "lab", "gpu & !old"),
        (["-A", "chemistry"], "chemistry", ""),
        ([], "", ""),
    ],
)
def test_the_file_of_pools_says_what_names_stand_for(words: list[str], pool: str, formula: str) -> None:
    made = spec(*words, file=POOLS)

    assert (made.pool, made.scheduling_tag_filter) == (pool, formula)
    assert made.weight == (4 if "urgent" in words else 1)


def test_the_default_partition_is_that_of_jobs_that_name_none() -> None:
    chosen = choose(SBATCH.read([]), POOLS)

    assert (chosen.partition, chosen.tree) == ("long", "slow")
    with pytest.raises(BadInput, match="did you mean gpu"):
        choose(SBATCH.read(["-p", "gpus"]), POOLS)


def test_without_a_file_names_are_names_of_pools() -> None:
    assert spec("-p", "dev").pool == "dev"
    chosen = choose(SBATCH.read(["-p", "dev", "-A", "lab", "-q", "high"]), PoolsFile())
    assert chosen.pool == "lab"
    assert chosen.remarks == [
        "--partition=dev is ignored: --account=lab names the pool",
        "--qos=high is ignored: the file of pools does not name it",
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nodes=2"], "--nodes=2 has no counterpart in Headrace; use --nodes=1"),
        (["--gres=matlab:1"], "--gres=matlab:1 has no counterpart"),
        (["-d", "singleton"], "--dependency=singleton has no counterpart"),
        (["-d", "afterok:17?afterok:18"], "dependencies separated by commas"),
        (["-d", "afterok:286000000_3"], "the number of the whole array"),
        (["-C", "[a|b]"], "a job runs on one node"),
    ],
)
def test_a_value_without_a_counterpart_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(NoCounterpart, match=told):
        spec(*words)


def test_srun_refuses_a_process_manager_of_mpi_in_a_job_and_outside() -> None:
    assert size_of(SRUN.read(["--mpi=none", "-n", "2", "hostname"])).tasks == 2
    with pytest.raises(NoCounterpart, match="--mpi=pmix has no counterpart in Headrace; use mpirun"):
        size_of(SRUN.read(["--mpi=pmix", "hostname"]))


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["-n", "0"], "--ntasks"),
        (["-t", "soon"], "--time"),
        (["--mem=2X"], "--mem"),
        (["-a", "1-"], "--array"),
        (["-a", "1000000"], "--array"),
        (["-a", "1-3%0"], "--array"),
        (["--signal=NOPE@5"], "--signal"),
        (["--export=a-b=1"], "--export"),
        (["--open-mode=x"], "--open-mode"),
        (["-C", "a &"], "--constraint"),
        (["-d", "afterok:x"], "--dependency"),
        (["--gpus=many"], "--gpus"),
    ],
)
def test_a_wrong_value_is_named_with_its_option(words: list[str], place: str) -> None:
    with pytest.raises(BadInput) as raised:
        spec(*words)
    assert raised.value.place == place


def test_a_file_of_pools_with_unknown_keys_is_refused() -> None:
    with pytest.raises(BadInput, match="unknown field `queue`"):
        parse_pools_file(b'[partition.gpu]\nqueue = "x"\n', "pools.toml")


def started(made: OperationSpec, folder: Path, script: str, *, shell: str = "/bin/sh", **variables: str) -> int:
    """Run the command of a job here, as a node would."""
    (folder / "slurm_script").write_text(f"#!{shell}\n{script}\n")
    (folder / "slurm_script").chmod(0o755)
    environment = {
        "PATH": "/usr/bin:/bin",
        "HEADRACE_FILES": str(folder),
        "HEADRACE_NODE": "alpha",
        "HEADRACE_ATTEMPT": "1",
    }
    done = subprocess.run(made.argv, env=environment | made.environment | variables, cwd=folder, check=False)
    return done.returncode


def test_a_job_finds_its_variables_and_writes_its_files(tmp_path: Path) -> None:
    made = spec(
        "--array=7,12", "-J", "it's", "-o", "out dir/%x-%A_%4a-%N-%j-%u.txt", "-e", "%a.err", "job.sh", "a b", "$x"
    )
    script = 'echo "$SLURM_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_JOB_NODELIST $#:$2"; echo wrong >&2; exit 3'

    assert started(made, tmp_path, script, HEADRACE_JOB_INDEX="12") == 3

    output = tmp_path / "out dir" / "it's-286000000_0012-alpha-286000000000012-ada.txt"
    assert output.read_text() == "286000000000012 12 alpha 3:a b\n"
    assert (tmp_path / "12.err").read_text() == "wrong\n"


def test_functions_that_a_shell_has_exported_reach_the_script(tmp_path: Path) -> None:
    who = ME._replace(environment={"BASH_FUNC_module%%": "() {  echo loaded $2; }"})
    given = SBATCH.read(["-o", "log"])
    made = submission(given, choose(given, PoolsFile()), who, "job.sh", []).spec(286_000_000)

    assert started(made, tmp_path, "module load gcc", shell="/bin/bash") == 0
    assert (tmp_path / "log").read_text() == "loaded gcc\n"


def test_output_is_emptied_at_the_first_run_and_appended_to_by_a_requeued_run(tmp_path: Path) -> None:
    made = spec("-o", "log")
    (tmp_path / "log").write_text("old\n")

    started(made, tmp_path, "echo run; echo error >&2")
    started(made, tmp_path, "echo $SLURM_RESTART_COUNT", HEADRACE_ATTEMPT="2")
    assert (tmp_path / "log").read_text() == "run\nerror\n1\n"
    started(spec("-o", "log", "--open-mode=append"), tmp_path, "echo more")
    assert (tmp_path / "log").read_text() == "run\nerror\n1\nmore\n"


@pytest.mark.parametrize("wish", ["USR1@5", "B:USR1@5"])
def test_a_job_with_a_signal_may_requeue_itself(tmp_path: Path, wish: str) -> None:
    made = spec("-o", "log", f"--signal={wish}")

    assert started(made, tmp_path, "exit 4") == 4
    assert started(made, tmp_path, 'kill -s ALRM "$SLURM_TASK_PID"; exit 4') == 75


async def test_a_refused_job_is_refused_with_the_option_of_slurm() -> None:
    async def refuse(*_: object, **__: object) -> NoReturn:
        raise Refused(BadRequest("time_limit", "2h", "at most 1h"))

    async def at(pool: str) -> str:
        return pool

    trees: Any = SimpleNamespace(own=TreeName("default"))
    pools: Any = SimpleNamespace(of=lambda _: SimpleNamespace(at=at))
    client: Any = SimpleNamespace(start=refuse, trees=trees, pools=pools)
    given = SBATCH.read(["--time=2:00:00"])
    job = submission(given, choose(given, PoolsFile()), ME, "job.sh", given.words)
    with pytest.raises(Refused, match=r"^--time: 2h cannot be used; expected at most 1h"):
        await _start(client, job, None)
