"""Wait for an operation on a terminal: progress on stderr, and the end in words.

Ctrl-C ends the waiting and prints how to go on. The operation runs on, as jobs of a scheduler do when a terminal
closes. With `--abort-on-interrupt`, Ctrl-C aborts the operation and waits for its end. A second Ctrl-C leaves at once.
"""

from __future__ import annotations

import signal
from collections import deque

import anyio
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from headrace.archives import Packed
from headrace.client import Client, ClientError, Operation, Refused
from headrace.errors import in_one_line
from headrace.wire.files import Archive
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import OperationState, OperationView
from headrace_cli.commands.operations.job_output import file_words, print_output
from headrace_cli.commands.operations.tables import (
    account_words,
    failed_runs,
    failure_lines,
    retry_rule_words,
    waiting_words,
)
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen

#: Seconds between two requests for the running jobs, which are only displayed. The end of the operation is reported without polling.
_POLL_S = 1.0
_WITHOUT_BAR_S = 10.0
#: Upper bound of the lines that are shown from the end of the stdout of a failed job.
_LINES_OF_STDOUT = 10
#: Bytes that are read from the end of the stdout of a failed job.
_BYTES_OF_STDOUT = 2048


class _Display:
    """Progress on stderr: a bar on a terminal, otherwise a line from time to time."""

    def __init__(self, screen: Screen, *, silent: bool) -> None:
        self._screen = screen
        self.live = screen.err.is_terminal and not silent
        self.bar = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=screen.err,
            expand=False,
            transient=True,
            disable=not self.live,
        )
        self._task: TaskID | None = None
        self._running = 0
        self._reason = ""
        self._view: OperationView | None = None
        self._said = ""
        self._has_told_failure = False
        #: Reason of the failure that was already printed; empty: no failure was printed.
        self.told = ""

    def on_view(self, view: OperationView) -> None:
        self._view = view
        if view.last_failures and not self._has_told_failure and view.state is OperationState.RUNNING:
            self._has_told_failure = True
            self._tell_first_failure(view)
        self._draw()

    def _tell_first_failure(self, view: OperationView) -> None:
        """Print the first failure at once. Otherwise users would learn only after all retries what is wrong."""
        self.told = view.last_failures[-1].reason
        for line in failure_lines(view.last_failures[-1]):
            self._screen.say(line)
        spec = view.spec
        if words := retry_rule_words(spec):
            self._screen.say(words)
        if view.last_failures[-1].result is JobResult.TIMED_OUT:
            self._screen.say("jobs that time out are not retried (--time-limit)")
        elif spec.tries:
            self._screen.say(f"tries of each job: {spec.tries} (--tries)")
        else:
            most = spec.max_failed_job_count
            self._screen.say(f"failed jobs are retried until {most} runs have failed (--max-failed-job-count)")

    def on_places(self, running: int, reasons: list[str]) -> None:
        self._running = running
        self._reason = reasons[0] if reasons and not running else ""
        self._draw()

    def words(self) -> str:
        view = self._view
        if view is None:
            return ""
        running = min(self._running, view.open_jobs)
        parts = [f"{view.completed_jobs} of {view.spec.job_count} done", f"{running} running"]
        parts += [f"{view.failed_jobs} failed"] if view.failed_jobs else []
        parts += [f"{view.timed_out_jobs} timed out"] if view.timed_out_jobs else []
        parts += [f"{view.pausing_jobs} to be retried"] if view.pausing_jobs else []
        parts += [f"{view.given_up_jobs} given up"] if view.given_up_jobs else []
        reason = _suspended_words(view) or waiting_words(view) or self._reason
        return ", ".join(parts) + (f"; {reason}" if reason else "")

    def say_now(self) -> None:
        """Print a line of progress if there is no bar, unless it repeats the last line."""
        words = self.words()
        if not self.live and words and words != self._said:
            self._said = words
            self._screen.say(words)

    def _draw(self) -> None:
        view = self._view
        if view is None:
            return
        if self._task is None:
            self._task = self.bar.add_task("", total=view.spec.job_count)
        running = min(self._running, view.open_jobs)
        words = f"{running} running" + (f", [red]{view.failed_jobs} failed[/red]" if view.failed_jobs else "")
        words += f", [red]{view.timed_out_jobs} timed out[/red]" if view.timed_out_jobs else ""
        if reason := _suspended_words(view) or waiting_words(view) or self._reason:
            words = f"waiting: {reason}"
        self.bar.update(self._task, completed=view.completed_jobs, description=words)


def _suspended_words(view: OperationView) -> str:
    """Return a text that says how to go on if the first failure suspended the operation; else an empty text."""
    return f"suspended by {view.suspended_for}: headrace op resume {view.operation}" if view.suspended_for else ""


async def follow(screen: Screen, operation: Operation, *, abort_on_interrupt: bool, several: bool | None = None) -> int:
    """Wait until the operation is over and return the exit status.

    Unless `several` is None, the output of the jobs is printed as it arrives. True puts the index of the job before
    each line.
    """
    with_output = several is not None
    final: OperationView | None = None
    interrupted = 0
    display = _Display(screen, silent=with_output)
    with display.bar:
        async with anyio.create_task_group() as tasks:

            async def watch_interrupts() -> None:
                nonlocal interrupted
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    async for _ in signals:
                        interrupted += 1
                        if not abort_on_interrupt or interrupted > 1:
                            tasks.cancel_scope.cancel()
                            return
                        tasks.start_soon(_abort, screen, operation)

            tasks.start_soon(watch_interrupts)
            if several is not None:
                lines = operation.logs(both=True, follow=True)
                await print_output(screen, lines, several=several, both=True)
            else:
                tasks.start_soon(_refresh, operation, display)
            final = await operation.wait(display.on_view)
            tasks.cancel_scope.cancel()
    if final is None:
        before = f"{operation.id} is not over. Follow it:"
        screen.say(f"{before}  headrace op wait {operation.id}", whole=True)
        screen.say(f"{'End it:':>{len(before)}}  headrace op abort {operation.id}", whole=True)
        return Exit.INTERRUPTED
    if screen.json:
        screen.show_line(final, "")
    await tell_end(screen, operation, final, with_output=not with_output, told=display.told)
    if interrupted:
        return Exit.INTERRUPTED
    return Exit.DONE if final.state is OperationState.COMPLETED else Exit.FAILED


async def _abort(screen: Screen, operation: Operation) -> None:
    screen.say(f"aborting {operation.id}; Ctrl-C again exits without waiting for the end")
    try:
        await operation.abort("Ctrl-C at the terminal that waited for it")
    except (ClientError, Refused) as error:
        screen.say(f"the operation could not be aborted: {error}", style="red")


async def _refresh(operation: Operation, display: _Display) -> None:
    waited_s = _WITHOUT_BAR_S - _POLL_S
    while True:
        try:
            places = await operation.places()
            display.on_places(places.running_jobs, places.reasons)
        except (ClientError, Refused):
            pass  # the bar can go on without this answer; the wait gets the end of the operation by itself
        if waited_s >= _WITHOUT_BAR_S:
            waited_s = 0.0
            display.say_now()
        await anyio.sleep(_POLL_S)
        waited_s += _POLL_S


async def tell_end(
    screen: Screen, operation: Operation, view: OperationView, *, with_output: bool = True, told: str = ""
) -> None:
    """Print how the operation ended. If it failed, also print the last failure with the end of its output.

    `told` is the reason of a failure that was printed before, which is not printed again.
    """
    reason = in_one_line(view.reason.replace(told, "reason above") if told else view.reason)
    style = "green" if view.state is OperationState.COMPLETED else "red"
    jobs = f"{view.completed_jobs} of {view.spec.job_count} jobs completed"
    failed = f", {failed_runs(view)}" if view.failed_jobs else ""
    failed += f", {view.timed_out_jobs} timed out" if view.timed_out_jobs else ""
    if view.accounts:
        failed += f", run as {', '.join(account_words(each) for each in view.accounts)}"
    screen.say(f"{operation.id} {view.state.value}: {jobs}{failed}" + (f" ({reason})" if reason else ""), style=style)
    if not with_output:
        return
    if view.state is OperationState.COMPLETED:
        screen.say(file_words(view.spec) or f"its output: headrace op logs {operation.id}", whole=True)
    if view.state is OperationState.COMPLETED or not view.last_failures:
        return
    last = view.last_failures[-1]
    for line in failure_lines(last, told + view.reason):
        screen.say(line)
    if last.not_started:
        return
    stdout = await _end_of_stdout(operation, last)
    if stdout:
        screen.say("the end of its stdout:")
        for text in stdout:
            screen.say(f"  {text}")
    screen.say(f"its stderr: headrace op logs {operation.id} --job {last.index} --stderr", whole=True)


async def _end_of_stdout(operation: Operation, end: JobEnd) -> list[str]:
    """Return the last lines that a job wrote to stdout. Empty if its node does not answer."""
    lines: deque[str] = deque(maxlen=_LINES_OF_STDOUT)
    try:
        async for line in operation.logs(end.index, attempt=end.attempt, tail_bytes=_BYTES_OF_STDOUT):
            lines.append(line.text)
    except (ClientError, Refused):
        pass  # the stderr arrived with the end of the job and is printed above
    return list(lines)


async def send_files(screen: Screen, client: Client, packed: Packed) -> Archive:
    """Send the files of an operation, and show a progress bar on a terminal. Raises what `Files.send` raises."""
    bar = Progress(
        TextColumn("sending files"),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        console=screen.err,
        transient=True,
        disable=not screen.err.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=packed.archive.size_bytes)
        return await client.files.send(packed, lambda sent: bar.update(task, completed=sent))
