"""The command `headrace op rerun`: start an operation's jobs, or those that failed, again as a new operation."""

from __future__ import annotations

import msgspec

from headrace.client import Client
from headrace.errors import BadInput
from headrace.job_indexes import JobIndexes, indexes_text, parse_indexes
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import FINAL_STATES, OperationView
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
            raise BadInput("op rerun", view.operation, "an operation of yours: nobody else sees its command")
        indexes, count = view.spec.indexes, view.spec.job_count
        if failed:
            indexes, count = await _left(client, view)
        # The new operation waits for no other operation: those that the first run waited for have ended.
        spec = msgspec.structs.replace(
            view.spec,
            indexes=indexes,
            job_count=count,
            rerun_of=view.operation,
            trace="",
            after=[],
            after_each=None,
        )
        started = await client.start(spec)
        if waits.is_wanted:
            screen.say(f"operation {started.id}")
            return await waits.stay(screen, started, count)
        if started.answer is not None:
            screen.show_line(started.answer, started.id)
        return None

    return talk(common, work, bears_restarts=True)


async def _left(client: Client, view: OperationView) -> tuple[str, int]:
    """Return the indexes of the jobs that are not completed, and their number. Raises `BadInput` if there are none."""
    if view.spec.tasks:
        raise BadInput(
            "--failed", view.operation, "an operation without tasks; `op rerun` without --failed starts all jobs"
        )
    if view.state not in FINAL_STATES:
        raise BadInput("--failed", view.operation, f"an operation that is over; it is {view.state}")
    known = parse_indexes(view.spec.indexes) if view.spec.indexes else JobIndexes([range(view.spec.job_count)])
    numbers = [row.slot.index async for row in client.jobs(view.operation) if row.result in (None, *_NOT_DONE)]
    if not numbers:
        raise BadInput("--failed", view.operation, "an operation with a job that is not completed")
    indexes = [known.of_job(number) for number in numbers]
    return indexes_text(indexes), len(indexes)
