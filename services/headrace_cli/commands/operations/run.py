"""The command `headrace run`: start an operation."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec
from cyclopts import Parameter

from headrace.client import Client, Operation, RunOptions, operation_spec
from headrace.errors import BadInput
from headrace.files.bounded import LARGEST_FILE_BYTES, read_bounded
from headrace.pools.placement_rules import RuleName
from headrace.retry_rules import check_memory_on_oom
from headrace.wire.operation_spec import (
    OnLostNode,
    OperationSpec,
    PreemptionMode,
)
from headrace_cli.commands.operations.dry_run import try_start, warn_of_what_never_runs
from headrace_cli.commands.operations.key_values import parse_environment
from headrace_cli.commands.operations.operation_id import whole_id
from headrace_cli.commands.operations.spec_option import SpecOption, named_as_given, opened_file
from headrace_cli.commands.operations.tables import ephemeral_words
from headrace_cli.commands.operations.upstream_words import ends_words, following_words
from headrace_cli.option_names import KEYWORDS, NO_KEYWORDS, named_options
from headrace_cli.option_values import MaybeWhole, Number, Whole
from headrace_cli.session import Common, PoolOption, Switch, talk
from headrace_cli.show.amounts import pool_words
from headrace_cli.show.screen import Screen
from headrace_cli.slurm_words import time_as_title

if TYPE_CHECKING:
    from headrace.archives import Packed
    from headrace_cli.commands.operations.operation_file import OperationFile


@Parameter(name="*")
@dataclass(frozen=True)
class JobOptions:
    """Options for the jobs of an operation."""

    jobs: Annotated[MaybeWhole, Parameter(name=["--jobs", "-n"])] = None
    """Number of jobs. Default: 1, or as many as --each-line or --indexes gives."""
    cpu: Annotated[str, Parameter(name=["--cpu", "-c"])] = "1"
    """Cores of each job, such as 1 or 0.5."""
    memory: Annotated[str, Parameter(name=["--memory", "-m"])] = "0"
    """Memory of each job, such as 512M or 2GiB; 0: no memory is requested, and memory is not limited."""
    gpu: Annotated[Whole, Parameter(name=["--gpu", "-g"])] = 0
    """GPUs of each job."""
    env: Annotated[list[str] | None, Parameter(name=["--env", "-e"], negative=())] = None
    """Environment variable of the jobs: NAME=VALUE, or NAME to copy its value from here. May be repeated."""
    cwd: Path | None = None
    """Working directory of the jobs on the nodes. Default: your current directory, or with `--upload` the folder of the uploaded files."""
    upload: Annotated[list[Path] | None, Parameter(negative=())] = None
    """A file to send with the operation, or a folder whose contents are sent. On the node, jobs find the files in the
    folder that `HEADRACE_FILES` names. May be repeated; at most 64 MiB in total, packed."""
    tries: MaybeWhole = None
    """Number of failed runs of one job after which it is not retried. Default: 3. The failed runs of all jobs of a gang count together."""
    keep_going: Annotated[bool | None, Parameter(negative=["--no-keep-going"])] = None
    """When a job has failed and is not retried any more, let the other jobs run to their ends before the operation fails. This is the
    default for more than one job, except for a gang. With `--no-keep-going` the operation fails at once."""
    max_failed_job_count: MaybeWhole = None
    """Number of failed runs, of all jobs together, at which the operation fails. Without `--tries`, jobs are retried until this number
    is reached, as in YTsaurus."""
    retry_on: str | None = None
    """Retry a failed job only for these reasons: exit codes, signals, and out of memory, such as 75,100-120,SIGTERM,oom. A job that
    fails for another reason is given up at once."""
    no_retry_on: str | None = None
    """Give a failed job up at once for these reasons, written as for `--retry-on`. Not together with `--retry-on`."""
    memory_on_oom: str | None = None
    """Memory of a job that is retried because it ran out of memory: a multiple of what it had, such as x2, or an amount, such as 16G. At
    most what the largest matching node has and the pool allows. Such a job is retried up to `--tries`, whatever `--retry-on` is."""
    suspend_on_failure: Switch = False
    """Suspend the operation after its first failure, for a look; `headrace op resume` goes on. Running jobs run on."""
    retry_backoff: str = "500ms"
    """Time between a failure of a job and its retry, such as 10s. It doubles with each failure of that job. 0: no delay."""
    longest_retry_backoff: str = "10s"
    """Longest time between a failure of a job and its retry."""
    on_lost_node: OnLostNode = OnLostNode.REQUEUE
    """Whether a job is retried when its node is lost, or waits for the node."""
    time_limit: str | None = None
    """Time limit of each run of a job, such as 2h. At the limit the job is interrupted, and it is not retried. Default: the limit of the
    pool, if it has one."""
    operation_time_limit: str | None = None
    """Time limit of the whole operation, from its first running slot, such as 1d; then the operation fails. Default: that of the pool."""
    log_cap: str | None = None
    """Largest stdout, and largest stderr, that is kept of each job, such as 100M; older output is dropped. Default: the node's cap;
    at most the node's largest cap."""
    image: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """Image to run the jobs in: a name in a registry, such as docker://ubuntu:24.04, or a path of the nodes, to a .sif file or a folder
    with a root file system. Only nodes with podman or apptainer run the jobs. Unless given, jobs run without a container."""
    node_filter: str | None = None
    """Nodes that may run the jobs, by their tags, such as 'ssd & !old'. All nodes unless given."""


@Parameter(name="*")
@dataclass(frozen=True)
class ArrayOptions:
    """Options for operations whose jobs differ by an index or by a line of text, and for the files of each job."""

    each_line: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None
    """One job for each line of this file, or of stdin for `-`. A job finds its line in `HEADRACE_LINE`, and in place of `{}` in the
    command."""
    indexes: str | None = None
    """One job for each of these indexes, such as 1-99:7,200. A job finds its index in `HEADRACE_JOB_INDEX`."""
    max_running: MaybeWhole = None
    """Largest number of jobs that run at the same time."""
    output: Annotated[str, Parameter(name=["--output", "-o"])] = ""
    """File on the node for the stdout of each job, such as out/%i.txt, where %i is the index. Its folder is made. Relative to the
    working directory. Unless given, the job's log keeps the output."""
    error: str = ""
    """File on the node for the stderr of each job. With the same value as --output, stdout and stderr go to one file."""
    stdin: str = ""
    """File on the node that each job reads as its stdin. Empty unless given."""


@Parameter(name="*")
@dataclass(frozen=True)
class ShareOptions:
    """Options for an operation's share of the cluster."""

    weight: Number = 1.0
    """Weight of the operation among the operations of its pool."""
    gang: Switch = False
    """Start all jobs together or none, and start all of them again if one does not complete. If the pool and the tree are configured
    for it, the operation's fair share is its whole demand or nothing."""
    first_job_is_master: Switch = False
    """Job 0 is the master of the other jobs: under a YARN policy it is preempted last on its node."""
    pool_tree: Annotated[list[str] | None, Parameter(negative=())] = None
    """A pool tree that runs the operation, such as gpu, or gpu:pool=vision,weight=2 for another pool and weight there; may be repeated.
    With several trees, each runs some of the jobs when it has free resources. Default: `$HEADRACE_TREE`, else the first tree of
    `headrace up`."""
    max_cpu: str | None = None
    """Limit of the operation's fair share in cores, for all its jobs together. No limit unless given."""
    max_memory: str | None = None
    """Memory limit of the operation's fair share, such as 64G."""
    max_gpu: MaybeWhole = None
    """GPU limit of the operation's fair share."""


@Parameter(name="*")
@dataclass(frozen=True)
class PreemptionOptions:
    """Options for how an operation's jobs are preempted."""

    interruptible: Switch = False
    """The jobs handle the interruption signal. If a job then ends with exit status 0, it is done; with 75 it has saved its state and is
    retried."""
    interrupt_signal: str = "TERM"
    """Signal that tells a job that it is being preempted: TERM, INT, HUP, QUIT, USR1 or USR2, or its number."""
    interruption_timeout: str | None = None
    """Time between the interruption signal and SIGKILL. Unless given: for a preempted job the tree's timeout, otherwise 10s."""
    preemption_mode: PreemptionMode = PreemptionMode.NORMAL
    """With graceful, jobs are preempted only while the operation has more than its fair share, but then at once, with more time to end."""


@Parameter(name="*")
@dataclass(frozen=True)
class OperationOptions:
    """Options for the operation as a whole."""

    title: Annotated[str, Parameter(name=["--title", "-t"])] = ""
    """Title of the operation in lists."""
    spec: SpecOption = None
    """A file of the operation, YAML or JSON, or `-` for stdin: each key is one of these options, and `command` is the command. Options
    on the command line override the file. `headrace op get ID --spec` prints the file of an operation."""
    existing_pool: Switch = False
    """Refuse the start if there is no such pool, instead of making an ephemeral pool."""
    id: str = ""
    """Id of the operation. A second start with the same id starts nothing new. Default: a new id."""

    after: Annotated[list[str] | None, Parameter(negative=())] = None
    """An operation that must complete before this operation runs, by its id or the beginning of its id. `ID:failed` waits until operation
    ID has failed or was aborted, `ID:any` for any end. If operation ID ends in another way, this operation fails. May be repeated."""

    after_each: str | None = None
    """Another operation: each job of this operation runs when the job with the same index of the other operation has completed."""


@Parameter(name="*")
@dataclass(frozen=True)
class WaitOptions:
    """Options for what to do after the start, or instead of a start."""

    wait: Annotated[Switch, Parameter(name=["--wait", "-w"])] = False
    """Wait until the operation is over, with a progress bar on stderr. For failed jobs the end of the output is shown."""
    follow: Annotated[Switch, Parameter(name=["--follow", "-f"])] = False
    """Wait until the operation is over, and print the output of its jobs as it is written. With several jobs, each line begins with the
    index of its job."""
    abort_on_interrupt: Switch = False
    """With `--wait` or `--follow`: Ctrl-C aborts the operation."""
    dry_run: Switch = False
    """Only check everything that a start checks, and show the pool, whether the operation would wait and for what, which nodes could
    run its jobs, and all fair shares. Nothing is recorded, and no file is sent."""

    @property
    def is_wanted(self) -> bool:
        return self.wait or self.follow

    async def stay(self, screen: Screen, operation: Operation, job_count: int) -> int:
        """Wait until the operation is over and return the exit status."""
        # Imported only to wait, because progress bars take longer to import than an operation takes to start.
        from headrace_cli.commands.operations.progress import follow

        several = job_count > 1 if self.follow else None
        return await follow(screen, operation, abort_on_interrupt=self.abort_on_interrupt, several=several)


def run(
    *command: Annotated[str, Parameter(negative=())],
    pool: PoolOption = None,
    job_options: JobOptions | None = None,
    array_options: ArrayOptions | None = None,
    share_options: ShareOptions | None = None,
    preemption_options: PreemptionOptions | None = None,
    operation_options: OperationOptions | None = None,
    wait_options: WaitOptions | None = None,
    common: Common | None = None,
) -> int:
    """Start an operation: a number of jobs, each a process that runs the command.

    Options come before `--`, the command after it. A job finds its index in `HEADRACE_JOB_INDEX` (from 0) and the number of jobs in
    `HEADRACE_JOB_COUNT`. It sees only the environment variables that `--env` names.

    Without `--wait` it prints the operation's id and returns as soon as the operation is recorded. With `--wait` or `--follow` the exit
    status is 0 only if the operation completed. Ctrl-C then stops the waiting, not the operation, unless `--abort-on-interrupt` is given.

    Examples of use:

        headrace run -f -n 3 -c 2 -m 1G -- python3 work.py

        headrace run --pool vision --gpu 1 --time-limit 2h --env TOKEN --env MODE=fast -- ./train.sh --epochs 3

        headrace run --each-line names.txt --output 'out/%i.txt' -- ./convert.sh {}

        headrace run --after array-one --after array-two:any -- ./collect.sh

        headrace run --spec train.yaml --jobs 4

        headrace run --interruptible --interrupt-signal USR1 --interruption-timeout 2m -- ./train.sh --save-on-signal

    Parameters
    ----------
    command
        Program and arguments.
    pool
        A configured pool or its path, or a new name for an ephemeral pool. Default: the placement rules of the tree decide.
    """
    names, waits = operation_options or OperationOptions(), wait_options or WaitOptions()
    file = opened_file(names.spec)
    with named_as_given(file):
        asked = spec_of_options(
            command, pool, job_options, array_options, share_options, preemption_options, operation_options, file
        )
        packed = pack_up(job_options.upload if job_options else None)

    async def work(client: Client, screen: Screen) -> int | None:
        with named_as_given(file):
            whole = await completed(asked, packed, client, file)
            if waits.dry_run:
                return await try_start(screen, client, whole, names.id)
            operation = await start_operation(screen, client, whole, packed, names.id)
        _tell_start(screen, operation, whole.title, named=bool(pool), alone=not waits.is_wanted)
        await warn_of_what_never_runs(screen, client, whole, operation.answer)
        return await waits.stay(screen, operation, whole.job_count) if waits.is_wanted else None

    return talk(common, work, bears_restarts=not waits.dry_run)


def spec_of_options(
    command: Sequence[str],
    pool: str | None,
    job_options: JobOptions | None = None,
    array_options: ArrayOptions | None = None,
    share_options: ShareOptions | None = None,
    preemption_options: PreemptionOptions | None = None,
    operation_options: OperationOptions | None = None,
    file: OperationFile | None = None,
) -> OperationSpec:
    """Return the spec that the options and the file's `fields` describe. Raises `BadInput`, `UnusableFile`, `OSError`."""
    tasks = file.tasks() if file is not None else []
    if not tasks:
        _check_command(command)
    groups = (job_options, array_options, share_options, preemption_options, operation_options)
    with named_options():
        options = keywords(pool, *(group for group in groups if group is not None))
        options["tasks"] = tasks
        spec = operation_spec(command, sends_files=bool(job_options and job_options.upload), **options)
        if file is None:
            check_memory_on_oom(spec)
    if file is None:
        return spec
    return file.completed(spec)


def keywords(pool: str | None, *groups: object) -> RunOptions:
    """Return the options as keyword arguments of `operation_spec`. Raises `BadInput`, `OSError`."""
    given = {name: value for group in groups for name, value in vars(group).items() if name not in NO_KEYWORDS}
    found: dict[str, Any] = {KEYWORDS.get(name, name): value for name, value in given.items()} | {"pool": pool}
    if found.get("environment"):
        found["environment"] = parse_environment(found["environment"], os.environ)
    if found.get("lines") is not None:
        found["lines"] = read_lines(found["lines"])
    return cast("RunOptions", found)


def pack_up(upload: Sequence[Path] | None) -> Packed | None:
    """Return the files that are sent with the operation, packed; None if there are none. Raises `BadInput`, `OSError`."""
    if not upload:
        return None
    from headrace.archives import pack

    return pack(upload)


async def start_operation(
    screen: Screen, client: Client, spec: OperationSpec, packed: Packed | None, operation: str
) -> Operation:
    """Send the files and start the operation. Raises what `Client.start` raises."""
    if packed is not None:
        from headrace_cli.commands.operations.progress import send_files

        await send_files(screen, client, packed)
    return await client.start(spec, operation=operation)


async def completed(
    spec: OperationSpec, packed: Packed | None, client: Client, file: OperationFile | None
) -> OperationSpec:
    """Return the spec with the values that only the client knows: whole ids, the names of the pools, the tree and the uploaded files."""
    files = packed.archive if packed is not None else spec.files
    tree = spec.tree if file is not None and file.names_tree() else client.trees.own
    after = [msgspec.structs.replace(each, operation=await whole_id(client, each.operation)) for each in spec.after]
    after_each = await whole_id(client, spec.after_each) if spec.after_each is not None else None
    spec = msgspec.structs.replace(spec, after=after, after_each=after_each, tree=tree, files=files)
    return await client.pools.named_in(spec)


#: A word such as `B=2`, which belongs to `--env`.
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")


def _check_command(command: Sequence[str]) -> None:
    """Raise `BadInput` if the command is empty, or if it begins with a variable such as `B=2` instead of a program."""
    if not command:
        raise BadInput.because(
            "command",
            "no command is given. Write a program and its arguments after `--`, such as: headrace run -- python3 work.py; "
            "or set `command` in the file of --spec",
        )
    if _ASSIGNMENT.match(command[0]):
        raise BadInput(
            "command", command[0], f"a program. To set a variable for the jobs, use --env {shlex.quote(command[0])}"
        )


def read_lines(file: Path) -> list[str]:
    """Return the lines of a text file, or of stdin for `-`, without line feeds. Raises `BadInput`, `OSError`."""
    data = read_bounded(file, LARGEST_FILE_BYTES, "--each-line", or_stdin=True)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadInput("--each-line", file, f"text in UTF-8; the byte at offset {error.start} is not valid") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise BadInput.because("--each-line", f"{file} has no lines. Each line becomes one job")
    return lines


def _tell_start(screen: Screen, operation: Operation, title: str, *, named: bool, alone: bool) -> None:
    answer = operation.answer
    if answer is None:
        return
    if alone:
        screen.show_line(answer, operation.id)
    elif not screen.json:
        screen.say(f"operation {operation.id}")
    if answer.repeated:
        screen.say("an operation with this id exists already: nothing new was started")
    if answer.upstream_failure:
        screen.say(answer.upstream_failure, style="red")
    elif answer.awaits:
        screen.say(f"pending: the operation waits for {ends_words(answer.awaits)}")
    elif answer.awaiting_jobs:
        screen.say(f"{following_words(answer.awaiting_jobs)}: headrace op explain {operation.id}")
    for each in answer.waiting:
        place = f"{each.running} of {each.limit} operations run in {pool_words(each.blocked_by)}"
        screen.say(f"pending: {place}; the operation is number {each.place} of {each.waiting} pending operations")
    if answer.rule and (named or answer.rule != RuleName.USER):
        screen.say(
            f"the operation runs in pool {answer.pool!r}, by the placement rule `{answer.rule}` of its tree",
            style="yellow",
        )
    # A new pool of a hub is not a typing error, since the hub makes its pools itself.
    elif answer.ephemeral_pool and named and "$" not in answer.pool:
        screen.say(ephemeral_words(answer.pool, answer.near), style="yellow")
    for warning in filter(None, (*answer.warnings, time_as_title(title))):
        screen.say(f"warning: {warning}", style="yellow")
