"""The layer between the bus and one engine: it passes messages and the time to the engine, performs the engine's effects, serves
its metrics and runs its checks.

    receive -> engine.on_<message>(message, now) -> perform the effects in their order -> answer

Each service's own shell defines how its effects are performed. This module has what all shells share.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import anyio

from headrace.bus import Message
from headrace.common_wakeups import until_beat
from headrace.obs.logging import logger, lost_lines
from headrace.runtime.clock import Clock
from headrace.runtime.endpoints import Caller, CallerKind, Endpoints
from headrace.runtime.engine import Check, Engine, Figure, FigureKind, Histogram, Moment, Outcome, counter, gauge
from headrace.runtime.metrics import Details, no_details
from headrace.runtime.role import Role
from headrace.runtime.service import Runtime
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.figures import FiguresAnswer, FiguresRequest

A = TypeVar("A")
E = TypeVar("E")

FIGURES_PERIOD_S: Final = 60.0
#: Seconds between two checks for pauses of the loop. A pause that is shorter than this may lie between two checks and be missed,
#: but more frequent checks would cost an idle service more.
PAUSE_LOOK_S: Final = 1.0
_BOUNDS_MS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0)


class Shell(Generic[E]):
    """The part of a service's shell that is the same for every engine."""

    def __init__(
        self,
        service: str,
        engine: Engine,
        clock: Clock,
        endpoints: Endpoints,
        *,
        perform: Callable[[E], None] | None = None,
        figures: Callable[[], list[Figure]] = list,
        more_checks: Sequence[Check] = (),
    ) -> None:
        """Connect an engine to the bus.

        `perform` starts one effect and never waits. `figures` returns the service's own metrics, beside the engine's;
        `more_checks` check what the service keeps outside of the engine.
        """
        self._service = service
        self._engine = engine
        self._clock = clock
        self._endpoints = endpoints
        self._perform = perform
        self._role: Role | None = None
        self._instance = ""
        self._figures = figures
        self._of_presence: Callable[[], list[Figure]] = list
        self._more_checks = more_checks
        self._checks: Iterator[Check] = iter(())
        #: Number of invariants found broken; anything but 0 is a defect.
        self.broken_invariants = 0
        self.pauses = LoopPauses()

    def now(self) -> Moment:
        """Return the current time, to pass to the engine with a message."""
        return self._clock.now()

    def perform(self, outcome: Outcome[A, E]) -> A:
        """Perform the effects of an outcome in their order. Return its answer."""
        for effect in outcome.effects:
            assert self._perform is not None, "the effects of this engine are performed by its caller"
            self._perform(effect)
        return outcome.answer

    def figures(self) -> list[Figure]:
        """Return the metrics of the engine, of the service and of its request handling."""
        return [
            *self._engine.figures(),
            *self._figures(),
            *self._endpoints.figures(),
            *self._of_presence(),
            counter(
                "broken_invariants",
                "invariants",
                self.broken_invariants,
                "Broken invariants of the state that were found. Each is a defect.",
            ),
            counter("log_lines_lost", "lines", lost_lines(), "Lines of this log that could not be written."),
            *self.pauses.figures(),
        ]

    async def watch(
        self, runtime: Runtime[Any], role: Role | None = None, details: Details = no_details, *, instance: str = ""
    ) -> None:
        """Serve the metrics, log them, and check one structure of the engine or the service every second. Runs until cancelled.

        `role` is the role that this process leads. `details` are served at `/metrics` only. `instance` names the process;
        by default its settings name it.
        """
        self._instance = instance or runtime.settings.instance_name
        bus = runtime.bus
        self._role = role
        self._of_presence = runtime.presence.figures
        runtime.metrics.report(role, self.figures, details)
        if role is not None:
            runtime.readiness.ready(f"leads {role.name} in term {role.term}")
        await bus.serve(subjects.FIGURES, self._on_figures, statistics=self._plain_figures)
        asked = subjects.user("*", "service.figures")
        await self._endpoints.serve(asked, FiguresRequest, CallerKind.USER, self._on_figures_asked, slow=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_looking)
            while True:
                await anyio.sleep(FIGURES_PERIOD_S)
                logger().info("figures", **self._plain_figures())

    def check_next(self) -> list[str]:
        """Check the next structure of the engine or service, starting over after the last. A broken invariant is logged as an error."""
        check = next(self._checks, None)
        if check is None:
            self._checks = chain(self._engine.checks(), self._more_checks)
            return []
        broken = check()
        for words in broken:
            self.broken_invariants += 1
            logger().error("broken invariant", what=words)
        return broken

    async def _keep_looking(self) -> None:
        """Every second measure a pause of the loop, then check one structure. With one task for both, an idle process wakes only
        once a second.
        """
        while True:
            await self.pauses.measure()
            began_s = anyio.current_time()
            self.check_next()
            self.pauses.note((anyio.current_time() - began_s) * 1000)

    def _plain_figures(self) -> dict[str, object]:
        return {figure.name: _plain(figure) for figure in self.figures()}

    async def _on_figures(self, message: Message) -> bytes:
        return encode(self._told())

    async def _on_figures_asked(self, _request: FiguresRequest, _caller: Caller) -> FiguresAnswer:
        return self._told()

    def _told(self) -> FiguresAnswer:
        role, term = ("", 0) if self._role is None else (self._role.name, self._role.term)
        return FiguresAnswer(self._service, self.figures(), role, term, self._instance)


class LengthsOfTime:
    """A histogram of durations."""

    def __init__(self, name: str, says: str) -> None:
        self._name = name
        self._says = says
        self._counts = [0] * (len(_BOUNDS_MS) + 1)
        self._sum_ms = 0.0
        self.longest_ms = 0.0

    def note(self, length_ms: float) -> None:
        """Add one duration."""
        self._counts[bisect.bisect_left(_BOUNDS_MS, length_ms)] += 1
        self._sum_ms += length_ms
        self.longest_ms = max(self.longest_ms, length_ms)

    def figures(self) -> list[Figure]:
        """Return the histogram as a metric."""
        lengths = Histogram(_BOUNDS_MS, tuple(self._counts), self._sum_ms)
        return [Figure(self._name, "ms", FigureKind.HISTOGRAM, lengths, self._says)]


class LoopPauses(LengthsOfTime):
    """The pauses in which the event loop kept its tasks waiting. A pause is the time by which a sleeping task wakes too late.

    Long pauses do harm: the server disconnects a client that reads nothing for ten seconds, and the messages in flight are lost.
    """

    def __init__(self) -> None:
        super().__init__("loop_pauses", "Pauses in which the process handled no message.")

    def figures(self) -> list[Figure]:
        """Return the longest pause since the process started, and the histogram of all pauses."""
        says = "Longest time since the start in which the process handled no message."
        return [gauge("longest_loop_pause", "ms", self.longest_ms, says), *super().figures()]

    async def measure(self) -> None:
        """Sleep until the next look, and record how late the task woke."""
        due_s = await until_beat(PAUSE_LOOK_S)
        self.note(max(0.0, anyio.current_time() - due_s) * 1000)


def _plain(figure: Figure) -> float | dict[str, object]:
    if isinstance(figure.value, Histogram):
        return {"bounds": figure.value.bounds, "counts": figure.value.counts, "sum": figure.value.sum}
    return figure.value
