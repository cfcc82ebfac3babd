"""The options of a start as keywords, and the operation spec that they make.

`headrace run` and the Python client both call `operation_spec`, so the rules, units and defaults of the options are defined once.
"""

from __future__ import annotations

import enum
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar, Unpack

from headrace.client.failure_rule import FailureWishes, failure_rule
from headrace.client.pool_trees import parse_pool_trees
from headrace.durations import parse_duration_ms, parse_time_limit_ms
from headrace.errors import BadInput
from headrace.ids import OperationId, PoolName, pool_or_path
from headrace.images import parse_image
from headrace.job_indexes import indexes_text, parse_indexes
from headrace.job_tasks import with_tasks
from headrace.pools.amounts import PartialResources
from headrace.pools.node_filter import parse_formula
from headrace.resources import Resources, parse_amount
from headrace.suggestions import hint
from headrace.whole_numbers import at_least
from headrace.wire.files import Archive
from headrace.wire.operation_spec import (
    LONGEST_INTERRUPTION_MS,
    OnLostNode,
    OperationSpec,
    PerTree,
    PreemptionMode,
    parse_upstream,
)
from headrace.wire.preemption import parse_signal
from headrace.wire.refusals import renamed_inputs
from headrace.wire.tasks import Task

E = TypeVar("E", bound=enum.StrEnum)


class Identified(Protocol):
    """The handle of an operation, from the asynchronous or the blocking client."""

    @property
    def id(self) -> str: ...


class JobOptions(FailureWishes, total=False):
    """Options of a start that do not depend on the number of jobs and their commands. A missing key and None stand for
    the default.
    """

    #: Configured pool or its path, or a new name for an ephemeral pool. Default: the placement rules of the tree decide.
    pool: str | None
    #: Cores of each job, such as 1, 0.5 or "0.5". Default: 1.
    cpu: str | float
    #: Memory of each job: such as "512M", or a number of bytes. Default: 0, which means that no memory is requested and none is limited.
    memory: str | int
    #: GPUs of each job. Default: 0.
    gpu: int
    #: Variables that the jobs see.
    environment: Mapping[str, str] | None
    #: Folder on the nodes in which the jobs start. Default: the current folder, or the folder of the uploaded files.
    working_directory: str | Path | None
    #: Time between a failure of a job and its retry, such as "10s". It doubles with each failure. Default: "500ms".
    retry_backoff: str
    #: Longest time between a failure of a job and its retry. Default: "10s".
    longest_retry_backoff: str
    #: Whether a job is retried when its node is lost, or waits for the node. Default: "requeue".
    on_lost_node: OnLostNode | Literal["requeue", "wait"]
    #: Time limit of each run of a job, such as "2h". Default: that of the pool.
    time_limit: str | None
    #: Time limit of the operation, from its first running slot. Default: that of the pool.
    operation_time_limit: str | None
    #: Largest size up to which the stdout, and the stderr, of each job is kept: such as "100M", or a number of bytes. Default: the node's
    #: cap.
    log_cap: str | int | None
    #: Image that the jobs run in: a name in a registry, or the path of a file on the nodes. Default: no container.
    image: str | None
    #: Formula over tags of the nodes that may run the jobs, such as "ssd & !old". Default: all nodes.
    node_filter: str | None
    #: Most jobs that run at the same time. Default: no limit.
    max_running: int | None
    #: Weight of the operation among the operations of its pool. Default: 1.
    weight: float
    #: Trees that run the operation, such as "gpu" or "gpu:pool=vision,weight=2". Default: the tree of the client.
    pool_tree: Sequence[str] | None
    #: Limits of the operation's fair share, for all its jobs together. Default: no limit.
    max_cpu: str | float | None
    max_memory: str | int | None
    max_gpu: int | None
    #: True if the jobs handle the interruption signal: exit status 0 after it means done, 75 means saved and to be retried.
    interruptible: bool
    #: Signal that tells a job that it is being preempted: TERM, INT, HUP, QUIT, USR1, USR2 or its number. Default: "TERM".
    interrupt_signal: str | int
    #: Time between the interruption signal and SIGKILL. Default: "10s", or the tree's timeout if the job is preempted.
    interruption_timeout: str | None
    #: With "graceful", jobs are preempted as soon as the operation has more than its fair share, and never otherwise.
    preemption_mode: PreemptionMode | Literal["normal", "graceful"]
    #: Title of the operation in lists.
    title: str
    #: True to refuse the start if the pool does not exist; otherwise an ephemeral pool is made for it.
    existing_pool: bool
    #: Operations that must complete before this operation runs: ids or handles. "ID:failed" waits for an operation that failed or was
    #: aborted, "ID:any" for any end.
    after: Sequence[str | Identified] | None


class RunOptions(JobOptions, total=False):
    """All options of a start that make its operation spec. A missing key and None stand for the default."""

    #: Number of jobs. Default: 1, or as many as there are indexes, lines or jobs of tasks.
    jobs: int | None
    #: One job for each index: numbers, or a text such as "1-99:7,200". A job finds its index in `HEADRACE_JOB_INDEX`.
    indexes: str | Iterable[int] | None
    #: One job for each text. A job finds its line in `HEADRACE_LINE`, and in place of `{}` in its command.
    lines: Sequence[str] | None
    #: File on the node for the stdout of each job, such as "out/%i.txt", where %i is the index. Default: the log of the job.
    output: str
    #: File on the node for stderr, named in the same way.
    error: str
    #: File on the node that each job reads as its stdin.
    stdin: str
    #: True to start either all jobs together or none. If one job does not complete, all jobs are started again. For the jobs of some tasks
    #: only, give `gang` to these tasks.
    gang: bool
    #: True if job 0 is the master of the other jobs: under a YARN policy it is preempted last on its node.
    first_job_is_master: bool
    #: Jobs of several kinds, each made by `task`. They replace the command, the number of jobs and the size of the jobs.
    tasks: Sequence[Task]
    #: Files of the operation, if `Client.files.send` has sent them already.
    files: Archive | None
    #: Another operation: each job runs once the job with the same index in that operation has completed.
    after_each: str | Identified | None


#: The keyword for each field of a start request and for each kind of name, for error messages.
_KEYWORDS: Final = {
    "operation id": "operation",
    "pool name": "pool",
    "spec.after": "after",
    "spec.after_each": "after_each",
    "spec.allocation_graceful_preemption_timeout_ms": "interruption_timeout",
    "spec.allocation_preemption_timeout_ms": "interruption_timeout",
    "spec.argv": "argv",
    "spec.environment": "environment",
    "spec.error": "error",
    "spec.files": "files",
    "spec.first_job_is_master": "first_job_is_master",
    "spec.image": "image",
    "spec.indexes": "indexes",
    "spec.interrupt_signal": "interrupt_signal",
    "spec.interruptible": "interruptible",
    "spec.interruption_timeout_ms": "interruption_timeout",
    "spec.is_gang": "gang",
    "spec.job_count": "jobs",
    "spec.keep_going": "keep_going",
    "spec.lines": "lines",
    "spec.log_cap_bytes": "log_cap",
    "spec.longest_retry_backoff_ms": "longest_retry_backoff",
    "spec.max_failed_job_count": "max_failed_job_count",
    "spec.memory_on_oom": "memory_on_oom",
    "spec.no_retry_on": "no_retry_on",
    "spec.on_lost_node": "on_lost_node",
    "spec.operation_time_limit_ms": "operation_time_limit",
    "spec.output": "output",
    "spec.pool": "pool",
    "spec.pool_trees": "pool_tree",
    "spec.preemption_mode": "preemption_mode",
    "spec.require_specified_pools_existence": "existing_pool",
    "spec.resource_limits.cpu": "max_cpu",
    "spec.resource_limits.gpu": "max_gpu",
    "spec.resource_limits.memory": "max_memory",
    "spec.resource_limits.user_slots": "max_running",
    "spec.resources.cpu": "cpu",
    "spec.resources.gpu": "gpu",
    "spec.resources.memory": "memory",
    "spec.retry_backoff_ms": "retry_backoff",
    "spec.retry_on": "retry_on",
    "spec.scheduling_options_per_pool_tree": "pool_tree",
    "spec.scheduling_tag_filter": "node_filter",
    "spec.stdin": "stdin",
    "spec.suspend_on_failure": "suspend_on_failure",
    "spec.tasks": "tasks",
    "spec.time_limit_ms": "time_limit",
    "spec.title": "title",
    "spec.tries": "tries",
    "spec.weight": "weight",
    "spec.working_directory": "working_directory",
    "tree name": "pool_tree",
}
#: The `place` of a `BadInput` is split before these characters. They begin what may follow the name of a field or a keyword: a key of a
#: map, an index of a list, or further words.
_PARTS: Final = re.compile(r"(?=[.\[ ])")


def keyword_of(place: str) -> str:
    """Return the `place` of an error with the keyword instead of the field of a start request. A `place` that names no such field is
    unchanged.

    >>> keyword_of("spec.resources.gpu"), keyword_of("spec.argv[3]"), keyword_of("pool_tree gpu: weight")
    ('gpu', 'argv[3]', 'pool_tree gpu: weight')
    """
    parts = _PARTS.split(place)
    for count in range(len(parts), 0, -1):
        if (keyword := _KEYWORDS.get("".join(parts[:count]))) is not None:
            return keyword + "".join(parts[count:])
    return place


def named_keywords() -> AbstractContextManager[None]:
    """Name the keyword instead of the field of a start request in every `BadInput`, and every `Refused` with a `BadRequest`, that the block
    raises.
    """
    return renamed_inputs(keyword_of)


@renamed_inputs(keyword_of)
def operation_spec(
    argv: Sequence[str], *, sends_files: bool = False, is_remote: bool = False, **options: Unpack[RunOptions]
) -> OperationSpec:
    """Return the spec of an operation whose jobs run `argv`. With `sends_files` the jobs start in the folder of the sent files. With
    `is_remote` the options come from another host, so no error depends on the files of this host.

    Apart from the path of the current folder, the result depends only on the arguments. Pools may be given as paths. Raises `BadInput`,
    which names the keyword.
    """
    for name in sorted(options.keys() - RunOptions.__optional_keys__):
        raise TypeError(f"unknown option {name!r}: {hint(name, sorted(RunOptions.__optional_keys__))}")
    for name, value in (("pool_tree", options.get("pool_tree")), ("after", options.get("after"))):
        if isinstance(value, str):
            raise BadInput(name, value, "a list of texts")
    tasks, pool = options.get("tasks") or (), options.get("pool")
    _check_command(argv, tasks, is_remote=is_remote)
    counted = _counted_jobs(options, tasks)
    trees = parse_pool_trees(options.get("pool_tree") or (), place="pool_tree")
    is_gang = options.get("gang") or False
    after_each = options.get("after_each")
    spec = OperationSpec(
        pool=pool_or_path(pool) if pool else PoolName(""),
        argv=list(argv),
        **counted,
        resources=Resources() if tasks else _size_of_jobs(options),
        environment=dict(options.get("environment") or {}),
        working_directory=_folder(options, sends_files=sends_files or options.get("files") is not None),
        title=options.get("title") or "",
        weight=options.get("weight", 1.0),
        is_gang=is_gang,
        first_job_is_master=options.get("first_job_is_master") or False,
        resource_limits=_limits(options),
        pool_trees=list(trees),
        scheduling_options_per_pool_tree={tree: said for tree, said in trees.items() if said != PerTree()},
        **_failures(options, counted["job_count"], is_gang=is_gang or any(each.is_gang for each in tasks)),
        **_times(options),
        **_preemption(options),
        image=_image(options.get("image")),
        log_cap_bytes=parse_amount("memory", options.get("log_cap") or 0, place="log_cap"),
        scheduling_tag_filter=_formula(options.get("node_filter") or ""),
        require_specified_pools_existence=options.get("existing_pool") or False,
        output=options.get("output") or "",
        error=options.get("error") or "",
        stdin=options.get("stdin") or "",
        files=options.get("files"),
        after=[parse_upstream(_id_of(each), place="after") for each in options.get("after") or ()],
        after_each=None if after_each is None else OperationId(_id_of(after_each)),
    )
    return with_tasks(spec, tasks) if tasks else spec


def task(
    name: str,
    argv: Sequence[str],
    *,
    jobs: int = 1,
    cpu: str | float = 1,
    memory: str | int = 0,
    gpu: int = 0,
    environment: Mapping[str, str] | None = None,
    gang: bool = False,
) -> Task:
    """Return a task for `Client.run`: `jobs` jobs that run `argv`, each with these cores, memory ("512M") and GPUs. Raises `BadInput`.

    All jobs of all tasks with `gang` start together or not at all. The jobs of the other tasks start one by one.
    """
    size = _size_of_jobs({"cpu": cpu, "memory": memory, "gpu": gpu})
    return Task(name, [*argv], jobs, size, dict(environment or {}), is_gang=gang)


def _check_command(argv: Sequence[str], tasks: Sequence[Task], *, is_remote: bool) -> None:
    """Refuse commands that no node can run, and name what was probably meant. Raises `BadInput`."""
    if isinstance(argv, str):
        raise BadInput("argv", argv, f"a list of a program and its arguments, such as {argv.split()}")
    if tasks:
        if argv:
            raise BadInput.because("argv", "a command and tasks cannot be combined: each task has its own command")
        return
    if not argv:
        raise BadInput.because(
            "argv", "no command is given. Name a program and its arguments, such as ['python3', 'work.py'], or tasks"
        )
    program = argv[0]
    if len(argv) == 1 and " " in program and "/" not in program:
        near = f"separate words, or sh -c {shlex.quote(program)}, because no shell reads the command"
        raise BadInput("argv", program, near)
    if not is_remote and "/" not in program and os.path.isfile(program) and shutil.which(program) is None:
        here = f"sh {program}, or ./{program} if it is executable, because a program without a slash is looked up in the PATH of the node"
        raise BadInput("argv", program, here)


def _counted_jobs(options: RunOptions, tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the fields of the spec for the number of jobs, their indexes and their lines."""
    lines, indexes = options.get("lines"), options.get("indexes")
    if isinstance(lines, str) or (lines is not None and not lines):
        raise BadInput("lines", lines, "a list of texts, at least one")
    text = indexes if isinstance(indexes, str) else "" if indexes is None else indexes_text(indexes)
    count = sum(task.job_count for task in tasks) or len(lines or ())
    if indexes is not None:
        count = len(parse_indexes(text, place="indexes"))
    jobs = options.get("jobs")
    if jobs is not None and at_least("jobs", jobs, 1) != (count or jobs):
        raise BadInput("jobs", jobs, f"{count}, as many as there are indexes, lines or jobs of tasks, or no number")
    return {"job_count": count or jobs or 1, "indexes": text, "lines": list(lines or ())}


def _size_of_jobs(options: JobOptions) -> Resources:
    found = Resources(
        user_slots=1,
        cpu=parse_amount("cpu", options.get("cpu", 1)),
        gpu=parse_amount("gpu", options.get("gpu", 0)),
        memory=parse_amount("memory", options.get("memory", 0)),
    )
    if found == Resources(user_slots=1):
        raise BadInput.because("cpu", "a job needs cores, memory or GPUs. Set `cpu`, `memory` or `gpu` above 0")
    return found


def _limits(options: JobOptions) -> PartialResources:
    """Return the limits of the operation's fair share; each job takes one slot."""
    most = options.get("max_running")
    cpu, gpu, memory = options.get("max_cpu"), options.get("max_gpu"), options.get("max_memory")
    return PartialResources(
        user_slots=None if most is None else at_least("max_running", most, 1),
        cpu=None if cpu is None else parse_amount("cpu", cpu, place="max_cpu"),
        gpu=None if gpu is None else parse_amount("gpu", gpu, place="max_gpu"),
        memory=None if memory is None else parse_amount("memory", memory, place="max_memory"),
    )


def _failures(options: JobOptions, job_count: int, *, is_gang: bool) -> dict[str, Any]:
    tries, most = options.get("tries"), options.get("max_failed_job_count")
    return failure_rule(
        job_count,
        is_gang=is_gang,
        tries=None if tries is None else at_least("tries", tries, 1),
        keep_going=options.get("keep_going"),
        max_failed_job_count=None if most is None else at_least("max_failed_job_count", most, 1),
        retry_on=options.get("retry_on"),
        no_retry_on=options.get("no_retry_on"),
        memory_on_oom=options.get("memory_on_oom"),
        suspend_on_failure=options.get("suspend_on_failure") or False,
    )


def _times(options: JobOptions) -> dict[str, Any]:
    backoff, longest = options.get("retry_backoff", "500ms"), options.get("longest_retry_backoff", "10s")
    return {
        "retry_backoff_ms": parse_duration_ms(backoff, place="retry_backoff"),
        "longest_retry_backoff_ms": parse_duration_ms(longest, place="longest_retry_backoff"),
        "on_lost_node": _member(OnLostNode, options.get("on_lost_node", OnLostNode.REQUEUE), "on_lost_node"),
        "time_limit_ms": parse_time_limit_ms(options.get("time_limit"), "time_limit"),
        "operation_time_limit_ms": parse_time_limit_ms(options.get("operation_time_limit"), "operation_time_limit"),
    }


def _preemption(options: JobOptions) -> dict[str, Any]:
    """Return the fields for how the operation's jobs are preempted."""
    mode = options.get("preemption_mode", PreemptionMode.NORMAL)
    fields: dict[str, Any] = {
        "interruptible": options.get("interruptible") or False,
        "interrupt_signal": parse_signal(str(options.get("interrupt_signal", "TERM")), place="interrupt_signal"),
        "preemption_mode": _member(PreemptionMode, mode, "preemption_mode"),
    }
    timeout = options.get("interruption_timeout")
    if timeout is not None:
        timeout_ms = parse_duration_ms(timeout, place="interruption_timeout")
        if timeout_ms > LONGEST_INTERRUPTION_MS:
            raise BadInput("interruption_timeout", timeout, "a length of time of at most an hour, 1h")
        for name in ("interruption", "allocation_preemption", "allocation_graceful_preemption"):
            fields[f"{name}_timeout_ms"] = timeout_ms
    return fields


def _member(kind: type[E], value: str, place: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise BadInput(place, value, f"one of {', '.join(kind)}") from None


def _image(text: str | None) -> str:
    """Return the image of the jobs, or an empty text for none. The relative path of an image file is completed by the current folder."""
    if text is None:
        return ""
    return parse_image(os.path.abspath(text) if is_image_file(text) else text, place="image")


def is_image_file(text: str) -> bool:
    """True if an image is the path of a file that may be relative, and not the name of an image in a registry."""
    return text.startswith(("./", "../")) or (text.endswith(".sif") and ":" not in text and not text.startswith("-"))


def _formula(text: str) -> str:
    try:
        parse_formula(text)
    except BadInput as error:
        raise error.at("node_filter") from None
    return text


def _folder(options: JobOptions, *, sends_files: bool) -> str:
    folder = options.get("working_directory")
    if folder is None:
        try:
            return "" if sends_files else str(Path.cwd())
        except FileNotFoundError:
            raise BadInput.because(
                "working_directory", "the current folder was removed. Name a folder, or change to an existing folder"
            ) from None
    # Symbolic links are not resolved: the folder is on the nodes and need not exist on this host.
    return os.path.abspath(folder) if str(folder) else ""


def _id_of(operation: str | Identified) -> str:
    """Return the text of an id as it was given, or the id of a handle."""
    return operation if isinstance(operation, str) else operation.id
