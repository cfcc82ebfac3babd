"""Options of `sbatch` and `srun` become the spec of an operation. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.client.run_options import keyword_of
from headrace.errors import BadInput
from headrace.ids import PoolName, pool_or_path
from headrace.job_indexes import JobIndexes, parse_indexes
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.node_filter import parse_formula
from headrace.resources import Resources
from headrace.wire.operation_spec import LONGEST_INTERRUPTION_MS, OperationSpec, Upstream, UpstreamEnd
from headrace_cli.slurm.command_line import Given, NoCounterpart
from headrace_cli.slurm.numbers import LARGEST_ARRAY_INDEX, operation_of, parse_job
from headrace_cli.slurm.pools_file import Chosen
from headrace_cli.slurm.start_script import StartWishes, start_script
from headrace_cli.slurm.values import parse_hosts, parse_memory, parse_signal_wish, parse_time_s

CLUSTER: Final = "headrace"
_LONGEST_TITLE: Final = 256
_MIB: Final = 2**20
_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}\Z")
_GRES: Final = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z][\w.-]*))?(?:[:=]([0-9]{1,4}))?\Z")
_GPUS: Final = re.compile(r"(?:([A-Za-z][\w.-]*):)?([0-9]{1,4})\Z")
_ENDS: Final = {"afterok": UpstreamEnd.OK, "afterany": UpstreamEnd.ANY, "afternotok": UpstreamEnd.FAILED}
#: Option of Slurm's commands for each keyword of a start request. It replaces the keyword in the error messages of admission.
_OPTIONS: Final = {
    "after": "--dependency",
    "after_each": "--dependency",
    "cpu": "--cpus-per-task",
    "environment": "--export",
    "gpu": "--gpus",
    "indexes": "--array",
    "jobs": "--array",
    "max_running": "--array",
    "memory": "--mem",
    "node_filter": "--constraint",
    "pool": "--partition",
    "time_limit": "--time",
    "title": "--job-name",
    "working_directory": "--chdir",
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Variables that belong to one job. All steps of the job have them. If a job submits another job, the other job must not inherit them.
OF_ONE_JOB: Final = re.compile(
    r"SLURM_|SLURMD_|SBATCH_|CUDA_VISIBLE_DEVICES$|ROCR_VISIBLE_DEVICES$|TRACEPARENT$"
    r"|HEADRACE_(FILES|LINE|TASK|JOB|OPERATION|ALLOCATION|ATTEMPT|NODE|POOL|GPUS|PROGRESS|DEADLINE)"
)
#: Variable with a text that only this submission has. If two submissions choose the same number, their specs differ, so admission refuses
#: the second. If one submission repeats its request, the spec is the same, so admission accepts it.
SUBMISSION: Final = "SLURM_HEADRACE_SUBMISSION"


class Submitter(NamedTuple):
    """The process that submits a job."""

    user: str
    host: str
    folder: str
    environment: Mapping[str, str]
    #: Random text that no other submission has.
    token: str


class Size(NamedTuple):
    """Size of a job: all its tasks run on one node."""

    tasks: int
    cpus_per_task: int
    gpus: int
    #: Type of the GPUs, which is a tag of nodes; empty: any.
    gpu_type: str
    memory: int

    @property
    def cpus(self) -> int:
        return self.tasks * self.cpus_per_task


def option_of(place: str) -> str:
    """Return Slurm's option that sets the value named by `place` in a start request; without such an option, return `place`."""
    return _OPTIONS.get(keyword_of(place), place)


def size_of(given: Given) -> Size:
    """Return the size of each job. Raises `BadInput`, `NoCounterpart`."""
    nodes = given.one("nodes")
    if nodes is not None and _count(nodes.partition("-")[0], "--nodes") > 1:
        raise NoCounterpart(f"--nodes={nodes}", "--nodes=1: all tasks of a job run on one node")
    if (kind := given.one("mpi")) not in (None, "none"):
        raise NoCounterpart(f"--mpi={kind}", "mpirun in place of srun: no process manager of MPI runs here")
    gpus, gpu_type = _gpus(given)
    per_node = given.one("ntasks-per-node")
    if (text := given.one("ntasks")) is not None:
        tasks = _count(text, "--ntasks")
    elif per_node is not None:
        tasks = _count(per_node, "--ntasks-per-node")
    else:
        text = given.one("ntasks-per-gpu")
        tasks = _count(text, "--ntasks-per-gpu") * max(1, gpus) if text is not None else 1
    if gpus == 0 and (text := given.one("gpus-per-task")) is not None:
        per_task, gpu_type = _gpu_count(text, "--gpus-per-task")
        gpus = per_task * tasks
    cpus = _count(given.one("cpus-per-task") or "1", "--cpus-per-task")
    if given.one("cpus-per-task") is None and (text := given.one("cpus-per-gpu")) is not None:
        cpus = _count(text, "--cpus-per-gpu") * max(1, gpus)
    if (text := given.one("mincpus")) is not None:
        cpus = max(cpus, -(-_count(text, "--mincpus") // tasks))
    return Size(tasks, cpus, gpus, gpu_type, _memory(given, tasks * cpus, gpus))


def _memory(given: Given, cpus: int, gpus: int) -> int:
    for name, times in (("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", max(1, gpus))):
        if text := given.one(name):
            return parse_memory(text, f"--{name}") * times
    return 0


def _gpus(given: Given) -> tuple[int, str]:
    for name in ("gpus", "gpus-per-node"):
        if text := given.one(name):
            return _gpu_count(text, f"--{name}")
    count, kind = 0, ""
    for part in given.listed("gres"):
        found = _GRES.match(part)
        if part.lower() == "none":
            continue
        if not found:
            raise NoCounterpart(f"--gres={part}", "--gres=gpu:2; other resources are tags of nodes, for --constraint")
        count, kind = count + int(found[2] or 1), found[1] or kind
    return count, kind


def _gpu_count(text: str, place: str) -> tuple[int, str]:
    found = _GPUS.match(text.strip())
    if not found:
        raise BadInput(place, text, "a number of GPUs, such as 2 or a100:2")
    return int(found[2]), found[1] or ""


def _count(text: str, place: str) -> int:
    if not _COUNT.match(text.strip()):
        raise BadInput(place, text, "a whole number, 1 or more")
    return int(text)


class Array(NamedTuple):
    """The tasks of `--array`."""

    text: str
    indexes: JobIndexes
    most_running: int | None


def array_of(given: Given) -> Array | None:
    """Return the array of `--array=1-99:7%4`; None without the option. Raises `BadInput`."""
    text = given.one("array")
    if not text:
        return None
    indexes_text, percent, most = text.partition("%")
    indexes = parse_indexes(indexes_text, place="--array")
    if indexes.highest() > LARGEST_ARRAY_INDEX:
        raise BadInput("--array", text, f"indexes up to {LARGEST_ARRAY_INDEX}")
    return Array(indexes_text, indexes, _count(most, "--array") if percent else None)


def upstream_of(given: Given) -> dict[str, Any]:
    """Return the fields of the spec for `--dependency`. Raises `BadInput`, `NoCounterpart`."""
    text = given.one("dependency") or ""
    place, after, each = "--dependency", list[Upstream](), None
    for part in filter(None, text.split(",")):
        kind, _, jobs = part.partition(":")
        if "?" in part:
            raise NoCounterpart(f"{place}={text}", "dependencies separated by commas, which must all be satisfied")
        if kind not in (*_ENDS, "aftercorr"):
            raise NoCounterpart(
                f"{place}={part}", "afterok, afterany, afternotok or aftercorr, each with numbers of jobs"
            )
        for job in jobs.split(":"):
            named = parse_job(job, place)
            if named.indexes is not None:
                raise NoCounterpart(
                    f"{place}={part}", "the number of the whole array, or aftercorr, which pairs the tasks"
                )
            operation = operation_of(named.number)
            if kind == "aftercorr":
                each = operation
            else:
                after.append(Upstream(operation, _ENDS[kind]))
    return {"after": after, "after_each": each}


def time_fields(given: Given) -> tuple[dict[str, Any], StartWishes | None]:
    """Return the fields of the spec for `--time` and `--signal`, and how the start script treats the signal. Raises `BadInput`."""
    limit_s = parse_time_s(text, "--time") if (text := given.one("time")) else None
    fields: dict[str, Any] = {"time_limit_ms": None if limit_s is None else limit_s * 1000}
    wish = given.one("signal")
    if not wish:
        return fields, None
    signal, before_s, alone = parse_signal_wish(wish, "--signal")
    if before_s * 1000 > LONGEST_INTERRUPTION_MS:
        raise BadInput("--signal", wish, "a signal at most 3600 seconds before the end")
    fields |= {"interruptible": True, "interrupt_signal": signal, "interruption_timeout_ms": before_s * 1000}
    if limit_s is not None:
        # Slurm's limit is the time to SIGKILL. Headrace's limit is the time to the signal, so it is shorter, but at least half of Slurm's.
        fields["time_limit_ms"] = max(limit_s * 1000 - before_s * 1000, limit_s * 500)
    ignored = "" if alone else signal.removeprefix("SIG")
    return fields, StartWishes(0, False, {}, ignored_signal=ignored, script_alone=alone)


def exported(given: Given, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that `--export` chooses; all by default. Raises `BadInput`."""
    own = {name: value for name, value in environment.items() if not OF_ONE_JOB.match(name)}
    own = {name: value for name, value in own.items() if name and _is_text(name + value)}
    text = given.one("export")
    if text is None or text == "ALL":
        return own
    chosen: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if part in ("NONE", "NIL"):
            continue
        if part == "ALL":
            chosen = {**own, **chosen}
        elif not _NAME.match(name):
            raise BadInput("--export", part, "ALL, NONE, NAME or NAME=VALUE, separated by commas")
        elif equals:
            chosen[name] = value
        elif name in own:
            chosen[name] = own[name]
    return chosen


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def node_filter(given: Given, chosen: Chosen, gpu_type: str) -> str:
    """Return the formula over tags of nodes. Raises `BadInput`, `NoCounterpart`."""
    parts = [*chosen.node_filters, gpu_type]
    if constraint := (given.one("constraint") or "").replace(",", "&"):
        if re.search(r"[\[\]*]", constraint):
            raise NoCounterpart(f"--constraint={constraint}", "a formula such as 'ssd&!old': a job runs on one node")
        _check_formula(constraint)
        parts.append(constraint)
    if hosts := given.one("nodelist"):
        parts.append("|".join(parse_hosts(hosts, "--nodelist")))
    if hosts := given.one("exclude"):
        parts += [f"!{host}" for host in parse_hosts(hosts, "--exclude")]
    parts = [part for part in parts if part]
    return parts[0] if len(parts) == 1 else " & ".join(f"({part})" for part in parts)


def _check_formula(text: str) -> None:
    try:
        parse_formula(text)
    except BadInput as error:
        raise error.at("--constraint") from None


class Submission(NamedTuple):
    """A job before it has a number."""

    given: Given
    chosen: Chosen
    submitter: Submitter
    title: str
    size: Size
    array: Array | None
    #: Fields of the spec that do not depend on the number.
    fields: dict[str, Any]
    signal: StartWishes | None
    #: Arguments of the script, or the command.
    words: list[str]
    has_script: bool

    def spec(self, number: int) -> OperationSpec:
        """Return the spec of the job with this number."""
        given, array = self.given, self.array
        names = {"x": self.title, "u": self.submitter.user, "n": "0", "t": "0", "s": "batch", "A": str(number)}
        wishes = (self.signal or StartWishes(0, False, {}))._replace(
            number=number,
            is_array=array is not None,
            words=names if array else names | {"a": "4294967294"},
            output=self._output("%A_%a" if array else "%j"),
            error=given.one("error") or "",
            stdin=given.one("input") or "",
            appends=given.one("open-mode") == "append",
            has_script=self.has_script,
        )
        environment = self.fields["environment"] | job_variables(self, number)
        # Use bash if the environment has exported functions (`module` often is one), because only bash passes them on.
        shell = "/bin/sh" if all(map(_NAME.match, environment)) else "/bin/bash"
        argv = [shell, "-c", start_script(wishes), "slurm_script" if self.has_script else "srun", *self.words]
        return OperationSpec(argv=argv, environment=environment, **self._other_fields())

    def _output(self, name: str) -> str:
        if not self.has_script:
            return self.given.one("output") or ""
        return self.given.one("output") or f"slurm-{name}.out"

    def _other_fields(self) -> dict[str, Any]:
        return {name: value for name, value in self.fields.items() if name != "environment"}


def submission(
    given: Given, chosen: Chosen, submitter: Submitter, name: str, words: list[str], *, has_script: bool = True
) -> Submission:
    """Return the job that the options of a submission describe. Raises `BadInput`, `NoCounterpart`."""
    size, array = size_of(given), array_of(given)
    times, signal = time_fields(given)
    title = (given.one("job-name") or name)[:_LONGEST_TITLE]
    if (mode := given.one("open-mode")) not in (None, "append", "truncate"):
        raise BadInput("--open-mode", mode, "append or truncate")
    folder = given.one("chdir") or submitter.folder
    fields: dict[str, Any] = {
        "pool": pool_or_path(chosen.pool) if chosen.pool else PoolName(""),
        "title": title,
        "weight": chosen.weight,
        "resources": Resources(user_slots=1, cpu=size.cpus * 100, gpu=size.gpus, memory=size.memory),
        "environment": exported(given, submitter.environment),
        "working_directory": folder if folder.startswith("/") else f"{submitter.folder}/{folder}",
        "scheduling_tag_filter": node_filter(given, chosen, size.gpu_type),
        "job_count": len(array.indexes) if array else 1,
        "indexes": array.text if array else "",
        "resource_limits": PartialResources(user_slots=array.most_running) if array and array.most_running else NOTHING,
        # As in Slurm, a job that fails is not retried, and the other tasks of its array run on.
        "tries": 1,
        "max_failed_job_count": len(array.indexes) if array else 1,
        "keep_going": array is not None,
        **times,
        **upstream_of(given),
    }
    return Submission(given, chosen, submitter, title, size, array, fields, signal, words, has_script)


def job_variables(job: Submission, number: int) -> dict[str, str]:
    """Return the variables of Slurm that are known when a job is submitted."""
    size, chosen, who = job.size, job.chosen, job.submitter
    found = {
        SUBMISSION: who.token,
        "SLURM_CLUSTER_NAME": CLUSTER,
        "SLURM_JOB_NAME": job.title,
        "SLURM_JOB_USER": who.user,
        "SLURM_SUBMIT_DIR": who.folder,
        "SLURM_SUBMIT_HOST": who.host,
        "SLURM_JOB_PARTITION": chosen.partition,
        "SLURM_JOB_ACCOUNT": chosen.account,
        "SLURM_JOB_QOS": chosen.qos,
        "SLURM_NTASKS": str(size.tasks),
        "SLURM_NPROCS": str(size.tasks),
        "SLURM_CPUS_PER_TASK": str(size.cpus_per_task),
        "SLURM_CPUS_ON_NODE": str(size.cpus),
        "SLURM_JOB_CPUS_PER_NODE": str(size.cpus),
        "SLURM_NTASKS_PER_NODE": str(size.tasks) if job.given.has("ntasks-per-node") else "",
        "SLURM_TASKS_PER_NODE": str(size.tasks),
        "SLURM_MEM_PER_NODE": str(size.memory // _MIB) if size.memory and not job.given.has("mem-per-cpu") else "",
        "SLURM_MEM_PER_CPU": str(size.memory // size.cpus // _MIB) if job.given.has("mem-per-cpu") else "",
        "SLURM_GPUS": str(size.gpus or ""),
        "SLURM_GPUS_ON_NODE": str(size.gpus or ""),
        "SLURM_JOB_DEPENDENCY": job.given.one("dependency") or "",
        **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "1"),
        **dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"), "0"),
    }
    if job.array is not None:
        indexes = job.array.indexes
        step = indexes.of_job(1) - indexes.of_job(0) if len(indexes) > 1 else 1
        found |= {
            "SLURM_ARRAY_JOB_ID": str(number),
            "SLURM_ARRAY_TASK_COUNT": str(len(indexes)),
            "SLURM_ARRAY_TASK_MIN": str(min(indexes.of_job(each) for each in range(len(indexes)))),
            "SLURM_ARRAY_TASK_MAX": str(indexes.highest()),
            "SLURM_ARRAY_TASK_STEP": str(step),
        }
    return {name: value for name, value in found.items() if value}
