"""The command `headrace op rerun`: start all jobs of an operation, or only its failed jobs, again as a new operation."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.client import Client
from headrace.errors import BadInput
from headrace.job_indexes import JobIndexes, indexes_text, parse_indexes
from headrace.job_tasks import with_tasks
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import FINAL_STATES, OperationSpec, OperationView
from headrace.wire.tasks import Task, ranges_of
from headrace_cli.commands.operations.operation_id import whole_id
from headrace_cli.commands.operations.run import WaitOptions
from headrace_cli.session import Common, Switch, talk
from headrace_cli.show.screen import Screen

#: Results of jobs that did not do their work.
_NOT_DONE = (JobResult.FAILED, JobResult.ABORTED, JobResult.LOST, JobResult.TIMED_OUT)


def rerun(
    operation: str,
    /,
    *,
    failed: Switch = False,
    wait_options: WaitOptions | None = None,
    common: Common | None = None,
) -> int:
    """Start an operation's jobs again, as a new operation with the same command, files, lines and options.

    The jobs see the same index and line as before. The new operation names the old one in `headrace op get`.

    Examples of use:

        headrace op rerun 69201a4f-0c1d2e3f4a5b --failed

        headrace op rerun 69201a4f --wait

    Parameters
    ----------
    operation
        The operation's id, or the beginning of the id.
    failed
        Only the jobs that are not completed. The operation must be over.
    """
    waits = wait_options or WaitOptions()

    async def work(client: Client, screen: Screen) -> int | None:
        view = await client.get(await whole_id(client, operation))
        if view.is_withheld:
            raise BadInput.because(
                "op rerun",
                f"operation {view.operation} belongs to another user. Only its owner can see its command and run it again",
            )
        spec = await _left(client, view) if failed else view.spec
        # The new operation waits for no other operation: all operations that the old operation waited for have ended.
        spec = msgspec.structs.replace(
            spec,
            rerun_of=view.operation,
            trace="",
            after=[],
            after_each=None,
        )
        started = await client.start(spec)
        if waits.is_wanted:
            screen.say(f"operation {started.id}")
            return await waits.stay(screen, started, spec.job_count)
        if started.answer is not None:
            screen.show_line(started.answer, started.id)
        return None

    return talk(common, work, bears_restarts=True)


async def _left(client: Client, view: OperationView) -> OperationSpec:
    """Return the spec with only the jobs that are not completed. Raises `BadInput` if there are none."""
    if view.state not in FINAL_STATES:
        raise BadInput.because(
            "--failed", f"operation {view.operation} is {view.state}; --failed needs an operation that has ended"
        )
    spec = view.spec
    known = parse_indexes(spec.indexes) if spec.indexes else JobIndexes([range(spec.job_count)])
    numbers = [row.slot.index async for row in client.jobs(view.operation) if row.result in (None, *_NOT_DONE)]
    if not numbers:
        raise BadInput.because(
            "--failed", f"operation {view.operation} has no job to repeat: all its jobs are completed"
        )
    indexes = indexes_text(map(known.of_job, numbers))
    if spec.tasks:
        return msgspec.structs.replace(with_tasks(spec, _tasks_of(spec.tasks, numbers)), indexes=indexes)
    return msgspec.structs.replace(spec, indexes=indexes, job_count=len(numbers))


def _tasks_of(tasks: Sequence[Task], numbers: Sequence[int]) -> list[Task]:
    """Return the tasks with only the jobs in `numbers`. Each job sees the same index in its task as in the old operation."""
    found = []
    for task, indexes in zip(tasks, ranges_of(tasks), strict=True):
        first = indexes.start if task.first_index is None else task.first_index
        if count := sum(number in indexes for number in numbers):
            found.append(msgspec.structs.replace(task, job_count=count, first_index=first))
    return found
