"""`headrace run`: start an operation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headrace.client import Client, Operation, login_user
from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.ids import pool_name
from headrace.pools.amounts import PartialResources
from headrace.resources import Resources, parse_amount
from headrace.wire.operations import OnLostNode, OperationSpec
from headrace_cli.session import Common, Flag, talk
from headrace_cli.show.progress import follow
from headrace_cli.show.screen import Screen
from headrace_cli.show.waiting_reasons import pool_words

__all__ = ["parse_environment", "run"]


def run(
    *command: Annotated[str, Parameter(negative=())],
    pool: str | None = None,
    jobs: int = 1,
    cpu: str = "1",
    memory: str = "0",
    gpu: int = 0,
    env: Annotated[list[str] | None, Parameter(negative=())] = None,
    cwd: Path | None = None,
    title: str | None = None,
    weight: float = 1.0,
    gang: Flag = False,
    max_cpu: str | None = None,
    max_memory: str | None = None,
    max_gpu: int | None = None,
    max_failed_job_count: int = 10,
    interruption_timeout: str = "10s",
    on_lost_node: OnLostNode = OnLostNode.REQUEUE,
    existing_pool: Flag = False,
    id: str | None = None,
    wait: Flag = False,
    abort_on_interrupt: Flag = False,
    common: Common | None = None,
) -> int:
    """Start an operation: so many jobs, each a process that runs the command.

    Options stand before `--`, the command behind it. A job finds its number in `HEADRACE_JOB_INDEX` (from 0), their count in
    `HEADRACE_JOB_COUNT`; of the environment of this terminal it sees only what `--env` names.

    Without `--wait` it prints the operation's id and returns as soon as the operation is recorded. With `--wait` the exit status is
    0 only if it completed. Ctrl-C then stops the waiting, not the operation, unless `--abort-on-interrupt` is given.

    Examples:

        headrace run --pool research --jobs 50 --cpu 1 --memory 512M --wait -- python work.py

        headrace run --pool vision --gpu 1 --env TOKEN --env MODE=fast -- ./train.sh --epochs 3

    Parameters
    ----------
    command
        Program and arguments.
    pool
        Where it runs: a pool that was made, or a new name, which lives as long as its operations. Your login name unless given.
    jobs
        How many.
    cpu
        Cores of each job, such as 1 or 0.5.
    memory
        Memory of each job, such as 512M or 2GiB; 0: none is asked for and none is limited.
    gpu
        GPUs of each job.
    env
        NAME=VALUE, or NAME to hand on the value it has here. May be repeated.
    cwd
        Folder the jobs start in, on the nodes; where you are now unless given.
    title
        Words by which you know it again.
    weight
        Its part among the operations of its pool.
    gang
        Its jobs are of use only together: where the pool and the tree have it so, it is owed all that it wants or nothing.
    max_cpu
        Cores that it is owed at most, all its jobs together. No limit unless given.
    max_memory
        Memory likewise, such as 64G.
    max_gpu
        GPUs likewise.
    max_failed_job_count
        With so many failed runs the operation fails; until then each failed job is tried again.
    interruption_timeout
        What a job gets between SIGTERM and SIGKILL when its place is taken back.
    on_lost_node
        Whether a job runs again when its node is lost, or waits for the node.
    existing_pool
        Be refused where there is no such pool, instead of making an ephemeral one.
    id
        Id of the operation; the same one again starts nothing new. Made here unless given.
    wait
        Wait until it is over, with a progress bar on stderr.
    abort_on_interrupt
        With `--wait`: Ctrl-C aborts the operation.
    """

    if not command:
        raise BadInput(
            "command", "", "a program and its arguments behind `--`, such as: headrace run -- python work.py"
        )
    spec = OperationSpec(
        pool=pool_name(pool or login_user()),
        argv=list(command),
        job_count=_at_least("--jobs", jobs, 1),
        resources=_resources(cpu, memory, gpu),
        environment=parse_environment(env or [], os.environ),
        working_directory=str(_folder(cwd)),
        title=title or "",
        weight=weight,
        is_gang=gang,
        resource_limits=_limits(max_cpu, max_memory, max_gpu),
        max_failed_job_count=_at_least("--max-failed-job-count", max_failed_job_count, 0),
        interruption_timeout_ms=parse_duration_ms(interruption_timeout, place="--interruption-timeout"),
        on_lost_node=on_lost_node,
        require_specified_pools_existence=existing_pool,
    )

    async def work(client: Client, screen: Screen) -> int | None:
        operation = await client.start(spec, operation=id or "")
        _tell_start(screen, operation, named=bool(pool), alone=not wait)
        return await follow(screen, operation, abort_on_interrupt=abort_on_interrupt) if wait else None

    return talk(common, work)


def parse_environment(items: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Reads `NAME=VALUE` and `NAME`, the latter with the value it has in `own`. Raises `BadInput`."""
    environment: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name:
            raise BadInput("--env", item, "NAME=VALUE or NAME")
        if not equals:
            if name not in own:
                raise BadInput("--env", name, "a variable that is set here, or NAME=VALUE")
            value = own[name]
        environment[name] = value
    return environment


def _resources(cpu: str, memory: str, gpu: int) -> Resources:
    return Resources(
        user_slots=1,
        cpu=parse_amount("cpu", cpu, place="--cpu"),
        gpu=_at_least("--gpu", gpu, 0),
        memory=parse_amount("memory", memory, place="--memory"),
    )


def _limits(cpu: str | None, memory: str | None, gpu: int | None) -> PartialResources:
    return PartialResources(
        cpu=None if cpu is None else parse_amount("cpu", cpu, place="--max-cpu"),
        gpu=None if gpu is None else _at_least("--max-gpu", gpu, 0),
        memory=None if memory is None else parse_amount("memory", memory, place="--max-memory"),
    )


def _at_least(option: str, value: int, least: int) -> int:
    if value < least:
        raise BadInput(option, value, f"a whole number, {least} or more")
    return value


def _folder(cwd: Path | None) -> Path:
    # The nodes' folder, not ours: it need not exist here, so that nothing is resolved.
    return Path(os.path.abspath(cwd)) if cwd is not None else Path.cwd()


def _tell_start(screen: Screen, operation: Operation, *, named: bool, alone: bool) -> None:
    answer = operation.answer
    if answer is None:
        return
    if alone:
        screen.show_line(answer, operation.id)
    elif not screen.json:
        screen.say(f"operation {operation.id}")
    if answer.repeated:
        screen.say("this id was known already: nothing new was started")
    for each in answer.waiting:
        place = f"{each.running} of {each.limit} operations run in {pool_words(each.blocked_by)}"
        screen.say(f"pending: {place}, it is number {each.place} of {each.waiting} that wait")
    # A hub makes its pools itself: that is no typing error.
    if answer.ephemeral_pool and named and "$" not in answer.pool:
        near = f"; did you mean {' or '.join(answer.near[:3])}?" if answer.near else ""
        screen.say(
            f"nobody made a pool {answer.pool!r}: this one is ephemeral, it lives as long as its operations{near}",
            style="yellow",
        )
    for warning in answer.warnings:
        screen.say(f"warning: {warning}", style="yellow")
