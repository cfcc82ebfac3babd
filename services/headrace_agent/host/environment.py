"""The environment of a job: a few harmless variables of the host, the variables of the operation, and the variables of Headrace.

No other variable of the agent's environment reaches a job, since such variables may hold credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.ids import AllocationId, NodeName
from headrace.wire.heartbeat import JobKey, JobSpec
from headrace.wire.tasks import task_of
from headrace.wire.trace import job_trace
from headrace_agent.job_command import job_index, job_line

#: Variables taken from the agent's own environment if they are set.
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "TMPDIR", "TZ", "USER")
_OF_ACCOUNT = ("HOME", "LOGNAME", "TMPDIR", "USER")
_LOCALE = "C.UTF-8"
#: Suffix of the name of the file by which a job reports its progress.
PROGRESS: Final = "progress"
#: Suffix of the name of the file by which the runner tells a job when it will be killed.
DEADLINE: Final = "deadline"


def path_with_interpreter(path: str, interpreter_folder: str) -> str:
    """Return `path` with the folder of the agent's interpreter at its end, so that `python` is found on every host."""
    folders = [folder for folder in path.split(":") if folder]
    return ":".join(folders if interpreter_folder in folders else [*folders, interpreter_folder])


def host_environment(own: Mapping[str, str], *, path: str, home: str, user: str) -> dict[str, str]:
    """Return the variables of the host that every job gets.

    `own` is the agent's environment. If `own` does not name a home folder or a user, `home` and `user` are used.
    """
    environment = {"HOME": home, "LANG": _LOCALE, "LC_ALL": _LOCALE, "LOGNAME": user, "USER": user}
    environment.update((name, own[name]) for name in _PASSED_ON if own.get(name))
    if own.get("LANG") and not own.get("LC_ALL"):
        # The host sets LANG only, and LC_ALL would override it.
        del environment["LC_ALL"]
    environment["PATH"] = path
    return environment


def without_account(host: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables of the agent's own account. The runner adds the variables of the job's account."""
    return {name: value for name, value in host.items() if name not in _OF_ACCOUNT}


def job_environment(
    spec: JobSpec, key: JobKey, allocation: AllocationId, node: NodeName, files: str = ""
) -> dict[str, str]:
    """Return the environment of one job without the variables of the host. Headrace's variables override those of the operation."""
    return {
        **spec.environment,
        "HEADRACE_OPERATION_ID": spec.operation,
        "HEADRACE_JOB_INDEX": str(job_index(spec, key)),
        "HEADRACE_ATTEMPT": str(key.attempt),
        "HEADRACE_JOB_COUNT": str(spec.job_count),
        "HEADRACE_ALLOCATION_ID": allocation,
        "HEADRACE_NODE": node,
        "HEADRACE_POOL": spec.pool,
        **_of_task(spec, key),
        **({"HEADRACE_FILES": files} if files else {}),
        **({"HEADRACE_LINE": line} if (line := job_line(spec, key)) is not None else {}),
        **({"TRACEPARENT": trace} if (trace := job_trace(spec.trace, key)) else {}),
    }


def _of_task(spec: JobSpec, key: JobKey) -> dict[str, str]:
    """Return the additional variables of a job that belongs to a task; empty for other jobs."""
    found = task_of(spec.tasks, key.index)
    if found is None:
        return {}
    first = found.task.first_index
    index = found.index_in_task if first is None else job_index(spec, key) - first
    return {
        "HEADRACE_TASK": found.task.name,
        "HEADRACE_TASK_INDEX": str(index),
        "HEADRACE_TASK_JOB_COUNT": str(found.task.job_count),
    }


def exchange_folder(folder: str, job: JobKey) -> str:
    """Return the path of a job's own folder in the exchange folder `folder`, named after the job. Only jobs with an account have such a
    folder.
    """
    return f"{folder}/{job.operation}.{job.index}.{job.attempt}"


def exchange_file(folder: str, job: JobKey, kind: str) -> str:
    """Return the path of a file that a job and its host exchange. The file is named after the job, with the suffix `kind`."""
    return f"{exchange_folder(folder, job)}.{kind}"


def with_exchange(environment: dict[str, str], progress_file: str, deadline_file: str) -> dict[str, str]:
    """Add the paths of the progress file and the deadline file to the environment; an empty path is left out. The files are not made
    here.
    """
    if progress_file:
        environment["HEADRACE_PROGRESS"] = progress_file
    if deadline_file:
        environment["HEADRACE_DEADLINE"] = deadline_file
    return environment
