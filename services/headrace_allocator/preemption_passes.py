"""The shell of preemption under a YARN policy.

A pass examines the tree and plans preemptions (`preemption/yarn/passes`). This module runs each pass in several turns of the event loop,
and records how long the pass took.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio.lowlevel

from headrace.runtime.clock import Clock
from headrace.runtime.engine import Figure, Outcome
from headrace.runtime.shell import LengthsOfTime
from headrace_allocator.effects import Effect
from headrace_allocator.preemption.yarn.passes import YarnPasses

#: Number of nodes or operations that are examined between two turns of the event loop; 50 take some 3 ms.
_STEPS: Final = 50


class PreemptionPasses:
    """Runs passes when they are due."""

    def __init__(self, engine: YarnPasses, clock: Clock, perform: Callable[[Outcome[bool, Effect]], bool]) -> None:
        """`perform` performs the effects of an outcome."""
        self._engine = engine
        self._clock = clock
        self._perform = perform
        self._lengths = LengthsOfTime(
            "preemption_passes", "Durations of the passes of a YARN policy, without the turns of other tasks."
        )

    async def run(self) -> None:
        """Run one pass, if one is due."""
        more, took_ms = self._engine.is_due(self._clock.now()), 0.0
        if not more:
            return
        while more:
            began = self._clock.now()
            more = self._perform(self._engine.on_due(_STEPS, began))
            took_ms += (self._clock.now().steady_ns - began.steady_ns) / 1e6
            await anyio.lowlevel.checkpoint()
        self._lengths.note(took_ms)

    def figures(self) -> list[Figure]:
        """Return the metrics of the durations of passes."""
        return self._lengths.figures()
