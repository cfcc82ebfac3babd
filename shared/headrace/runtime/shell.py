"""The frame between the bus and one engine: moments in, effects out, figures and checks beside.

    receive -> engine.on_<message>(message, moment) -> perform the effects in their order -> answer

A service's own shell says how each effect is performed; this one holds what is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import anyio

from headrace.bus import Bus, Message
from headrace.obs.logging import logger
from headrace.runtime.border import Border
from headrace.runtime.clock import Clock
from headrace.runtime.engine import Check, Engine, Figure, Histogram, Moment, Outcome, counter
from headrace.runtime.role import Role
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.figures import FiguresAnswer

__all__ = ["Shell"]

A = TypeVar("A")
E = TypeVar("E")

#: From the check of one structure to that of the next.
CHECK_PERIOD_S: Final = 1.0
FIGURES_PERIOD_S: Final = 60.0


class Shell(Generic[E]):
    """What every service's shell does for its engine."""

    def __init__(
        self,
        service: str,
        engine: Engine,
        clock: Clock,
        border: Border,
        *,
        perform: Callable[[E], None] | None = None,
        role: Role | None = None,
        figures: Callable[[], list[Figure]] = list,
    ) -> None:
        """`figures` are the service's own beside the engine's; `perform` starts one effect and never waits."""
        self._service = service
        self._engine = engine
        self._clock = clock
        self._border = border
        self._perform = perform
        self._role = role
        self._figures = figures
        self._checks: Iterator[Check] = iter(())
        #: Invariants that were found broken; never anything but 0.
        self.broken_invariants = 0

    def moment(self) -> Moment:
        """The moment to hand to the engine with a message."""
        return self._clock.moment()

    def take(self, outcome: Outcome[A, E]) -> A:
        """Performs the effects in their order; returns the answer."""
        for effect in outcome.effects:
            assert self._perform is not None, "effects of this engine are performed by whoever called it"
            self._perform(effect)
        return outcome.answer

    def figures(self) -> list[Figure]:
        """The figures of the engine, of the service and of its border."""
        return [
            *self._engine.figures(),
            *self._figures(),
            *self._border.figures(),
            counter("broken_invariants", "invariants", self.broken_invariants),
        ]

    async def watch(self, bus: Bus) -> None:
        """Answers and logs the figures, and looks at one structure a second; runs until cancelled."""
        await bus.serve(subjects.FIGURES, self._on_figures, statistics=self._plain_figures)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_checking)
            while True:
                await anyio.sleep(FIGURES_PERIOD_S)
                logger().info("figures", **self._plain_figures())

    def check_next(self) -> list[str]:
        """Checks the next structure of the engine, round and round; a broken invariant is an alarm."""
        check = next(self._checks, None)
        if check is None:
            self._checks = self._engine.checks()
            return []
        broken = check()
        for words in broken:
            self.broken_invariants += 1
            logger().error("broken invariant", what=words)
        return broken

    async def _keep_checking(self) -> None:
        while True:
            await anyio.sleep(CHECK_PERIOD_S)
            self.check_next()

    def _plain_figures(self) -> dict[str, object]:
        return {figure.name: _plain(figure) for figure in self.figures()}

    async def _on_figures(self, message: Message) -> bytes:
        role, term = ("", 0) if self._role is None else (self._role.name, self._role.term)
        return encode(FiguresAnswer(self._service, self.figures(), role, term))


def _plain(figure: Figure) -> float | dict[str, object]:
    if isinstance(figure.value, Histogram):
        return {"bounds": figure.value.bounds, "counts": figure.value.counts, "sum": figure.value.sum}
    return figure.value
