"""The fields of jobs that `squeue`, `sacct` and `scontrol show job` print, by their names in each of these commands. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from headrace.resources import Resources
from headrace.wire.operations import OperationView
from headrace_cli.slurm.jobs import LIVE, SHORT_STATES, Job, JobState
from headrace_cli.slurm.request import CLUSTER
from headrace_cli.slurm.values import format_memory, format_moment, format_short_time, format_time

#: Function that returns the text of a field, from a job and the present Unix time in milliseconds.
Value = Callable[[Job, int], str]


class Column(NamedTuple):
    """A field with its title and its width."""

    title: str
    width: int
    value: Value
    #: True: the value needs the ends of runs, which are requested only if a column needs them.
    needs_ends: bool = False


def cpus(job: Job) -> int:
    """Return the cores of a job, in whole cores."""
    return -(-job.view.spec.resources.cpu // 100)


def pool_of(view: OperationView) -> str:
    """Return the pool of an operation, which stands for its partition and its account."""
    return str(view.placements[0].pool if view.placements else view.spec.pool)


def _time_limit_s(job: Job) -> int | None:
    """Return the seconds from the start to SIGKILL, which is Slurm's time limit. Headrace's limit ends earlier, at the signal."""
    spec = job.view.spec
    if spec.time_limit_ms is None:
        return None
    return (spec.time_limit_ms + (spec.interruption_timeout_ms if spec.interruptible else 0)) // 1000


def _limit(job: Job, write: Callable[[int], str] = format_time) -> str:
    limit_s = _time_limit_s(job)
    return "UNLIMITED" if limit_s is None else write(limit_s)


def _left(job: Job, now_ms: int) -> str:
    limit_s = _time_limit_s(job)
    return "UNLIMITED" if limit_s is None else format_short_time(max(0, limit_s - job.elapsed_s(now_ms)))


def _tres(size: Resources) -> str:
    parts = [f"cpu={-(-size.cpu // 100)}", f"mem={format_memory(size.memory)}" if size.memory else "", "node=1"]
    return ",".join(filter(None, [*parts, f"gres/gpu={size.gpu}" if size.gpu else ""]))


def _exit(job: Job, _: int) -> str:
    return f"{job.exit_code}:{job.signal}"


def _ended(job: Job, _: int) -> str:
    return format_moment(0 if job.state in LIVE else job.ended_ms)


def _node_or_reason(job: Job, _: int) -> str:
    return f"({job.reason})" if job.state is JobState.PENDING else job.node


def _dependency(job: Job, _: int) -> str:
    return ",".join(
        f"after{each.end}:{each.operation.removeprefix('slurm-')}(unfulfilled)" for each in job.view.spec.after
    )


def _cpu_time(job: Job, _: int) -> str:
    return "" if job.cpu_ms is None else format_time(job.cpu_ms // 1000)


def _rss(job: Job, _: int) -> str:
    return "" if job.max_rss_bytes is None else format_memory(job.max_rss_bytes, "K")


def _memory(job: Job, _: int) -> str:
    return format_memory(job.view.spec.resources.memory)


#: Fields that several commands of Slurm print, by names that only this module uses.
VALUES: Final[Mapping[str, Value]] = {
    "id": lambda job, _: job.id,
    "raw_id": lambda job, _: str(job.raw_id),
    "array_id": lambda job, _: str(job.number),
    "task": lambda job, _: job.pending or ("N/A" if job.task is None else str(job.task)),
    "name": lambda job, _: job.view.spec.title,
    "user": lambda job, _: job.view.user,
    "pool": lambda job, _: pool_of(job.view),
    "state": lambda job, _: job.state.value,
    "short_state": lambda job, _: SHORT_STATES[job.state],
    "elapsed": lambda job, now_ms: format_short_time(job.elapsed_s(now_ms)),
    "limit": lambda job, _: _limit(job, format_short_time),
    "left": _left,
    "one": lambda _, __: "1",
    "cpus": lambda job, _: str(cpus(job)),
    "memory": _memory,
    "node": lambda job, _: job.node,
    "node_or_reason": _node_or_reason,
    "reason": lambda job, _: job.reason,
    "submitted": lambda job, _: format_moment(job.view.started_at_ms),
    "started": lambda job, _: format_moment(job.started_ms).replace("Unknown", "N/A"),
    "ended": lambda job, now_ms: _ended(job, now_ms).replace("Unknown", "N/A"),
    "folder": lambda job, _: job.view.spec.working_directory,
    "gres": lambda job, _: f"gres/gpu:{job.view.spec.resources.gpu}" if job.view.spec.resources.gpu else "N/A",
    "features": lambda job, _: job.view.spec.scheduling_tag_filter or "(null)",
    "dependency": lambda job, now_ms: _dependency(job, now_ms) or "(null)",
    "qos": lambda _, __: "normal",
    "priority": lambda job, _: f"{job.view.spec.weight:g}",
    "none": lambda _, __: "(null)",
    "node_or_none": lambda job, _: job.node or "n/a",
}

#: Letters of `squeue --format`.
SQUEUE_LETTERS: Final[Mapping[str, tuple[str, str]]] = {
    "i": ("JOBID", "id"),
    "A": ("JOBID", "raw_id"),
    "F": ("ARRAY_JOB_ID", "array_id"),
    "K": ("ARRAY_TASK_ID", "task"),
    "j": ("NAME", "name"),
    "u": ("USER", "user"),
    "P": ("PARTITION", "pool"),
    "a": ("ACCOUNT", "pool"),
    "T": ("STATE", "state"),
    "t": ("ST", "short_state"),
    "M": ("TIME", "elapsed"),
    "l": ("TIME_LIMIT", "limit"),
    "L": ("TIME_LEFT", "left"),
    "D": ("NODES", "one"),
    "C": ("CPUS", "cpus"),
    "m": ("MIN_MEMORY", "memory"),
    "c": ("MIN_CPUS", "cpus"),
    "N": ("NODELIST", "node"),
    "B": ("EXEC_HOST", "node_or_none"),
    "R": ("NODELIST(REASON)", "node_or_reason"),
    "r": ("REASON", "reason"),
    "V": ("SUBMIT_TIME", "submitted"),
    "S": ("START_TIME", "started"),
    "e": ("END_TIME", "ended"),
    "Z": ("WORK_DIR", "folder"),
    "b": ("TRES_PER_NODE", "gres"),
    "f": ("FEATURES", "features"),
    "E": ("DEPENDENCY", "dependency"),
    "q": ("QOS", "qos"),
    "Q": ("PRIORITY", "priority"),
    "p": ("PRIORITY", "priority"),
    "k": ("COMMENT", "none"),
    "o": ("COMMAND", "none"),
    "v": ("RESERVATION", "none"),
    "g": ("GROUP", "none"),
}
#: Letter of `squeue --format` for each name of `squeue --Format`.
SQUEUE_NAMES: Final[Mapping[str, str]] = {
    "jobid": "A",
    "jobarrayid": "i",
    "arrayjobid": "F",
    "arraytaskid": "K",
    "name": "j",
    "username": "u",
    "partition": "P",
    "account": "a",
    "state": "T",
    "statecompact": "t",
    "timeused": "M",
    "timelimit": "l",
    "timeleft": "L",
    "numnodes": "D",
    "numcpus": "C",
    "minmemory": "m",
    "nodelist": "N",
    "reasonlist": "R",
    "reason": "r",
    "submittime": "V",
    "starttime": "S",
    "endtime": "e",
    "workdir": "Z",
    "qos": "q",
    "dependency": "E",
}
USUAL_SQUEUE: Final = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_SQUEUE: Final = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"

#: Fields of `sacct --format`, by their names in lower case.
SACCT: Final[Mapping[str, Column]] = {
    column.title.lower(): column
    for column in (
        Column("JobID", -18, VALUES["id"]),
        Column("JobIDRaw", -12, VALUES["raw_id"]),
        Column("JobName", 10, VALUES["name"]),
        Column("User", 9, VALUES["user"]),
        Column("Partition", 10, VALUES["pool"]),
        Column("Account", 10, VALUES["pool"]),
        Column("QOS", 10, VALUES["qos"]),
        Column("Cluster", 10, lambda _, __: CLUSTER),
        Column("State", 10, VALUES["state"]),
        Column("ExitCode", 8, _exit, True),
        Column("DerivedExitCode", 15, _exit, True),
        Column("AllocCPUS", 10, VALUES["cpus"]),
        Column("NCPUS", 10, VALUES["cpus"]),
        Column("ReqCPUS", 8, VALUES["cpus"]),
        Column("AllocNodes", 10, VALUES["one"]),
        Column("NNodes", 8, VALUES["one"]),
        Column("ReqNodes", 8, VALUES["one"]),
        Column("NTasks", 8, VALUES["one"]),
        Column("ReqMem", 10, _memory),
        Column("AllocTRES", 30, lambda job, _: _tres(job.view.spec.resources)),
        Column("ReqTRES", 30, lambda job, _: _tres(job.view.spec.resources)),
        Column("Timelimit", 10, lambda job, _: _limit(job)),
        Column("TimelimitRaw", 12, lambda job, _: _limit(job, lambda limit_s: str(limit_s // 60))),
        Column("Submit", 19, VALUES["submitted"]),
        Column("Eligible", 19, VALUES["submitted"]),
        Column("Start", 19, lambda job, _: format_moment(job.started_ms), True),
        Column("End", 19, _ended, True),
        Column("Elapsed", 10, lambda job, now_ms: format_time(job.elapsed_s(now_ms)), True),
        Column("ElapsedRaw", 10, lambda job, now_ms: str(job.elapsed_s(now_ms)), True),
        Column("CPUTime", 10, lambda job, now_ms: format_time(job.elapsed_s(now_ms) * cpus(job)), True),
        Column("CPUTimeRAW", 10, lambda job, now_ms: str(job.elapsed_s(now_ms) * cpus(job)), True),
        Column("TotalCPU", 10, _cpu_time, True),
        Column("UserCPU", 10, _cpu_time, True),
        Column("MaxRSS", 10, _rss, True),
        Column("AveRSS", 10, _rss, True),
        Column("NodeList", 15, lambda job, _: job.node or "None assigned", True),
        Column("WorkDir", 20, VALUES["folder"]),
        Column("Reason", 22, VALUES["reason"]),
        Column("Priority", 10, VALUES["priority"]),
        Column("Comment", 14, lambda _, __: ""),
    )
}
USUAL_SACCT: Final = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF_SACCT: Final = "JobID,State,ExitCode"
LONG_SACCT: Final = (
    "JobID,JobIDRaw,JobName,Partition,MaxRSS,NTasks,AllocCPUS,Elapsed,State,ExitCode,ReqMem,TotalCPU,NodeList,AllocTRES"
)

#: Fields of `scontrol show job`, line by line; a title that begins with a space continues its line.
SHOW_JOB: Final[tuple[tuple[tuple[str, Value], ...], ...]] = (
    (("JobId", VALUES["raw_id"]), ("JobName", VALUES["name"])),
    (("UserId", lambda job, _: job.view.user), ("Account", VALUES["pool"]), ("QOS", VALUES["qos"])),
    (
        ("JobState", VALUES["state"]),
        ("Reason", VALUES["reason"]),
        ("Dependency", VALUES["dependency"]),
    ),
    (
        ("Requeue", lambda _, __: "1"),
        ("Restarts", lambda job, _: str(job.view.aborted_jobs + job.view.lost_jobs)),
        ("BatchFlag", lambda _, __: "1"),
        ("ExitCode", _exit),
    ),
    (
        ("RunTime", lambda job, now_ms: format_time(job.elapsed_s(now_ms))),
        ("TimeLimit", lambda job, _: _limit(job)),
        ("TimeMin", lambda _, __: "N/A"),
    ),
    (("SubmitTime", VALUES["submitted"]), ("EligibleTime", VALUES["submitted"])),
    (("StartTime", lambda job, _: format_moment(job.started_ms)), ("EndTime", _ended)),
    (
        ("Partition", VALUES["pool"]),
        ("NodeList", lambda job, _: job.node or "(null)"),
        ("BatchHost", VALUES["node_or_none"]),
    ),
    (("NumNodes", VALUES["one"]), ("NumCPUs", VALUES["cpus"]), ("NumTasks", VALUES["one"])),
    (("ReqTRES", lambda job, _: _tres(job.view.spec.resources)),),
    (("AllocTRES", lambda job, _: _tres(job.view.spec.resources)),),
    (("Features", VALUES["features"]), ("MinMemoryNode", _memory)),
    (("WorkDir", VALUES["folder"]),),
)
