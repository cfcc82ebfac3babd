"""The requests that keep `headrace top` up to date. The larger an answer is, the less often it is requested."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio
from rich.console import RenderableType
from rich.text import Text

from headrace.bus import BusError
from headrace.client import Client, Refused, Unanswered
from headrace.client.asking import PATIENCE_S
from headrace.client.logs import LogWishes
from headrace.durations import format_duration
from headrace.ids import OperationId, PoolName
from headrace.runtime.clock import SystemClock
from headrace.wire.happenings import AllocationPreempted, Happening
from headrace.wire.logs import LogStream
from headrace.wire.nodes import NodeChange, NodeList, OperationProgress
from headrace.wire.operations import OperationState, OperationView
from headrace.wire.pools import PoolList
from headrace_cli.commands.node_tables import node_facts
from headrace_cli.commands.operations.explain import explained
from headrace_cli.commands.operations.explain_page import explanation
from headrace_cli.commands.operations.job_output import output_notes
from headrace_cli.commands.pools.get_page import pool_facts
from headrace_cli.commands.pools.pool import preemptions_of
from headrace_cli.show.tables import printable
from headrace_cli.top.cluster_report import MOST_OPERATIONS, ClusterReport
from headrace_cli.top.view import Action, Opened

#: Upper bound of the operations for which all shares are requested. With more operations, only the shares of starving operations are
#: requested.
_FEW_OPERATIONS: Final = 200
_MOST_PREEMPTIONS: Final = 50
#: An answer with at most this many rows is requested at each interval, an answer with twice as many at every second interval.
_ROWS_AN_INTERVAL: Final = 200
#: Upper bound of the lines of stdout, and of those of stderr, on the page of an operation's output.
_MOST_LINES: Final = 500
#: Bytes that are read from the end of each log for the page of an operation's output.
_MOST_BYTES_OF_A_LOG: Final = 16 * 1024
#: Longest time in seconds to read stdout for the page of an operation's output. Reading stderr may take the same time again.
_MOST_READING_S: Final = 2.0
#: Seconds to wait for the progress of jobs. After that, operations are shown without it.
_PROGRESS_S: Final = 1.0
_WHO_ANSWERS: Final = {
    "shares": "fair_share",
    "operations": "admission",
    "nodes": "the allocator",
    "pauses": "fair_share",
}
#: Number of intervals between two requests for pauses. Pauses change seldom: administrators set them by hand.
_SELDOM: Final = 5


class Asking:
    """Keeps the parts of the report up to date, and calls `on_change` after each answer."""

    def __init__(self, client: Client, interval_s: float, on_change: Callable[[], None]) -> None:
        self._client = client
        self._interval_s = interval_s
        self._on_change = on_change
        self._clock = SystemClock()
        self._shares: PoolList | None = None
        self._operations: list[OperationView] | None = None
        self._nodes: NodeList | None = None
        self._progress: dict[OperationId, OperationProgress] = {}
        self._pauses: list[str] = []
        self._preemptions: deque[AllocationPreempted] = deque(maxlen=_MOST_PREEMPTIONS)
        #: Unix time in milliseconds of the last answer for each part of the report.
        self._told_ms: dict[str, int] = {}
        #: Reason why the newest request for a part was not answered. Parts that were answered have no entry.
        self._silent: dict[str, str] = {}
        #: True while a page hides the report; no requests for the report are sent then.
        self.is_hidden = False

    def report(self) -> ClusterReport:
        """Return all that is known now."""
        return ClusterReport(
            at_ms=self._clock.wall_ms(),
            shares=self._shares,
            operations=self._operations,
            nodes=self._nodes.nodes if self._nodes is not None else None,
            recovering=self._nodes.recovering if self._nodes is not None else "",
            progress=self._progress,
            pauses=self._pauses,
            preemptions=list(self._preemptions),
            silent={part: self._words(part, why) for part, why in self._silent.items()},
        )

    async def once(self) -> None:
        """Request each part once. The report says which parts were not answered. Raises `Unanswered` if no part was answered."""
        async with anyio.create_task_group() as tasks:
            for part, ask in self._questions().items():
                tasks.start_soon(self._try, part, ask)
        if len(self._silent) == len(self._questions()):
            raise Unanswered("top", PATIENCE_S, "; ".join(self._silent.values()), maybe_done=False)

    async def keep_up(self) -> None:
        """Request the parts again and again, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for part, ask in self._questions().items():
                tasks.start_soon(self._ask_again, part, ask)
            tasks.start_soon(self._client.happenings.follow_decisions, self._on_decision)

    async def page(self, opened: Opened, width: int) -> list[RenderableType]:
        """Return the page of the opened pool, operation or node. Raises `Refused`, `Unanswered`, `BusError`."""
        lines: list[RenderableType]
        match opened.kind:
            case "output":
                lines = await self._output(opened.name, _MOST_LINES)
            case "operation":
                lines = [*explanation(*await explained(self._client, opened.name), self._clock.wall_ms())]
            case "pool":
                answer = await self._client.pools.list(opened.name, outlook_of=f"/{opened.name}")
                told = await preemptions_of(self._client, PoolName(opened.name))
                frame, outlooks = answer.frame, answer.outlooks
                lines = [line for pool in answer.pools for line in pool_facts(pool, frame, width, told, (), outlooks)]
            case _:
                nodes = (await self._client.nodes()).nodes
                lines = [node_facts(node) for node in nodes if node.node == opened.name] or ["it is no longer a node"]
        return lines + [Text(words, style="yellow") for words in self._client.silence.words()]

    async def act(self, action: Action) -> str:
        """Carry out a confirmed action. Return what was done. Raises `Unanswered`, `Refused` and `BusError`."""
        if action.verb == "abort":
            aborted = await self._client.abort(action.name)
            return f"operation {aborted.operation}: {aborted.state.value}"
        drained = action.verb == "drain"
        changed = await self._client.change_node(action.name, NodeChange.DRAIN if drained else NodeChange.UNDRAIN)
        return f"node {changed.node}: {'no new jobs start on it' if drained else 'jobs may start on it again'}"

    async def _output(self, operation: str, most: int) -> list[RenderableType]:
        """Return the ends of the outputs, job by job: at most `most` lines of stdout, and at most `most` lines of stderr."""
        several = (await self._client.get(operation)).spec.job_count > 1
        lines: list[RenderableType] = []
        for stream in LogStream:
            ends: list[str] = []
            wishes: LogWishes = {"stderr": stream is LogStream.STDERR, "tail_bytes": _MOST_BYTES_OF_A_LOG}
            with anyio.move_on_after(_MOST_READING_S) as reading:
                async for line in self._client.logs(operation, **wishes):
                    before = f"{line.index}: " if several else ""
                    ends += [before + note for note in output_notes(line)]
                    if not line.trouble:
                        ends.append(before + printable(line.raw.decode(errors="replace")))
                    if len(ends) >= most:
                        break
            if reading.cancelled_caught or len(ends) >= most:
                ends.append(f"[there may be more: headrace op logs {operation}]")
            lines += [Text(stream.value, style="bold"), *(Text(each) for each in ends or ["nothing"])]
        return lines

    def _questions(self) -> dict[str, Callable[[], Awaitable[float]]]:
        """Return the functions that request each part. Each function returns the number of intervals until its next call."""
        return {
            "shares": self._ask_shares,
            "operations": self._ask_operations,
            "nodes": self._ask_nodes,
            "pauses": self._ask_pauses,
        }

    async def _ask_again(self, part: str, ask: Callable[[], Awaitable[float]]) -> None:
        while True:
            intervals = 1.0 if self.is_hidden else await self._try(part, ask)
            await anyio.sleep(intervals * self._interval_s)

    async def _try(self, part: str, ask: Callable[[], Awaitable[float]]) -> float:
        intervals = 1.0
        try:
            with anyio.fail_after(PATIENCE_S):
                intervals = await ask()
            self._told_ms[part] = self._clock.wall_ms()
            self._silent.pop(part, None)
        except (Unanswered, TimeoutError):
            self._silent[part] = f"{_WHO_ANSWERS[part]} does not answer"
        except (Refused, BusError) as error:
            self._silent[part] = str(error)
        self._on_change()
        return intervals

    def _words(self, part: str, why: str) -> str:
        told_ms = self._told_ms.get(part)
        if told_ms is None:
            return why
        return f"{why}: {part} are shown as of {format_duration(self._clock.wall_ms() - told_ms)} ago"

    async def _ask_shares(self) -> float:
        known = self._shares or await self._client.pools.list()
        many = not known.pools or known.pools[0].operation_count > _FEW_OPERATIONS
        self._shares = await self._client.pools.list(operations=True, only_starving=many)
        return _intervals(len(self._shares.pools) + len(self._shares.operations))

    async def _ask_operations(self) -> float:
        listed = await self._client.list(live=True, limit=MOST_OPERATIONS)
        own = self._client.trees.own
        self._operations = [each for each in listed if any(place.tree == own for place in each.placements)]
        running = [each.operation for each in self._operations if each.state is OperationState.RUNNING]
        # No node is asked: the allocator knows the progress from heartbeats. If the allocator is silent, the part `nodes` says so.
        with suppress(Unanswered, Refused), anyio.move_on_after(_PROGRESS_S):
            told = await self._client.pools.progress(running) if running else []
            self._progress = {each.operation: each for each in told}
        return _intervals(len(self._operations))

    async def _ask_nodes(self) -> float:
        self._nodes = await self._client.nodes()
        return _intervals(len(self._nodes.nodes))

    async def _ask_pauses(self) -> float:
        (tree,) = (await self._client.trees.list(self._client.trees.own)).trees
        self._pauses = tree.options.pauses()
        return _SELDOM

    def _on_decision(self, decision: Happening) -> None:
        if isinstance(decision, AllocationPreempted):
            self._preemptions.appendleft(decision)
            self._on_change()


def _intervals(rows: int) -> float:
    return max(1.0, rows / _ROWS_AN_INTERVAL)
