"""The command `headrace demo`: start a separate Headrace, give it work, print the results, and leave nothing behind."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import anyio

from headrace.client import Client, connect
from headrace.counted import counted
from headrace.errors import HeadraceError, first_error
from headrace.installation.extras import require
from headrace.runtime.clock import SystemClock
from headrace_cli.demo.comeback import Comeback
from headrace_cli.demo.course import Course
from headrace_cli.demo.plan import JOBS, LENDER, NODES, POOLS, RETURNING, STARVATION_TIMEOUT_MS
from headrace_cli.demo.show import DemoBars, given_up_table, result_table
from headrace_cli.demo.usage_watch import watch_usage
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen
from headrace_cli.up import process_marks
from headrace_cli.up.options import UpOptions
from headrace_cli.up.supervisor import Ready, run_up


def demo() -> int:
    """Show Headrace at work: sixty jobs in three pools, then a pool that comes back and gets its share.

    It runs a separate Headrace on a free port, in a temporary folder that it removes. Another Headrace may run beside it.

    The exit status is 0 only if all of this is true: every job completed, every log could be read, each pool got its share,
    each preempted job was beyond the fair share of its operation, and no process is left running.
    """
    require("up", "`headrace demo`")
    screen = Screen()
    state = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    keep = True
    try:
        show = _Demo(screen, state)
        outcome = anyio.run(run_up, UpOptions(state=state, port=0, nodes=NODES), show.on_word, show.when_ready)
        if outcome.interrupted:
            keep = False
            screen.say("the demo was stopped before its end", style="yellow")
            return Exit.INTERRUPTED
        if outcome.crashes:
            show.troubles.append(f"{counted(outcome.crashes, 'process')} ended unexpectedly")
        show.troubles.extend(f"still running: {process.role} {process.pid}" for process in process_marks.find(state))
        keep = not outcome.ready or bool(show.troubles)
        for trouble in show.troubles:
            screen.say(f"problem: {trouble}", style="red")
        return Exit.FAILED if keep else Exit.DONE
    finally:
        if keep:
            screen.say(f"logs are kept in {state / 'logs'}")
        else:
            shutil.rmtree(state, ignore_errors=True)


class _Demo:
    """The callbacks of the supervisor: for a message to print, and for the moment when everything is ready."""

    def __init__(self, screen: Screen, state: Path) -> None:
        self._screen = screen
        self._state = state
        self._over = False
        self.troubles: list[str] = []

    def on_word(self, words: str) -> None:
        """Print the supervisor's messages until the demo is over."""
        if not self._over:
            self._screen.say(words)

    async def when_ready(self, ready: Ready) -> bool:
        """Run all acts. Returns True, because everything must be stopped afterwards."""
        nodes = ", ".join(f"{node.node} (cpu {node.total.cpu / 100:g})" for node in ready.nodes)
        self._screen.say(f"ready in {ready.took_s:.1f} s; nodes {nodes}")
        self._screen.say(f"{JOBS} jobs that count primes, in the pools {', '.join(pool.name for pool in POOLS)}")
        clock = SystemClock()
        begun_s = clock.steady_s()
        try:
            async with connect(state=self._state) as client:
                bars = DemoBars(self._screen)
                with bars.bars:
                    course = Course(client, clock, bars)
                    async with watch_usage(self._state, clock, course.on_usage):
                        await course.run()
                self._show_shares(course, clock.steady_s() - begun_s)
                await self._comeback(client)
        except* HeadraceError as group:
            self.troubles.extend(str(first_error(error)) for error in group.exceptions)
        self._over = True
        return True

    def _show_shares(self, course: Course, took_s: float) -> None:
        self.troubles.extend(course.troubles)
        self._screen.say(
            f"done in {took_s:.1f} s; averages over the {course.averages.seconds:.1f} s in which jobs of all pools ran and waited"
        )
        self._screen.print(result_table(course.averages, course.done))

    async def _comeback(self, client: Client) -> None:
        self._screen.say(
            f"{RETURNING.pool} is idle and {LENDER.pool} takes all cores with {LENDER.jobs} longer jobs; "
            f"then {RETURNING.pool} comes back with {RETURNING.jobs}"
        )
        comeback = Comeback(client)
        await comeback.run()
        self.troubles.extend(comeback.troubles)
        self._screen.say(
            f"{RETURNING.pool} was below its fair share for {STARVATION_TIMEOUT_MS / 1000:g} s (by default 30 s), so the "
            f"youngest jobs of {LENDER.pool} were preempted for it; they ran again:"
        )
        self._screen.print(given_up_table(comeback.given_up))
