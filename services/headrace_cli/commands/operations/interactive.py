"""The commands `headrace shell` and `headrace op exec`: work inside a job from this terminal."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Final

import anyio
import msgspec
from cyclopts import Parameter, Token
from rich.status import Status

from headrace.client import Client, Operation, Refused, Unanswered
from headrace.client.sessions import Session
from headrace.errors import BadInput
from headrace.whole_numbers import at_least
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import FINAL_STATES, OperationView
from headrace.wire.preemption import InterruptSignal
from headrace.wire.refusals import WrongState
from headrace_cli.commands.operations.operation_id import whole_id
from headrace_cli.commands.operations.run import (
    JobOptions,
    OperationOptions,
    ShareOptions,
    completed,
    pack_up,
    spec_of_options,
    start_operation,
)
from headrace_cli.commands.operations.tables import waiting_words
from headrace_cli.exit_statuses import Exit
from headrace_cli.live.session_terminal import converse, has_terminal, raw_terminal, window
from headrace_cli.option_names import named_options
from headrace_cli.session import Common, PoolOption, talk
from headrace_cli.show.screen import Screen

#: Variables that a program needs to use this terminal well.
_OF_THE_TERMINAL: Final = ("TERM", "LANG", "LC_ALL")
_SHELL: Final = ("bash",)
#: Seconds to wait after the end of the job until its operation has ended, too.
_END_S: Final = 3.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


def shell(
    *command: Annotated[str, Parameter(negative=())],
    pool: PoolOption = None,
    job_options: JobOptions | None = None,
    share_options: ShareOptions | None = None,
    operation_options: OperationOptions | None = None,
    common: Common | None = None,
) -> int:
    """Start a job with a terminal, and connect this terminal to it.

    The command waits until the job runs; Ctrl-C aborts the operation meanwhile. Then every key goes to the job; three times Ctrl-] within a
    second leaves it. The exit status is that of the job's command. If this command ends or loses its connection, the job ends too, after
    the grace time of its node (60 s unless the administrator changed it). The job sees `TERM`, `LANG`, `LC_ALL` and the variables that
    `--env` names.

    Examples:

        headrace shell

        headrace shell --gpu 1 --cpu 4 --memory 16G --pool vision

        headrace shell --time-limit 2h -- python3

    Parameters
    ----------
    command
        Program and arguments. Default: bash.
    pool
        A configured pool or its path, or a new name for an ephemeral pool. Default: the placement rules of the tree decide.
    """
    if not has_terminal():
        raise BadInput.because(
            "stdin", "this command needs a terminal. Without a terminal use: headrace run --follow -- COMMAND"
        )
    names = operation_options or OperationOptions()
    if names.spec is not None:
        raise BadInput.because("--spec", "this command takes no file. `headrace run` starts operations from files")
    spec = shell_spec(command or _SHELL, pool, job_options or JobOptions(), share_options or ShareOptions(), names)
    packed = pack_up(job_options.upload if job_options is not None else None)

    async def work(client: Client, screen: Screen) -> int:
        with named_options():
            whole = await completed(spec, packed, client, None)
            operation = await start_operation(screen, client, whole, packed, names.id)
        screen.say(f"operation {operation.id}")
        return await _stay(client, screen, operation)

    return talk(common, work, bears_restarts=True)


def shell_spec(
    command: Sequence[str], pool: str | None, jobs: JobOptions, share: ShareOptions, names: OperationOptions
) -> OperationSpec:
    """Return the spec of an operation with one job that has a terminal.

    The job is not retried unless --tries says so. Raises `BadInput`.
    """
    environment = [*(name for name in _OF_THE_TERMINAL if name in os.environ), *(jobs.env or [])]
    tries = 1 if jobs.tries is None and jobs.max_failed_job_count is None else jobs.tries
    spec = spec_of_options(
        command, pool, replace(jobs, env=environment, tries=tries), share_options=share, operation_options=names
    )
    # The signal is SIGHUP, because interactive shells ignore SIGTERM.
    return msgspec.structs.replace(spec, terminal=True, interrupt_signal=InterruptSignal.SIGHUP)


async def _stay(client: Client, screen: Screen, operation: Operation) -> int:
    """Wait for the job, connect to its terminal, and return the exit status. If the terminal is left first, the operation is aborted."""
    ended = False
    try:
        node = await _node_of_start(client, screen, operation)
        if node is None:
            screen.say(f"operation {operation.id} is aborted, because its job had not started")
            return Exit.INTERRUPTED
        async with client.sessions.terminal(operation.id, node, size=window()) as session:
            with raw_terminal():
                status = await converse(session, is_terminal=True)
            ended = session.end is not None
            await _tell_end(screen, operation, session)
        return status
    finally:
        if not ended:
            with anyio.CancelScope(shield=True), suppress(Unanswered, Refused):
                await operation.abort("its terminal was left")


async def _node_of_start(client: Client, screen: Screen, operation: Operation) -> str | None:
    """Return the node of the job once it runs, or None after Ctrl-C. Raises `Refused` if the operation ends before."""
    node: str | None = None
    with Status("waiting for the job to start", console=screen.err) as status:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_signal, tasks.cancel_scope)
            pause_s = _FIRST_PAUSE_S
            while node is None:
                node = await client.sessions.node_of(operation.id)
                if node is None:
                    view = await operation.view()
                    if view.state in FINAL_STATES:
                        node = await client.sessions.last_node_of(operation.id)
                        if node is None:
                            state = f"{view.state} ({view.reason})"
                            raise Refused(WrongState("operation", operation.id, state, "a job that runs"))
                        break
                    status.update(f"waiting for the job to start: {await _why(operation, waiting_words(view))}")
                    await anyio.sleep(pause_s)
                    pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
            tasks.cancel_scope.cancel()
    return node


async def _why(operation: Operation, words: str) -> str:
    """Return why the job does not run yet. `words` is the reason that admission gives; if it is empty, the allocator is asked."""
    if words:
        return words
    with suppress(Unanswered, Refused):
        return next(iter((await operation.places()).reasons), "")
    return ""


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def _tell_end(screen: Screen, operation: Operation, session: Session) -> None:
    """Say why the process did not start, or why it was ended. Nothing is said if the process ended by itself.

    A job that was preempted would be retried, with no person at its terminal. So the operation is aborted if it is not over.
    """
    if session.end is None:
        screen.say("left the terminal", style="yellow")
        return
    reason = session.end.reason
    if session.end.exit_code is None and not reason:
        with suppress(Unanswered, Refused):
            view = await _view_at_the_end(operation)
            if view.state not in FINAL_STATES:
                view = await operation.abort("its job was interrupted, and the shell in it is gone")
            reason = view.reason
    if reason:
        screen.say(reason, style="red")


async def _view_at_the_end(operation: Operation) -> OperationView:
    """Return the view once the operation is over, or after a few seconds. If the operation is not over by then, its job will be retried."""
    with anyio.move_on_after(_END_S):
        return await operation.wait()
    return await operation.view()


def _job_number(_: object, tokens: Sequence[Token]) -> int:
    """Parse the number of a job. Raises `BadInput` if it is not a number: people forget it if the operation has only one job."""
    try:
        return int(tokens[0].value)
    except ValueError:
        expected = "the number of a job before `--`, such as: headrace op exec ID 0 -- bash"
        raise BadInput("job", tokens[0].value, expected) from None


def exec_(
    operation: str,
    job: Annotated[int, Parameter(converter=_job_number)],
    /,
    *command: Annotated[str, Parameter(negative=())],
    terminal: Annotated[bool | None, Parameter(name=["--terminal", "-t"], negative=["--no-terminal"])] = None,
    common: Common | None = None,
) -> int:
    """Run a command beside a running job, in its cgroup, environment, working folder and account, and in its container if it has one.

    The command uses the stdin, stdout and stderr of `op exec`, and `op exec` ends with the command's exit status. With a terminal every
    key goes to the command. The command ends with the job, and if `op exec` ends or loses its connection. What it uses counts as used by
    the job.

    Examples:

        headrace op exec 69201a4f-0c1d2e3f4a5b 0 -- nvidia-smi

        headrace op exec 69201a4f-0c1d2e3f4a5b 0 -- bash

        headrace op exec 69201a4f-0c1d2e3f4a5b 7 -- tar c results > results.tar

    Parameters
    ----------
    operation
        The operation's id, or the beginning of the id.
    job
        The job, by its index from 0.
    command
        Program and arguments.
    terminal
        Give the command a terminal. Default: if stdin and stdout are terminals.
    """
    index = at_least("job", job, 0)
    if not command:
        raise BadInput.because(
            "command",
            "no command is given. Write a program and its arguments after `--`, such as: headrace op exec ID 0 -- bash",
        )
    is_terminal = has_terminal() if terminal is None else terminal

    async def work(client: Client, screen: Screen) -> int:
        name = await whole_id(client, operation)
        size, term = (window(), os.environ.get("TERM", "")) if is_terminal else (None, "")
        async with client.sessions.exec(name, command, job=index, size=size, term=term) as session:
            if is_terminal and has_terminal():
                with raw_terminal():
                    status = await converse(session, is_terminal=True)
            else:
                status = await converse(session, is_terminal=is_terminal)
            if session.end is not None and session.end.reason:
                screen.say(session.end.reason, style="red")
        return status

    return talk(common, work, bears_restarts=True)
