"""The environment of a job: a few harmless variables of the host, the operation's own, and those of Headrace.

Nothing else of the agent's environment reaches a job, since it may hold credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.ids import AllocationId, NodeName
from headrace.wire.heartbeat import JobKey, JobSpec
from headrace.wire.trace import job_trace

#: Taken from the agent's own environment where they are set.
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "TMPDIR", "TZ", "USER")
_OF_ACCOUNT = ("HOME", "LOGNAME", "TMPDIR", "USER")
_LOCALE = "C.UTF-8"
#: Kinds of files in which a job and its host leave word for each other: written by the job, and by the runner.
PROGRESS: Final = "progress"
DEADLINE: Final = "deadline"


def path_with_interpreter(path: str, interpreter_folder: str) -> str:
    """`path` with the folder of the agent's interpreter at its end, so that `python` is found on every host."""
    folders = [folder for folder in path.split(":") if folder]
    return ":".join(folders if interpreter_folder in folders else [*folders, interpreter_folder])


def host_environment(own: Mapping[str, str], *, path: str, home: str, user: str) -> dict[str, str]:
    """Makes the environment that every job on this host gets.

    `own` is the agent's environment. `home` and `user` stand in where it has none.
    """
    environment = {"HOME": home, "LANG": _LOCALE, "LC_ALL": _LOCALE, "LOGNAME": user, "USER": user}
    environment.update((name, own[name]) for name in _PASSED_ON if own.get(name))
    if own.get("LANG") and not own.get("LC_ALL"):
        del environment["LC_ALL"]  # the host's LANG is meant, and LC_ALL would override it
    environment["PATH"] = path
    return environment


def without_account(host: Mapping[str, str]) -> dict[str, str]:
    """The environment without what only the agent's own account has. The runner adds that of the job's account."""
    return {name: value for name, value in host.items() if name not in _OF_ACCOUNT}


def job_environment(
    host: Mapping[str, str], spec: JobSpec, key: JobKey, allocation: AllocationId, node: NodeName, files: str = ""
) -> dict[str, str]:
    """The whole environment of one job. The operation's variables win over the host's, Headrace's over both."""
    return {
        **host,
        **spec.environment,
        "HEADRACE_OPERATION_ID": spec.operation,
        "HEADRACE_JOB_INDEX": str(key.index),
        "HEADRACE_ATTEMPT": str(key.attempt),
        "HEADRACE_JOB_COUNT": str(spec.job_count),
        "HEADRACE_ALLOCATION_ID": allocation,
        "HEADRACE_NODE": node,
        "HEADRACE_POOL": spec.pool,
        **({"HEADRACE_FILES": files} if files else {}),
        **({"TRACEPARENT": trace} if (trace := job_trace(spec.trace, key)) else {}),
    }


def exchange_folder(folder: str, job: JobKey) -> str:
    """The folder of a job of an account in the exchange folder, named as the job is."""
    return f"{folder}/{job.operation}.{job.index}.{job.attempt}"


def exchange_file(folder: str, job: JobKey, kind: str) -> str:
    """The file in which a job and its host leave word for each other, named as the job is."""
    return f"{exchange_folder(folder, job)}.{kind}"


def with_exchange(environment: dict[str, str], progress_file: str, deadline_file: str) -> dict[str, str]:
    """Adds the files by which a job and its host leave word for each other. Nothing is made of them here."""
    if progress_file:
        environment["HEADRACE_PROGRESS"] = progress_file
    if deadline_file:
        environment["HEADRACE_DEADLINE"] = deadline_file
    return environment
